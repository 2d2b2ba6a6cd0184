//! SQS delivers at least once. What it would deliver a second time is sent a second time, and
//! goes by the first one's id.

use std::collections::HashMap;
use std::sync::Mutex;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::aws::call::{Call, Content};

use super::route::with_body;
use super::upstream::Upstreams;
use crate::http::Answer;

use crate::sync::locked;

/// Which messages are copies, and of which.
#[derive(Debug, Default)]
pub(super) struct Duplicates(Mutex<HashMap<String, String>>);

impl Duplicates {
    /// Sends a copy of everything that an answer delivers. The copy of a copy goes by the first
    /// one's id as well, because that is the id it was delivered under.
    pub(super) async fn make(&self, upstreams: &Upstreams, call: &Call, answer: &Answer) {
        let Some(request) = call.json() else { return };
        for message in messages(answer) {
            let copy = json!({
                "QueueUrl": request["QueueUrl"],
                "MessageBody": message["Body"],
                "DelaySeconds": 0,
            });
            let sent = upstreams.sqs(&send(call, copy)).await;
            let sent: Value = serde_json::from_slice(&sent.body).unwrap_or_default();
            if let (Some(copy), Some(original)) =
                (sent["MessageId"].as_str(), message["MessageId"].as_str())
            {
                locked(&self.0).insert(copy.to_owned(), original.to_owned());
            }
        }
    }

    /// Gives copies the id of what they are copies of.
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

/// A request to send, by whoever has received.
fn send(call: &Call, content: Value) -> Call {
    let mut call = call.clone();
    let target = hyper::header::HeaderValue::from_static("AmazonSQS.SendMessage");
    call.headers.insert("x-amz-target", target);
    call.operation = "SendMessage".to_owned();
    call.body = Bytes::from(content.to_string());
    call.content = Content::Json(content);
    call
}
