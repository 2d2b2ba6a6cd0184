//! The lifecycle of machines on AWS when nothing goes wrong.

use std::collections::BTreeSet;

use ondeck_standin::Role;
use serde_json::json;

use super::harness::{AwsHarness, LAUNCH, TIMES};
use crate::harness::{Background, Driven, race};
use crate::{preserved, reuse};

#[test]
fn machines_go_from_run_to_run_and_at_last_away() {
    let harness = AwsHarness::with(&["--self-termination-grace-sec=60"]);
    let cold = harness.provision("1", 3).succeeded();
    assert_eq!(cold.sources(), ["cold", "cold", "cold"]);
    assert_eq!(harness.standings(), ["running 1", "running 1", "running 1"]);
    assert_eq!(cold.ids().into_iter().collect::<BTreeSet<_>>(), harness.machines());
    let job = ["run", "--run-id", "1", "--", "sh", "-c", "echo $ONDECK_INSTANCE_ID"];
    let done = harness.ondeck(&job).succeeded();
    assert!(cold.ids().contains(&done.stdout.trim_end().to_owned()), "{done:?}");

    let released = harness.release("1").succeeded();
    assert_eq!(released.ids(), cold.ids());
    assert_eq!(released.json()["instances"][0]["outcome"], "pooled");
    assert_eq!(harness.standings(), ["idle", "idle", "idle"]);
    assert_eq!(harness.tickets(), 3);

    let warm = harness.provision("2", 3).succeeded();
    assert_eq!(warm.sources(), ["warm", "warm", "warm"]);
    assert_eq!(warm.ids(), cold.ids());
    assert_eq!(harness.tickets(), 0);

    harness.ondeck(&["release", "--run-id", "2", "--idle-time-sec", "1"]).succeeded();
    harness.until_empty();
}

#[test]
fn machines_are_what_was_asked_for_as_ec2_has_it() {
    let harness = AwsHarness::with(&[]);
    let request = [
        "provision",
        "--json",
        "--run-id=1",
        "--usage-class=spot",
        "--allowed-instance-types=m*",
        "--resource-class=xlarge",
    ];
    let answer = harness.ondeck(&request).succeeded().json();
    let instance = &answer["instances"][0];
    assert_eq!(
        (&instance["usageClass"], &instance["resourceClass"]),
        (&json!("spot"), &json!("xlarge"))
    );
    assert!(instance["instanceType"].as_str().unwrap().starts_with('m'), "{instance}");
    let record = &harness.status()["instances"][0];
    assert_eq!((&record["cpu"], &record["instanceType"]), (&json!(4), &instance["instanceType"]));
}

#[test]
fn a_second_provision_of_a_run_is_given_what_the_first_one_got() {
    let harness = AwsHarness::with(&[]);
    let first = harness.provision("1", 2).succeeded();
    let second = harness.provision("1", 2).succeeded();
    assert_eq!((second.sources(), second.ids()), (vec!["adopted".to_owned(); 2], first.ids()));
    assert_eq!(harness.machines().len(), 2);
}

#[test]
fn six_runs_race_for_two_idle_machines() {
    let harness = AwsHarness::with(&[]);
    let warm = harness.warm_up(2).into_iter().collect();
    let ids = race(&harness, 6, &warm);
    assert_eq!(harness.machines(), ids);
    assert_eq!(harness.tickets(), 0);
}

