//! Invalid input and unusable homes: each has its exit code, a message that names the value, and a
//! hint.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::{Background, Done, Driven, Home};

/// Asserts that the command exited with this code, and that its error has these words and a hint.
#[track_caller]
fn refused(done: Done, code: i32, words: &str) {
    let done = done.exited(code);
    let stderr = &done.stderr;
    assert!(stderr.starts_with("error: "), "{stderr}");
    assert!(stderr.contains(words), "{words:?} is not in: {stderr}");
    assert!(stderr.contains("\nhint: ") || stderr.contains("try '--help'"), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

#[test]
fn provision_refuses_invalid_options() {
    let home = Home::with(&[]);
    for (input, value, words) in [
        ("--resource-class", "huge", "resource class not configured: huge"),
        ("--resource-class", "a/b", "\"a/b\""),
        ("--resource-class", "", "resource class"),
        ("--usage-class", "free", "usage class is neither spot nor on-demand: \"free\""),
        ("--allowed-instance-types", "c?", "'*' may stand in one: \"c?\""),
        ("--allowed-instance-types", ",", "no instance type pattern given"),
        ("--instance-count", "0", "0 is not in 1..=1000"),
        ("--instance-count", "-1", "-1 is not in 1..=1000"),
        ("--instance-count", "99999999", "99999999 is not in 1..=1000"),
        ("--instance-count", "99999999999999999999", "99999999999999999999"),
        ("--instance-count", "two", "invalid value 'two'"),
        ("--instance-count", "1.5", "invalid value '1.5'"),
        ("--max-runtime-min", "-1", "must be from 0 to 30 days: -1"),
        ("--max-runtime-min", "NaN", "must be from 0 to 30 days: NaN"),
        ("--max-runtime-min", "inf", "must be from 0 to 30 days: inf"),
        ("--claim-timeout-sec", "soon", "not a number: \"soon\""),
        ("--no-such-input", "1", "unexpected argument '--no-such-input'"),
    ] {
        refused(home.ondeck(&["provision", "--run-id", "1", input, value]), 2, words);
        let both = format!("{input}={value}");
        refused(home.ondeck(&["provision", "--run-id", "1", &both]), 2, words);
    }
    home.assert_empty();
}

#[test]
fn a_missing_or_invalid_run_id_is_refused() {
    let home = Home::with(&[]);
    for command in [&["provision"][..], &["release"], &["run", "--", "true"]] {
        refused(home.ondeck(command), 2, "no run id given");
    }
    let long = "9".repeat(300);
    for run in ["a/b", "a b", "", "..", "ü", &long] {
        refused(home.ondeck(&["release", "--run-id", run]), 2, "run id");
        if !run.is_empty() {
            let mut command = home.command(&["release"]);
            let done = Background::start(command.env("GITHUB_RUN_ID", run)).finish();
            refused(done, 2, "run id");
        }
    }
    home.assert_empty();
}

#[test]
fn an_empty_value_restores_a_default() {
    let home = Home::with(&[]);
    let idle = "SELECT value FROM settings WHERE name = 'idle-time-sec'";
    home.refresh(&["--idle-time-sec=7"]);
    assert_eq!(home.texts(idle), ["7"]);
    home.refresh(&[]);
    assert_eq!(home.texts(idle), ["7"], "what is not given stays");
    home.refresh(&["--idle-time-sec="]);
    assert!(home.texts(idle).is_empty());
}

#[test]
fn refresh_stores_nothing_of_an_invalid_call() {
    let home = Home::with(&[]);
    let before = home.texts(SETTINGS);
    for (input, words) in [
        ("--resource-class-config={", "resource-class-config is not a map of classes"),
        ("--resource-class-config={}", "resource-class-config names no class"),
        ("--resource-class-config=[1]", "resource-class-config is not a map of classes"),
        (r#"--resource-class-config={"a":{"cpu":0,"mem":1}}"#, "no cpu or no memory: a"),
        (r#"--resource-class-config={"a":{"cpu":-1,"mem":1}}"#, "invalid value: integer `-1`"),
        (
            r#"--resource-class-config={"a":{"cpu":1,"mem":1},"b":{"cpu":1,"mem":1},"a":{"cpu":2,"mem":2}}"#,
            r#"resource-class-config names a key twice: "a""#,
        ),
        (r#"--resource-class-config={"a":{"cpu":1,"mem":1,"cpu":2}}"#, "duplicate field `cpu`"),
        (r#"--resource-class-config={"a":{"cpu":1,"mem":1,"x":2,"x":2}}"#, r#"twice: "a.x""#),
        ("--min-idle=large=1 large=2", r#"min-idle gives a second number for the same: "large=2""#),
        ("--min-idle=large=1; large/on-demand=1", r#"for the same: "large=1""#),
        ("--min-idle=Mon-Fri large/spot/c*=1\nMon-Fri large/spot/c*=3", r#""large/spot/c*=3""#),
        ("--max-machines=large=1 large=2", r#"a second number for the same: "large=2""#),
        ("--min-idle=large", "min-idle is not of the form CLASS=COUNT: \"large\""),
        ("--min-idle=huge=1", "min-idle names an unknown class: huge"),
        ("--min-idle=large=-1", "min-idle has no count: \"large=-1\""),
        ("--min-idle=large=1001", "min-idle asks for more than 1000 machines: \"large=1001\""),
        ("--local-catalogue=[]", "local-catalogue names no type"),
        ("--local-catalogue=x", "local-catalogue is not a list of types"),
        (r#"--local-catalogue=[{"type":"a","cpu":0,"mem":1}]"#, "without name, cpu or memory"),
        ("--local-capacity=-1", "local-capacity is not a whole number: \"-1\""),
        ("--local-boot-ms=soon", "local-boot-ms is not a whole number: \"soon\""),
        ("--local-duplicate-tickets=yes", "is neither true nor false: \"yes\""),
        ("--idle-time-sec=-1", "must be from 0 to 30 days: -1"),
        ("--idle-time-sec=NaN", "must be from 0 to 30 days: NaN"),
        ("--retention-min=1e300", "must be from 0 to 30 days: 1e300"),
        ("--backend=moon", "invalid value 'moon'"),
    ] {
        refused(home.ondeck(&["refresh", input]), 2, words);
        assert_eq!(home.texts(SETTINGS), before, "{input}");
    }
}

/// All settings, without the note of when everything was checked.
const SETTINGS: &str = "SELECT name || '=' || value FROM settings
    WHERE name <> 'set-up-checked' ORDER BY name";

#[test]
fn times_that_contradict_each_other_are_refused_by_refresh() {
    let home = Home::with(&[]);
    let before = home.texts(SETTINGS);
    for (inputs, words) in [
        (&["--created-timeout-sec=20"][..], "created-timeout-sec (20) must be more than valid"),
        (&["--validation-timeout-sec=90"], "created-timeout-sec (90) must be more than validation"),
        (
            &["--claim-timeout-sec=30"],
            "claim-timeout-sec (30) must be more than claim-registration",
        ),
        (&["--claim-registration-timeout-sec=60", "--idle-time-sec=9"], "-timeout-sec (60) plus "),
        (&["--claim-registration-timeout-sec=0.05"], "must be more than agent-poll-waiting-sec"),
        (&["--agent-poll-running-sec=40"], "release-timeout-sec (40) must be more than agent-poll"),
        (&["--agent-poll-waiting-sec=20"], "must be more than agent-poll-waiting-sec (20)"),
        (&["--heartbeat-period-sec=60.5"], "heartbeat-period-sec (60.5) must be at most 60"),
    ] {
        let done = home.ondeck(&[&["refresh"], inputs].concat());
        assert!(done.stderr.contains("hint: give --"), "{}", done.stderr);
        refused(done, 2, words);
        assert_eq!(home.texts(SETTINGS), before, "{inputs:?}");
    }
    let first = Home::bare();
    refused(first.ondeck(&["refresh", "--created-timeout-sec=1"]), 2, "created-timeout-sec (1)");
    refused(first.ondeck(&["provision", "--run-id=1"]), 3, "not set up");
    // Both together agree with each other.
    home.refresh(&["--created-timeout-sec=10", "--validation-timeout-sec=9"]);
}

#[test]
fn times_that_contradict_each_other_are_refused_for_one_call() {
    let home = Home::with(&[]);
    let idle = home.warm_up(1);
    for (inputs, words) in [
        (&["--created-timeout-sec=20"][..], "created-timeout-sec (20) must be more than valid"),
        (&["--validation-timeout-sec=71"], "claim-timeout-sec (90) must be more than claim-reg"),
        (
            &["--claim-timeout-sec=30"],
            "claim-timeout-sec (30) must be more than claim-registration",
        ),
        (&["--claim-registration-timeout-sec=0.05"], "must be more than agent-poll-waiting-sec"),
        (&["--release-timeout-sec=0.05"], "must be more than agent-poll-running-sec (0.05)"),
    ] {
        refused(home.ondeck(&[&["provision", "--run-id=2"], inputs].concat()), 2, words);
        assert_eq!(home.standings(), ["idle"], "{inputs:?}");
    }
    let times = ["--created-timeout-sec=20", "--validation-timeout-sec=19"];
    let done = home.ondeck(&[&["provision", "--json", "--run-id=2"], &times[..]].concat());
    assert_eq!(done.succeeded().ids(), idle);
    let release = ["release", "--run-id=2", "--release-timeout-sec=0.04"];
    refused(home.ondeck(&release), 2, "release-timeout-sec (0.04) must be more than agent-poll");
    assert_eq!(home.standings(), ["running 2"]);
    home.release("2").succeeded();
}

/// Stored by an earlier version, which took them.
#[test]
fn duplicates_in_the_store_keep_no_run_from_its_machines() {
    let home = Home::with(&[]);
    for (name, value) in [
        ("min-idle", "large=0 large=0"),
        ("resource-class-config", r#"{"large":{"cpu":1,"mem":1},"large":{"cpu":2,"mem":4096}}"#),
    ] {
        let sql = "INSERT INTO settings (name, value) VALUES (?1, ?2)";
        home.file().execute(sql, [name, value]).unwrap();
    }
    home.provision("1", 1).succeeded();
    home.release("1").succeeded();
    home.refresh(&["--idle-time-sec=50"]);
}

/// Stored by an earlier version, which only warned.
#[test]
fn times_that_contradict_each_other_in_the_store_keep_no_machine_from_being_released() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let sql = "UPDATE settings SET value = '5' WHERE name = 'created-timeout-sec'";
    home.file().execute(sql, []).unwrap();
    let done = home.ondeck(&["release", "--run-id=1"]).succeeded();
    assert!(done.stderr.contains("created-timeout-sec (5) must be more than"), "{}", done.stderr);
    assert_eq!(home.standings(), ["idle"]);
    let warnings = home.refresh(&["--idle-time-sec=55"])["warnings"].to_string();
    assert!(warnings.contains("created-timeout-sec (5) must be more than"), "{warnings}");
    assert_eq!(home.provision("2", 1).succeeded().sources(), ["warm"]);
}

/// If the given settings cannot be used, for any reason, the pool stays as it is and is cleaned up.
#[test]
fn a_refresh_that_fails_changes_no_setting_and_still_cleans_up() {
    for (inputs, code) in [
        (&["--forge=github", "--repository=acme/web"][..], 7),
        (&["--forge=github"], 2),
        (&["--retention-min=soon"], 2),
        (&["--min-idle=huge=1"], 2),
        (&["--created-timeout-sec=1"], 2),
        (&["--local-capacity=-1"], 2),
    ] {
        let home = Home::with(&["--self-termination-grace-sec=60"]);
        home.provision("1", 2).succeeded();
        let expired = home.ondeck(&["release", "--run-id=1"]).succeeded();
        assert_eq!(expired.stderr, "");
        let sql = "UPDATE instances SET threshold = '2025-01-01T00:00:00.000Z'
                   WHERE id = (SELECT min(id) FROM instances)";
        home.file().execute(sql, []).unwrap();
        let before = home.texts(SETTINGS);
        let refresh = ["refresh", "--json", "--idle-time-sec=9", "--github-url=http://127.0.0.1:9"];
        let done = home.ondeck(&[&refresh[..], inputs].concat()).exited(code);
        let answer = done.json();
        assert_eq!(answer["status"], "failed", "{inputs:?}");
        assert_eq!(answer["setUp"], false, "{inputs:?}");
        assert_eq!(answer["reaped"].as_array().map(Vec::len), Some(1), "{inputs:?}: {answer}");
        assert_eq!(home.texts(SETTINGS), before, "{inputs:?}");
        assert_eq!(home.standings(), ["idle"], "{inputs:?}");
        assert_eq!(home.provision("2", 1).succeeded().sources(), ["warm"], "{inputs:?}");
    }
}

#[test]
fn a_refresh_that_is_killed_before_it_stores_its_settings_has_changed_none() {
    let home = Home::with(&[]);
    home.warm_up(1);
    let before = home.texts(SETTINGS);
    home.kill_before("put-settings", &["refresh", "--idle-time-sec=9", "--rescue=off"]);
    assert_eq!(home.texts(SETTINGS), before);
    assert_eq!(home.provision("2", 1).succeeded().sources(), ["warm"]);
    home.refresh(&["--idle-time-sec=9", "--rescue=off"]);
    assert_ne!(home.texts(SETTINGS), before);
}

const COMMANDS: [&[&str]; 4] = [
    &["provision", "--run-id", "1"],
    &["release", "--run-id", "1"],
    &["status"],
    &["run", "--run-id", "1", "--", "true"],
];

#[test]
fn commands_fail_before_the_first_refresh() {
    let home = Home::bare();
    for command in COMMANDS {
        refused(home.ondeck(command), 3, "not set up: there is no store at ");
    }
    assert!(!home.dir().exists(), "asking makes nothing");
    let answer = home.ondeck(&["provision", "--run-id", "1", "--json"]).exited(3).json();
    assert_eq!(answer["status"], "failed");
    assert_eq!(answer["error"]["kind"], "not-set-up");
    assert_eq!(answer["error"]["hint"], "run ondeck refresh first");
}

/// Asserts that every command, refresh included, refuses the home for the same reason.
#[track_caller]
fn all_refuse(home: &Home, words: &str) {
    refused(home.ondeck(&["refresh"]), 6, words);
    for command in COMMANDS {
        refused(home.ondeck(command), 6, words);
    }
}

#[test]
fn a_store_that_is_not_a_database_is_left_alone() {
    let home = Home::bare();
    fs::create_dir(home.dir()).unwrap();
    let file = home.dir().join("ondeck.db");
    let text = "this is not a database, but its owner may want it back ".repeat(100);
    fs::write(&file, &text).unwrap();
    all_refuse(&home, "ondeck.db: file is not a database");
    assert_eq!(fs::read_to_string(&file).unwrap(), text, "left as it was");
}

#[test]
fn a_directory_in_place_of_the_store() {
    let home = Home::bare();
    fs::create_dir_all(home.dir().join("ondeck.db")).unwrap();
    all_refuse(&home, "ondeck.db");
}

#[test]
fn a_file_in_place_of_the_home() {
    let home = Home::bare();
    fs::write(home.dir(), "").unwrap();
    all_refuse(&home, &home.dir().display().to_string());
}

#[test]
fn a_store_of_a_newer_version_or_another_program() {
    let home = Home::with(&[]);
    home.file().pragma_update(None, "user_version", 99).unwrap();
    all_refuse(&home, "has schema version 99, and this ondeck knows 7");
    home.file().pragma_update(None, "application_id", 7).unwrap();
    all_refuse(&home, "is the database of another program");
}

#[test]
fn a_home_that_may_not_be_written() {
    use std::os::unix::fs::PermissionsExt;
    if rustix::process::geteuid().is_root() {
        // Root may write anywhere, so there is nothing to be refused.
        return;
    }
    let home = Home::bare();
    fs::create_dir(home.dir()).unwrap();
    fs::set_permissions(home.dir(), fs::Permissions::from_mode(0o500)).unwrap();
    refused(home.ondeck(&["refresh"]), 6, "ondeck.db");
}

#[test]
fn the_callers_secrets_stay_with_the_caller() {
    const SECRET: &str = "ghs_16C7e42F292c6912E7710c838347Ae178B4a";
    let home = Home::bare();
    let with_secrets = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        let names = ["GITHUB_TOKEN", "GH_TOKEN", "ONDECK_GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY"];
        command.envs(names.map(|name| (name, SECRET)));
        let done = Background::start(command.env("GITHUB_RUN_ID", "1")).finish().succeeded();
        assert!(!done.stdout.contains(SECRET), "{arguments:?}");
        assert!(!done.stderr.contains(SECRET), "{arguments:?}");
    };
    with_secrets(&["refresh", "-vv"]);
    with_secrets(&["provision", "-vv"]);
    with_secrets(&["run", "-vv", "--", "env"]);
    for (id, pid) in home.agents() {
        assert!(!holds(&PathBuf::from(format!("/proc/{pid}/environ")), SECRET), "{id}");
    }
    with_secrets(&["release", "-vv"]);
    let files = files(home.dir());
    assert!(files.iter().any(|file| holds(file, "UD_REMOVE_REG_OK")), "the search finds nothing");
    for file in files {
        assert!(!holds(&file, SECRET), "{}", file.display());
    }
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn holds(file: &Path, text: &str) -> bool {
    let bytes = fs::read(file).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}
