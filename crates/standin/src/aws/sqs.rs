//! An SQS with standard queues in memory, for the operations that ondeck uses.
//!
//! It follows the Amazon SQS API Reference, with two differences. A receive never waits; the gateway does
//! (`long_polls`). Answers carry no digests of bodies and attributes, which the SDK for Rust does not
//! check.

mod attributes;
mod batch;
mod queue;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use self::attributes::Attributes;
use self::queue::Queue;
use crate::aws::call::{Call, Service};
use crate::aws::faults::answers;
use crate::aws::iam::ACCOUNT;
use crate::http::Answer;
use crate::sync::locked;

/// The most messages that a receive gives.
const MOST_MESSAGES: u64 = 10;
/// The most queues on a page of a list that does not ask for another number.
const PAGE: u64 = 1_000;

/// The queues of one account.
#[derive(Debug, Default)]
pub(crate) struct Sqs(Mutex<BTreeMap<String, Queue>>);

/// An error of the API.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    code: &'static str,
    message: String,
}

fn refusal(code: &'static str, message: impl Into<String>) -> Refusal {
    Refusal { code, message: message.into() }
}

fn invalid(parameter: &str, value: impl std::fmt::Display, reason: &str) -> Refusal {
    let message = format!("Value {value} for parameter {parameter} is invalid. Reason: {reason}");
    refusal("InvalidParameterValue", message)
}

impl Sqs {
    /// Answers a call at once.
    pub(crate) fn answer(&self, call: &Call) -> Answer {
        let empty = Value::Null;
        let request = call.json().unwrap_or(&empty);
        match self.perform(&call.operation, request, Instant::now()) {
            Ok(answer) => answers::done(answer.to_string()),
            Err(Refusal { code, message }) => answers::refusal(Service::Sqs, 400, code, &message),
        }
    }

    fn perform(&self, operation: &str, request: &Value, now: Instant) -> Result<Value, Refusal> {
        let mut queues = locked(&self.0);
        match operation {
            "CreateQueue" => return create(&mut queues, request),
            "ListQueues" => return Ok(list(&queues, request)),
            "GetQueueUrl" => {
                let name = text(request, "QueueName")?;
                let found = queues.contains_key(name).then(|| json!({ "QueueUrl": url(name) }));
                return found.ok_or_else(missing);
            }
            _ => {}
        }
        let address = text(request, "QueueUrl")?;
        let name = address.rsplit('/').next().unwrap_or_default();
        if operation == "DeleteQueue" {
            return queues.remove(name).map(|_| json!({})).ok_or_else(missing);
        }
        let queue = queues.get_mut(name).ok_or_else(missing)?;
        queue.drop_expired(now);
        on_queue(operation, request, (name, queue), now)
    }
}

fn on_queue(
    operation: &str,
    request: &Value,
    (name, queue): (&str, &mut Queue),
    now: Instant,
) -> Result<Value, Refusal> {
    match operation {
        "GetQueueAttributes" => attributes::get(request, (name, queue), now),
        "SetQueueAttributes" => {
            queue.attributes.set(&request["Attributes"])?;
            Ok(json!({}))
        }
        "ListQueueTags" => Ok(json!({ "Tags": queue.tags })),
        "TagQueue" => {
            queue.tags.extend(tags(&request["Tags"]));
            Ok(json!({}))
        }
        "SendMessage" => {
            let id = queue.send(request, now)?;
            Ok(json!({ "MessageId": id }))
        }
        "ReceiveMessage" => receive(request, queue, now),
        "DeleteMessage" => {
            queue.delete(text(request, "ReceiptHandle")?)?;
            Ok(json!({}))
        }
        "ChangeMessageVisibility" => {
            queue.hide(request, now)?;
            Ok(json!({}))
        }
        "SendMessageBatch" => {
            batch::each(request, |entry| Ok(json!({ "MessageId": queue.send(entry, now)? })))
        }
        "DeleteMessageBatch" => batch::each(request, |entry| {
            queue.delete(text(entry, "ReceiptHandle")?)?;
            Ok(json!({}))
        }),
        "ChangeMessageVisibilityBatch" => batch::each(request, |entry| {
            queue.hide(entry, now)?;
            Ok(json!({}))
        }),
        _ => Err(refusal("InvalidAction", format!("no stand-in for this: {operation}"))),
    }
}

