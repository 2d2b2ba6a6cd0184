//! Duplicate deliveries, which SQS allows: it delivers at least once. The gateway sends a copy of
//! the message and gives the copy the original's message id.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::{Value, json};

use crate::aws::call::Call;

use super::route::with_body;
use super::upstream::Upstreams;
use crate::http::Answer;

use crate::sync::locked;

/// The message id of each copy, with that of its original.
#[derive(Debug, Default)]
pub(super) struct Duplicates(Mutex<HashMap<String, String>>);

impl Duplicates {
    /// Sends a copy of every message that an answer delivers. The copy of a copy gets the first
    /// original's id as well, because the copy was delivered under that id.
    pub(super) async fn make(&self, upstreams: &Upstreams, call: &Call, answer: &Answer) {
        let Some(request) = call.json() else { return };
        for message in messages(answer) {
            let copy = json!({
                "QueueUrl": request["QueueUrl"],
                "MessageBody": message["Body"],
                "DelaySeconds": 0,
            });
            let sent = upstreams.sqs(&call.to_sqs("SendMessage", copy)).await;
            let sent: Value = serde_json::from_slice(&sent.body).unwrap_or_default();
            if let (Some(copy), Some(original)) =
                (sent["MessageId"].as_str(), message["MessageId"].as_str())
            {
                locked(&self.0).insert(copy.to_owned(), original.to_owned());
            }
        }
    }

    /// Replaces the message ids of copies in an answer by those of their originals.
    pub(super) fn rename(&self, call: &Call, answer: Answer) -> Answer {
        let copies = locked(&self.0);
        if copies.is_empty() || call.operation != "ReceiveMessage" {
            return answer;
        }
        let mut messages = messages(&answer);
        let mut any = false;
        for message in &mut messages {
            let original = message["MessageId"].as_str().and_then(|id| copies.get(id)).cloned();
            if let Some(original) = original {
                message["MessageId"] = original.into();
                any = true;
            }
        }
        if any { with_body(answer, json!({ "Messages": messages }).to_string()) } else { answer }
    }
}

fn messages(answer: &Answer) -> Vec<Value> {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    body["Messages"].as_array().cloned().unwrap_or_default()
}
