//! The count of machines in DynamoDB: what it costs, and what lost answers and corrupt items do.

use std::sync::Arc;

use futures_util::future::join_all;
use ondeck_core::model::ceiling::{
    Limits, MachineCount, Reservation, ReservationVerdict, Settlement,
};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Store;
use ondeck_core::testkit::contract::{ceiling_race, spend_race};
use ondeck_core::testkit::plane;

use crate::dynamodb_proxy::{DynamoDbProxy, ProxyAction};
use crate::store_harness::{HOUR, StoreHarness, instance, noon, text};

fn reservation(intent: &str, count: u32) -> Reservation {
    let (intent, class) = (intent.parse().unwrap(), "large".parse().unwrap());
    Reservation { intent, class, count, deadline: noon() + HOUR, spend: None }
}

fn limits() -> Limits {
    Limits { since: noon(), pool: Some(5), class: Some(4), spend: None }
}

fn settlement(intent: &str, from: u32, to: u32) -> Settlement {
    let Reservation { intent, class, .. } = reservation(intent, from);
    let machines = vec![instance("i-1")];
    Settlement { intent, class, from, to, machines, at: noon(), spend: None }
}

#[tokio::test]
async fn places_and_money_are_given_once_through_many_clients() {
    let harness = StoreHarness::new();
    let stores = join_all((0..8).map(|_| harness.store())).await;
    ceiling_race(&stores.iter().collect::<Vec<_>>()).await;
    spend_race(&stores.iter().collect::<Vec<_>>()).await;
    harness.done().await;
}

#[tokio::test]
async fn each_use_of_the_count_is_one_call() {
    let harness = StoreHarness::set_up().await;
    let proxy = DynamoDbProxy::on(&harness.dynamodb).await;
    let store = harness.store_through(&proxy.endpoint).await;
    assert!(store.replace_machine_count(None, &MachineCount::empty(noon())).await.unwrap());
    assert_eq!(proxy.actions(), ["PutItem"]);
    let granted = store.reserve(&reservation("a", 3), &limits()).await;
    assert_eq!(granted, Ok(ReservationVerdict::Granted));
    assert_eq!(proxy.actions(), ["UpdateItem"]);
    let refused = store.reserve(&reservation("b", 3), &limits()).await.unwrap();
    let ReservationVerdict::Refused(Some(found)) = refused else { panic!("{refused:?}") };
    assert_eq!((found.total, found.reservations.len()), (3, 1), "the refusal brings the count");
    assert_eq!(proxy.actions(), ["UpdateItem"]);
    store.settle_reservation(&settlement("a", 3, 1)).await.unwrap();
    assert_eq!(proxy.actions(), ["UpdateItem"]);
    assert_eq!(store.machine_count().await.unwrap().unwrap().total, 1);
    let read = proxy.calls();
    assert!(read.len() == 1 && read[0].body.contains("\"ConsistentRead\":true"), "{read:?}");
    harness.done().await;
}

#[tokio::test]
async fn a_reservation_and_a_settlement_whose_answers_are_lost_count_once() {
    let harness = StoreHarness::set_up().await;
    let proxy = DynamoDbProxy::on(&harness.dynamodb).await;
    let (mut plane, _) = plane();
    plane.store = Arc::new(harness.store_through(&proxy.endpoint).await);
    let empty = MachineCount::empty(noon());
    assert!(plane.store.replace_machine_count(None, &empty).await.unwrap());
    let lose_one = || {
        let mut lost = false;
        proxy.script(move |_| {
            let first = !std::mem::replace(&mut lost, true);
            if first { ProxyAction::Lose } else { ProxyAction::Pass }
        });
    };
    let total = async || plane.store.machine_count().await.unwrap().unwrap().total;
    let (asked, limits) = (reservation("a", 3), limits());
    lose_one();
    let verdict = plane.retried(|| plane.store.reserve(&asked, &limits)).await.unwrap();
    assert!(verdict.is_granted(&asked.intent), "{verdict:?}");
    assert_eq!(total().await, 3);
    lose_one();
    let settled = settlement("a", 3, 2);
    plane.retried(|| plane.store.settle_reservation(&settled)).await.unwrap();
    assert_eq!(total().await, 2);
    harness.done().await;
}

#[tokio::test]
async fn a_corrupt_count_admits_no_launch_and_is_replaced() {
    let harness = StoreHarness::set_up().await;
    let store = harness.store().await;
    let table = harness.table_client().await;
    for (attributes, version) in [
        (&[("version", text("one"))][..], None),
        (&[("total", text("many"))][..], Some(3)),
        (&[("classes", text("none"))][..], Some(3)),
        (&[("reservations", text("none"))][..], Some(3)),
        (&[("spend", text("much"))][..], Some(3)),
        (&[("since", text("long ago"))][..], Some(3)),
    ] {
        let sound = MachineCount { version: 3, ..MachineCount::empty(noon()) };
        let before = store.machine_count().await.unwrap().map(|count| count.version);
        assert!(store.replace_machine_count(before, &sound).await.unwrap());
        let mut item = table.get("CEILING", "COUNT").await.unwrap();
        item.extend(attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        let put = table.client.put_item().table_name(&table.table).set_item(Some(item));
        put.send().await.unwrap();
        let read = store.machine_count().await.unwrap();
        let void = |count: &MachineCount| count.since == Timestamp::from_millis(0);
        assert_eq!(read.as_ref().map(|count| count.version), version, "{attributes:?}");
        assert!(read.as_ref().is_none_or(void), "{attributes:?}");
        if attributes[0].0 == "since" {
            let verdict = store.reserve(&reservation("a", 1), &limits()).await.unwrap();
            assert!(!verdict.is_granted(&"a".parse().unwrap()), "{verdict:?}");
        }
        let replaced = store.replace_machine_count(version, &sound).await;
        assert_eq!(replaced, Ok(true), "{attributes:?}");
    }
    harness.done().await;
}
