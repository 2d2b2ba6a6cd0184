//! What the port promises, asked of the emulator.

use std::time::Duration;

use ondeck_aws::SqsPool;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::ports::{Depth, Pool, Receipt, ReceivedMessage};
use ondeck_core::testkit::contract::{pool_duplicates_suite, pool_passes_untouched, pool_suite};
use serde_json::json;

use crate::queues::{Gateway, class, own_name, pool, pool_at, tickets};

const LONG: Duration = Duration::from_secs(600);

#[expect(
    clippy::disallowed_methods,
    reason = "the emulator's clock is the real one, and the suite lets time pass by a plain function"
)]
fn let_time_pass(span: Duration) {
    std::thread::sleep(span);
}

#[tokio::test]
async fn the_pool_fulfils_its_contract() {
    pool_suite(&pool(&own_name()).await, &let_time_pass).await;
}

/// A delivery that leaves its message visible is followed by a second one.
#[tokio::test]
async fn the_pool_may_deliver_twice() {
    let mut first = true;
    let gateway = Gateway::start(move |action, body| {
        if action == "ReceiveMessage" && std::mem::take(&mut first) {
            body["VisibilityTimeout"] = json!(0);
        }
        None
    });
    let pool = pool_at(&own_name(), &gateway.await.url).await;
    pool_duplicates_suite(&pool).await;
}

#[tokio::test]
async fn bodies_are_passed_on_untouched() {
    let texts = ["{ no ticket", "é\n\t<&\"'> \\u0041", " "];
    let mut next = texts.into_iter();
    // The ticket is replaced by other bodies.
    let gateway = Gateway::start(move |action, body| {
        if action == "SendMessageBatch" {
            body["Entries"][0]["MessageBody"] = json!(next.next().unwrap());
        }
        None
    });
    let pool = pool_at(&own_name(), &gateway.await.url).await;
    let class = class("raw");
    pool.set_up(std::slice::from_ref(&class)).await.unwrap();
    for text in texts {
        pool.send(&tickets(&class, 1), Duration::ZERO).await.unwrap();
        pool_passes_untouched(&pool, &class, text).await;
    }
}

#[tokio::test]
async fn two_pools_in_one_account_are_apart() {
    let name = own_name();
    let (ours, theirs) = (pool(&name).await, pool(&format!("{name}-fork")).await);
    let large = class("large");
    for pool in [&ours, &theirs] {
        pool.set_up(std::slice::from_ref(&large)).await.unwrap();
    }
    ours.send(&tickets(&large, 3), Duration::ZERO).await.unwrap();
    assert_eq!(theirs.receive(&large, 10, LONG).await.unwrap(), []);
    assert_eq!(theirs.depth(&large).await.unwrap(), Depth::default());
    assert_eq!(ours.receive(&large, 10, LONG).await.unwrap().len(), 3);
}

/// One of another process of the same pool finds what this one has sent.
#[tokio::test]
async fn a_pool_is_found_by_its_name_alone() {
    let name = own_name();
    let (one, other) = (pool(&name).await, pool(&name.to_ascii_uppercase()).await);
    let large = class("large");
    one.set_up(std::slice::from_ref(&large)).await.unwrap();
    one.send(&tickets(&large, 1), Duration::ZERO).await.unwrap();
    assert_eq!(other.receive(&large, 10, LONG).await.unwrap().len(), 1);
}

/// Every operation sends ten per call, and the address is asked for once.
#[tokio::test]
async fn many_go_in_few_calls() {
    let name = own_name();
    let (large, small) = (class("large"), class("small"));
    pool(&name).await.set_up(&[large.clone(), small.clone()]).await.unwrap();
    let gateway = Gateway::open().await;
    let pool = pool_at(&name, &gateway.url).await;

    let mixed = [tickets(&large, 23), tickets(&small, 2)].concat();
    pool.send(&mixed, Duration::ZERO).await.unwrap();
    assert_eq!(counted(&gateway), [("GetQueueUrl", 2), ("SendMessageBatch", 4)]);

    let mut receipts = Vec::new();
    while receipts.len() < 23 {
        receipts.extend(receive(&pool, &large).await);
    }
    assert_eq!(counted(&gateway), [("ReceiveMessage", 3)]);
    pool.extend(&large, &receipts, LONG).await.unwrap();
    assert_eq!(pool.depth(&large).await.unwrap(), Depth { visible: 0, held: 23, delayed: 0 });
    pool.put_back(&large, &receipts).await.unwrap();
    assert_eq!(pool.depth(&large).await.unwrap(), Depth { visible: 23, held: 0, delayed: 0 });
    pool.delete(&large, &receipts).await.unwrap();
    assert_eq!(pool.depth(&large).await.unwrap(), Depth::default());
    assert_eq!(
        counted(&gateway),
        [("ChangeMessageVisibilityBatch", 6), ("DeleteMessageBatch", 3), ("GetQueueAttributes", 3)]
    );

    pool.send(&[], Duration::ZERO).await.unwrap();
    pool.delete(&large, &[]).await.unwrap();
    pool.put_back(&large, &[]).await.unwrap();
    assert_eq!(pool.receive(&small, 0, LONG).await.unwrap(), []);
    assert_eq!(counted(&gateway), [], "nothing costs nothing");
}

async fn receive(pool: &SqsPool, class: &ResourceClass) -> Vec<Receipt> {
    let held = pool.receive(class, 10, LONG).await.unwrap();
    held.into_iter().map(|ReceivedMessage { receipt, .. }| receipt).collect()
}

fn counted(gateway: &Gateway) -> Vec<(&'static str, usize)> {
    let actions = gateway.actions();
    let mut known = vec![
        "ChangeMessageVisibilityBatch",
        "DeleteMessageBatch",
        "GetQueueAttributes",
        "GetQueueUrl",
        "ReceiveMessage",
        "SendMessageBatch",
    ];
    assert!(actions.iter().all(|action| known.contains(&action.as_str())), "{actions:?}");
    known.retain(|name| actions.iter().any(|action| action == name));
    let count = |name| actions.iter().filter(|action| *action == name).count();
    known.into_iter().map(|name| (name, count(name))).collect()
}
