//! What CloudWatch Logs asks IAM about a call.
//!
//! A refusal to create a stream names the stream as the resource, as users have reported it
//! (aws-solutions/aws-crr-monitor, issue 8), although the Service Authorization Reference lists the
//! group for that action.

use serde_json::Value;

use super::arns::Arns;
use super::{Authorization, Context};

/// Everything that a call needs.
pub(crate) fn authorizations(operation: &str, request: &Value, arns: &Arns) -> Vec<Authorization> {
    let text = |name: &str| request[name].as_str().unwrap_or_default();
    let resource = arns.log_stream(text("logGroupName"), text("logStreamName"));
    let action = format!("logs:{operation}");
    vec![Authorization { action, resource, context: Context::default() }]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_about_a_stream() {
        let request = json!({ "logGroupName": "/ondeck", "logStreamName": "pool/i-1" });
        let asked = authorizations("PutLogEvents", &request, &Arns::new("us-east-1"));
        let stream = "arn:aws:logs:us-east-1:000000000000:log-group:/ondeck:log-stream:pool/i-1";
        assert_eq!(asked.len(), 1);
        assert_eq!(
            (asked[0].action.as_str(), asked[0].resource.as_str()),
            ("logs:PutLogEvents", stream)
        );
    }
}
