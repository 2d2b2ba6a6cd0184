//! What things cost, counted on the line.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use ondeck_aws::{DynamoStore, EventsOf};
use ondeck_core::lifecycle::{Created, Instance, Live, Verdict};
use ondeck_core::model::demand::{Demand, RETENTION};
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::settings::SettingsVersion;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::provision::Request;
use ondeck_core::ports::{AgentStore, Store};
use ondeck_core::testkit::plane;

use crate::dynamodb_proxy::{Call, DynamoDbProxy, ProxyAction};
use crate::store_faults::once;
use crate::store_harness::{
    HOUR, StoreHarness, claim, created, described, idle, instance, make, noon, run, running, spec,
    text,
};

async fn through_proxy(harness: &StoreHarness) -> (DynamoStore, DynamoDbProxy) {
    let proxy = DynamoDbProxy::on(&harness.dynamodb).await;
    (harness.store_through(&proxy.endpoint).await, proxy)
}

fn count(calls: &[Call], action: &str) -> usize {
    calls.iter().filter(|call| call.action == action).count()
}

#[tokio::test]
async fn ten_claims_at_once_are_one_write_together_with_the_set_of_their_run() {
    let harness = StoreHarness::set_up().await;
    let (store, proxy) = through_proxy(&harness).await;
    let names: Vec<String> = (0..10).map(|n| format!("i-{n}")).collect();
    let idles = join_all(names.iter().map(|name| idle(&store, name))).await;
    store.finish().await.unwrap();
    proxy.calls();

    let claims: Vec<_> = idles.iter().map(|idle| claim(idle, "7")).collect();
    let verdicts = try_join_all(claims.iter().map(|claim| store.write(claim))).await.unwrap();
    let mut claimed = Vec::new();
    for verdict in verdicts {
        let Verdict::Agreed(record) = verdict else { panic!("{verdict:?}") };
        claimed.push(record);
    }
    store.finish().await.unwrap();
    let calls = proxy.calls();
    // One write for all of their events, or three where it took long.
    let events = count(&calls, "BatchWriteItem");
    assert!((1..=3).contains(&events) && calls.len() == 2 + events, "{calls:?}");
    let of = |action: &str| calls.iter().find(|call| call.action == action).unwrap();
    assert!(of("TransactWriteItems").body.contains("ADD instances"), "the set is part of it");
    assert_eq!(of("BatchGetItem").body.matches("INSTANCE#").count(), 10, "and beside it");

    let again = try_join_all(claims.iter().map(|claim| store.write(claim))).await.unwrap();
    let found = again.into_iter().map(|verdict| match verdict {
        Verdict::Refused(Some(found)) => found,
        verdict => panic!("{verdict:?}"),
    });
    assert_eq!(found.collect::<Vec<_>>(), claimed, "the answer brings what was left");
    store.finish().await.unwrap();
    let again = proxy.calls();
    assert_eq!(count(&again, "TransactWriteItems"), 1, "{again:?}");
    assert_eq!(count(&again, "UpdateItem") + count(&again, "BatchExecuteStatement"), 0);

    assert_eq!(store.of_run(&run("7")).await.unwrap().records.len(), 10);
    assert_eq!(proxy.actions(), ["GetItem", "BatchGetItem"]);
    store.of_run(&run("unknown")).await.unwrap();
    assert_eq!(proxy.actions(), ["GetItem"], "a run without instances");
    harness.done().await;
}

#[tokio::test]
async fn one_lost_machine_leaves_the_other_claims_to_a_batch() {
    let harness = StoreHarness::set_up().await;
    let (store, proxy) = through_proxy(&harness).await;
    let idles = join_all(["i-1", "i-2", "i-3"].map(|name| idle(&store, name))).await;
    let claims = |run: &str| idles.iter().map(|idle| claim(idle, run)).collect::<Vec<_>>();
    let lost = claim(&idles[1], "8");
    assert!(matches!(store.write(&lost).await, Ok(Verdict::Agreed(_))));
    store.finish().await.unwrap();
    proxy.calls();

    let verdicts = join_all(claims("7").iter().map(|claim| store.write(claim))).await;
    let Ok(Verdict::Refused(Some(found))) = &verdicts[1] else { panic!("{:?}", verdicts[1]) };
    assert_eq!(found.run, Some(run("8")), "the guard says who was first");
    assert!(matches!(
        (&verdicts[0], &verdicts[2]),
        (Ok(Verdict::Agreed(_)), Ok(Verdict::Agreed(_)))
    ));
    let calls = proxy.calls();
    let set = calls.iter().position(|call| call.action == "UpdateItem").unwrap();
    let batch = calls.iter().position(|call| call.action == "BatchExecuteStatement").unwrap();
    assert!(set < batch, "the set is written before: {calls:?}");
    assert_eq!((count(&calls, "UpdateItem"), count(&calls, "BatchExecuteStatement")), (1, 1));
    let of_run = store.of_run(&run("7")).await.unwrap();
    assert_eq!(of_run.records.len(), 2, "the set misses none of them");

    // The records cannot be read: no claim fails for that.
    let throttled = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}"#;
    let more = join_all(["i-4", "i-5"].map(|name| idle(&store, name))).await;
    store.finish().await.unwrap();
    proxy.calls();
    let is_read = |call: &Call| call.action == "BatchGetItem";
    proxy.script(once(is_read, ProxyAction::Answer(400, throttled.to_owned())));
    let claims: Vec<_> = more.iter().map(|idle| claim(idle, "7")).collect();
    let verdicts = try_join_all(claims.iter().map(|claim| store.write(claim))).await.unwrap();
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Agreed(_))));
    assert_eq!(count(&proxy.calls(), "TransactWriteItems"), 1);
    harness.done().await;
}

