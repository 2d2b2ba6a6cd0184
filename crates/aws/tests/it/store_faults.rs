//! Answers that are lost, stale, partial, or no.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::future::{join, join_all};
use ondeck_aws::{DynamoStore, EventsOf};
use ondeck_core::lifecycle::{Created, Instance, Verdict};
use ondeck_core::model::ids::RunId;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::ports::{AgentStore, PortError, RecordScope, Store};
use ondeck_core::testkit::plane;
use tokio::sync::Notify;

use crate::dynamodb_proxy::{Call, DynamoDbProxy, ProxyAction};
use crate::store_harness::{
    HOUR, StoreHarness, beat, claim, described, idle, instance, make, noon, run, running, spec,
    text,
};

pub(crate) async fn through_proxy() -> (StoreHarness, DynamoStore, DynamoDbProxy) {
    let harness = StoreHarness::set_up().await;
    let proxy = DynamoDbProxy::on(&harness.dynamodb).await;
    let store = harness.store_through(&proxy.endpoint).await;
    (harness, store, proxy)
}

/// Does this to the first request that fits, and lets all others pass.
pub(crate) fn once(
    fits: impl Fn(&Call) -> bool + Send + 'static,
    action: ProxyAction,
) -> impl FnMut(&Call) -> ProxyAction {
    let mut action = Some(action);
    move |call| {
        if fits(call) { action.take().unwrap_or(ProxyAction::Pass) } else { ProxyAction::Pass }
    }
}

