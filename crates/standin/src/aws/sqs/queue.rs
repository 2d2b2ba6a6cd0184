//! A queue and its messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use md5::{Digest as _, Md5};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use crate::aws::iam::ACCOUNT;
use crate::aws::xml::request_id;

use super::attributes::{DELAY, LARGEST_MESSAGE, RETENTION, VISIBILITY, WAIT, defaults};
use super::refusal::Refusal;
use super::requests::{ChangeMessageVisibility, DeleteMessage, ReceiveMessage, SendMessage};

/// The longest that a message is hidden or delayed, and that a receive waits, in seconds.
const LONGEST_VISIBILITY: i64 = 43_200;
const LONGEST_DELAY: i64 = 900;
const LONGEST_WAIT: i64 = 20;
/// The most messages that one receive gives.
const MOST_MESSAGES: i64 = 10;
/// What precedes the numbers in a receipt.
const RECEIPT: &str = "receipt";

#[derive(Debug)]
pub(super) struct Queue {
    /// Different for each queue, also for those that have the same name one after the other.
    number: u64,
    arn: String,
    attributes: BTreeMap<String, String>,
    pub(super) tags: BTreeMap<String, String>,
    created: SystemTime,
    modified: SystemTime,
    /// By their numbers, which is the order of sending.
    messages: BTreeMap<u64, Message>,
    next: u64,
    changes: Arc<Notify>,
}

#[derive(Debug)]
struct Message {
    id: String,
    body: String,
    digest: String,
    sent: (Instant, SystemTime),
    /// From when on it can be received.
    visible: Instant,
    /// How often it was received. Only the receipt of the last time is valid.
    deliveries: u64,
    first_delivered: Option<SystemTime>,
}

/// A receive, with the defaults of its queue.
#[derive(Debug)]
pub(super) struct Asked {
    most: usize,
    hidden: Duration,
    pub(super) wait: Duration,
    /// Which attributes of messages the answer has.
    names: Vec<String>,
}

/// What a look at the queue has given.
#[derive(Debug)]
pub(super) enum Received {
    Messages(Vec<Value>),
    /// There is no message now. The next one that is hidden or delayed can be received from `next` on.
    Nothing {
        next: Option<Instant>,
    },
}

/// What a receipt stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Delivery {
    queue: u64,
    message: u64,
    number: u64,
}

impl Queue {
    pub(super) fn new(
        arn: String,
        attributes: BTreeMap<String, String>,
        tags: BTreeMap<String, String>,
        now: SystemTime,
    ) -> Queue {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut all = defaults();
        all.extend(attributes);
        Queue {
            number: COUNT.fetch_add(1, Ordering::Relaxed),
            arn,
            attributes: all,
            tags,
            created: now,
            modified: now,
            messages: BTreeMap::new(),
            next: 0,
            changes: Arc::default(),
        }
    }

    /// Refuses to be created again with other attributes. Those that are not given do not count.
    pub(super) fn check_same(&self, attributes: &BTreeMap<String, String>) -> Result<(), Refusal> {
        match attributes.iter().find(|(name, value)| self.attributes.get(*name) != Some(value)) {
            None => Ok(()),
            Some((name, _)) => {
                let message = format!(
                    "A queue already exists with the same name and a different value for \
                     attribute {name}"
                );
                Err(Refusal::new("QueueNameExists", message))
            }
        }
    }

    /// All attributes, with the numbers of messages.
    pub(super) fn attributes(&self, now: Instant) -> BTreeMap<&str, String> {
        let (mut visible, mut delayed, mut in_flight) = (0, 0, 0);
        for message in self.messages.values() {
            match message {
                message if message.visible <= now => visible += 1,
                Message { deliveries: 0, .. } => delayed += 1,
                _ => in_flight += 1,
            }
        }
        let mut all: BTreeMap<&str, String> =
            self.attributes.iter().map(|(name, value)| (&**name, value.clone())).collect();
        all.extend([
            ("QueueArn", self.arn.clone()),
            ("CreatedTimestamp", since_epoch(self.created).as_secs().to_string()),
            ("LastModifiedTimestamp", since_epoch(self.modified).as_secs().to_string()),
            ("ApproximateNumberOfMessages", visible.to_string()),
            ("ApproximateNumberOfMessagesDelayed", delayed.to_string()),
            ("ApproximateNumberOfMessagesNotVisible", in_flight.to_string()),
        ]);
        all
    }

