use std::time::Duration;

use std::os::unix::fs::PermissionsExt;

use ondeck_core::lifecycle::{Idle, Instance, Verdict};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{AgentStore, PortError, RecordScope, Store};
use ondeck_local::{Db, Home, LocalStore};

use crate::harness::{LocalHarness, instance, run};

fn home() -> (tempfile::TempDir, Home) {
    let dir = tempfile::tempdir().unwrap();
    let home = Home::new(dir.path().to_owned());
    (dir, home)
}

/// Asserts that opening and creating both fail with a message that names the file.
fn assert_unusable(home: &Home, problem: &str) {
    for (way, answer) in [("open", Db::open(home)), ("create", Db::create(home))] {
        let Err(PortError::Unusable { service: "store", reason, hint }) = answer else {
            panic!("{way} of {problem}: {answer:?}");
        };
        assert!(reason.contains("ondeck.db") && reason.contains(problem), "{way}: {reason}");
        assert!(!hint.is_empty());
    }
}

#[test]
fn a_missing_file_is_not_set_up() {
    let (_dir, home) = home();
    assert!(matches!(Db::open(&home), Err(PortError::NotSetUp { .. })));
    std::fs::write(home.database(), "").unwrap();
    assert!(matches!(Db::open(&home), Err(PortError::NotSetUp { .. })), "an empty file");
    Db::create(&home).unwrap();
    Db::open(&home).unwrap();
}

#[tokio::test]
async fn the_file_is_for_one_user_even_in_a_home_for_all() {
    for is_there in [false, true] {
        let (_dir, home) = home();
        let all = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(home.dir(), all).unwrap();
        if is_there {
            std::fs::write(home.database(), "").unwrap();
        }
        let db = Db::create(&home).unwrap();
        LocalStore::new(db).put_settings(&[("a".into(), "b".into())].into()).await.unwrap();
        for name in ["ondeck.db", "ondeck.db-wal", "ondeck.db-shm"] {
            let mode = std::fs::metadata(home.dir().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}, {is_there}");
        }
    }
}

#[test]
fn a_file_that_is_no_database_is_left_alone() {
    let (_dir, home) = home();
    let text = "not a database, but long enough to be looked at as if it were one\n".repeat(20);
    std::fs::write(home.database(), &text).unwrap();
    assert_unusable(&home, "not a database");
    assert_eq!(std::fs::read_to_string(home.database()).unwrap(), text);
}

#[test]
fn a_directory_in_its_place_cannot_be_used() {
    let (_dir, home) = home();
    std::fs::create_dir(home.database()).unwrap();
    assert_unusable(&home, "unable to open");
}

#[test]
fn a_newer_version_asks_for_a_newer_program() {
    let harness = LocalHarness::new();
    harness.sql("PRAGMA user_version = 99");
    assert_unusable(&harness.home, "schema version 99");
    let Err(PortError::Unusable { hint, .. }) = Db::open(&harness.home) else { panic!() };
    assert!(hint.contains("newer ondeck"), "{hint}");
}

#[test]
fn an_older_version_is_not_called_another_programs() {
    let harness = LocalHarness::new();
    harness.sql("PRAGMA user_version = 1");
    assert_unusable(&harness.home, "made by an older ondeck");
    let Err(PortError::Unusable { hint, .. }) = Db::open(&harness.home) else { panic!() };
    assert!(hint.contains("terminate its machines"), "{hint}");
}

#[test]
fn the_database_of_another_program_is_left_alone() {
    let (_dir, home) = home();
    let other = rusqlite::Connection::open(home.database()).unwrap();
    other.execute_batch("CREATE TABLE instances (mine)").unwrap();
    assert_unusable(&home, "another program");
}

#[test]
fn a_write_protected_file_cannot_be_used() {
    let harness = LocalHarness::new();
    let file = harness.home.database();
    let mut permissions = std::fs::metadata(&file).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&file, permissions).unwrap();
    if std::fs::File::options().write(true).open(&file).is_ok() {
        // Root may write in spite of the permissions.
        Db::open(&harness.home).unwrap();
        return;
    }
    assert_unusable(&harness.home, "write-protected");
}

#[tokio::test]
async fn a_store_without_settings_is_not_set_up() {
    let harness = LocalHarness::new();
    let settings = Store::settings(&harness.store()).await;
    assert!(matches!(settings, Err(PortError::NotSetUp { .. })), "{settings:?}");
}

#[tokio::test]
async fn a_call_that_panics_affects_no_other_call() {
    let harness = LocalHarness::new();
    let answer = harness.db.call(|_| -> rusqlite::Result<()> { panic!("on purpose") }).await;
    assert!(matches!(answer, Err(PortError::Unavailable { .. })), "{answer:?}");
    let answer = harness.db.write(|_| -> rusqlite::Result<()> { panic!("on purpose") }).await;
    assert!(matches!(answer, Err(PortError::Unavailable { .. })), "{answer:?}");
    harness.set(&[("still", "works")]).await;
}