/// Through the plane, as a provision does it.
#[tokio::test]
async fn machines_are_handed_over_in_one_call_with_their_events() {
    let harness = StoreHarness::set_up().await;
    let (store, proxy) = through_proxy(&harness).await;
    let (mut plane, _) = plane();
    plane.store = Arc::new(store.clone());
    let names: Vec<String> = (0..10).map(|n| format!("i-{n}")).collect();
    let mut claimed = Vec::new();
    for idle in join_all(names.iter().map(|name| idle(&store, name))).await {
        claimed.push(make(&store, idle.claim(&run("7"), noon(), HOUR)).await);
    }
    store.finish().await.unwrap();
    proxy.calls();
    let commits = || claimed.iter().map(|it| it.commit(noon(), HOUR).because("wanted")).collect();
    let answers = plane.apply_together(commits()).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    store.finish().await.unwrap();
    let [hand_over] = &proxy.calls()[..] else { panic!("one call") };
    assert_eq!(hand_over.action, "TransactWriteItems");
    assert!(!hand_over.body.contains("attribute_type"), "the claims' records are known");
    for id in names.iter().map(|name| instance(name)) {
        let events = store.events(&EventsOf::Machine(id)).await.unwrap();
        let [.., claim, commit] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((commit.from, commit.to), (Some(claim.to), State::Running));
        assert_eq!((&commit.run, commit.why.as_str()), (&Some(run("7")), "wanted"));
    }
    let of_run = store.events(&EventsOf::Run(run("7"))).await.unwrap();
    assert_eq!(of_run.iter().filter(|event| event.transition == "commit").count(), 10);

    let again = plane.apply_together(commits()).await;
    assert!(again.iter().all(Result::is_err), "they are not claimed any more: {again:?}");
    harness.done().await;
}

/// It may have been made.
#[tokio::test]
async fn a_hand_over_whose_answer_is_lost_is_recognised() {
    let harness = StoreHarness::set_up().await;
    let (store, proxy) = through_proxy(&harness).await;
    let (mut plane, _) = plane();
    plane.store = Arc::new(store.clone());
    let denied = r#"{"__type":"com.amazonaws.dynamodb.v20120810#AccessDeniedException"}"#;
    for (name, action) in
        [("i-1", ProxyAction::Lose), ("i-2", ProxyAction::Answer(400, denied.to_owned()))]
    {
        let claimed = idle(&store, name).await.claim(&run("7"), noon(), HOUR);
        let claimed = make(&store, claimed).await;
        proxy.script(once(|call| call.action == "TransactWriteItems", action));
        let answers = plane.apply_together(vec![claimed.commit(noon(), HOUR)]).await;
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        let record = store.record(&instance(name)).await.unwrap().unwrap();
        assert_eq!((record.state, record.counts.runs), (State::Running, 2));
    }
    harness.done().await;
}

