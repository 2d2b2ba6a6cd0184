//! A table that is busy: it throttles one request in so many, does half of a batch, or takes for
//! ever. None of that may cost more than the request that it befell.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use ondeck_core::lifecycle::{Created, Instance};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::{PortError, RecordScope, Store};
use ondeck_core::testkit::plane;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::dynamodb_proxy::{Call, ProxyAction};
use crate::store_faults::{is_transition, once, through_proxy};
use crate::store_harness::{HOUR, idle, instance, make, noon, run, running, spec};
use crate::store_paging::long_settings;

/// Answers every so-manieth request of an action with an error that will pass.
fn every(n: usize, action: &'static str) -> impl FnMut(&Call) -> ProxyAction + Send + 'static {
    let asked = AtomicUsize::new(0);
    move |call| {
        let hit = action.is_empty() || call.action == action;
        if hit && asked.fetch_add(1, Ordering::SeqCst) % n == n - 1 {
            let error = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}"#;
            return ProxyAction::Answer(400, error.to_owned());
        }
        ProxyAction::Pass
    }
}

/// Does the first half of a batched read, rounded up, and finds nothing there.
fn half_of(call: &Call) -> ProxyAction {
    let asked: Value = serde_json::from_str(&call.body).unwrap();
    let mut left = asked["RequestItems"].clone();
    for (_, wanted) in left.as_object_mut().unwrap() {
        let keys = wanted["Keys"].as_array_mut().unwrap();
        keys.drain(..keys.len().div_ceil(2));
    }
    let done = left.as_object().unwrap().values().all(|left| left["Keys"] == json!([]));
    let rest = if done { json!({}) } else { left };
    ProxyAction::Answer(200, json!({"Responses": {}, "UnprocessedKeys": rest}).to_string())
}

#[tokio::test]
async fn half_of_a_batch_at_a_time_gets_to_its_end() {
    let (harness, store, proxy) = through_proxy().await;
    proxy.script(
        |call| if call.action == "BatchGetItem" { half_of(call) } else { ProxyAction::Pass },
    );
    let ids: Vec<InstanceId> = (0..50).map(|n| instance(&format!("i-{n}"))).collect();
    let status = store.agent_status(&ids).await.unwrap();
    assert_eq!(status.len(), 50);
    let batches = proxy.actions().into_iter().filter(|action| action == "BatchGetItem").count();
    assert_eq!(batches, 6, "fifty keys: 25, 13, 6, 3, 2 and 1");
    harness.done().await;
}

#[tokio::test]
async fn a_page_that_was_throttled_does_not_cost_those_before_it() {
    let (harness, store, proxy) = through_proxy().await;
    let settings = long_settings(&harness).await;
    proxy.script(every(2, "Query"));
    assert_eq!(Store::settings(&store).await, Ok(settings));
    assert_eq!(proxy.actions(), ["Query"; 3], "two pages, one of them twice");
    harness.done().await;
}

#[tokio::test]
async fn clearing_up_gets_to_its_end_however_busy_the_table_is() {
    let (harness, store, proxy) = through_proxy().await;
    let names: Vec<String> = (0..30).map(|n| format!("i-{n}")).collect();
    join_all(names.iter().map(|name| async {
        let idle = idle(&store, name).await;
        let over = make(&store, idle.expire(noon())).await;
        make(&store, over.reap(noon())).await;
    }))
    .await;
    store.finish().await.unwrap();
    proxy.script(every(3, ""));
    // Once: the whole is not repeated.
    assert_eq!(store.forget(noon() + HOUR).await, Ok(30));
    proxy.script(|_| ProxyAction::Pass);
    assert!(store.list(RecordScope::All).await.unwrap().records.is_empty());
    harness.done().await;
}

#[tokio::test]
async fn a_statement_that_was_throttled_is_not_taken_for_one_that_was_refused() {
    let (harness, store, proxy) = through_proxy().await;
    let idles = [idle(&store, "i-1").await, idle(&store, "i-2").await];
    proxy.script(|call| match call.action.as_str() {
        "BatchExecuteStatement" => {
            let error = json!({"Code": "ThrottlingError", "Message": "busy"});
            ProxyAction::Answer(200, json!({"Responses": [{}, {"Error": error}]}).to_string())
        }
        _ => ProxyAction::Pass,
    });
    let tickets = idles.each_ref().map(Instance::ticket);
    let ids = ["i-1", "i-2"].map(instance);
    for outcome in [store.mark_ticketed(&tickets, noon()).await, store.remove(&ids).await] {
        let busy = |error: &PortError| matches!(error, PortError::Unavailable { .. });
        assert!(outcome.as_ref().is_err_and(busy), "{outcome:?}");
    }
    harness.done().await;
}

/// The emulator's answers are always consistent, so what is asked for has to do.
#[tokio::test]
async fn what_decisions_hang_on_is_as_it_surely_is() {
    let (harness, store, proxy) = through_proxy().await;
    running(&store, "i-1", "7").await;
    store.finish().await.unwrap();
    proxy.calls();
    store.of_run(&run("7")).await.unwrap();
    store.agent_status(&[instance("i-1")]).await.unwrap();
    store.list(RecordScope::Live).await.unwrap();
    store.open_intents().await.unwrap();
    store.demands(&[run("7")]).await.unwrap();
    Store::settings(&store).await.unwrap_err();
    let sure = |call: &Call| call.body.contains(r#""ConsistentRead":true"#);
    let calls = proxy.calls();
    // An index cannot be read consistently; what it names is.
    let (hints, reads): (Vec<_>, Vec<_>) =
        calls.iter().partition(|call| call.body.contains("\"IndexName\""));
    assert_eq!((hints.len(), reads.len()), (2, 7), "{calls:?}");
    assert!(reads.into_iter().all(sure), "{calls:?}");
    harness.done().await;
}

/// It takes as long as a call may take.
#[tokio::test]
async fn a_write_that_is_never_answered_is_given_up_and_recognised() {
    let (harness, store, proxy) = through_proxy().await;
    let (mut plane, _) = plane();
    plane.store = Arc::new(store.clone());
    let (mine, id) = (run("7"), instance("i-1"));
    let (carried_out, never) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    proxy.script(once(is_transition, ProxyAction::Late(carried_out.clone(), never)));
    let register = Instance::<Created>::register(&id, &spec(), &mine, plane.now(), HOUR);
    let limit = Duration::from_secs(60);
    let created = tokio::time::timeout(limit, plane.apply(register)).await;
    created.expect("a call has its limit").expect("it was carried out");
    carried_out.notified().await;
    let transitions = proxy.calls().iter().filter(|call| is_transition(call)).count();
    assert_eq!(transitions, 2, "the second finds what the first has done");
    harness.done().await;
}
