//! What people see of a file: whether it is valid, and where each value comes from.

use serde_json::Value;

use super::{apply, write};
use crate::harness::{Background, Done, Driven, Home};
use crate::json::assert_valid;

const FILE: &str = r#"pool = "acme/web"

[times]
idle-time-sec = 900

[[min-idle]]
class = "large"
count = 1
"#;

/// Runs the program in the folder of the file, as people do.
fn beside(home: &Home, arguments: &[&str]) -> Done {
    let mut command = home.command(arguments);
    Background::start(command.current_dir(home.outside())).finish()
}

#[test]
fn a_valid_file_is_counted_and_has_a_digest() {
    let home = Home::bare();
    write(&home, FILE);
    let done = beside(&home, &["config", "check"]).succeeded();
    insta::assert_snapshot!(done.stdout, @"ondeck.toml: 2 settings, digest a3fc45871cd9");
    assert_eq!(done.stderr, "");
    assert!(!home.dir().exists(), "nothing outside of the file is asked");

    let done = beside(&home, &["config", "check", "--json"]).succeeded();
    assert_valid("config-check", &done);
    assert_eq!(done.json()["pools"][0]["settings"], 2);

    write(&home, &format!("{FILE}\n[trust.release.machines]\nreuse = \"never\"\n"));
    let done = beside(&home, &["config", "check"]).succeeded();
    insta::assert_snapshot!(done.stdout, @"
    ondeck.toml: 2 settings, digest a3fc45871cd9
    ondeck.toml [trust.release]: 3 settings, digest 12af6d735154
    ");
}

#[test]
fn a_file_with_errors_is_refused_with_each_of_them() {
    let home = Home::bare();
    write(&home, "[image]\namii = \"ami-1\"\n\n[times]\nidle-time-sec = \"soon\"\n");
    let done = beside(&home, &["config", "check"]).exited(2);
    assert_eq!(done.stdout, "");
    insta::assert_snapshot!(done.stderr, @r##"
    error: ondeck.toml:2:1: unknown key in [image]: "amii"
      2 | amii = "ami-1"
        | ^^^^
    hint: did you mean ami?
    error: ondeck.toml:5:17: idle-time-sec must be a number, and is a string
      5 | idle-time-sec = "soon"
        |                 ^^^^^^
    error: 2 errors in the file of the pool: ondeck.toml
    "##);
    for command in [&["apply"][..], &["apply", "--dry-run"], &["config", "show"]] {
        let same = beside(&home, command).exited(2);
        assert_eq!(same.stdout, "", "{command:?}");
        let hint = "hint: ondeck config check --config ondeck.toml lists them\n";
        assert_eq!(same.stderr, format!("{}{hint}", done.stderr), "{command:?}");
    }
    assert!(!home.dir().exists(), "a file with errors is not applied");

    let done = beside(&home, &["config", "check", "--json"]).exited(2);
    assert_valid("config-check", &done);
    let problems = done.json()["problems"].clone();
    let places =
        problems.as_array().unwrap().iter().map(|one| (one["line"].clone(), one["column"].clone()));
    assert_eq!(places.collect::<Vec<_>>(), [(2.into(), 1.into()), (5.into(), 17.into())]);
    let done = beside(&home, &["apply", "--json"]).exited(2);
    assert_valid("apply", &done);
}

#[test]
fn a_file_that_is_not_there_is_said_to_be() {
    let home = Home::bare();
    for command in [&["config", "check"][..], &["config", "show"], &["apply"]] {
        let done = beside(&home, command).exited(2);
        let words = "error: the file of the pool cannot be read: ondeck.toml: ";
        assert!(done.stderr.starts_with(words), "{}", done.stderr);
        assert!(done.stderr.ends_with("\nhint: give --config FILE\n"), "{}", done.stderr);
    }
}

#[test]
fn a_secret_is_refused_and_shown_nowhere() {
    let home = Home::bare();
    write(&home, "[github]\ngithub-token = \"ghp_verysecret\"\n");
    for command in [&["config", "check"][..], &["config", "check", "--json"], &["apply", "-vv"]] {
        let done = beside(&home, command).exited(2);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert!(said.contains("ONDECK_GITHUB_TOKEN"), "{said}");
        assert!(!said.contains("verysecret"), "{said}");
    }
}

#[test]
fn each_value_is_shown_with_where_it_comes_from() {
    let home = Home::bare();
    write(&home, FILE);
    let mut command = home.command(&["config", "show"]);
    command.current_dir(home.outside()).env("ONDECK_AGENT_URL", "https://example.com/agent");
    let done = Background::start(command.env("ONDECK_BACKEND", "local")).finish().succeeded();
    let of = |name: &str| {
        let line = done.stdout.lines().find(|line| line.split(' ').next() == Some(name)).unwrap();
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(of("pool"), ["pool", "acme/web", "ondeck.toml:1"]);
    assert_eq!(of("backend"), ["backend", "local", "ONDECK_BACKEND"]);
    assert_eq!(of("idle-time-sec"), ["idle-time-sec", "900", "ondeck.toml:4"]);
    assert_eq!(of("min-idle"), ["min-idle", "large=1", "ondeck.toml:6"]);
    assert_eq!(of("rescue"), ["rescue", "provision", "default"]);
    assert_eq!(of("agent-url"), ["agent-url", "https://example.com/agent", "ONDECK_AGENT_URL"]);
    let done = beside(&home, &["config", "show", "--trust=release"]).exited(2);
    assert!(done.stderr.contains("ondeck.toml has no trust level \"release\""), "{}", done.stderr);
}

#[test]
fn what_is_stored_is_compared() {
    let home = Home::with(&["--idle-time-sec=300", "--rescue=off"]);
    write(&home, FILE);
    let show = || {
        let done = beside(&home, &["config", "show", "--stored", "--json"]).succeeded();
        assert_valid("config-show", &done);
        done.json()
    };
    let row = |shown: &Value, name: &str| {
        let rows = shown["settings"].as_array().unwrap();
        rows.iter().find(|row| row["setting"] == name).unwrap().clone()
    };
    let before = show();
    let idle = row(&before, "idle-time-sec");
    assert_eq!(
        (&idle["value"], &idle["stored"], &idle["differs"]),
        (&"900".into(), &"300".into(), &true.into())
    );
    assert_eq!(row(&before, "rescue")["differs"], true, "it has its default in the file");
    assert_eq!(row(&before, "on-interruption")["differs"], false);
    assert!(before["stored"].get("applied").is_none());

    apply(&home, FILE);
    let applied = show();
    assert_eq!(applied["stored"]["applied"], applied["digest"]);
    assert!(applied["stored"].get("enforced").is_none());
    home.refresh(&[]);
    let enforced = show();
    assert_eq!(enforced["stored"]["enforced"], enforced["digest"]);
    let rows = enforced["settings"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["differs"] == false), "{enforced}");
    let text = beside(&home, &["config", "show", "--stored"]).succeeded().stdout;
    assert!(text.contains("\napplied: this file, at 20"), "{text}");
    assert!(text.ends_with("\nenforced by refresh: the same\n"), "{text}");
}

#[test]
fn a_file_can_be_made_from_what_flags_have_stored() {
    let inputs =
        ["--min-idle=large=0", "--max-machines=9 large=4", "--pre-runner-script=true\necho 'x'\n"];
    let home = Home::with(&inputs);
    let file = beside(&home, &["config", "export"]).succeeded().stdout;
    let before = super::all_stored(&home);
    apply(&home, &file);
    let report = home.refresh(&[]);
    assert_eq!(report["configuration"]["inForce"], true);
    let mut after = super::all_stored(&home);
    after.retain(|line| {
        !line.starts_with("applied-config=") && !line.starts_with("enforced-config=")
    });
    assert_eq!(after, before);
}