    pub(super) fn set(&mut self, attributes: BTreeMap<String, String>, now: SystemTime) {
        self.attributes.extend(attributes);
        self.modified = now;
        self.announce();
    }

    /// Removes messages that are older than the queue keeps them.
    pub(super) fn expire(&mut self, now: Instant) {
        let kept = seconds(self.number_of(RETENTION));
        let is_old = |message: &Message| message.sent.0 + kept <= now;
        while self.messages.first_entry().is_some_and(|first| is_old(first.get())) {
            self.messages.pop_first();
        }
    }

    pub(super) fn send(&mut self, message: SendMessage, now: Instant) -> Result<Value, Refusal> {
        let SendMessage { message_body: body, delay_seconds: delay, .. } = message;
        if body.is_empty() {
            return Err(Refusal::missing("MessageBody"));
        }
        if !body.chars().all(is_allowed) {
            let message = "The message contains characters outside the allowed set.";
            return Err(Refusal::new("InvalidMessageContents", message));
        }
        let largest = self.number_of(LARGEST_MESSAGE);
        if i64::try_from(body.len()).unwrap_or(i64::MAX) > largest {
            let message = format!(
                "One or more parameters are invalid. Reason: Message must be shorter than \
                 {largest} bytes."
            );
            return Err(Refusal::new("InvalidParameterValue", message));
        }
        let delay = bounded(DELAY, delay, 0, LONGEST_DELAY)?;
        let delay = seconds(delay.unwrap_or_else(|| self.number_of(DELAY)));
        let (id, digest) = (request_id(), hex(&Md5::digest(&body)));
        let answer = json!({ "MessageId": id, "MD5OfMessageBody": digest });
        let message = Message {
            id,
            body,
            digest,
            sent: (now, SystemTime::now()),
            visible: now + delay,
            deliveries: 0,
            first_delivered: None,
        };
        self.messages.insert(self.next, message);
        self.next += 1;
        self.announce();
        Ok(answer)
    }

    /// Checks a receive, and adds the defaults of the queue.
    pub(super) fn understand(&self, request: &ReceiveMessage) -> Result<Asked, Refusal> {
        let ReceiveMessage {
            max_number_of_messages, visibility_timeout, wait_time_seconds, ..
        } = *request;
        let most = bounded("MaxNumberOfMessages", max_number_of_messages, 1, MOST_MESSAGES)?;
        let hidden = bounded(VISIBILITY, visibility_timeout, 0, LONGEST_VISIBILITY)?;
        let wait = bounded("WaitTimeSeconds", wait_time_seconds, 0, LONGEST_WAIT)?;
        let names = [&request.attribute_names[..], &request.message_system_attribute_names];
        Ok(Asked {
            most: usize::try_from(most.unwrap_or(1)).unwrap_or(1),
            hidden: seconds(hidden.unwrap_or_else(|| self.number_of(VISIBILITY))),
            wait: seconds(wait.unwrap_or_else(|| self.number_of(WAIT))),
            names: names.concat(),
        })
    }

    /// Gives the visible messages that were sent first, and hides them.
    pub(super) fn receive(&mut self, asked: &Asked, now: Instant) -> Received {
        let queue = self.number;
        let visible = self.messages.iter_mut().filter(|(_, message)| message.visible <= now);
        let messages = visible.take(asked.most).map(|(number, message)| {
            message.visible = now + asked.hidden;
            message.deliveries += 1;
            message.first_delivered.get_or_insert_with(SystemTime::now);
            let delivery = Delivery { queue, message: *number, number: message.deliveries };
            message.to_json(delivery, &asked.names)
        });
        let messages: Vec<Value> = messages.collect();
        if messages.is_empty() {
            let next = self.messages.values().map(|message| message.visible).min();
            return Received::Nothing { next };
        }
        Received::Messages(messages)
    }

    /// Deletes the message of the last delivery. A receipt of an earlier one succeeds and does nothing.
    pub(super) fn delete(&mut self, request: DeleteMessage, _: Instant) -> Result<Value, Refusal> {
        let DeleteMessage { receipt_handle, .. } = request;
        let delivery = self.delivery(&receipt_handle)?;
        if self.is_last(delivery) {
            self.messages.remove(&delivery.message);
        }
        Ok(json!({}))
    }

