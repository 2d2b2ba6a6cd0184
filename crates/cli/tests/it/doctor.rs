//! `ondeck doctor` on the local backend: each planted fault is named, and nothing else.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use ondeck_core::modes::doctor::FindingKind;
use ondeck_standin::not_applicable;
use rustix::process::Signal;
use serde_json::Value;

use crate::chaos::small_disk::SmallDisk;
use crate::harness::{Done, Driven, Home, signal, until};
use crate::json::assert_valid;
use crate::spend::{away_from_midnight, one_reserves};

/// The exit code of a doctor whose worst finding is a warning, and of one with an error.
pub(crate) const WARNED: i32 = 20;
pub(crate) const FAILED: i32 = 21;

/// Everything that can be found is planted by a test of the built program, on one of its backends.
#[test]
fn each_finding_is_planted_somewhere() {
    let tests = [
        include_str!("doctor.rs"),
        include_str!("aws/doctor.rs"),
        include_str!("github/doctor.rs"),
        include_str!("machine_labels.rs"),
    ]
    .concat();
    // A line that asserts an absence plants nothing.
    let planting =
        tests.lines().filter(|line| !line.contains("contains(") && !line.contains("assert_ne"));
    let tests = planting.collect::<String>();
    let left = FindingKind::ALL.iter().map(|kind| kind.as_str());
    let left = left.filter(|id| !tests.contains(&format!("\"{id}\"")));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
}

