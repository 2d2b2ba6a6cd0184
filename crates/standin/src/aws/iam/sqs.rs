//! What SQS asks IAM about a call.
//!
//! The actions and resources are those of the Service Authorization Reference, "Actions, resources,
//! and condition keys for Amazon SQS". A batch needs the permission of a single message: Amazon SQS
//! Developer Guide, "Amazon SQS API permissions". The tags of a queue are condition keys of the calls that
//! name it, and those of a request are keys of the calls that set them: the same guide, "ABAC condition
//! keys for Amazon SQS". AWS does not document whether creating a queue that exists carries the queue's
//! tags; here it does, because the stricter reading must not be what a policy relies on.

use std::collections::BTreeMap;

use serde_json::Value;

use super::arns::Arns;
use super::{Authorization, Context};

/// The tags of a queue.
pub(crate) type Tags = BTreeMap<String, String>;

/// Everything that a call needs. `queue_tags` are those of the queue that it names, if that exists.
pub(crate) fn authorizations(
    operation: &str,
    request: &Value,
    arns: &Arns,
    queue_tags: &Tags,
) -> Vec<Authorization> {
    let action = operation.strip_suffix("Batch").unwrap_or(operation);
    let url = request["QueueUrl"].as_str();
    // A URL ends with the account and the name of the queue.
    let name = url.and_then(|url| url.rsplit('/').next()).or_else(|| request["QueueName"].as_str());
    let resource = name.map_or("*".to_owned(), |name| arns.queue(name));
    let mut context = Context::default();
    let tags = ["tags", "Tags"].iter().find_map(|name| request[name].as_object());
    let tags: Vec<(&str, &str)> = tags
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
        .collect();
    super::request_tags(&mut context, tags.iter().copied());
    for (key, value) in queue_tags {
        context.set(&format!("aws:ResourceTag/{key}"), &**value);
    }
    let asked = |action: &str| Authorization {
        action: format!("sqs:{action}"),
        resource: resource.clone(),
        context: context.clone(),
    };
    match action {
        // A queue with tags also needs the permission to tag it.
        "CreateQueue" if !tags.is_empty() => vec![asked(action), asked("TagQueue")],
        _ => vec![asked(action)],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn batches_need_the_permission_of_one_message() {
        let told = |operation: &str, request: Value| {
            let asked = authorizations(operation, &request, &Arns::new("us-east-1"), &Tags::new());
            let short = |it: &Authorization| format!("{} {}", it.action, it.resource);
            asked.iter().map(short).collect::<Vec<_>>()
        };
        let queue = "arn:aws:sqs:us-east-1:000000000000:q-large";
        let url = json!({ "QueueUrl": "http://127.0.0.1:4566/000000000000/q-large" });
        for (operation, action) in [
            ("SendMessageBatch", "sqs:SendMessage"),
            ("DeleteMessageBatch", "sqs:DeleteMessage"),
            ("ChangeMessageVisibilityBatch", "sqs:ChangeMessageVisibility"),
            ("ReceiveMessage", "sqs:ReceiveMessage"),
        ] {
            assert_eq!(told(operation, url.clone()), [format!("{action} {queue}")]);
        }
        let named = json!({ "QueueName": "q-large" });
        assert_eq!(told("GetQueueUrl", named), [format!("sqs:GetQueueUrl {queue}")]);
        let tagged = json!({ "QueueName": "q-large", "tags": { "a": "b" } });
        let both = ["CreateQueue", "TagQueue"].map(|action| format!("sqs:{action} {queue}"));
        assert_eq!(told("CreateQueue", tagged), both);
        assert_eq!(told("ListQueues", json!({})), ["sqs:ListQueues *"]);
    }

    #[test]
    fn the_tags_of_queue_and_request_are_keys() {
        let request = json!({ "QueueUrl": "http://sqs/0/q", "Tags": { "a": "new" } });
        let tags = Tags::from([("a".to_owned(), "old".to_owned())]);
        let asked = authorizations("TagQueue", &request, &Arns::new("us-east-1"), &tags);
        let value = |key: &str| asked[0].context.values(key).map(<[String]>::to_vec);
        assert_eq!(value("aws:ResourceTag/a"), Some(vec!["old".to_owned()]));
        assert_eq!(value("aws:RequestTag/a"), Some(vec!["new".to_owned()]));
        assert_eq!(value("aws:TagKeys"), Some(vec!["a".to_owned()]));
    }
}
