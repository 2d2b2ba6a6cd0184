use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::super::SeededRandom;
use super::{Calls, ClockAndDebug, lock, out_of_reach, turn};
use crate::model::ids::ResourceClass;
use crate::model::ticket::Ticket;
use crate::model::timestamp::Timestamp;
use crate::ports::{Depth, Pool, PortError, PortResult, Random, Receipt, ReceivedMessage};

#[derive(Debug, Clone)]
struct Message {
    body: String,
    visible_at: Timestamp,
    receipt: Option<u64>,
}

#[derive(Debug, Default)]
struct Queues {
    queues: BTreeMap<ResourceClass, VecDeque<Message>>,
    receipts: u64,
    duplicates: bool,
    misses: bool,
    set_up_refused: bool,
    calls: Calls,
    failing: BTreeSet<&'static str>,
}

#[derive(Debug)]
pub struct MemoryPool {
    queues: Mutex<Queues>,
    clock: Arc<dyn ClockAndDebug>,
}

impl MemoryPool {
    /// Empty, on this clock.
    pub fn new(clock: Arc<dyn ClockAndDebug>) -> MemoryPool {
        MemoryPool { queues: Mutex::default(), clock }
    }

    /// How often each call was made.
    pub fn calls(&self) -> Calls {
        lock(&self.queues).calls.clone()
    }

    fn count(&self, call: &'static str) {
        *lock(&self.queues).calls.entry(call).or_default() += 1;
    }

    /// Fails this method from now on.
    pub fn fail(&self, call: &'static str) {
        lock(&self.queues).failing.insert(call);
    }

    /// No call fails from now on.
    pub fn repair(&self) {
        lock(&self.queues).failing.clear();
    }

    fn answer(&self, call: &'static str) -> PortResult<()> {
        match lock(&self.queues).failing.contains(call) {
            true => Err(out_of_reach("pool")),
            false => Ok(()),
        }
    }

    /// Delivers every message twice from here on.
    pub fn deliver_twice(&self) {
        lock(&self.queues).duplicates = true;
    }

    /// Lets quick receives find nothing from here on.
    pub fn miss_on_quick_receives(&self) {
        lock(&self.queues).misses = true;
    }

    /// Refuses to be set up from now on, or no longer.
    pub fn refuse_set_up(&self, refuse: bool) {
        lock(&self.queues).set_up_refused = refuse;
    }

    /// Passes the queues to `to`.
    pub fn show(&self, to: &mut dyn FnMut(&dyn std::fmt::Debug)) {
        to(&lock(&self.queues).queues);
    }

    /// Shuffles the messages, in an order that follows from `seed`.
    pub fn shuffle(&self, seed: u64) {
        let random = SeededRandom::new(seed);
        for queue in lock(&self.queues).queues.values_mut() {
            queue.make_contiguous().sort_by_cached_key(|_| random.number());
        }
    }

    /// Whether a ticket is in its queue, hidden or not.
    pub fn holds(&self, ticket: &Ticket) -> bool {
        let (queues, body) = (lock(&self.queues), ticket.to_json());
        let queue = queues.queues.get(&ticket.spec.resource_class);
        queue.is_some_and(|queue| queue.iter().any(|message| message.body == body))
    }

    /// The messages that receivers hide at the moment.
    pub fn hidden(&self) -> Vec<ReceivedMessage> {
        let now = self.clock.now();
        let queues = lock(&self.queues);
        let messages = queues.queues.values().flatten();
        let received = messages.filter(|it| it.visible_at > now).filter_map(|message| {
            let receipt = Receipt(message.receipt?.to_string());
            Some(ReceivedMessage { receipt, body: message.body.clone() })
        });
        received.collect()
    }

    /// The texts of all messages, hidden ones included.
    pub fn bodies(&self) -> Vec<String> {
        let queues = lock(&self.queues);
        queues.queues.values().flatten().map(|message| message.body.clone()).collect()
    }

    /// The messages that these receipts would delete, each with the number of equal messages that
    /// would stay.
    pub fn would_delete(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
    ) -> Vec<(String, usize)> {
        let queues = lock(&self.queues);
        let queue = || queues.queues.get(class).into_iter().flatten();
        let stays = |body: &str| {
            queue().filter(|other| other.body == body && !is_held_by(other, receipts)).count()
        };
        let deleted = queue().filter(|message| is_held_by(message, receipts));
        deleted.map(|message| (message.body.clone(), stays(&message.body))).collect()
    }

