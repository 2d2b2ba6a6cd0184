use std::collections::BTreeSet;
use std::time::Duration;

use super::arrange::{instance, noon, spec};
use crate::model::ids::ResourceClass;
use crate::model::ticket::Ticket;
use crate::ports::{Depth, Pool, Receipt, ReceivedMessage};

/// How long messages are held or delayed in the suite. It is short, because emulators wait in real
/// time and count in whole seconds.
const HOLD: Duration = Duration::from_secs(3);
/// Longer than [`HOLD`] by a whole second.
const PAST: Duration = Duration::from_secs(4);
/// Longer than the whole suite takes.
const LONG: Duration = Duration::from_secs(600);

/// The contract of a pool. `advance` lets time pass on the pool's clock.
pub async fn pool_suite(pool: &dyn Pool, advance: &dyn Fn(Duration)) {
    let classes =
        ["hidden", "longer", "delayed", "back", "stale", "batches", "shared", "one", "two"];
    let classes = classes.map(class);
    pool.set_up(&classes).await.expect("the queues can be made");
    pool.set_up(&classes).await.expect("making them twice is making them once");
    let [hidden, longer, delayed, back, stale, batches, shared, one, two] = &classes;
    held_messages_are_hidden(pool, hidden, advance).await;
    a_hold_can_be_extended(pool, longer, advance).await;
    delayed_messages_come_later(pool, delayed, advance).await;
    what_is_put_back_is_there_at_once(pool, back).await;
    stale_receipts_do_nothing(pool, stale, advance).await;
    batches_are_bounded(pool, batches).await;
    two_receivers_share_nothing(pool, shared).await;
    classes_are_apart(pool, one, two).await;
}

/// For pools that can deliver every message twice: both deliveries are the same message, and only
/// the later receipt is valid.
pub async fn pool_duplicates_suite(pool: &dyn Pool) {
    let class = class("twice");
    pool.set_up(std::slice::from_ref(&class)).await.expect("the queues can be made");
    send(pool, &class, 1, Duration::ZERO).await;
    let first = one(pool, &class, LONG).await;
    let second = one(pool, &class, LONG).await;
    assert_eq!(first.body, second.body, "the same message, twice");
    assert_ne!(first.receipt, second.receipt, "each delivery has its own receipt");
    nothing(pool, &class, "not a third time").await;
    delete(pool, &class, &first).await;
    assert_eq!(depth(pool, &class).await.total(), 1, "the first receipt was worthless by then");
    delete(pool, &class, &second).await;
    assert_eq!(depth(pool, &class).await.total(), 0, "the second was not");
}

/// A message that was sent by other means is received unchanged, even if it is not a ticket.
pub async fn pool_passes_untouched(pool: &dyn Pool, class: &ResourceClass, body: &str) {
    let held = one(pool, class, LONG).await;
    assert_eq!(held.body, body, "to the letter");
    delete(pool, class, &held).await;
}

fn class(name: &str) -> ResourceClass {
    ResourceClass::new(format!("contract-{name}")).expect("a name")
}

fn ticket(class: &ResourceClass, n: usize) -> Ticket {
    let mut spec = spec();
    spec.resource_class = class.clone();
    Ticket {
        instance_id: instance(&format!("i-{n}")),
        spec,
        threshold: noon(),
        generation: n as u32,
        runs: Some(1),
    }
}

async fn send(pool: &dyn Pool, class: &ResourceClass, count: usize, delay: Duration) {
    let tickets: Vec<Ticket> = (0..count).map(|n| ticket(class, n)).collect();
    pool.send(&tickets, delay).await.expect("tickets can be sent");
}

async fn receive(
    pool: &dyn Pool,
    class: &ResourceClass,
    max: usize,
    hold: Duration,
) -> Vec<ReceivedMessage> {
    pool.receive(class, max, hold).await.expect("the pool answers")
}

async fn one(pool: &dyn Pool, class: &ResourceClass, hold: Duration) -> ReceivedMessage {
    let mut held = receive(pool, class, 10, hold).await;
    assert_eq!(held.len(), 1, "one message is to be had in {class}");
    held.remove(0)
}

async fn nothing(pool: &dyn Pool, class: &ResourceClass, why: &str) {
    assert_eq!(receive(pool, class, 10, HOLD).await, [], "{why}");
}

async fn delete(pool: &dyn Pool, class: &ResourceClass, held: &ReceivedMessage) {
    let receipts = std::slice::from_ref(&held.receipt);
    pool.delete(class, receipts).await.expect("the pool answers");
}

async fn put_back(pool: &dyn Pool, class: &ResourceClass, held: &ReceivedMessage) {
    let receipts = std::slice::from_ref(&held.receipt);
    pool.put_back(class, receipts).await.expect("the pool answers");
}

async fn depth(pool: &dyn Pool, class: &ResourceClass) -> Depth {
    pool.depth(class).await.expect("the pool answers")
}

