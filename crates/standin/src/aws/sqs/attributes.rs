//! The attributes of a queue.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::queue::Queue;
use super::{Refusal, refusal, seconds};
use crate::aws::iam::ACCOUNT;

pub(super) const VISIBILITY: &str = "VisibilityTimeout";
pub(super) const RETENTION: &str = "MessageRetentionPeriod";
pub(super) const DELAY: &str = "DelaySeconds";

/// Each attribute that can be set, with its value unless it is.
const SETTABLE: [(&str, &str); 6] = [
    (DELAY, "0"),
    ("MaximumMessageSize", "1048576"),
    (RETENTION, "345600"),
    ("ReceiveMessageWaitTimeSeconds", "0"),
    ("SqsManagedSseEnabled", "true"),
    (VISIBILITY, "30"),
];

/// The attributes that can be set.
#[derive(Debug)]
pub(super) struct Attributes(BTreeMap<&'static str, String>);

impl Default for Attributes {
    fn default() -> Attributes {
        Attributes(SETTABLE.map(|(name, value)| (name, value.to_owned())).into())
    }
}

impl Attributes {
    /// Sets those of a request: all of them or, if one is unknown, none.
    pub(super) fn set(&mut self, given: &Value) -> Result<(), Refusal> {
        let mut next = self.0.clone();
        for (name, value) in given.as_object().into_iter().flatten() {
            let known = SETTABLE.iter().find(|(known, _)| known == name);
            let (Some((known, _)), Some(value)) = (known, value.as_str()) else {
                return Err(unknown(name));
            };
            if *known != "SqsManagedSseEnabled" && value.parse::<u64>().is_err() {
                let message = format!("Invalid value for the parameter {name}.");
                return Err(refusal("InvalidAttributeValue", message));
            }
            next.insert(known, value.to_owned());
        }
        self.0 = next;
        Ok(())
    }

    /// Whether these are those of a request, as far as it names any.
    pub(super) fn agrees(&self, given: &Value) -> bool {
        let mut given = given.as_object().into_iter().flatten();
        given.all(|(name, value)| self.0.get(name.as_str()).map(String::as_str) == value.as_str())
    }

    /// One that is a number of seconds.
    pub(super) fn seconds(&self, name: &str) -> Duration {
        seconds(self.0.get(name).and_then(|value| value.parse().ok()).unwrap_or_default())
    }
}

/// Answers a request for attributes by their names, or for all of them.
pub(super) fn get(
    request: &Value,
    (name, queue): (&str, &Queue),
    now: Instant,
) -> Result<Value, Refusal> {
    let all = all(name, queue, now);
    let mut found = Map::new();
    for wanted in request["AttributeNames"].as_array().into_iter().flatten() {
        match wanted.as_str().unwrap_or_default() {
            "All" => found.extend(all.clone()),
            wanted => {
                let value = all.get(wanted).ok_or_else(|| unknown(wanted))?;
                found.insert(wanted.to_owned(), value.clone());
            }
        }
    }
    Ok(json!({ "Attributes": found }))
}

fn all(name: &str, queue: &Queue, now: Instant) -> Map<String, Value> {
    let created = queue.created.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let [visible, held, delayed] = queue.counts(now);
    let mut all: Map<String, Value> =
        queue.attributes.0.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    for (name, number) in [
        ("ApproximateNumberOfMessages", visible as u64),
        ("ApproximateNumberOfMessagesNotVisible", held as u64),
        ("ApproximateNumberOfMessagesDelayed", delayed as u64),
        ("CreatedTimestamp", created),
        ("LastModifiedTimestamp", created),
    ] {
        all.insert(name.to_owned(), number.to_string().into());
    }
    all.insert("QueueArn".to_owned(), format!("arn:aws:sqs:us-east-1:{ACCOUNT}:{name}").into());
    all
}

fn unknown(name: &str) -> Refusal {
    refusal("InvalidAttributeName", format!("Unknown Attribute {name}."))
}