#[tokio::test]
async fn readers_and_the_writer_do_not_wait_for_each_other() {
    let harness = LocalHarness::new();
    let mode = |conn: &mut rusqlite::Connection| {
        conn.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0))
    };
    assert_eq!(harness.db.call(mode).await.as_deref(), Ok("wal"));
    let reopened = Db::open(&harness.home).unwrap();
    assert_eq!(reopened.call(mode).await.as_deref(), Ok("wal"));
}

/// Two valid rows, and others that are each corrupt in a different way.
fn corrupt(harness: &LocalHarness) {
    let row = |id: &str, state: &str, cpu: &str| {
        format!(
            "INSERT INTO instances VALUES ({id}, {state}, '', '2025-05-31T12:00:00.000Z', 'large',
            'c6i.large', 'spot', {cpu}, 4096, '2025-05-31T11:00:00.000Z',
            '2025-05-31T11:00:00.000Z', '', '', 1, 1, 0, '', '', '');"
        )
    };
    harness.sql(&row("'i-1'", "'idle'", "2"));
    harness.sql(&row("'i-2-owner'", "'running'", "2"));
    harness.sql(&row("'i-3-blob'", "x'00ff'", "2"));
    harness.sql(&row("'i-4-null'", "NULL", "2"));
    harness.sql(&row("'i-5-cpu'", "'idle'", "'two'"));
    harness.sql(&row("x'0102'", "'idle'", "2"));
    harness.sql(&row("'i-9'", "'idle'", "2"));
}

#[tokio::test]
async fn a_corrupt_row_is_reported_and_affects_no_other() {
    let harness = LocalHarness::new();
    corrupt(&harness);
    let store = harness.store();
    let listing = store.list(RecordScope::Live).await.unwrap();
    let sound: Vec<&str> = listing.records.iter().map(|record| record.id.as_str()).collect();
    assert_eq!(sound, ["i-1", "i-9"]);
    let problems: Vec<String> = listing.unreadable.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 5, "{problems:?}");
    for named in ["i-2-owner", "i-3-blob", "i-4-null", "i-5-cpu"] {
        assert!(problems.iter().any(|problem| problem.contains(named)), "{named}: {problems:?}");
    }
    let now = Timestamp::parse("2025-05-31T13:00:00Z").unwrap();
    assert_eq!(store.expired(now).await.unwrap().records.len(), 2);
}

#[tokio::test]
async fn a_corrupt_row_refuses_changes_by_id() {
    let harness = LocalHarness::new();
    corrupt(&harness);
    let store = harness.store();
    let sound = store.record(&instance("i-1")).await.unwrap().unwrap();
    let now = Timestamp::parse("2025-05-31T11:30:00Z").unwrap();
    for id in ["i-2-owner", "i-3-blob", "i-5-cpu"] {
        let ticket = Ticket {
            instance_id: instance(id),
            spec: sound.spec.clone(),
            threshold: sound.threshold.unwrap(),
            generation: sound.counts.generation,
            runs: Some(sound.counts.runs),
        };
        let claim = Instance::<Idle>::announced(&ticket).claim(&run("1"), now, Default::default());
        let answer = store.write(claim.change()).await;
        let Ok(Verdict::Unreadable(row)) = answer else { panic!("{answer:?}") };
        assert_eq!(row.id, id);
        assert!(store.record(&instance(id)).await.is_err());
    }
    assert!(store.events().await.unwrap().is_empty(), "nothing was changed");
}

#[tokio::test]
async fn an_unknown_signal_counts_as_none() {
    let harness = LocalHarness::new();
    let store = LocalStore::new(harness.db.clone());
    let beat = Heartbeat::new(Timestamp::from_millis(1), Duration::from_secs(5));
    store.beat(&instance("i-1"), &beat).await.unwrap();
    harness.sql("INSERT INTO signals VALUES ('i-1', 'UD_WHAT', '', '', 'never', NULL, '')");
    let id = instance("i-1");
    let status = store.agent_status(std::slice::from_ref(&id)).await.unwrap();
    assert!(status[0].heartbeat.is_some() && status[0].report.is_none());

    let at = Timestamp::from_millis(1);
    let report = Report {
        machine_label: None,
        signal: Signal::Prepared,
        run: None,
        suffix: None,
        detail: String::new(),
        at,
        generation: None,
    };
    for corrupt in ["'never'", "NULL", "x'00ff'", "7"] {
        harness.sql(&format!("UPDATE signals SET signal = 'UD_WHAT', at = {corrupt}"));
        store.report(&id, &report).await.unwrap();
        let status = store.agent_status(std::slice::from_ref(&id)).await.unwrap();
        assert_eq!(status[0].report.as_ref(), Some(&report), "{corrupt} is no time");
    }
}
