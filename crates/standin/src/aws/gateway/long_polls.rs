//! Long polls of SQS. AWS answers a receive that waits as soon as a message arrives; the emulator looks for
//! messages ten times a second. So the gateway does the waiting: it asks the emulator with short polls,
//! whenever a call has changed the queue, and now and then in case another gateway has. The SQS of this
//! process waits by itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::aws::call::Call;
use crate::http::Answer;
use crate::sync::locked;

use super::upstream::Upstreams;

/// How often a queue is looked at that no call of this gateway has changed: for messages that another
/// gateway has sent, or that become visible again.
const LOOK: Duration = Duration::from_millis(500);

/// The operations after which a receiver may get another answer.
const CHANGES: [&str; 7] = [
    "SendMessage",
    "SendMessageBatch",
    "ChangeMessageVisibility",
    "ChangeMessageVisibilityBatch",
    "SetQueueAttributes",
    "DeleteQueue",
    "PurgeQueue",
];

/// The receivers that wait, by queue.
#[derive(Debug, Default)]
pub(super) struct LongPolls(Mutex<HashMap<String, Arc<Notify>>>);

impl LongPolls {
    /// Forwards a call to SQS. A receive that waits is answered when there is a message, and when
    /// its time is over.
    pub(super) async fn forward(&self, upstreams: &Upstreams, call: &Call) -> Answer {
        if upstreams.sqs_waits() {
            return upstreams.sqs(call).await;
        }
        let request = call.json().unwrap_or(&Value::Null);
        let queue = queue_name(request).map(|name| self.of(name));
        let wait = request["WaitTimeSeconds"].as_u64().map(Duration::from_secs);
        match (queue, wait) {
            (Some(queue), Some(wait)) if call.operation == "ReceiveMessage" && !wait.is_zero() => {
                receive(upstreams, call, request.clone(), (&queue, wait)).await
            }
            (queue, _) => {
                let answer = upstreams.sqs(call).await;
                if let Some(queue) = queue.filter(|_| CHANGES.contains(&&*call.operation)) {
                    queue.notify_waiters();
                }
                answer
            }
        }
    }

    fn of(&self, queue: &str) -> Arc<Notify> {
        locked(&self.0).entry(queue.to_owned()).or_default().clone()
    }
}

async fn receive(
    upstreams: &Upstreams,
    call: &Call,
    mut request: Value,
    (queue, wait): (&Notify, Duration),
) -> Answer {
    request["WaitTimeSeconds"] = 0.into();
    let short = call.to_sqs("ReceiveMessage", request);
    let until = Instant::now() + wait;
    loop {
        // Before the look, so that a change during it is not missed.
        let mut changed = std::pin::pin!(queue.notified());
        changed.as_mut().enable();
        let answer = upstreams.sqs(&short).await;
        let left = until.saturating_duration_since(Instant::now());
        if !is_empty(&answer) || left.is_zero() {
            return answer;
        }
        // Whichever comes first, the queue is looked at.
        drop(timeout(left.min(LOOK), changed).await);
    }
}

/// Whether an answer is a success without messages.
fn is_empty(answer: &Answer) -> bool {
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    answer.status.is_success() && body["Messages"].as_array().is_none_or(Vec::is_empty)
}

/// The queue that a request names by its URL, which ends with the account and the name.
pub(super) fn queue_name(request: &Value) -> Option<&str> {
    request["QueueUrl"].as_str().and_then(|url| url.rsplit('/').next())
}
