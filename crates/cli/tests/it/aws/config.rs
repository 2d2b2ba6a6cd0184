//! The pool as a file on AWS, under the policies: the role of refresh applies it, and no other.

use std::process::Command;

use ondeck_standin::Role;

use super::harness::AwsHarness;
use crate::harness::{Background, Done, Driven};

/// The file of a pool whose jobs come from a forge of the test.
const FILE: &str = r#"
backend = "aws"

[image]
ami = "ami-0123456789abcdef0"

[network]
subnet-ids = ["subnet-0a", "subnet-0b"]
security-group-ids = ["sg-0123456789abcdef0"]

[machines]
iam-instance-profile = "ondeck-machine"

[github]
forge = "local"

[times]
heartbeat-period-sec = 3
idle-time-sec = 60
self-termination-grace-sec = 1
boot-deadline-sec = 20
signal-poll-sec = 0.05
"#;

/// The program under a role. It is given no setting, not even where jobs come from.
fn run_as(role: Role, harness: &AwsHarness, arguments: &[&str]) -> Done {
    let mut command: Command = harness.command(arguments);
    command.env("AWS_ACCESS_KEY_ID", role.name()).env_remove("ONDECK_FORGE");
    Background::start(&mut command).finish()
}

#[test]
fn the_role_of_refresh_applies_a_file_before_there_is_a_table_and_no_other_role_does() {
    let mut harness = AwsHarness::bare();
    harness.expect_denials();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ondeck.toml").display().to_string();
    std::fs::write(&file, FILE).unwrap();
    let apply = ["apply", "--json", "--config", &file];

    let applied = run_as(Role::Refresh, &harness, &apply).succeeded().json();
    assert_eq!(applied["result"], "applied");
    let again = run_as(Role::Refresh, &harness, &apply).succeeded().json();
    assert_eq!(again["result"], "unchanged");
    run_as(Role::Provision, &harness, &["provision", "--run-id=1"]).exited(3);

    let refreshed = run_as(Role::Refresh, &harness, &["refresh", "--json"]).succeeded().json();
    assert_eq!(refreshed["configuration"]["digest"], applied["digest"]);
    assert_eq!(refreshed["configuration"]["newlyEnforced"], true);
    run_as(Role::Provision, &harness, &["provision", "--run-id=1"]).succeeded();
    assert_eq!(harness.machines().len(), 1);
    run_as(Role::Release, &harness, &["release", "--run-id=1"]).succeeded();

    assert_eq!(harness.denials().len(), 0);
    std::fs::write(&file, FILE.replace("idle-time-sec = 60", "idle-time-sec = 3600")).unwrap();
    for role in [Role::Provision, Role::Release, Role::Operator] {
        let done = run_as(role, &harness, &apply).exited(6);
        assert_eq!(done.json()["error"]["kind"], "unavailable", "{role}");
        assert!(
            done.stderr.contains("denied") || done.stderr.contains("not authorized"),
            "{}",
            done.stderr
        );
        let done = run_as(role, &harness, &["apply", "--clear"]).exited(6);
        assert!(done.stdout.is_empty(), "{}", done.stdout);
    }
    assert!(harness.denials().len() >= 6, "{:?}", harness.denials());
    let refreshed = run_as(Role::Refresh, &harness, &["refresh", "--json"]).succeeded().json();
    assert_eq!(refreshed["configuration"]["digest"], applied["digest"], "nothing was changed");
}

#[test]
fn a_trust_level_has_the_settings_of_the_pool_and_its_own() {
    let harness = AwsHarness::bare();
    let level = format!("{}@release", harness.pool());
    harness.grant("release-level", &level, &[Role::Refresh]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ondeck.toml").display().to_string();
    std::fs::write(&file, format!("{FILE}\n[trust.release.machines]\nreuse = \"never\"\n"))
        .unwrap();
    let run = |arguments: &[&str]| {
        let mut command = harness.command(&[arguments, &["--trust=release"]].concat());
        command.env("AWS_ACCESS_KEY_ID", "release-level").env_remove("ONDECK_FORGE");
        Background::start(&mut command).finish()
    };
    run(&["apply", "--config", &file]).succeeded();
    run(&["refresh"]).succeeded();
    let shown =
        run(&["config", "show", "--stored", "--json", "--config", &file]).succeeded().json();
    let stored = |name: &str| {
        let rows = shown["settings"].as_array().unwrap();
        rows.iter().find(|row| row["setting"] == name).unwrap()["stored"].clone()
    };
    assert_eq!((stored("reuse"), stored("idle-time-sec")), ("never".into(), "60".into()));
}
