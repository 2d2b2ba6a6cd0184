//! `ondeck doctor` with GitHub: without credentials, with those of refresh, and with wrong ones.

use std::time::{Duration, SystemTime};

use ondeck_standin::{APP_PRIVATE_KEY, APP_PUBLIC_KEY, Permission};
use serde_json::Value;

use super::harness::{GitHubHarness, JOBS_TOKEN, RUNNER, TOKEN};
use crate::doctor::{answer, ids};
use crate::harness::{Background, Driven, Home};

fn examined(harness: &GitHubHarness<Home>, token: Option<&str>) -> Value {
    let mut command = harness.command(&["doctor", "--json"]);
    if let Some(token) = token {
        command.env("ONDECK_GITHUB_TOKEN", token).env("ONDECK_JOBS_TOKEN", JOBS_TOKEN);
    }
    answer(Background::start(&mut command).finish())
}

#[track_caller]
fn assert_finds(harness: &GitHubHarness<Home>, token: &str, expected: &[&str]) -> Value {
    let answer = examined(harness, Some(token));
    assert_eq!(ids(&answer), expected, "{answer:#}");
    answer
}

#[test]
fn a_healthy_pool_has_no_findings_and_needs_credentials_for_the_checks_of_github() {
    let harness = GitHubHarness::local(&[]);
    harness.provision("1", 1).succeeded();
    let answer = examined(&harness, None);
    assert_eq!(ids(&answer), [""; 0], "{answer:#}");
    let unchecked = answer["notChecked"].as_array().unwrap();
    for what in ["runner version", "runners", "waiting jobs"] {
        let found = unchecked.iter().find(|it| it["what"] == what).unwrap();
        assert!(found["needs"].as_str().unwrap().contains("ONDECK_GITHUB_TOKEN"), "{found}");
    }
    let answer = assert_finds(&harness, TOKEN, &[]);
    assert_eq!(answer["notChecked"].as_array().unwrap().len(), 0, "{answer:#}");
}

#[test]
fn a_token_that_github_refuses_is_found_and_not_shown() {
    let harness = GitHubHarness::local(&[]);
    let answer = assert_finds(&harness, "ghp_refusedrefusedrefused", &["forge-refused"]);
    assert!(!answer.to_string().contains("ghp_refused"), "{answer:#}");
    // It may read runs and nothing else.
    assert_finds(&harness, JOBS_TOKEN, &["forge-refused"]);
}

#[test]
fn a_token_that_may_not_read_runs_leaves_the_check_of_jobs_open() {
    let harness = GitHubHarness::local(&[]);
    harness.queue("77", "true");
    let mut command = harness.command(&["doctor", "--json"]);
    command.env("ONDECK_GITHUB_TOKEN", TOKEN);
    let answer = answer(Background::start(&mut command).finish());
    assert_eq!(ids(&answer), [""; 0], "{answer:#}");
    let [unchecked] = &answer["notChecked"].as_array().unwrap()[..] else { panic!("{answer:#}") };
    assert_eq!(unchecked["what"], "waiting jobs");
    assert!(unchecked["needs"].as_str().unwrap().contains("Actions: read"), "{unchecked}");
}

#[test]
fn jobs_without_a_machine_are_found() {
    let harness = GitHubHarness::local(&[]);
    harness.queue("77", "true");
    let answer = assert_finds(&harness, TOKEN, &["jobs-unserved"]);
    assert_eq!(answer["findings"][0]["about"], serde_json::json!(["77"]));
    harness.provision("77", 1).succeeded();
    assert_finds(&harness, TOKEN, &[]);
}

#[test]
fn a_token_for_runners_that_is_old_or_expired_is_found() {
    let harness = GitHubHarness::local(&[]);
    let expire = |seconds: i64| {
        let at = format!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '{seconds} seconds')");
        let sql = format!(
            "UPDATE settings SET value = json_set(value, '$.expiresAt', {at})
             WHERE name = 'credentials-minted'"
        );
        assert_eq!(harness.pool.file().execute(&sql, []), Ok(1));
    };
    expire(300);
    assert_finds(&harness, TOKEN, &["token-old"]);
    expire(-1);
    assert_finds(&harness, TOKEN, &["token-expired"]);
    // A refused token is why it was not renewed.
    assert_finds(&harness, "ghp_refusedrefusedrefused", &["forge-refused"]);
}

#[test]
fn a_version_of_the_runner_that_ends_soon_or_has_ended_is_found() {
    let version = format!("--actions-runner-version={RUNNER}");
    let harness = GitHubHarness::local(&[&version]);
    assert_finds(&harness, TOKEN, &[]);
    let (now, day) = (SystemTime::now(), Duration::from_secs(86_400));
    harness.github.announce_end(RUNNER, None, Some(now + day));
    assert_finds(&harness, TOKEN, &["runner-deadline"]);
    harness.github.announce_end(RUNNER, Some(now - day), None);
    assert_finds(&harness, TOKEN, &["runner-version"]);
}

/// An App instead of a token, which may do less than the pool needs, or is another one.
#[test]
fn an_app_without_the_scope_that_the_pool_needs_is_found() {
    let harness = GitHubHarness::local(&[]);
    let examined = |app: &str| {
        let mut command = harness.command(&["doctor", "--json"]);
        command.env("ONDECK_GITHUB_TOKEN", "").env("ONDECK_JOBS_TOKEN", "");
        command.env("ONDECK_GITHUB_APP_ID", app);
        command.env("ONDECK_GITHUB_APP_PRIVATE_KEY", APP_PRIVATE_KEY);
        let answer = answer(Background::start(&mut command).finish());
        assert!(!answer.to_string().contains("PRIVATE KEY"), "{answer:#}");
        answer
    };
    let add = |id: &str, owner: &str, permissions: &[Permission]| {
        harness.github.add_app(id, APP_PUBLIC_KEY, owner, permissions);
    };
    add("1001", "acme", &[Permission::Administration, Permission::ActionsRead]);
    let answer = examined("1001");
    assert_eq!(ids(&answer), [""; 0], "{answer:#}");
    assert_eq!(answer["notChecked"], serde_json::json!([]), "{answer:#}");

    add("1002", "acme", &[Permission::ActionsRead]);
    let answer = examined("1002");
    assert_eq!(ids(&answer), ["forge-refused"], "{answer:#}");
    assert!(answer.to_string().contains("Administration"), "{answer:#}");

    add("1003", "acme", &[Permission::Administration]);
    let answer = examined("1003");
    assert_eq!(ids(&answer), [""; 0], "{answer:#}");
    let [unchecked] = &answer["notChecked"].as_array().unwrap()[..] else { panic!("{answer:#}") };
    assert_eq!(unchecked["what"], "waiting jobs");

    add("1004", "others", &[Permission::Administration, Permission::ActionsRead]);
    for elsewhere in ["1004", "99999"] {
        let answer = examined(elsewhere);
        assert_eq!(ids(&answer), ["forge-refused"], "{elsewhere}: {answer:#}");
    }
}