/// The ids of what is found, each once, in alphabetical order.
pub(crate) fn ids(answer: &Value) -> Vec<&str> {
    let findings = answer["findings"].as_array().unwrap().iter();
    let mut ids: Vec<&str> = findings.map(|it| it["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Findings whose cause is outside of the pool: no command of ondeck or of the provider ends it.
const OUTSIDE: [FindingKind; 5] = [
    FindingKind::Credentials,
    FindingKind::StoreRefused,
    FindingKind::StoreUnreachable,
    FindingKind::ForgeRefused,
    FindingKind::DiskFull,
];

/// The answer of a doctor, whose exit code must be that of its worst finding. Each finding names a command
/// that fixes it.
#[track_caller]
pub(crate) fn answer(done: Done) -> Value {
    assert_valid("doctor", &done);
    let answer = done.json();
    let code = match answer["worst"].as_str() {
        Some("error") => FAILED,
        Some("warning") => WARNED,
        _ => 0,
    };
    done.exited(code);
    for finding in answer["findings"].as_array().unwrap() {
        let (id, fix) = (finding["id"].as_str().unwrap(), finding["fix"].as_str().unwrap());
        let is_command = ["ondeck ", "aws ", "chmod ", "sqlite3 ", "timedatectl "]
            .iter()
            .any(|it| fix.starts_with(it));
        assert!(
            is_command || OUTSIDE.iter().any(|kind| kind.as_str() == id),
            "{id} is fixed by no command: {fix}"
        );
    }
    answer
}

/// Runs the fix of the only finding, after which there is none, or the runner of a machine that it has
/// terminated.
#[track_caller]
pub(crate) fn assert_fixed(pool: &impl Driven, answer: &Value) {
    let [finding] = &answer["findings"].as_array().unwrap()[..] else { panic!("{answer:#}") };
    let fix = finding["fix"].as_str().unwrap();
    let command = fix.split(" # ").next().unwrap();
    let words = command.split('\'').enumerate().flat_map(|(n, part)| match n % 2 {
        0 => part.split_whitespace().collect(),
        _ => vec![part],
    });
    let mut words: Vec<&str> = words.collect();
    assert_eq!(words.remove(0), "ondeck", "{fix}");
    if matches!(words[0], "terminate" | "teardown") {
        words.push("--yes");
    }
    pool.ondeck(&words).succeeded();
    let left = examined(pool);
    if ids(&left) == ["offline-runners"] && finding["id"] != "offline-runners" {
        return assert_fixed(pool, &left);
    }
    assert_eq!(ids(&left), [""; 0], "{fix}: {left:#}");
}

#[track_caller]
pub(crate) fn examined(pool: &impl Driven) -> Value {
    answer(pool.ondeck(&["doctor", "--json"]))
}

/// Asserts that this is found, and nothing else.
#[track_caller]
pub(crate) fn assert_finds(pool: &impl Driven, expected: &[&str]) -> Value {
    let answer = examined(pool);
    assert_eq!(ids(&answer), expected, "{answer:#}");
    answer
}

#[test]
fn a_healthy_pool_has_no_findings() {
    let home = Home::with(&[]);
    assert_finds(&home, &[]);
    home.warm_up(2);
    home.provision("1", 2).succeeded();
    let answer = assert_finds(&home, &[]);
    assert_eq!(answer["notChecked"].as_array().unwrap().len(), 0, "{answer:#}");
    let areas = answer["checked"].as_array().unwrap().iter();
    let areas: Vec<&str> = areas.map(|it| it["area"].as_str().unwrap()).collect();
    for area in ["access", "set-up", "settings", "forge", "machines", "computer"] {
        assert!(areas.contains(&area), "{area}: {answer:#}");
    }
    let text = home.ondeck(&["doctor"]).succeeded().stdout;
    assert!(text.starts_with("found: nothing wrong\nchecked: access: store"), "{text}");
    assert!(text.lines().count() < 10 && text.lines().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn a_pool_that_is_not_set_up_is_the_only_finding() {
    let home = Home::bare();
    let answer = assert_finds(&home, &["not-set-up"]);
    assert!(answer["findings"][0]["fix"].as_str().unwrap().contains("ondeck refresh"));
    assert!(!home.dir().exists(), "doctor creates nothing");
    let text = home.ondeck(&["doctor"]).exited(FAILED);
    assert!(text.stdout.contains("\n  error: not-set-up\n    "), "{}", text.stdout);
    assert!(text.stderr.contains("doctor found 1 error; the first: "), "{}", text.stderr);
}

#[test]
fn settings_that_were_damaged_or_exclude_each_other_are_found() {
    let home = Home::with(&["--reuse=never", "--max-runs-per-machine=5"]);
    assert_fixed(&home, &assert_finds(&home, &["settings-contradict"]));
    let change = |sql: &str| home.file().execute(sql, []).unwrap();
    for (name, value, expected) in [
        ("closed-at", "2026-11-18T12:00:00Z", "pool-closed"),
        ("applied-config", r#"{"digest":"d1"}"#, "config-not-enforced"),
        ("idle-time-sec", "soon", "settings-unreadable"),
    ] {
        let before = home.texts(&format!("SELECT value FROM settings WHERE name = '{name}'"));
        change(&format!("REPLACE INTO settings VALUES ('{name}', '{value}')"));
        assert_finds(&home, &[expected]);
        change(&format!("DELETE FROM settings WHERE name = '{name}'"));
        for value in before {
            change(&format!("REPLACE INTO settings VALUES ('{name}', '{value}')"));
        }
    }
    assert_finds(&home, &[]);
    change("REPLACE INTO settings VALUES ('idle-time-sec', 'soon')");
    assert_fixed(&home, &assert_finds(&home, &["settings-unreadable"]));
    let minimum = "--min-idle=Sat 00:00-00:30 large/c6i.large=60";
    let capped = ["--max-spend-per-day=2.5", "--max-machine-age-min=30", minimum];
    let refreshed = home.refresh(&capped);
    let answer = assert_finds(&home, &["settings-contradict"]);
    let what = answer["findings"][0]["what"].as_str().unwrap();
    let told = "min-idle costs $2.55 on its dearest day, and max-spend-per-day allows $2.50";
    assert_eq!(what, told);
    let warning = format!("{told}; max-spend-per-day 2.55 is enough; or lower min-idle");
    assert_eq!(refreshed["warnings"], serde_json::json!([warning]));
    assert_fixed(&home, &answer);
    home.refresh(&["--reset=min-idle,max-spend-per-day,max-machine-age-min"]);
    // As an earlier version has stored them, each with a fix of its own.
    for (name, value) in [
        ("max-machines", "2"),
        ("max-machines", "9 large=2"),
        ("max-machine-age-min", "1"),
        ("created-timeout-sec", "30"),
    ] {
        change("REPLACE INTO settings VALUES ('min-idle', 'Sat 00:00-00:30 large=3')");
        change(&format!("REPLACE INTO settings VALUES ('{name}', '{value}')"));
        let answer = assert_finds(&home, &["settings-contradict"]);
        let what = answer["findings"][0]["what"].as_str().unwrap();
        assert!(what.contains(name), "{what}");
        assert_fixed(&home, &answer);
        home.refresh(&[&format!("--reset=min-idle,{name}")]);
    }
}

#[test]
fn a_refresh_that_is_overdue_or_has_failed_is_found() {
    let home = Home::with(&[]);
    let change = |sql: &str| assert_eq!(home.file().execute(sql, []), Ok(1), "{sql}");
    let named = "WHERE name = 'set-up-checked'";
    change(&format!("UPDATE settings SET value = '2026-01-01T00:00:00Z' {named}"));
    assert_fixed(&home, &assert_finds(&home, &["refresh-overdue"]));
    change(&format!("DELETE FROM settings {named}"));
    assert_fixed(&home, &assert_finds(&home, &["refresh-failed"]));
}

#[test]
fn dead_machines_and_machines_without_a_record_are_found() {
    let home = Home::with(&["--boot-deadline-sec=5", "--idle-time-sec=600"]);
    let machines = home.warm_up(2);
    let agents = home.agents();
    signal(agents[&machines[0]], Signal::KILL);
    let mut found = Value::Null;
    until("the dead machine is found", || {
        found = examined(&home);
        ids(&found) == ["machines-gone"]
    });
    assert_eq!(found["findings"][0]["about"], serde_json::json!([machines[0]]));
    assert_eq!(found["findings"][0]["fix"], format!("ondeck terminate {}", machines[0]));
    assert_fixed(&home, &found);
    // It is up, and cannot end by itself.
    signal(agents[&machines[1]], Signal::STOP);
    let sql = format!("DELETE FROM instances WHERE id = '{}'", machines[1]);
    assert_eq!(home.file().execute(&sql, []), Ok(1));
    until("the orphan is found", || {
        found = examined(&home);
        ids(&found) == ["orphans"]
    });
    assert_eq!(found["findings"][0]["about"], serde_json::json!([machines[1]]));
    assert_eq!(home.agents().len(), 1, "doctor ends nothing");
    assert_fixed(&home, &found);
}

#[test]
fn machines_that_are_silent_late_or_cannot_serve_are_found() {
    let late = "--self-termination-grace-sec=60";
    let home = Home::with(&["--heartbeat-period-sec=1", late]);
    let machine = home.provision("1", 1).succeeded().ids().concat();
    let found = |expected: &str| {
        let mut found = Value::Null;
        until(expected, || {
            found = examined(&home);
            ids(&found) == [expected]
        });
        assert_eq!(found["findings"][0]["about"], serde_json::json!([machine]));
    };
    let sql = format!(
        "UPDATE signals SET signal = 'UD_REG_FAILED', detail = 'no space left' WHERE id = '{machine}'"
    );
    assert_eq!(home.file().execute(&sql, []), Ok(1));
    found("machines-failed");
    let sql =
        format!("UPDATE signals SET signal = 'UD_REG_OK', detail = '' WHERE id = '{machine}'");
    assert_eq!(home.file().execute(&sql, []), Ok(1));
    assert_finds(&home, &[]);
    let agent = home.agents()[&machine];
    signal(agent, Signal::STOP);
    found("machines-silent");
    signal(agent, Signal::CONT);
    home.ondeck(&["release", "--run-id=1", "--idle-time-sec=1"]).succeeded();
    found("machines-overdue");
    assert_fixed(&home, &assert_finds(&home, &["machines-overdue"]));
    let machine = home.provision("2", 1).succeeded().ids().concat();
    signal(home.agents()[&machine], Signal::STOP);
    let mut found = Value::Null;
    until("it is silent", || {
        found = examined(&home);
        ids(&found) == ["machines-silent"]
    });
    assert_fixed(&home, &found);
}

#[test]
fn a_disk_without_room_is_found() {
    let Some(disk) = SmallDisk::mount() else { return not_applicable("mounts") };
    let home = Home::at(disk.path().join("home"));
    home.ondeck(&["refresh"]).succeeded();
    // The whole of it is less than is wanted.
    assert_finds(&home, &["disk-full"]);
}

#[test]
fn a_record_that_cannot_be_read_is_found() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let sql = "UPDATE instances SET cpu = 'two' WHERE run = '1'";
    assert_eq!(home.file().execute(sql, []), Ok(1));
    let answer = assert_finds(&home, &["records-unreadable"]);
    let finding = &answer["findings"][0];
    assert_eq!(finding["about"], serde_json::json!(home.texts("SELECT id FROM instances")));
    let what = finding["what"].as_str().unwrap();
    assert!(what.contains("unreadable record") && what.contains("cpu"), "{what}");
    let status = home.ondeck(&["status"]).succeeded().stdout;
    assert!(status.starts_with("no machines with a readable record\n"), "{status}");
    let problem = home.status()["summary"]["problems"][0].clone();
    assert_eq!(problem["hint"], "ondeck doctor gives the command that deletes them", "{problem}");
    let fix = finding["fix"].as_str().unwrap();
    let words: Vec<&str> = fix.split('"').collect();
    let [program, sql, comment] = words[..] else { panic!("{fix}") };
    assert_eq!(program, format!("sqlite3 '{}' ", home.dir().join("ondeck.db").display()));
    assert!(comment.starts_with(" # "), "{fix}");
    assert_eq!(home.file().execute(sql, []), Ok(1), "{fix}");
    until("its machine is terminated", || {
        home.refresh(&[]);
        home.agents().is_empty()
    });
    home.refresh(&[]);
    assert_finds(&home, &[]);
}

#[test]
fn jobs_that_no_machine_serves_and_runners_that_are_left_are_found() {
    let home = Home::with(&[]);
    let run = home.start(&["run", "--run-id", "9", "--", "true"]);
    until("the job is queued", || home.number("SELECT count(*) FROM jobs") == 1);
    let answer = assert_finds(&home, &["jobs-unserved"]);
    let finding = &answer["findings"][0];
    assert_eq!(finding["what"], "1 job waits for labels that no machine has: 9");
    assert_eq!(finding["severity"], "warning", "no provision has asked");
    run.kill();
    assert_finds(&home, &[]);
    assert_eq!(home.texts("SELECT state FROM jobs"), ["queued"], "doctor cancels nothing");

    let sql = "INSERT INTO runners VALUES ('left', 'm-0000', '1', '2026-11-18T12:00:00Z')";
    home.file().execute(sql, []).unwrap();
    let answer = assert_finds(&home, &["offline-runners"]);
    assert_eq!(answer["worst"], "note");
}

#[test]
fn a_full_ceiling_is_a_note() {
    let home = Home::with(&["--max-machines=1"]);
    home.refresh(&[]);
    home.provision("1", 1).succeeded();
    let answer = assert_finds(&home, &["at-ceiling"]);
    assert_eq!(answer["worst"], "note");
    assert_fixed(&home, &answer);
}

#[test]
fn money_near_the_cap_is_a_note() {
    away_from_midnight();
    let home = Home::with(&["--max-machine-age-min=30", "--max-spend-per-day=50"]);
    let one = one_reserves(&home);
    assert_finds(&home, &[]);
    home.refresh(&[&format!("--max-spend-per-day={}", one * 1.1)]);
    let answer = assert_finds(&home, &["spend-near-cap"]);
    assert_eq!(answer["worst"], "note");
    let status = home.ondeck(&["status", "--json"]).succeeded();
    assert_valid("status", &status);
    let problems = status.json()["summary"]["problems"].clone();
    assert_eq!(problems[0]["kind"], "spend-near-cap", "{problems}");
    let text = home.ondeck(&["status"]).succeeded().stdout;
    assert!(text.contains("four fifths of max-spend-per-day"), "{text}");
    assert_fixed(&home, &answer);
}

#[test]
fn files_that_other_users_may_change_are_found() {
    let home = Home::with(&[]);
    for (mode, expected) in [(0o777, &["home-writable"][..]), (0o755, &[]), (0o700, &[])] {
        fs::set_permissions(home.dir(), Permissions::from_mode(mode)).unwrap();
        assert_finds(&home, expected);
    }
}

#[test]
fn a_store_that_is_no_store_is_found() {
    let home = Home::with(&[]);
    fs::write(
        home.dir().join("ondeck.db"),
        "not a database, but longer than a header of one. ".repeat(20),
    )
    .unwrap();
    fs::remove_file(home.dir().join("ondeck.db-wal")).ok();
    assert_finds(&home, &["store-unreachable"]);

    let home = Home::with(&[]);
    home.file().pragma_update(None, "user_version", 999).unwrap();
    let answer = assert_finds(&home, &["store-unreachable"]);
    assert!(answer["findings"][0]["fix"].as_str().unwrap().contains("newer ondeck"), "{answer:#}");
}
