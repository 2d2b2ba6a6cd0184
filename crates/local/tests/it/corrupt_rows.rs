//! Property tests: an arbitrary value in any column is reported with its row and affects no other row.

use ondeck_core::lifecycle::{Instance, Live};
use ondeck_core::model::credentials::{Credentials, TokenPurpose};
use ondeck_core::model::demand::Demand;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::intent::Intent;
use ondeck_core::model::record::Counts;
use ondeck_core::model::record::{Record, RecordRow, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::provision::ProvisionOptions;
use ondeck_core::ports::{AgentStore, Pool, PortError, RecordScope, Store};
use ondeck_local::LocalPool;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use rusqlite::types::Value;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::{LocalHarness, RealClock, instance, run};

/// Checks a property on one file that is emptied between cases. Failures are printed and not saved to
/// a file; each one found becomes a test of its own.
#[expect(clippy::needless_pass_by_value, reason = "a property is written where it is checked")]
fn check<S: Strategy>(cases: u32, input: &S, test: impl AsyncFn(&LocalHarness, S::Value)) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let harness = LocalHarness::new();
    let outcome = TestRunner::new(config).run(input, |value| {
        harness.sql(
            "DELETE FROM instances; DELETE FROM settings; DELETE FROM tickets;
             DELETE FROM intents; DELETE FROM demands; DELETE FROM credentials;
             DELETE FROM signals; DELETE FROM heartbeats; DELETE FROM events;",
        );
        runtime.block_on(test(&harness, value));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

/// Any value that SQLite can store, including text that is not UTF-8.
fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<i64>().prop_map(Value::Integer),
        any::<f64>().prop_map(Value::Real),
        "(?s).{0,20}".prop_map(Value::Text),
        "[a-z]{200,2000}".prop_map(Value::Text),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(Value::Blob),
    ]
}

const COLUMNS: [&str; 17] = [
    "state",
    "reuse",
    "run",
    "threshold",
    "resource_class",
    "instance_type",
    "usage_class",
    "cpu",
    "mem",
    "created_at",
    "updated_at",
    "ticketed_at",
    "settings_version",
    "generation",
    "runs",
    "missed_registrations",
    "label",
];

fn record(n: usize, state: State) -> Record {
    let at = Timestamp::parse("2025-05-31T12:00:00Z").unwrap();
    Record {
        requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
        id: instance(&format!("i-{n}")),
        state,
        run: state.is_owned().then(|| run("7")),
        threshold: state.is_live().then_some(at),
        spec: ondeck_core::model::record::MachineSpec {
            resource_class: "large".parse().unwrap(),
            instance_type: "c6i.large".to_owned(),
            usage_class: UsageClass::Spot,
            cpu: 2,
            mem: 4096,
        },
        created_at: at,
        updated_at: at,
        ticketed_at: None,
        settings_version: None,
        reuse: ondeck_core::model::reuse::Reuse::Always,
        departure: ondeck_core::model::departure::Departure::None,
        suffix: None,
        counts: Counts::default(),
    }
}

fn file(harness: &LocalHarness) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(harness.home.database()).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    connection
}

fn insert(harness: &LocalHarness, record: &Record) {
    let row = RecordRow::from(record);
    let texts = [
        row.instance_id,
        row.state,
        row.run_id,
        row.threshold,
        row.resource_class,
        row.instance_type,
        row.usage_class,
        row.cpu.to_string(),
        row.mem.to_string(),
        row.created_at,
        row.updated_at,
        row.ticketed_at,
        row.settings_version,
        row.generation.to_string(),
        row.runs.to_string(),
        row.missed_registrations.to_string(),
        row.label,
        row.reuse,
        row.departure,
    ];
    let sql = "INSERT INTO instances VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
    file(harness).execute(sql, rusqlite::params_from_iter(texts)).unwrap();
}

/// Panics unless the text is one line of bounded length.
#[track_caller]
fn assert_readable(shown: &str) {
    assert!(!shown.contains(char::is_control), "more than a line: {shown:?}");
    assert!(shown.chars().count() < 1_500, "too long: {shown}");
}