#[tokio::test]
async fn reaping_goes_in_batches_over_few_connections() {
    let harness = StoreHarness::set_up().await;
    let store = harness.store().await;
    let names: Vec<String> = (0..100).map(|n| format!("i-{n}")).collect();
    join_all(names.iter().map(|name| created(&store, name, "7"))).await;
    store.finish().await.unwrap();

    let (store, proxy) = through_proxy(&harness).await;
    let now = noon() + HOUR;
    let expired = store.expired(now).await.unwrap().records;
    let reap = |record: &Record| {
        let live = Instance::<Live>::believe(record).unwrap();
        (live.reap(now).change().clone(), record.clone())
    };
    let mut reaps: Vec<_> = expired.iter().map(reap).collect();
    // What was read of one of them is no longer true.
    reaps[7].1.updated_at = now;
    let verdicts = store.write_all(&reaps).await;
    assert!(
        verdicts.iter().all(|verdict| matches!(verdict, Ok(Verdict::Agreed(_)))),
        "{verdicts:?}"
    );
    store.finish().await.unwrap();
    let calls = proxy.calls();
    assert_eq!((count(&calls, "Query"), count(&calls, "BatchExecuteStatement")), (1, 4));
    assert_eq!(count(&calls, "UpdateItem"), 1, "by itself, and its guard decides");
    assert_eq!(count(&calls, "BatchGetItem"), 1, "what the index names is read consistently");
    let batches = count(&calls, "BatchWriteItem");
    // Four, and a few more where it took long.
    assert!((4..=15).contains(&batches), "a hundred events: {batches}");
    assert_eq!(calls.len(), 7 + batches);
    assert!(proxy.most_connections() <= 32, "{}", proxy.most_connections());
    harness.done().await;
}

/// The emulator keeps no tags, so what is sent has to do.
#[tokio::test]
async fn a_new_table_says_whose_it_is() {
    let harness = StoreHarness::new();
    let (store, proxy) = through_proxy(&harness).await;
    store.set_up().await.unwrap();
    let calls = proxy.calls();
    let create = calls.iter().find(|call| call.action == "CreateTable").unwrap();
    let tags = format!(
        r#""Tags":[{{"Key":"ondeck:pool","Value":"{}"}},{{"Key":"managed-by","Value":"ondeck"}}]"#,
        harness.pool
    );
    assert!(create.body.contains(&tags), "{}", create.body);
    assert!(!create.body.contains("DeletionProtection"), "an operator may delete it");
    harness.done().await;
}

#[tokio::test]
async fn setting_up_again_costs_a_read_or_two() {
    let harness = StoreHarness::set_up().await;
    let (store, proxy) = through_proxy(&harness).await;
    store.set_up().await.unwrap();
    let young = ["DescribeTable", "DescribeTimeToLive"];
    assert_eq!(proxy.actions(), young, "the refresh that created it may not have finished");

    let old = described("ACTIVE");
    proxy.script(move |_| ProxyAction::Answer(200, old.clone()));
    store.set_up().await.unwrap();
    assert_eq!(proxy.actions(), ["DescribeTable"], "long since finished");
    harness.done().await;
}

#[tokio::test]
async fn an_agent_s_looks_are_cheap_while_nothing_changes() {
    let harness = StoreHarness::set_up().await;
    let control = harness.store().await;
    let (agent, proxy) = through_proxy(&harness).await;
    let id = instance("i-1");
    let look = async || {
        let record = agent.record(&id).await.unwrap();
        let sure = |call: Call| call.body.contains("\"ConsistentRead\":true");
        (record.map(|record| record.state.as_str()), proxy.calls().into_iter().map(sure).collect())
    };
    let (cheap, sure) = (false, true);
    let seen = |state, reads: &[bool]| (state, reads.to_vec());

    assert_eq!(look().await, seen(None, &[sure]));
    assert_eq!(look().await, seen(None, &[sure]), "nothing is never taken for known");
    let running = running(&control, "i-1", "7").await;
    assert_eq!(look().await, seen(Some("running"), &[sure]));
    assert_eq!(look().await, seen(Some("running"), &[cheap]));
    let idle = make(&control, running.release(noon(), HOUR)).await;
    assert_eq!(look().await, seen(Some("idle"), &[cheap, sure]), "news are made sure of");
    assert_eq!(look().await, seen(Some("idle"), &[cheap]));
    make(&control, idle.expire(Timestamp::from_millis(0))).await;
    assert_eq!(look().await, seen(Some("idle"), &[cheap, sure]));
    assert_eq!(look().await, seen(Some("idle"), &[sure]), "its time is up");
    harness.done().await;
}

/// A query may see a transaction half-way, and then the version is not that of the settings.
#[tokio::test]
async fn settings_that_are_not_of_the_version_that_they_name_are_read_once_more() {
    let harness = StoreHarness::set_up().await;
    let (store, proxy) = through_proxy(&harness).await;
    let half = BTreeMap::from([
        ("idle-time-sec".to_owned(), "60".to_owned()),
        ("settings-version".to_owned(), "of the settings before".to_owned()),
    ]);
    store.put_settings(&half).await.unwrap();
    proxy.calls();
    assert_eq!(Store::settings(&store).await.unwrap(), half);
    assert_eq!(proxy.actions().len(), 2);
    let rest = SettingsVersion::of(&half).as_str().to_owned();
    store.put_settings(&BTreeMap::from([("settings-version".to_owned(), rest)])).await.unwrap();
    proxy.calls();
    Store::settings(&store).await.unwrap();
    assert_eq!(proxy.actions().len(), 1, "they fit");
    harness.done().await;
}

