//! An agent whose role is denied the table.

use serde_json::json;

use super::harness::AwsHarness;
use super::permissions::policies;
use crate::harness::Driven;

/// The most calls of a refused agent within the seconds that its provision waits for it. It was 18 to
/// 45 a second before.
const MOST_CALLS: usize = 30;

#[test]
fn a_denied_agent_asks_seldom_and_says_why_once() {
    let folder = tempfile::tempdir().unwrap();
    policies(folder.path(), |role, policy| match role {
        "machine" => json!({
            "Version": "2012-10-17",
            "Statement": [{ "Sid": "None", "Effect": "Deny", "Action": "*", "Resource": "*" }],
        }),
        _ => policy,
    });
    let harness = AwsHarness::with_policies(folder.path().to_owned());
    harness.set_up(&["--validation-timeout-sec=8"]);
    let agents = harness.gateway.endpoint("agents");
    harness.provision("1", 1).exited(5);
    let calls = agents.total();
    assert!((4..=MOST_CALLS).contains(&calls), "{calls}: {:?}", agents.calls());
    let [machine] = &harness.gateway.ec2().machines()[..] else { panic!("one machine") };
    let log = std::fs::read_to_string(harness.logs().join(format!("{}.log", machine.id))).unwrap();
    for what in ["heartbeat not sent", "settings not read"] {
        let said: Vec<&str> = log.lines().filter(|line| line.contains(what)).collect();
        let [line] = said[..] else { panic!("once: {log}") };
        assert!(line.contains("AccessDeniedException"), "{line}");
        assert!(line.contains("hint: check the AWS credentials, and that they allow dynamodb:"));
    }
}