#[test]
fn a_corrupt_column_of_an_instance_is_reported_and_affects_no_other_row() {
    let states = prop::collection::vec(proptest::sample::select(&State::ALL[..]), 3);
    let column = proptest::sample::select(&COLUMNS[..]);
    check(
        96,
        &(states, 0..3_usize, column, value()),
        async |harness, (states, at, column, value)| {
            let records: Vec<Record> =
                states.into_iter().enumerate().map(|(n, state)| record(n, state)).collect();
            records.iter().for_each(|record| insert(harness, record));
            let sql = format!("UPDATE instances SET {column} = ?1 WHERE id = ?2");
            file(harness).execute(&sql, (&value, records[at].id.as_str())).unwrap();
            let store = harness.store();
            let listing = store.list(RecordScope::All).await.unwrap();
            assert_eq!(listing.records.len() + listing.unreadable.len(), 3);
            for other in records.iter().filter(|record| record.id != records[at].id) {
                assert!(listing.records.contains(other), "{other:?} suffers from {column}");
            }
            let change = Instance::<Live>::believe(&record(at, State::Idle)).unwrap();
            let answer = store.write(change.reap(Timestamp::from_millis(0)).change()).await;
            let Some(unreadable) = listing.unreadable.first() else { return };
            assert_eq!(unreadable.id, format!("i-{at}"));
            assert_readable(&unreadable.to_string());
            let verdict = ondeck_core::lifecycle::Verdict::Unreadable(unreadable.clone());
            assert_eq!(answer, Ok(verdict), "a corrupt record is never changed");
            let error = store.record(&records[at].id).await.unwrap_err();
            assert!(error.to_string().contains(&format!("i-{at}")), "{error}");
        },
    );
}

#[test]
fn a_corrupt_setting_is_named() {
    let name = "[a-z-]{1,20}";
    check(64, &(name, value()), async |harness, (name, value)| {
        let put = "INSERT OR REPLACE INTO settings VALUES (?1, ?2)";
        file(harness).execute(put, ("idle-time-sec", "7")).unwrap();
        // A constraint of the table may reject the value; then there is nothing to test.
        if file(harness).execute(put, (&name, &value)).is_err() {
            return;
        }
        match Store::settings(&harness.store()).await {
            Ok(settings) => assert!(settings.contains_key(&name)),
            Err(error) => {
                assert!(error.to_string().contains(&format!("{name:?}")), "{name}: {error}");
                assert_readable(&error.to_string());
            }
        }
    });
}

#[test]
fn a_corrupt_message_does_not_block_the_queue() {
    check(64, &prop::collection::vec(value(), 1..5), async |harness, bodies| {
        let pool = LocalPool::new(harness.db.clone(), Arc::new(RealClock));
        let large = "large".parse().unwrap();
        pool.send_raw(&large, "first").await.unwrap();
        let sql = "INSERT INTO tickets (class, body, visible_at) VALUES ('large', ?1, '')";
        let put = |body| usize::from(file(harness).execute(sql, [body]).is_ok());
        let count: usize = bodies.into_iter().map(put).sum();
        pool.send_raw(&large, "last").await.unwrap();
        let held = pool.receive(&large, 10, Duration::from_secs(60)).await.unwrap();
        assert_eq!(held.len(), count + 2);
        let bodies: Vec<&str> = held.iter().map(|held| held.body.as_str()).collect();
        assert!(bodies.contains(&"first") && bodies.contains(&"last"), "{bodies:?}");
        let receipts: Vec<_> = held.iter().map(|held| held.receipt.clone()).collect();
        pool.delete(&large, &receipts).await.unwrap();
        assert_eq!(pool.depth(&large).await.unwrap().total(), 0, "each can be thrown away");
    });
}

fn time() -> impl Strategy<Value = Timestamp> {
    (0_u64..253_402_300_800_000).prop_map(Timestamp::from_millis)
}

#[test]
fn what_is_written_is_read_back_unchanged() {
    let signal = proptest::sample::select(&Signal::ALL[..]);
    let input = (signal, "(?s).{0,60}", "(?s).{0,60}", any::<u32>(), time(), time());
    check(64, &input, async |harness, (signal, text, other, count, at, until)| {
        let store = harness.store();
        let id = instance("i-1");
        let report = Report {
            machine_label: None,
            signal,
            run: Some(run("7")),
            suffix: None,
            detail: text.clone(),
            at,
            generation: None,
        };
        store.report(&id, &report).await.unwrap();
        let beat = Heartbeat::new(until, Duration::from_secs(5));
        store.beat(&id, &beat).await.unwrap();
        let status = store.agent_status(std::slice::from_ref(&id)).await.unwrap();
        assert_eq!((status[0].heartbeat, status[0].report.clone()), (Some(beat), Some(report)));

        let (registration, removal) = (Secret::new(&*text), Secret::new(&*other));
        let credentials = Credentials { registration, removal, expires_at: until };
        store.put_credentials(&credentials, &[].into()).await.unwrap();
        let token = store.token(TokenPurpose::Removal).await;
        assert_eq!(token, Ok(Some(credentials.token(TokenPurpose::Removal))));

        let intent = Intent {
            id: "a-1".parse().unwrap(),
            run: run("7"),
            class: None,
            count,
            usage: UsageClass::Spot,
            deadline: until,
            outcome: String::new(),
        };
        store.put_intent(&intent).await.unwrap();
        assert_eq!(store.open_intents().await, Ok(vec![intent]));

        let settings = std::collections::BTreeMap::from([(other.clone(), text.clone())]);
        store.put_settings(&settings).await.unwrap();
        let kept = Store::settings(&store).await;
        match text.is_empty() {
            true => assert!(matches!(kept, Err(PortError::NotSetUp { .. })), "{kept:?}"),
            false => assert_eq!(kept, Ok(settings)),
        }
    });
}

