//! What SSM and Secrets Manager ask IAM about a call. Both are asked for secrets by name or ARN, as the
//! Service Authorization Reference lists it.

use serde_json::Value;

use super::arns::Arns;
use super::{Authorization, Context};

/// Everything that a call needs.
pub(crate) fn authorizations(operation: &str, request: &Value, arns: &Arns) -> Vec<Authorization> {
    let text = |name: &str| request[name].as_str().unwrap_or_default();
    let asked = |service: &str, resource: String| {
        let action = format!("{service}:{operation}");
        Authorization { action, resource, context: Context::default() }
    };
    match operation {
        "GetSecretValue" => vec![asked("secretsmanager", arns.secret(text("SecretId")))],
        "GetParameters" => {
            let names = request["Names"].as_array().into_iter().flatten();
            names.filter_map(Value::as_str).map(|it| asked("ssm", arns.parameter(it))).collect()
        }
        _ => vec![asked("ssm", arns.parameter(text("Name")))],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_about_one_secret() {
        let arns = Arns::new("us-east-1");
        let parameter = "arn:aws:ssm:us-east-1:000000000000:parameter/ondeck/key";
        let secret = "arn:aws:secretsmanager:us-east-1:000000000000:secret:key-AbCdEf";
        for (operation, request, action, resource) in [
            ("GetParameter", json!({ "Name": "/ondeck/key" }), "ssm:GetParameter", parameter),
            ("GetParameters", json!({ "Names": ["/ondeck/key"] }), "ssm:GetParameters", parameter),
            (
                "GetParameters",
                json!({ "Names": ["/aws/service/image"] }),
                "ssm:GetParameters",
                "arn:aws:ssm:us-east-1::parameter/aws/service/image",
            ),
            (
                "GetSecretValue",
                json!({ "SecretId": secret }),
                "secretsmanager:GetSecretValue",
                secret,
            ),
        ] {
            let asked = authorizations(operation, &request, &arns);
            assert_eq!(asked.len(), 1);
            assert_eq!((asked[0].action.as_str(), asked[0].resource.as_str()), (action, resource));
        }
    }
}
