//! What is applied is what refresh enforces.

use super::{all_stored, apply, stored, write};
use crate::harness::{Background, Driven, Home};
use crate::json::assert_valid;

const FILE: &str = "[times]\nidle-time-sec = 900\n\n[jobs]\nrescue = \"off\"\n";

#[test]
fn refresh_enforces_the_file_and_a_removed_line_resets_its_setting() {
    let home = Home::with(&["--max-machines=9"]);
    let applied = apply(&home, FILE);
    assert_eq!((&applied["result"], &applied["settings"]), (&"applied".into(), &2.into()));
    assert_eq!(stored(&home, "idle-time-sec").as_deref(), Some("60"), "not before the refresh");

    let done = home.ondeck(&["refresh", "--json"]).succeeded();
    assert_valid("refresh", &done);
    let configuration = done.json()["configuration"].clone();
    assert_eq!(configuration["digest"], applied["digest"]);
    assert_eq!(
        (&configuration["inForce"], &configuration["newlyEnforced"]),
        (&true.into(), &true.into())
    );
    assert_eq!(stored(&home, "idle-time-sec").as_deref(), Some("900"));
    assert_eq!(stored(&home, "rescue").as_deref(), Some("off"));
    for name in ["max-machines", "claim-timeout-sec"] {
        assert_eq!(stored(&home, name), None, "not in the file: {name}");
    }

    let again = home.ondeck(&["refresh"]).succeeded().stdout;
    let line = again.lines().nth(1).unwrap();
    assert!(line.starts_with("configuration ") && line.ends_with("): in force"), "{again}");

    apply(&home, "[times]\nidle-time-sec = 900\n");
    assert_eq!(home.refresh(&[])["configuration"]["newlyEnforced"], true);
    assert_eq!(stored(&home, "rescue"), None, "the line was removed");
    assert_eq!(stored(&home, "idle-time-sec").as_deref(), Some("900"));
    home.provision("1", 1).succeeded();
}

#[test]
fn the_same_file_again_writes_nothing() {
    let home = Home::bare();
    apply(&home, FILE);
    let before = all_stored(&home);
    let file = write(&home, &format!("# other text, same settings\n{FILE}"));
    let done = home.ondeck(&["apply", "--config", &file]).succeeded();
    assert!(done.stdout.starts_with("already applied: 2 settings, digest "), "{}", done.stdout);
    assert_eq!(all_stored(&home), before, "the time of the first one stays, too");
    let done = home.ondeck(&["apply", "--json", "--config", &file]).succeeded();
    assert_valid("apply", &done);
    assert_eq!(done.json()["result"], "unchanged");
}