async fn held_messages_are_hidden(
    pool: &dyn Pool,
    class: &ResourceClass,
    advance: &dyn Fn(Duration),
) {
    nothing(pool, class, "an empty queue").await;
    assert_eq!(depth(pool, class).await, Depth::default(), "an empty queue");
    send(pool, class, 1, Duration::ZERO).await;
    assert_eq!(depth(pool, class).await, Depth { visible: 1, held: 0, delayed: 0 });
    let first = one(pool, class, HOLD).await;
    assert_eq!(Ticket::from_json(&first.body), Ok(ticket(class, 0)), "what was sent");
    assert_eq!(depth(pool, class).await, Depth { visible: 0, held: 1, delayed: 0 });
    nothing(pool, class, "held by another receiver").await;
    advance(PAST);
    assert_eq!(depth(pool, class).await, Depth { visible: 1, held: 0, delayed: 0 });
    let second = one(pool, class, LONG).await;
    assert_eq!(second.body, first.body, "held for too long, so it comes again");
    assert_ne!(second.receipt, first.receipt, "with a receipt of its own");
    delete(pool, class, &second).await;
    assert_eq!(depth(pool, class).await, Depth::default(), "deleted");
}

async fn a_hold_can_be_extended(
    pool: &dyn Pool,
    class: &ResourceClass,
    advance: &dyn Fn(Duration),
) {
    send(pool, class, 1, Duration::ZERO).await;
    let held = one(pool, class, HOLD).await;
    let receipts = std::slice::from_ref(&held.receipt);
    pool.extend(class, receipts, LONG).await.expect("the pool answers");
    advance(PAST);
    nothing(pool, class, "held for longer than at first").await;
    delete(pool, class, &held).await;
    assert_eq!(depth(pool, class).await, Depth::default(), "its receipt is still good");
    pool.extend(class, receipts, LONG).await.expect("a stale receipt is no error");
}

async fn delayed_messages_come_later(
    pool: &dyn Pool,
    class: &ResourceClass,
    advance: &dyn Fn(Duration),
) {
    send(pool, class, 1, HOLD).await;
    nothing(pool, class, "not to be had yet").await;
    assert_eq!(depth(pool, class).await, Depth { visible: 0, held: 0, delayed: 1 });
    advance(PAST);
    let held = one(pool, class, LONG).await;
    delete(pool, class, &held).await;
}

async fn what_is_put_back_is_there_at_once(pool: &dyn Pool, class: &ResourceClass) {
    send(pool, class, 1, Duration::ZERO).await;
    let first = one(pool, class, LONG).await;
    put_back(pool, class, &first).await;
    assert_eq!(depth(pool, class).await, Depth { visible: 1, held: 0, delayed: 0 });
    let second = one(pool, class, LONG).await;
    assert_eq!(second.body, first.body, "put back");
    delete(pool, class, &second).await;
}

async fn stale_receipts_do_nothing(
    pool: &dyn Pool,
    class: &ResourceClass,
    advance: &dyn Fn(Duration),
) {
    send(pool, class, 1, Duration::ZERO).await;
    let stale = one(pool, class, HOLD).await;
    advance(PAST);
    let fresh = one(pool, class, LONG).await;
    put_back(pool, class, &stale).await;
    nothing(pool, class, "a stale receipt puts nothing back").await;
    delete(pool, class, &stale).await;
    assert_eq!(depth(pool, class).await.total(), 1, "a stale receipt deletes nothing");
    delete(pool, class, &fresh).await;
    assert_eq!(depth(pool, class).await.total(), 0, "the latest one does");
    delete(pool, class, &fresh).await;
    put_back(pool, class, &fresh).await;
    assert_eq!(depth(pool, class).await.total(), 0, "and nothing brings it back");
}

async fn batches_are_bounded(pool: &dyn Pool, class: &ResourceClass) {
    send(pool, class, 23, Duration::ZERO).await;
    assert_eq!(receive(pool, class, 3, LONG).await.len(), 3, "no more than was asked for");
    assert_eq!(receive(pool, class, 50, LONG).await.len(), 10, "ten at the most");
    let rest = receive(pool, class, 10, LONG).await;
    assert_eq!(rest.len(), 10, "the rest");
    let receipts: Vec<Receipt> = rest.into_iter().map(|held| held.receipt).collect();
    pool.delete(class, &receipts).await.expect("the pool answers");
    assert_eq!(depth(pool, class).await, Depth { visible: 0, held: 13, delayed: 0 });
}

async fn two_receivers_share_nothing(pool: &dyn Pool, class: &ResourceClass) {
    send(pool, class, 40, Duration::ZERO).await;
    let receiver = || async {
        let mut bodies = Vec::new();
        loop {
            let held = receive(pool, class, 3, LONG).await;
            if held.is_empty() {
                return bodies;
            }
            bodies.extend(held.into_iter().map(|held| held.body));
        }
    };
    let (left, right) = futures_util::future::join(receiver(), receiver()).await;
    let distinct: BTreeSet<&String> = left.iter().chain(&right).collect();
    assert_eq!((left.len() + right.len(), distinct.len()), (40, 40), "each went to one of them");
}

async fn classes_are_apart(pool: &dyn Pool, one_class: &ResourceClass, other: &ResourceClass) {
    let both = [ticket(one_class, 1), ticket(other, 2)];
    pool.send(&both, Duration::ZERO).await.expect("tickets can be sent");
    let held = one(pool, one_class, LONG).await;
    assert_eq!(Ticket::from_json(&held.body), Ok(ticket(one_class, 1)), "of its own class");
    delete(pool, other, &held).await;
    assert_eq!(depth(pool, one_class).await.total(), 1, "a receipt of another queue");
    delete(pool, one_class, &held).await;
    let held = one(pool, other, LONG).await;
    delete(pool, other, &held).await;
}
