//! `machine-logs`: the log of an agent outlives its machine, in CloudWatch Logs.

use std::path::Path;
use std::time::Duration;

use ondeck_aws::PoolName;
use ondeck_standin::{AwsFault, AwsFaultRule, MachineCommand, Service};
use serde_json::{Value, json};

use super::direct_requests::ask_logs;
use super::harness::AwsHarness;
use super::permissions::policies;
use crate::harness::{Driven, until, within};

/// A copy of the project's policies in which machines may copy logs to this group, or may not.
fn with_logs(folder: &Path, group: Option<&str>) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/optional/machine-logs.json");
    let optional = std::fs::read_to_string(file).unwrap();
    policies(folder, |role, mut policy| {
        if let ("machine", Some(group)) = (role, group) {
            let optional: Value =
                serde_json::from_str(&optional.replace("LOG-GROUP", group)).unwrap();
            let statements = policy["Statement"].as_array_mut().unwrap();
            statements.extend(optional["Statement"].as_array().unwrap().iter().cloned());
        }
        policy
    });
}

/// A pool whose machines copy their logs to `group`, and may do so if `allowed` names the group.
fn pool_with_logs(folder: &Path, group: &str, allowed: Option<&str>) -> AwsHarness {
    with_logs(folder, allowed);
    let harness = AwsHarness::start_on(
        MachineCommand {
            program: env!("CARGO_BIN_EXE_ondeck").into(),
            args: ["agent", "--backend", "aws"].map(str::to_owned).to_vec(),
            env: vec![("ONDECK_MACHINE_LOGS".to_owned(), format!("cloudwatch:{group}"))],
        },
        Some(folder.to_owned()),
        Duration::from_secs(20),
    );
    ask_logs("CreateLogGroup", &json!({ "logGroupName": group }));
    harness.set_up(&[]);
    harness
}

/// What the log of a machine holds.
fn copied(harness: &AwsHarness, group: &str, machine: &str) -> Vec<String> {
    let name = harness.pool().parse::<PoolName>().unwrap().resource_name();
    let request = json!({
        "logGroupName": group, "logStreamName": format!("{name}/{machine}"), "startFromHead": true,
    });
    let events = ask_logs("GetLogEvents", &request);
    let events = events["events"].as_array().into_iter().flatten();
    events.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

/// A group of this test process alone.
fn group(name: &str) -> String {
    format!("/ondeck/{name}-{}", std::process::id())
}

#[test]
fn the_log_of_a_machine_outlives_it() {
    let folder = tempfile::tempdir().unwrap();
    let group = group("outlives");
    let harness = pool_with_logs(folder.path(), &group, Some(&group));
    let machine = harness.provision("1", 1).succeeded().ids().remove(0);
    harness.ondeck(&["run", "--run-id=1", "--", "echo", "what a job prints"]).succeeded();
    harness.ondeck(&["release", "--run-id=1", "--idle-time-sec=0"]);
    harness.until_machines(0);
    until("the end of the log is there", || {
        copied(&harness, &group, &machine)
            .iter()
            .any(|line| line.contains("this machine shuts down"))
    });
    let lines = copied(&harness, &group, &machine);
    let own = std::fs::read_to_string(harness.logs().join(format!("{machine}.log"))).unwrap();
    for line in &lines {
        assert!(own.contains(line.as_str()), "not what the machine said: {line}");
        assert!(!line.contains("what a job prints"), "{line}");
    }
    assert_eq!(harness.denials(), []);
}

#[test]
fn a_role_without_the_permission_copies_nothing_and_delays_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let group = group("denied");
    let mut harness = pool_with_logs(folder.path(), &group, None);
    harness.expect_denials();
    let machine = harness.provision("1", 1).succeeded().ids().remove(0);
    let released = harness.ondeck(&["release", "--run-id=1", "--idle-time-sec=0", "--json"]);
    assert_eq!(released.succeeded().json()["instances"][0]["outcome"], "terminated");
    harness.until_machines(0);
    let denied = |denial: &ondeck_standin::Denial| denial.action == "logs:CreateLogStream";
    assert!(within(Duration::from_secs(10), || harness.denials().iter().any(denied)));
    assert!(harness.denials().iter().all(denied), "{:?}", harness.denials());
    let log = harness.logs().join(format!("{machine}.log"));
    let own = || std::fs::read_to_string(&log).unwrap();
    let said = "the end of the log is not copied: CreateLogStream in log group";
    assert!(within(Duration::from_secs(10), || own().contains(said)), "{}", own());
    assert_eq!(copied(&harness, &group, &machine), [""; 0]);
}

/// A machine may write to streams of its own pool and of its own group only.
#[test]
fn a_group_that_the_policy_does_not_name_is_denied() {
    let folder = tempfile::tempdir().unwrap();
    let (group, other) = (group("asked-for"), group("allowed"));
    let mut harness = pool_with_logs(folder.path(), &group, Some(&other));
    harness.expect_denials();
    harness.provision("1", 1).succeeded();
    harness.ondeck(&["release", "--run-id=1", "--idle-time-sec=0"]).succeeded();
    harness.until_machines(0);
    assert!(within(Duration::from_secs(10), || !harness.denials().is_empty()));
    let name = harness.pool().parse::<PoolName>().unwrap().resource_name();
    let stream = format!(":log-group:{group}:log-stream:{name}/i-");
    assert!(harness.denials().iter().all(|it| it.resource.contains(&stream)));
}

#[test]
fn a_service_that_never_answers_delays_the_end_by_seconds() {
    let folder = tempfile::tempdir().unwrap();
    let group = group("silent");
    let harness = pool_with_logs(folder.path(), &group, Some(&group));
    harness
        .gateway
        .endpoint("agents")
        .inject(AwsFaultRule::new(AwsFault::Hang).service(Service::Logs));
    let machine = harness.provision("1", 1).succeeded().ids().remove(0);
    harness.ondeck(&["release", "--run-id=1", "--idle-time-sec=0"]).succeeded();
    harness.until_machines(0);
    let log = || std::fs::read_to_string(harness.logs().join(format!("{machine}.log"))).unwrap();
    until("the agent gives up", || log().contains("the end of the log is not copied: no answer"));
}