#[test]
fn a_dry_run_shows_the_difference_and_stores_nothing() {
    let home = Home::bare();
    let file = write(&home, FILE);
    let dry_run = || home.ondeck(&["apply", "--dry-run", "--config", &file]).succeeded().stdout;
    insta::assert_snapshot!(dry_run(), @"
    would apply 2 settings, digest 03b185385c92
    + idle-time-sec: 900
    + rescue: off
    ");
    assert!(!home.dir().exists());

    apply(&home, FILE);
    let before = all_stored(&home);
    write(&home, "[times]\nidle-time-sec = 60\nmax-runtime-min = 5\n");
    insta::assert_snapshot!(dry_run(), @"
    would apply 2 settings, digest e29e30761d30
    ~ idle-time-sec: 900 -> 60
    + max-runtime-min: 5
    - rescue: off
    ");
    assert_eq!(all_stored(&home), before);

    // Settings of flags that the file does not state are about to be reset.
    let home = Home::bare();
    home.refresh(&["--max-machines=9"]);
    let file = write(&home, FILE);
    let shown = home.ondeck(&["apply", "--dry-run", "--config", &file]).succeeded().stdout;
    assert!(shown.contains("\n- max-machines: 9\n"), "{shown}");
}

#[test]
fn an_applied_file_alone_makes_no_pool() {
    let home = Home::bare();
    apply(&home, FILE);
    for command in [&["provision", "--run-id=1"][..], &["status"]] {
        let done = home.ondeck(command).exited(3);
        assert!(done.stderr.contains("refresh has not run yet"), "{}", done.stderr);
    }
    // Flags that are refused leave nothing to go by either.
    home.ondeck(&["refresh", "--rescue=report"]).exited(2);
    home.ondeck(&["provision", "--run-id=1"]).exited(3);
    assert_eq!(home.refresh(&[])["configuration"]["newlyEnforced"], true);
    home.provision("1", 1).succeeded();
}

#[test]
fn a_setting_that_is_given_as_well_is_refused_and_refresh_still_cleans_up() {
    let home = Home::with(&["--self-termination-grace-sec=60"]);
    home.kill_before("activate", &["provision", "--run-id=1"]);
    home.release("1").succeeded();
    apply(&home, FILE);
    let done = home.ondeck(&["refresh", "--json", "--rescue=off", "--min-idle=large=1"]).exited(2);
    assert_valid("refresh", &done);
    let report = done.json();
    let message = "given, although a configuration is applied: min-idle, rescue";
    assert_eq!(report["error"]["message"], message);
    let hint = "change ondeck.toml and run ondeck apply, or run ondeck apply --clear";
    assert_eq!(report["error"]["hint"], hint);
    assert_eq!(report["setUp"], false);
    assert_eq!(report["configuration"]["inForce"], false);
    assert_eq!(report["reaped"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(stored(&home, "rescue"), None);

    let mut command = home.command(&["refresh"]);
    let done = Background::start(command.env("ONDECK_RESCUE", "off")).finish().exited(2);
    assert!(done.stderr.contains("configuration is applied: rescue"), "{}", done.stderr);
    home.ondeck(&["refresh", "--reset=all"]).exited(2);
    home.ondeck(&["refresh"]).succeeded();
}

#[test]
fn what_the_action_gives_by_itself_is_no_contradiction() {
    let home = Home::bare();
    apply(&home, FILE);
    let refresh = |variables: &[(&str, &str)]| {
        let mut command = home.command(&["refresh"]);
        command.env("GITHUB_ACTIONS", "true").env("ONDECK_ACTION", "true");
        Background::start(command.envs(variables.iter().copied())).finish()
    };
    let agent = [("ONDECK_AGENT_URL", "https://example.com/agent"), ("ONDECK_AGENT_SHA256", "00")];
    refresh(&agent).succeeded();
    assert_eq!(stored(&home, "agent-url").as_deref(), Some("https://example.com/agent"));
    home.ondeck(&["refresh"]).succeeded();
    assert_eq!(stored(&home, "agent-sha256").as_deref(), Some("00"), "a refresh by hand keeps it");

    apply(&home, "[image]\nagent-url = \"s3://own/agent\"\n");
    refresh(&agent).succeeded();
    assert_eq!(stored(&home, "agent-url").as_deref(), Some("s3://own/agent"));
    assert_eq!(stored(&home, "agent-sha256"), None);
    refresh(&[("ONDECK_RESCUE", "off")]).exited(2);
}

#[test]
fn a_refresh_that_is_given_no_agent_takes_the_one_that_apply_was_given() {
    let home = Home::bare();
    let file = write(&home, FILE);
    let apply = |arguments: &[&str]| {
        let given = [&["apply", "--json", "--config", &file], arguments].concat();
        home.ondeck(&given).succeeded().json()["result"].clone()
    };
    let first = ["--agent-url=https://example.com/1", "--agent-sha256=11"];
    assert_eq!(apply(&first), "applied");
    assert_eq!(apply(&first), "unchanged");
    assert_eq!(apply(&[]), "unchanged", "an apply by hand keeps the agent");
    assert_eq!(stored(&home, "agent-url"), None, "not before the refresh");
    home.refresh(&[]);
    assert_eq!(stored(&home, "agent-url").as_deref(), Some("https://example.com/1"));

    let second = ["--agent-url=https://example.com/2", "--agent-sha256=22"];
    let given = [&["apply", "--dry-run", "--config", &file], &second[..]].concat();
    insta::assert_snapshot!(home.ondeck(&given).succeeded().stdout, @"
    would apply 2 settings, digest 03b185385c92
    ~ agent-sha256: 11 -> 22
    ~ agent-url: https://example.com/1 -> https://example.com/2
    ");
    assert_eq!(apply(&second), "applied");
    home.refresh(&[]);
    assert_eq!(stored(&home, "agent-sha256").as_deref(), Some("22"));
    // On the image.
    assert_eq!(apply(&["--agent-url=", "--agent-sha256="]), "applied");
    home.refresh(&[]);
    assert_eq!((stored(&home, "agent-url"), stored(&home, "agent-sha256")), (None, None));

    write(&home, "[image]\nagent-url = \"s3://own/agent\"\n");
    let done = home.ondeck(&[&["apply", "--config", &file], &first[..]].concat()).exited(2);
    let message = "given, although the file says where agents are: agent-sha256, agent-url";
    assert!(done.stderr.contains(message), "{}", done.stderr);
    let event = home.outside().join("event.json");
    std::fs::write(&event, r#"{"repository":{"default_branch":"main"}}"#).unwrap();
    let mut command = home.command(&["apply", "--config", &file]);
    command
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_EVENT_NAME", "push")
        .env("GITHUB_EVENT_PATH", &event)
        .env("GITHUB_REF", "refs/heads/main")
        .env("ONDECK_ACTION", "true")
        .env("ONDECK_AGENT_URL", "https://example.com/1");
    Background::start(&mut command).finish().succeeded();
    home.refresh(&[]);
    assert_eq!(stored(&home, "agent-url").as_deref(), Some("s3://own/agent"));
}

#[test]
fn a_cleared_pool_takes_flags_again() {
    let home = Home::bare();
    let clear = || {
        let done = home.ondeck(&["apply", "--clear", "--json"]).succeeded();
        assert_valid("apply", &done);
        done.json()["result"].clone()
    };
    home.ondeck(&["apply", "--clear"]).exited(3);
    apply(&home, FILE);
    home.refresh(&[]);
    assert_eq!(clear(), "cleared");
    assert_eq!(clear(), "unchanged");
    let report = home.refresh(&["--max-machines=9"]);
    assert!(report.get("configuration").is_none(), "{report}");
    assert_eq!(stored(&home, "rescue").as_deref(), Some("off"), "stored settings stay");
    assert_eq!(stored(&home, "max-machines").as_deref(), Some("9"));
    assert_eq!((stored(&home, "applied-config"), stored(&home, "enforced-config")), (None, None));
}

#[test]
fn an_apply_that_is_killed_leaves_the_old_file_or_the_new_one() {
    let home = Home::bare();
    apply(&home, FILE);
    home.refresh(&[]);
    let before = all_stored(&home);
    let file = write(&home, "[times]\nidle-time-sec = 60\nmax-runtime-min = 5\n");
    home.kill_before("put-settings", &["apply", "--config", &file]);
    assert_eq!(all_stored(&home), before);
    assert_eq!(home.refresh(&[])["configuration"]["newlyEnforced"], false);

    home.ondeck(&["apply", "--config", &file]).succeeded();
    // Killed before its write, refresh has enforced nothing of it.
    home.kill_before("put-settings", &["refresh"]);
    assert_eq!(stored(&home, "idle-time-sec").as_deref(), Some("900"));
    assert_eq!(stored(&home, "max-runtime-min"), None);
    assert_eq!(home.refresh(&[])["configuration"]["newlyEnforced"], true);
    assert_eq!(stored(&home, "idle-time-sec").as_deref(), Some("60"));
    assert_eq!(stored(&home, "max-runtime-min").as_deref(), Some("5"));
}

#[test]
fn a_configuration_of_another_version_changes_nothing() {
    let home = Home::with(&[]);
    apply(&home, FILE);
    let change = "UPDATE settings SET value = replace(value, 'rescue', 'future') WHERE name = 'applied-config'";
    home.file().execute(change, []).unwrap();
    let done = home.ondeck(&["refresh"]).exited(2);
    let words = "the applied configuration has an unknown setting: future";
    assert!(done.stderr.contains(words), "{}", done.stderr);
    assert_eq!(stored(&home, "idle-time-sec").as_deref(), Some("60"));
    apply(&home, FILE);
    home.refresh(&[]);
    assert_eq!(stored(&home, "idle-time-sec").as_deref(), Some("900"));
}