    fn take(&self, class: &ResourceClass, max: usize, hold: Duration) -> Vec<ReceivedMessage> {
        let now = self.clock.now();
        let mut queues = lock(&self.queues);
        let Queues { queues, receipts, duplicates, .. } = &mut *queues;
        let queue = queues.entry(class.clone()).or_default();
        let mut held = Vec::new();
        for message in queue.iter_mut().filter(|m| m.visible_at <= now).take(max.min(10)) {
            let again = *duplicates && message.receipt.is_none();
            *receipts += 1;
            message.receipt = Some(*receipts);
            message.visible_at = if again { now } else { now + hold };
            held.push(ReceivedMessage {
                receipt: Receipt(receipts.to_string()),
                body: message.body.clone(),
            });
        }
        held
    }

    fn show_at(&self, class: &ResourceClass, receipts: &[Receipt], at: Timestamp) {
        let mut queues = lock(&self.queues);
        let queue = queues.queues.entry(class.clone()).or_default();
        for message in queue.iter_mut().filter(|message| is_held_by(message, receipts)) {
            message.visible_at = at;
        }
    }

    /// How many messages of a queue have this text, hidden ones included.
    pub fn copies(&self, class: &ResourceClass, body: &str) -> usize {
        let queues = lock(&self.queues);
        let messages = queues.queues.get(class).into_iter().flatten();
        messages.filter(|message| message.body == body).count()
    }

    /// Adds any text as a message.
    pub fn send_raw(&self, class: &ResourceClass, body: &str) {
        let visible_at = self.clock.now();
        let message = Message { body: body.to_owned(), visible_at, receipt: None };
        lock(&self.queues).queues.entry(class.clone()).or_default().push_back(message);
    }
}

#[async_trait]
impl Pool for MemoryPool {
    async fn set_up(&self, classes: &[ResourceClass]) -> PortResult<()> {
        turn().await;
        self.count("set_up");
        if lock(&self.queues).set_up_refused {
            let (reason, hint) = ("no queue may be made".to_owned(), String::new());
            return Err(PortError::Unusable { service: "pool", reason, hint });
        }
        for class in classes {
            lock(&self.queues).queues.entry(class.clone()).or_default();
        }
        Ok(())
    }

    async fn receive(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        turn().await;
        self.count("receive");
        self.answer("receive")?;
        if lock(&self.queues).misses {
            return Ok(Vec::new());
        }
        Ok(self.take(class, max, hold))
    }

    async fn receive_thoroughly(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        turn().await;
        self.count("receive_thoroughly");
        self.answer("receive")?;
        Ok(self.take(class, max, hold))
    }

    async fn extend(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        hold: Duration,
    ) -> PortResult<()> {
        turn().await;
        self.count("extend");
        self.answer("extend")?;
        self.show_at(class, receipts, self.clock.now() + hold);
        Ok(())
    }

    async fn put_back(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        turn().await;
        self.count("put_back");
        self.answer("put_back")?;
        self.show_at(class, receipts, self.clock.now());
        Ok(())
    }

    async fn delete(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        turn().await;
        self.count("delete");
        self.answer("delete")?;
        let mut queues = lock(&self.queues);
        let queue = queues.queues.entry(class.clone()).or_default();
        queue.retain(|message| !is_held_by(message, receipts));
        Ok(())
    }

    async fn send(&self, tickets: &[Ticket], delay: Duration) -> PortResult<()> {
        turn().await;
        self.count("send");
        self.answer("send")?;
        let visible_at = self.clock.now() + delay;
        let mut queues = lock(&self.queues);
        for ticket in tickets {
            let queue = queues.queues.entry(ticket.spec.resource_class.clone()).or_default();
            queue.push_back(Message { body: ticket.to_json(), visible_at, receipt: None });
        }
        Ok(())
    }

    async fn depth(&self, class: &ResourceClass) -> PortResult<Depth> {
        turn().await;
        self.count("depth");
        let now = self.clock.now();
        let mut depth = Depth::default();
        for message in lock(&self.queues).queues.get(class).into_iter().flatten() {
            match (message.visible_at <= now, message.receipt) {
                (true, _) => depth.visible += 1,
                (false, Some(_)) => depth.held += 1,
                (false, None) => depth.delayed += 1,
            }
        }
        Ok(depth)
    }
}

fn is_held_by(message: &Message, receipts: &[Receipt]) -> bool {
    let held = message.receipt.map(|receipt| Receipt(receipt.to_string()));
    held.is_some_and(|held| receipts.contains(&held))
}