    /// Hides the message of the last delivery from now on for so long, if it is still hidden.
    pub(super) fn change_visibility(
        &mut self,
        request: ChangeMessageVisibility,
        now: Instant,
    ) -> Result<Value, Refusal> {
        let ChangeMessageVisibility { receipt_handle, visibility_timeout, .. } = request;
        let hidden = bounded(VISIBILITY, visibility_timeout, 0, LONGEST_VISIBILITY)?;
        let hidden = seconds(hidden.ok_or_else(|| Refusal::missing(VISIBILITY))?);
        let delivery = self.delivery(&receipt_handle)?;
        let is_last = self.is_last(delivery);
        let Some(message) = self.messages.get_mut(&delivery.message).filter(|_| is_last) else {
            const REASON: &str =
                "Message does not exist or is not available for visibility timeout change.";
            return Err(Refusal::invalid("ReceiptHandle", receipt_handle, REASON));
        };
        if message.visible <= now {
            let message = "The specified message isn't in flight.";
            return Err(Refusal::new("MessageNotInflight", message));
        }
        message.visible = now + hidden;
        self.announce();
        Ok(json!({}))
    }

    /// Notified after each change by which a receiver may get another answer.
    pub(super) fn changes(&self) -> Arc<Notify> {
        self.changes.clone()
    }

    pub(super) fn announce(&self) {
        self.changes.notify_waiters();
    }

    /// What a receipt stands for. Refuses a text that is none, and the receipt of another queue.
    fn delivery(&self, receipt: &str) -> Result<Delivery, Refusal> {
        if receipt.is_empty() {
            return Err(Refusal::missing("ReceiptHandle"));
        }
        let Some(delivery) = Delivery::of(receipt) else {
            let message = "The input receipt handle is invalid.";
            return Err(Refusal::new("ReceiptHandleIsInvalid", message));
        };
        if delivery.queue != self.number {
            const REASON: &str = "The receipt handle is not of this queue.";
            return Err(Refusal::invalid("ReceiptHandle", receipt, REASON));
        }
        Ok(delivery)
    }

    fn is_last(&self, delivery: Delivery) -> bool {
        let message = self.messages.get(&delivery.message);
        message.is_some_and(|message| message.deliveries == delivery.number)
    }

    fn number_of(&self, attribute: &str) -> i64 {
        let value = self.attributes.get(attribute).and_then(|value| value.parse().ok());
        value.expect("each number has a default, and values are checked")
    }
}

impl Message {
    fn to_json(&self, delivery: Delivery, names: &[String]) -> Value {
        let mut json = json!({
            "MessageId": self.id,
            "ReceiptHandle": delivery.receipt(),
            "MD5OfBody": self.digest,
            "Body": self.body,
        });
        let millis = |time: SystemTime| since_epoch(time).as_millis().to_string();
        let known = [
            ("SenderId", ACCOUNT.to_owned()),
            ("SentTimestamp", millis(self.sent.1)),
            ("ApproximateReceiveCount", self.deliveries.to_string()),
            (
                "ApproximateFirstReceiveTimestamp",
                self.first_delivered.map(millis).unwrap_or_default(),
            ),
        ];
        let is_asked = |name: &str| names.iter().any(|asked| asked == name || asked == "All");
        let attributes = known.into_iter().filter(|(name, _)| is_asked(name));
        let attributes: Map<String, Value> =
            attributes.map(|(name, value)| (name.to_owned(), value.into())).collect();
        if !attributes.is_empty() {
            json["Attributes"] = attributes.into();
        }
        json
    }
}

impl Delivery {
    fn of(receipt: &str) -> Option<Delivery> {
        let mut parts = receipt.split('-');
        let is_ours = parts.next() == Some(RECEIPT);
        let mut number = || parts.next()?.parse().ok();
        let delivery = Delivery { queue: number()?, message: number()?, number: number()? };
        (is_ours && parts.next().is_none()).then_some(delivery)
    }

    fn receipt(self) -> String {
        let Delivery { queue, message, number } = self;
        format!("{RECEIPT}-{queue}-{message}-{number}")
    }
}

/// The characters that SQS allows in a message: those of XML 1.0.
fn is_allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// A number in a request, which must be within bounds if it is given.
fn bounded(
    parameter: &str,
    value: Option<i64>,
    least: i64,
    most: i64,
) -> Result<Option<i64>, Refusal> {
    match value {
        Some(value) if !(least..=most).contains(&value) => {
            Err(Refusal::out_of_range(parameter, value, least, most))
        }
        value => Ok(value),
    }
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or_default())
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