#[test]
fn corrupt_notes_count_as_none() {
    let table = proptest::sample::select(
        &[
            ("signals", "signal"),
            ("signals", "run"),
            ("signals", "detail"),
            ("signals", "at"),
            ("heartbeats", "at"),
            ("intents", "run"),
            ("intents", "count"),
            ("intents", "usage_class"),
            ("intents", "deadline"),
            ("demands", "body"),
        ][..],
    );
    check(96, &(table, value()), async |harness, ((table, column), value)| {
        let store = harness.store();
        let (id, at) = (instance("i-1"), Timestamp::from_millis(7));
        let report = Report {
            machine_label: None,
            signal: Signal::Prepared,
            run: None,
            suffix: None,
            detail: String::new(),
            at,
            generation: None,
        };
        store.report(&id, &report).await.unwrap();
        let beat = Heartbeat::new(at, Duration::from_secs(5));
        store.beat(&id, &beat).await.unwrap();
        let demand = demand(&run("7"));
        store.put_demand(&demand).await.unwrap();
        for name in ["a-1", "a-2"] {
            let intent = Intent {
                id: name.parse().unwrap(),
                run: run("7"),
                class: None,
                count: 1,
                usage: UsageClass::Spot,
                deadline: at,
                outcome: String::new(),
            };
            store.put_intent(&intent).await.unwrap();
        }
        let only = if table == "intents" { "WHERE id = 'a-1'" } else { "" };
        let sql = format!("UPDATE {table} SET {column} = ?1 {only}");
        // A constraint of the table may reject the value; then there is nothing to test.
        if file(harness).execute(&sql, [&value]).is_err() {
            return;
        }
        let status = store.agent_status(std::slice::from_ref(&id)).await.unwrap();
        if table != "signals" {
            assert_eq!(status[0].report, Some(report));
        }
        if table != "heartbeats" {
            assert_eq!(status[0].heartbeat, Some(beat));
        }
        let intents = store.open_intents().await.unwrap();
        assert!(intents.iter().any(|intent| intent.id.as_str() == "a-2"), "{intents:?}");
        let read = store.demands(&[run("7")]).await.unwrap();
        assert!(table == "demands" || read == [demand]);
    });
}

/// A failure that these tests found: bytes in place of text failed the whole call, and with it a
/// queue, every mode and the rescue of a run.
#[tokio::test]
async fn bytes_in_place_of_a_text_block_no_call() {
    let harness = LocalHarness::new();
    let store = harness.store();
    store.put_demand(&demand(&run("7"))).await.unwrap();
    harness.sql(
        "UPDATE demands SET body = x'00ff'; INSERT INTO settings VALUES ('rescue', x'00ff');
         INSERT INTO tickets (class, body, visible_at) VALUES ('large', x'00ff', '');
         INSERT INTO events (instance) VALUES (x'00ff');",
    );
    assert_eq!(store.demands(&[run("7")]).await, Ok(Vec::new()));
    assert_eq!(store.events().await, Ok(Vec::new()));
    let pool = LocalPool::new(harness.db.clone(), Arc::new(RealClock));
    let large = "large".parse().unwrap();
    let held = pool.receive(&large, 10, Duration::from_secs(60)).await.unwrap();
    assert_eq!(held[0].body, "\0\u{fffd}");
    let error = Store::settings(&store).await.unwrap_err().to_string();
    assert!(error.ends_with("the setting is not text: \"rescue\""), "{error}");
}

fn demand(run: &RunId) -> Demand {
    Demand {
        run: run.clone(),
        options: ProvisionOptions {
            usage: UsageClass::Spot,
            types: Some("c*".parse().unwrap()),
            ..ProvisionOptions::default()
        },
        times: Default::default(),
        at: Timestamp::from_millis(9_000_000_000),
        failed_rescues: None,
        lease: None,
        rerun: None,
        labels: Vec::new(),
    }
}