/// The agent and its runner ask for the settings whenever they need one.
#[tokio::test]
async fn an_agent_reads_the_settings_again_only_if_its_record_names_another_version() {
    let harness = StoreHarness::set_up().await;
    let (agent, proxy) = through_proxy(&harness).await;
    let (mut plane, _) = plane();
    plane.store = Arc::new(harness.store().await);
    let settings = |value: &str| -> BTreeMap<String, String> {
        let mut settings = BTreeMap::from([("idle-time-sec".to_owned(), value.to_owned())]);
        let version = SettingsVersion::of(&settings);
        settings.insert("settings-version".to_owned(), version.as_str().to_owned());
        settings
    };
    let (id, owner) = (instance("i-1"), run("7"));
    let reads = async || {
        agent.record(&id).await.unwrap();
        proxy.calls();
        let read = AgentStore::settings(&agent).await.unwrap();
        (read["idle-time-sec"].clone(), proxy.actions().len())
    };
    plane.store.put_settings(&settings("300")).await.unwrap();
    plane.settings().await.unwrap();
    let register = Instance::<Created>::register(&id, &spec(), &owner, plane.now(), HOUR);
    let created = plane.apply(register).await.unwrap();
    assert_eq!(reads().await, ("300".to_owned(), 1));
    assert_eq!(reads().await, ("300".to_owned(), 0), "the record names what was read");
    plane.store.put_settings(&settings("60")).await.unwrap();
    assert_eq!(reads().await, ("300".to_owned(), 0), "no writer has gone by others yet");
    plane.settings().await.unwrap();
    plane.apply(created.activate(plane.now(), HOUR)).await.unwrap();
    assert_eq!(reads().await, ("60".to_owned(), 1));
    harness.done().await;
}

/// A run waits for its labels to be stored with its demand.
#[tokio::test]
async fn a_demand_is_replaced_by_one_write_and_kept_from_its_latest_time_on() {
    let harness = StoreHarness::set_up().await;
    let (store, proxy) = through_proxy(&harness).await;
    let table = harness.table_client().await;
    let asked = |days: u32| Demand::of(&Request::of_run(run("8")), noon() + days * 24 * HOUR);
    let kept_until = async || {
        let item = table.get("DEMAND#8", "DEMAND").await.unwrap();
        let seconds: u64 = item["ttl"].as_n().unwrap().parse().unwrap();
        (Timestamp::from_millis(seconds * 1_000), item["listSort"].as_s().unwrap().clone())
    };
    let until = |days| ((asked(days).at + RETENTION), asked(days).at.to_string());
    assert!(store.replace_demand(None, &asked(0)).await.unwrap());
    assert_eq!(proxy.actions(), ["UpdateItem"]);
    assert_eq!(kept_until().await, until(0));
    assert!(store.replace_demand(Some(&asked(0)), &asked(29)).await.unwrap());
    assert_eq!(proxy.actions(), ["UpdateItem"]);
    assert_eq!(kept_until().await, until(29));

    // The demands of all labels share an item.
    let mut labelled = asked(9);
    labelled.options.label_suffix = Some("large".parse().unwrap());
    store.put_demand(&Demand { at: asked(30).at, ..labelled.clone() }).await.unwrap();
    let leased = asked(29).leased(1, noon());
    assert!(store.replace_demand(Some(&asked(29)), &leased).await.unwrap());
    assert_eq!(kept_until().await, until(30), "a lease changes nothing about that");
    proxy.calls();

    // Another version writes the same as another text.
    let mut item = table.get("DEMAND#8", "DEMAND").await.unwrap();
    let other = format!(" {}", item["value"].as_s().unwrap());
    item.insert("value".to_owned(), text(other));
    table.put(item).await;
    assert!(store.replace_demand(Some(&leased), &asked(29)).await.unwrap());
    assert_eq!(proxy.actions(), ["UpdateItem", "BatchGetItem", "UpdateItem"]);
    assert!(!store.replace_demand(Some(&leased), &asked(29)).await.unwrap());
    assert_eq!(proxy.actions(), ["UpdateItem", "BatchGetItem"]);
    harness.done().await;
}