fn create(queues: &mut BTreeMap<String, Queue>, request: &Value) -> Result<Value, Refusal> {
    let name = text(request, "QueueName")?;
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || name.len() > 80 || !name.chars().all(is_valid) {
        let reason =
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length";
        return Err(invalid("QueueName", name, reason));
    }
    let mut attributes = Attributes::default();
    attributes.set(&request["Attributes"])?;
    match queues.get(name) {
        // Only the attributes that the request names are compared.
        Some(existing) if !existing.attributes.agrees(&request["Attributes"]) => {
            let message =
                "A queue already exists with the same name and a different value for attribute";
            Err(refusal("QueueNameExists", message))
        }
        Some(_) => Ok(json!({ "QueueUrl": url(name) })),
        None => {
            let tags = tags(&request["tags"]);
            queues.insert(name.to_owned(), Queue::new(attributes, tags, SystemTime::now()));
            Ok(json!({ "QueueUrl": url(name) }))
        }
    }
}

/// The token of a page is the last name on it. Only a list that asks for a number of queues has one.
fn list(queues: &BTreeMap<String, Queue>, request: &Value) -> Value {
    let prefix = request["QueueNamePrefix"].as_str().unwrap_or_default();
    let after = request["NextToken"].as_str().unwrap_or_default();
    let most = request["MaxResults"].as_u64().unwrap_or(PAGE).min(PAGE);
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let is_meant = |name: &&String| name.starts_with(prefix) && name.as_str() > after;
    let mut names: Vec<&String> = queues.keys().filter(is_meant).take(most + 1).collect();
    let goes_on = names.len() > most && request["MaxResults"].is_u64();
    names.truncate(most);
    let urls: Vec<String> = names.iter().map(|name| url(name)).collect();
    match names.last().filter(|_| goes_on) {
        Some(last) => json!({ "QueueUrls": urls, "NextToken": last }),
        None => json!({ "QueueUrls": urls }),
    }
}

fn receive(request: &Value, queue: &mut Queue, now: Instant) -> Result<Value, Refusal> {
    let most = request["MaxNumberOfMessages"].as_u64().unwrap_or(1);
    if most == 0 || most > MOST_MESSAGES {
        let reason = "Must be between 1 and 10, if provided.";
        return Err(invalid("MaxNumberOfMessages", most, reason));
    }
    let hidden = match request["VisibilityTimeout"].as_u64() {
        Some(seconds) => queue::visibility(seconds)?,
        None => queue.attributes.seconds(attributes::VISIBILITY),
    };
    let messages = queue.receive(usize::try_from(most).unwrap_or_default(), hidden, now);
    // As SQS does, an empty answer has no list.
    Ok(if messages.is_empty() { json!({}) } else { json!({ "Messages": messages }) })
}

fn text<'a>(request: &'a Value, name: &str) -> Result<&'a str, Refusal> {
    let missing = || {
        let message = format!("The request must contain the parameter {name}.");
        refusal("MissingParameter", message)
    };
    request[name].as_str().ok_or_else(missing)
}

fn tags(given: &Value) -> BTreeMap<String, String> {
    let given = given.as_object().into_iter().flatten();
    given.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

fn url(name: &str) -> String {
    format!("http://sqs.localhost/{ACCOUNT}/{name}")
}

fn missing() -> Refusal {
    refusal("QueueDoesNotExist", "The specified queue does not exist.")
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

#[cfg(test)]
mod tests;
