//! `ondeck doctor` with GitHub: without credentials, with those of refresh, and with wrong ones.

use serde_json::Value;

use super::harness::{GitHubHarness, JOBS_TOKEN, TOKEN};
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
fn a_version_of_the_runner_that_does_not_exist_is_found() {
    let harness = GitHubHarness::local(&[]);
    let sql = "REPLACE INTO settings VALUES ('actions-runner-version', '2.999.0')";
    harness.pool.file().execute(sql, []).unwrap();
    assert_finds(&harness, TOKEN, &["runner-version"]);
}