pub(crate) fn is_transition(call: &Call) -> bool {
    call.action == "UpdateItem" && !call.body.contains("ADD instances")
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_is_recognised() {
    let (harness, store, proxy) = through_proxy().await;
    let (mut plane, _) = plane();
    plane.store = Arc::new(store.clone());
    let (mine, id): (RunId, _) = (run("7"), instance("i-1"));

    proxy.script(once(is_transition, ProxyAction::Lose));
    let register = Instance::<Created>::register(&id, &spec(), &mine, plane.now(), HOUR);
    let created = plane.apply(register.because("launched")).await.unwrap();
    proxy.script(once(is_transition, ProxyAction::Lose));
    plane.apply(created.activate(plane.now(), HOUR)).await.unwrap();
    let updates = proxy.actions().into_iter().filter(|action| action == "UpdateItem").count();
    assert_eq!(updates, 5, "one note, and each transition twice");

    let record = store.record(&id).await.unwrap().unwrap();
    assert_eq!((record.state.as_str(), record.run), ("running", Some(mine)));
    store.finish().await.unwrap();
    let events = store.events(&EventsOf::Machine(id)).await.unwrap();
    let steps: Vec<_> = events.iter().map(|e| (e.transition.as_str(), e.why.as_str())).collect();
    assert_eq!(steps, [("register", "launched"), ("activate", "")], "and told of, once");
    harness.done().await;
}

#[tokio::test]
async fn a_claim_is_not_made_without_the_note_of_its_run() {
    let (harness, store, proxy) = through_proxy().await;
    let before = harness.store().await;
    let idles = join_all(["i-1", "i-2"].map(|name| idle(&before, name))).await;
    let throttled = r#"{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException"}"#;
    let is_note = |call: &Call| call.body.contains("ADD instances");
    let refuse = || proxy.script(once(is_note, ProxyAction::Answer(400, throttled.to_owned())));
    refuse();
    let error = store.write(&claim(&idles[0], "7")).await.unwrap_err();
    assert!(matches!(error, PortError::Unavailable { .. }), "{error:?}");
    assert!(matches!(store.write(&claim(&idles[0], "7")).await, Ok(Verdict::Agreed(_))));
    let actions = proxy.actions();
    let transactions = actions.iter().filter(|action| *action == "TransactWriteItems").count();
    assert_eq!((transactions, actions.len()), (2, 4), "with the reads beside them: {actions:?}");

    // Another run has one of two machines, so that the set of the run is written by itself.
    let claims = idles.iter().map(|idle| claim(idle, "8")).collect::<Vec<_>>();
    let is_set = move |call: &Call| call.action == "UpdateItem" && is_note(call);
    proxy.script(once(is_set, ProxyAction::Answer(400, throttled.to_owned())));
    let verdicts = join_all(claims.iter().map(|claim| store.write(claim))).await;
    assert!(matches!(verdicts[0], Ok(Verdict::Refused(Some(_)))), "{verdicts:?}");
    assert!(matches!(verdicts[1], Err(PortError::Unavailable { .. })), "{verdicts:?}");
    let calls = proxy.calls();
    assert!(!calls.iter().any(|call| call.action == "BatchExecuteStatement"), "{calls:?}");
    assert!(matches!(store.write(&claims[1]).await, Ok(Verdict::Agreed(_))));
    assert_eq!(store.of_run(&run("8")).await.unwrap().records.len(), 1);
    harness.done().await;
}

/// Through the plane, as a provision does it.
#[tokio::test]
async fn a_claim_whose_answer_is_lost_is_recognised() {
    let (harness, store, proxy) = through_proxy().await;
    let (mut plane, _) = plane();
    plane.store = Arc::new(store.clone());
    let idle = idle(&harness.store().await, "i-1").await;
    proxy.script(once(|call| call.action == "TransactWriteItems", ProxyAction::Lose));
    let claimed = plane.apply(idle.claim(&run("7"), noon(), HOUR)).await.unwrap();
    assert_eq!(claimed.id(), idle.id());
    let calls = proxy.actions();
    assert_eq!(calls.iter().filter(|call| *call == "TransactWriteItems").count(), 2, "{calls:?}");
    assert_eq!(store.of_run(&run("7")).await.unwrap().records.len(), 1);
    store.finish().await.unwrap();
    let events = store.events(&EventsOf::Machine(idle.id().clone())).await.unwrap();
    assert_eq!(events.iter().filter(|event| event.transition == "claim").count(), 1, "{events:?}");
    harness.done().await;
}

/// The answer to a look at `i-1`, to be given again later.
async fn as_it_is_now(harness: &StoreHarness) -> String {
    let found = harness.table_client().await.get("INSTANCE#i-1", "RECORD").await.unwrap();
    let attributes: Vec<String> = found
        .iter()
        .map(|(name, value)| match value.as_s() {
            Ok(text) => format!(r#""{name}":{{"S":"{text}"}}"#),
            Err(value) => format!(r#""{name}":{{"N":"{}"}}"#, value.as_n().unwrap()),
        })
        .collect();
    format!(r#"{{"Item":{{{}}}}}"#, attributes.join(","))
}

/// An agent's cycle and its watch look side by side. Where the answer to one look comes late, it
/// must not become what later looks are held against.
#[tokio::test]
async fn an_answer_that_was_overtaken_never_takes_an_agent_back() {
    let (harness, agent, proxy) = through_proxy().await;
    let control = harness.store().await;
    let id = instance("i-1");
    let running = running(&control, "i-1", "7").await;
    let stale = as_it_is_now(&harness).await;
    let owner = async || agent.record(&id).await.unwrap().unwrap().run;

    let (carried_out, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    proxy.script(once(|_| true, ProxyAction::Late(carried_out.clone(), go_on.clone())));
    let slow = owner();
    let meanwhile = async {
        carried_out.notified().await;
        make(&control, running.release(noon(), HOUR)).await;
        assert_eq!(owner().await, None, "the agent has seen that the run is over");
        go_on.notify_one();
    };
    assert_eq!(join(slow, meanwhile).await.0, Some(run("7")), "as it was when it was asked");

    proxy.script(move |call| match call.body.contains("\"ConsistentRead\":false") {
        true => ProxyAction::Answer(200, stale.clone()),
        false => ProxyAction::Pass,
    });
    assert_eq!(owner().await, None, "and it stays over");
    harness.done().await;
}

/// A copy that lags behind shows the run that was just left. An agent that believed it would
/// register for that run again.
#[tokio::test]
async fn a_stale_copy_never_takes_an_agent_back() {
    let (harness, agent, proxy) = through_proxy().await;
    let control = harness.store().await;
    let id = instance("i-1");
    let running = running(&control, "i-1", "7").await;
    let stale = as_it_is_now(&harness).await;
    let owner = async || agent.record(&id).await.unwrap().unwrap().run;
    assert_eq!(owner().await, Some(run("7")));
    make(&control, running.release(noon(), HOUR)).await;
    assert_eq!(owner().await, None, "the agent has seen that the run is over");

    proxy.script(move |call| match call.body.contains("\"ConsistentRead\":false") {
        true => ProxyAction::Answer(200, stale.clone()),
        false => ProxyAction::Pass,
    });
    proxy.calls();
    for _ in 0..3 {
        assert_eq!(owner().await, None, "and it stays over");
    }
    assert_eq!(proxy.calls().len(), 6, "each look was made sure of");
    harness.done().await;
}

#[tokio::test]
async fn what_was_left_unprocessed_is_asked_for_again_but_not_for_ever() {
    let (harness, store, proxy) = through_proxy().await;
    let (one, two) = (instance("i-1"), instance("i-2"));
    store.beat(&one, &beat(noon())).await.unwrap();
    store.beat(&two, &beat(noon())).await.unwrap();
    let rest = |call: &Call| {
        let items = call.body.strip_prefix(r#"{"RequestItems":"#).unwrap();
        let items = items.strip_suffix('}').unwrap();
        format!(r#"{{"Responses":{{}},"UnprocessedKeys":{items}}}"#)
    };
    let asked = Arc::new(AtomicUsize::new(0));
    let (seen, limit) = (asked.clone(), Arc::new(AtomicUsize::new(2)));
    let until = limit.clone();
    proxy.script(move |call| match call.action.as_str() {
        "BatchGetItem" if seen.fetch_add(1, Ordering::SeqCst) < until.load(Ordering::SeqCst) => {
            ProxyAction::Answer(200, rest(call))
        }
        _ => ProxyAction::Pass,
    });
    let status = store.agent_status(&[one.clone(), two.clone()]).await.unwrap();
    assert!(status.iter().all(|status| status.heartbeat == Some(beat(noon()))), "{status:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 3);

    limit.store(usize::MAX, Ordering::SeqCst);
    let error = store.agent_status(&[one, two]).await.unwrap_err();
    assert!(
        matches!(&error, PortError::Unavailable { reason, .. }
        if reason.contains("unprocessed")),
        "{error:?}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 3 + 5);
    harness.done().await;
}

#[tokio::test]
async fn a_query_that_does_not_get_on_comes_to_an_end() {
    let (harness, store, proxy) = through_proxy().await;
    let page = r#"{"Items":[],"LastEvaluatedKey":{"PK":{"S":"INTENT#1"},"SK":{"S":"INTENT"}}}"#;
    proxy.script(|call| match call.action.as_str() {
        "Query" => ProxyAction::Answer(200, page.to_owned()),
        _ => ProxyAction::Pass,
    });
    let error = store.open_intents().await.unwrap_err();
    assert!(matches!(error, PortError::Unavailable { .. }), "{error}");
    assert_eq!(proxy.actions(), ["Query", "Query"]);
    harness.done().await;
}

#[tokio::test]
async fn a_report_takes_the_place_of_one_that_tells_no_time() {
    let harness = StoreHarness::set_up().await;
    let (store, table_client) = (harness.store().await, harness.table_client().await);
    let id = instance("i-1");
    let report = Report {
        machine_label: None,
        signal: Signal::Prepared,
        run: None,
        suffix: None,
        detail: String::new(),
        at: noon(),
        generation: None,
    };
    for corrupt in [text("never"), text("7"), text(""), AttributeValue::N("7".to_owned())] {
        let told = format!("{corrupt:?}");
        let keys = [("PK", text("AGENT#i-1")), ("SK", text("STATUS")), ("signalAt", corrupt)];
        table_client.put(keys.map(|(name, value)| (name.to_owned(), value)).into()).await;
        store.report(&id, &report).await.unwrap();
        let status = store.agent_status(std::slice::from_ref(&id)).await.unwrap();
        assert_eq!(status[0].report.as_ref(), Some(&report), "{told}");
    }
    harness.done().await;
}

#[tokio::test]
async fn events_that_cannot_be_written_fail_nothing() {
    let (harness, store, proxy) = through_proxy().await;
    proxy.script(|call| match call.action.as_str() {
        "BatchWriteItem" => ProxyAction::Answer(500, "{}".to_owned()),
        _ => ProxyAction::Pass,
    });
    running(&store, "i-1", "7").await;
    assert_eq!(store.finish().await, Ok(()));
    harness.done().await;
}

#[tokio::test]
async fn two_refreshes_that_cross_are_told_to_try_again() {
    let (harness, store, proxy) = through_proxy().await;
    let cancelled = |code: &str| {
        format!(
            r#"{{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                "CancellationReasons":[{{"Code":"None"}},{{"Code":"{code}"}}]}}"#
        )
    };
    let settings = [("a", "1"), ("b", "2")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    for (code, passes) in [("TransactionConflict", true), ("ValidationError", false)] {
        let body = cancelled(code);
        proxy.script(move |_| ProxyAction::Answer(400, body.clone()));
        let error = store.put_settings(&settings).await.unwrap_err();
        assert_eq!(matches!(error, PortError::Unavailable { .. }), passes, "{error:?}");
    }
    harness.done().await;
}

/// A refresh that was killed between making the table and switching on the expiry of events.
#[tokio::test]
async fn what_was_left_half_made_is_made_up_for() {
    let harness = StoreHarness::new();
    let proxy = DynamoDbProxy::on(&harness.dynamodb).await;
    let store = harness.store_through(&proxy.endpoint).await;
    proxy.script(|call| match call.action.as_str() {
        "UpdateTimeToLive" => ProxyAction::Answer(500, "{}".to_owned()),
        _ => ProxyAction::Pass,
    });
    let error = store.set_up().await.unwrap_err();
    assert!(matches!(error, PortError::Unavailable { .. }), "{error:?}");
    proxy.script(|_| ProxyAction::Pass);
    store.set_up().await.unwrap();
    let expiry = harness.table_client().await.expiry_attribute().await;
    assert_eq!(expiry.as_deref(), Some("ttl"));
    harness.done().await;
}

#[tokio::test]
async fn a_table_that_another_run_has_created_is_only_described() {
    let (harness, store, proxy) = through_proxy().await;
    proxy.script(|call| match call.action.as_str() {
        "DescribeTimeToLive" => {
            let error = r#"{"__type":"AccessDeniedException","message":"not authorized"}"#;
            ProxyAction::Answer(400, error.to_owned())
        }
        _ => ProxyAction::Pass,
    });
    assert_eq!(store.set_up().await, Ok(()));
    assert_eq!(proxy.actions(), ["DescribeTable", "DescribeTimeToLive"]);
    harness.done().await;
}

/// DynamoDB takes its time to delete a table, and shows it until then.
#[tokio::test]
async fn a_table_that_is_being_deleted_is_made_again_once_it_is_gone() {
    let harness = StoreHarness::new();
    let proxy = DynamoDbProxy::on(&harness.dynamodb).await;
    let store = harness.store_through(&proxy.endpoint).await;
    let going = described("DELETING");
    let is_look = |call: &Call| call.action == "DescribeTable";
    proxy.script(once(is_look, ProxyAction::Answer(200, going)));
    let made = tokio::time::timeout(Duration::from_secs(20), store.set_up()).await;
    made.expect("it does not wait for a table that is not being created").unwrap();
    assert_eq!(store.list(RecordScope::All).await.unwrap().records.len(), 0);
    harness.done().await;
}

#[tokio::test]
async fn a_line_that_is_dead_is_out_of_reach() {
    let harness = StoreHarness::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let store = harness.store_through(&endpoint).await;
    let asked = tokio::time::timeout(Duration::from_secs(20), store.of_run(&run("7"))).await;
    let error = asked.unwrap().unwrap_err();
    assert!(matches!(error, PortError::Unavailable { .. }), "{error:?}");
}

/// The write behind it may have been made, so it is to be judged again. What the answer holds may
/// be an operator's script, and is never shown.
#[tokio::test]
async fn an_answer_that_cannot_be_read_is_not_repeated() {
    let (harness, store, proxy) = through_proxy().await;
    let broken = r#"{"Items":[{"SK":{"S":"pre-runner-script"},"value":{"S":"TOKEN=hunter2"}}"#;
    proxy.script(|_| ProxyAction::Answer(200, broken.to_owned()));
    let error = Store::settings(&store).await.unwrap_err();
    assert!(matches!(error, PortError::Unavailable { .. }), "{error:?}");
    assert!(!error.to_string().contains("hunter2"), "{error}");
    harness.done().await;
}
