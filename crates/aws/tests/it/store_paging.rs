//! More than one page, and more than one batch, of everything.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use ondeck_aws::EventsOf;
use ondeck_core::lifecycle::Instance;
use ondeck_core::ports::{AgentStore, RecordScope, Store};

use crate::store_harness::{
    HOUR, Item, StoreHarness, beat, claim, created, idle, instance, make, noon, run, running, text,
};

/// A page of a query ends at a megabyte, and an index of keys needs thousands of records for that.
/// So it is settings that fill more than a page, and records more than a batch.
pub(crate) const IN_FRONT: usize = 120;

/// Copies of a record under other names, with ten kilobytes of padding each.
pub(crate) async fn crowd(harness: &StoreHarness, template: &str, prefix: &str) {
    let table_client = harness.table_client().await;
    let template = table_client.get(&format!("INSTANCE#{template}"), "RECORD").await.unwrap();
    let copies = (0..IN_FRONT).map(|n| {
        let name = format!("{prefix}{n:04}");
        let mut copy: Item = template.clone();
        copy.insert("PK".into(), text(format!("INSTANCE#{name}")));
        copy.insert("instanceId".into(), text(&name));
        copy.insert("padding".into(), text("x".repeat(10_000)));
        table_client.put(copy)
    });
    join_all(copies).await;
}

/// Settings of ten kilobytes each, which fill more than a page.
pub(crate) async fn long_settings(harness: &StoreHarness) -> BTreeMap<String, String> {
    let table_client = harness.table_client().await;
    let settings: BTreeMap<String, String> =
        (0..IN_FRONT).map(|n| (format!("s-{n:04}"), "x".repeat(10_000))).collect();
    let items = settings.iter().map(|(name, value)| {
        let item = [("PK", "SETTING"), ("SK", name), ("value", value)];
        table_client.put(item.map(|(name, value)| (name.to_owned(), text(value))).into())
    });
    join_all(items).await;
    settings
}

#[tokio::test]
async fn a_megabyte_of_settings_is_read_to_its_end() {
    let harness = StoreHarness::set_up().await;
    let settings = long_settings(&harness).await;
    assert_eq!(Store::settings(&harness.store().await).await, Ok(settings));
    harness.done().await;
}

#[tokio::test]
async fn a_megabyte_of_dead_records_hides_nothing() {
    let harness = StoreHarness::set_up().await;
    let store = harness.store().await;
    let dead = created(&store, "i-0", "old").await;
    let dead = make(&store, dead.expire(noon())).await;
    make(&store, dead.reap(noon())).await;
    crowd(&harness, "i-0", "i-0").await;
    running(&store, "i-mine", "mine").await;
    running(&store, "i-past", "mine").await;

    let of_run = store.of_run(&run("mine")).await.unwrap();
    let ids: Vec<&str> = of_run.records.iter().map(|record| record.id.as_str()).collect();
    assert_eq!(ids, ["i-mine", "i-past"]);
    assert_eq!(store.expired(noon() + HOUR).await.unwrap().records.len(), 2);
    assert_eq!(store.list(RecordScope::Live).await.unwrap().records.len(), 2);
    assert_eq!(store.list(RecordScope::All).await.unwrap().records.len(), IN_FRONT + 3);
    assert_eq!(store.forget(noon() + Duration::from_millis(1)).await, Ok(IN_FRONT + 1));
    assert_eq!(store.list(RecordScope::All).await.unwrap().records.len(), 2);
    harness.done().await;
}

#[tokio::test]
async fn a_megabyte_of_expired_records_is_found_to_the_last() {
    let harness = StoreHarness::set_up().await;
    let store = harness.store().await;
    running(&store, "i-0", "mine").await;
    crowd(&harness, "i-0", "i-0").await;
    let expired = store.expired(noon() + HOUR).await.unwrap();
    assert_eq!((expired.records.len(), expired.unreadable.len()), (IN_FRONT + 1, 0));
    assert!(store.expired(noon()).await.unwrap().records.is_empty());
    harness.done().await;
}

#[tokio::test]
async fn batches_are_filled_and_followed_by_others() {
    let harness = StoreHarness::set_up().await;
    let store = harness.store().await;
    let names: Vec<String> = (0..130).map(|n| format!("i-{n:03}")).collect();
    let idles = join_all(names.iter().map(|name| idle(&store, name))).await;

    let mut ids: Vec<_> = names.iter().map(|name| instance(name)).collect();
    let at = |n: usize| noon() + Duration::from_secs(n as u64);
    let sent: Vec<_> = (0..ids.len()).map(|n| beat(at(n))).collect();
    try_join_all(ids.iter().zip(&sent).map(|(id, beat)| store.beat(id, beat))).await.unwrap();
    // One twice, and one that does not exist.
    ids.extend([instance("i-003"), instance("i-none")]);
    let status = store.agent_status(&ids).await.unwrap();
    let expected = (0..130).map(|n| Some(at(n))).chain([Some(at(3)), None]);
    assert!(
        status.iter().map(|status| status.heartbeat.map(|beat| beat.at)).eq(expected),
        "in the order asked"
    );

    let tickets: Vec<_> = idles.iter().map(Instance::ticket).collect();
    store.mark_ticketed(&tickets, noon()).await.unwrap();
    let noted = store.list(RecordScope::Live).await.unwrap().records;
    assert_eq!(noted.iter().filter(|record| record.ticketed_at.is_some()).count(), 130);

    let claims = idles.iter().map(|idle| claim(idle, "all")).collect::<Vec<_>>();
    try_join_all(claims.iter().map(|claim| store.write(claim))).await.unwrap();
    assert_eq!(store.of_run(&run("all")).await.unwrap().records.len(), 130);

    let settings: BTreeMap<String, String> =
        (0..130).map(|n| (format!("s-{n}"), n.to_string())).collect();
    store.put_settings(&settings).await.unwrap();
    assert_eq!(Store::settings(&store).await, Ok(settings));

    store.finish().await.unwrap();
    let events = store.events(&EventsOf::Day(noon())).await.unwrap();
    assert_eq!(events.len(), 130 * 4);
    harness.done().await;
}
