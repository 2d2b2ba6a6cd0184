//! The messages of one queue.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::attributes::{self, Attributes};
use super::{Refusal, invalid, refusal, seconds, text};

/// The longest that a message can be hidden.
const LONGEST_HIDDEN_SECS: u64 = 12 * 60 * 60;
/// The longest that a message can be delayed.
const LONGEST_DELAY_SECS: u64 = 15 * 60;

#[derive(Debug)]
pub(super) struct Queue {
    pub(super) attributes: Attributes,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) created: SystemTime,
    /// By their numbers, which are in the order in which they were sent.
    messages: BTreeMap<u64, Message>,
    sent: u64,
}

#[derive(Debug)]
struct Message {
    id: String,
    body: String,
    sent: Instant,
    visible_from: Instant,
    /// How often it was received. The number of the last delivery is part of its receipt.
    deliveries: u64,
}

impl Queue {
    pub(super) fn new(
        attributes: Attributes,
        tags: BTreeMap<String, String>,
        created: SystemTime,
    ) -> Queue {
        Queue { attributes, tags, created, messages: BTreeMap::new(), sent: 0 }
    }

    /// Drops the messages that are older than the queue keeps them.
    pub(super) fn drop_expired(&mut self, now: Instant) {
        let kept = self.attributes.seconds(attributes::RETENTION);
        self.messages.retain(|_, message| now.saturating_duration_since(message.sent) < kept);
    }

    /// Adds the message of a request, and returns its id.
    pub(super) fn send(&mut self, request: &Value, now: Instant) -> Result<String, Refusal> {
        let body = text(request, "MessageBody")?;
        if body.is_empty() {
            return Err(refusal(
                "MissingParameter",
                "The request must contain the parameter MessageBody.",
            ));
        }
        let delay = match request["DelaySeconds"].as_u64() {
            Some(delay) if delay > LONGEST_DELAY_SECS => {
                return Err(invalid(
                    "DelaySeconds",
                    delay,
                    "DelaySeconds must be >= 0 and <= 900.",
                ));
            }
            Some(delay) => seconds(delay),
            None => self.attributes.seconds(attributes::DELAY),
        };
        self.sent += 1;
        let id = format!("00000000-0000-4000-8000-{:012x}", fastrand::u64(..1 << 48));
        let message = Message {
            id: id.clone(),
            body: body.to_owned(),
            sent: now,
            visible_from: now + delay,
            deliveries: 0,
        };
        self.messages.insert(self.sent, message);
        Ok(id)
    }

    /// Delivers up to `most` visible messages, and hides them.
    pub(super) fn receive(&mut self, most: usize, hidden: Duration, now: Instant) -> Vec<Value> {
        let visible = self.messages.iter_mut().filter(|(_, message)| message.visible_from <= now);
        let delivered = visible.take(most).map(|(number, message)| {
            message.deliveries += 1;
            message.visible_from = now + hidden;
            json!({
                "MessageId": message.id,
                "ReceiptHandle": format!("{number}/{}/{}", message.deliveries, message.id),
                "Body": message.body,
            })
        });
        delivered.collect()
    }

    /// Deletes a message by its last receipt. An older one does nothing, which is no error.
    pub(super) fn delete(&mut self, receipt: &str) -> Result<(), Refusal> {
        let receipt = Receipt::of(receipt)?;
        if self.messages.get(&receipt.message).is_some_and(|message| receipt.is_last(message)) {
            self.messages.remove(&receipt.message);
        }
        Ok(())
    }

    /// Changes how long a message stays hidden that was received with the receipt of a request and is
    /// hidden still.
    pub(super) fn hide(&mut self, request: &Value, now: Instant) -> Result<(), Refusal> {
        let given = text(request, "ReceiptHandle")?;
        let hidden = request["VisibilityTimeout"].as_u64().unwrap_or_default();
        let (receipt, hidden) = (Receipt::of(given)?, visibility(hidden)?);
        let message = self.messages.get_mut(&receipt.message);
        let message = message.filter(|it| receipt.is_last(it) && it.visible_from > now);
        let Some(message) = message else {
            let reason =
                "Message does not exist or is not available for visibility timeout change.";
            return Err(invalid("ReceiptHandle", given, reason));
        };
        message.visible_from = now + hidden;
        Ok(())
    }

    /// How many messages are visible, hidden by a receiver, and delayed by their sender.
    pub(super) fn counts(&self, now: Instant) -> [usize; 3] {
        let mut counts = [0; 3];
        for message in self.messages.values() {
            let kind = match (message.visible_from <= now, message.deliveries) {
                (true, _) => 0,
                (false, 1..) => 1,
                (false, 0) => 2,
            };
            counts[kind] += 1;
        }
        counts
    }
}

/// What a receipt says: which delivery of which message it is of.
struct Receipt<'a> {
    message: u64,
    delivery: u64,
    id: &'a str,
}

impl Receipt<'_> {
    fn of(text: &str) -> Result<Receipt<'_>, Refusal> {
        let mut parts = text.split('/');
        let mut number = || parts.next().and_then(|part| part.parse().ok());
        let numbers = (number(), number());
        let (Some(message), Some(delivery), Some(id)) = (numbers.0, numbers.1, parts.next()) else {
            let message =
                format!("The input receipt handle \"{text}\" is not a valid receipt handle.");
            return Err(refusal("ReceiptHandleIsInvalid", message));
        };
        Ok(Receipt { message, delivery, id })
    }

    fn is_last(&self, message: &Message) -> bool {
        self.delivery == message.deliveries && self.id == message.id
    }
}

/// How long a message is to be hidden.
pub(super) fn visibility(secs: u64) -> Result<Duration, Refusal> {
    if secs > LONGEST_HIDDEN_SECS {
        let reason = "Must be between 0 and 43200, if provided.";
        return Err(invalid("VisibilityTimeout", secs, reason));
    }
    Ok(seconds(secs))
}