#[test]
fn two_pools_in_one_account_have_nothing_to_do_with_each_other() {
    let harness = AwsHarness::with(&[]);
    let busy = harness.provision("1", 1).succeeded().ids();
    let idle = harness.warm_up(1);
    let pool = format!("{}-elsewhere", harness.pool());
    let role = |arguments: &[&str]| format!("elsewhere-{}", Role::of_command(arguments[0]));
    for role in [Role::Refresh, Role::Provision] {
        harness.grant(&format!("elsewhere-{role}"), &pool, &[role]);
    }
    let elsewhere = |arguments: &[&str]| {
        let mut command = harness.command(arguments);
        command.env("ONDECK_POOL", &pool).env("AWS_ACCESS_KEY_ID", role(arguments));
        Background::start(&mut command).finish()
    };
    elsewhere(&["provision", "--run-id=2"]).exited(3);
    assert_eq!(harness.standings(), ["idle", "running 1"]);

    // It knows neither machine, and would sweep any that it took for its own.
    elsewhere(&[&["refresh"], &TIMES[..], &LAUNCH[..]].concat()).succeeded();
    let refresh = ["refresh", "--json", "--self-termination-grace-sec=0.1"];
    let refreshed = elsewhere(&refresh).succeeded().json();
    assert_eq!((&refreshed["orphansTerminated"], &refreshed["reaped"]), (&json!([]), &json!([])));
    let all: BTreeSet<String> = busy.iter().chain(&idle).cloned().collect();
    assert_eq!(harness.machines(), all);
    let cold = elsewhere(&["provision", "--json", "--run-id=2"]).succeeded();
    assert_eq!(cold.sources(), ["cold"], "the idle one is not theirs either");
    let refreshed = harness.refresh(&["--self-termination-grace-sec=0.1"]);
    assert_eq!((&refreshed["orphansTerminated"], &refreshed["reaped"]), (&json!([]), &json!([])));
    assert_eq!(harness.machines(), cold.ids().into_iter().chain(all).collect());
    assert_eq!(harness.standings(), ["idle", "running 1"]);
}

#[test]
fn machines_past_their_time_end_themselves_with_no_refresh() {
    let harness = AwsHarness::with(&[]);
    harness.provision("1", 1).succeeded();
    harness.provision("2", 1).succeeded();
    harness.ondeck(&["provision", "--run-id=3", "--max-runtime-min=0.02"]).succeeded();
    harness.ondeck(&["release", "--run-id=2", "--idle-time-sec=1"]).succeeded();
    harness.until_machines(1);
    harness.refresh(&[]);
    assert_eq!(harness.standings(), ["running 1"]);
}

#[test]
fn refresh_keeps_idle_machines_where_it_is_told_to() {
    let harness = AwsHarness::with(&["--min-idle=large=2"]);
    assert_eq!(harness.standings(), ["idle", "idle"]);
    assert_eq!(harness.refresh(&[])["warmed"], 0);
    assert_eq!(harness.provision("1", 1).succeeded().sources(), ["warm"]);
}

#[test]
fn refresh_repairs_a_launch_template_that_was_deleted() {
    let harness = AwsHarness::with(&[]);
    let [template] = &harness.gateway.ec2().launch_templates()[..] else { panic!("one template") };
    harness.gateway.ec2().delete_launch_template(template);
    let refused = harness.provision("1", 1);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(
        refused.stderr.contains("refresh") || refused.stdout.contains("refresh"),
        "{refused:?}"
    );
    harness.refresh(&[]);
    harness.provision("1", 1).succeeded();
}

#[test]
fn what_the_specification_shows_is_what_status_shows() {
    let harness = AwsHarness::with(&[]);
    harness.provision("4711", 1).succeeded();
    let record = &harness.status()["instances"][0];
    assert_eq!((&record["state"], &record["runId"]), (&json!("running"), &json!("4711")));
    assert_eq!(record["signal"], "UD_REG_OK");
    assert!(record["heartbeatAgeMs"].is_u64());
    assert!(record["threshold"].as_str().unwrap().ends_with("Z"), "{record}");
}

#[test]
fn a_pool_that_reuses_no_machine() {
    reuse::no_machine_serves_two_runs(&AwsHarness::with(&[]));
}

#[test]
fn a_run_with_machines_of_its_own() {
    reuse::one_run_can_ask_for_machines_of_its_own(&AwsHarness::with(&[]));
}

#[test]
fn a_machine_of_a_failed_run() {
    preserved::a_failed_run_keeps_its_machine(&AwsHarness::with(&[]));
}
