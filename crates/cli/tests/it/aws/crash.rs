//! Killed for real between two steps, on AWS: one test for each window, and what closes it.

use ondeck_standin::Service;
use serde_json::json;

use super::harness::AwsHarness;
use crate::harness::{Driven, until};

#[test]
fn after_the_intent_refresh_settles_it() {
    let site = AwsHarness::with(&["--created-timeout-sec=1", "--validation-timeout-sec=0.5"]);
    site.kill_before("launch", &["provision", "--run-id=1"]);
    assert_eq!(site.machines().len(), 0);
    until("refresh settles the intent", || site.refresh(&[])["intentsSettled"] == 1);
    assert_eq!(site.refresh(&[])["intentsSettled"], 0);
    site.until_empty();
}

#[test]
fn after_the_launch_machines_without_a_record_end_themselves() {
    let site = AwsHarness::with(&["--boot-deadline-sec=2"]);
    site.kill_before("register", &["provision", "--run-id=1", "--instance-count=2"]);
    assert_eq!(site.standings(), Vec::<String>::new());
    assert_eq!(site.machines().len(), 2);
    site.until_machines(0);
}

#[test]
fn after_the_launch_refresh_sweeps_by_tag() {
    let site = AwsHarness::with(&["--boot-deadline-sec=60"]);
    site.kill_before("register", &["provision", "--run-id=1", "--instance-count=2"]);
    let machines = site.machines();
    until("refresh sweeps them", || {
        site.refresh(&[])["orphansTerminated"].as_array().unwrap().len() == machines.len()
    });
    site.until_machines(0);
}

#[test]
fn after_the_registration_the_release_of_the_run_expires_them() {
    let site = AwsHarness::with(&["--self-termination-grace-sec=60"]);
    site.kill_before("activate", &["provision", "--run-id=1", "--instance-count=2"]);
    assert_eq!(site.standings(), ["created 1", "created 1"]);
    site.release("1").succeeded();
    assert_eq!(site.refresh(&[])["reaped"].as_array().unwrap().len(), 2);
    site.until_machines(0);
}

#[test]
fn after_the_receive_the_queue_shows_the_ticket_again() {
    let site = AwsHarness::with(&["--ticket-hold-sec=2", "--pickup-patience-sec=15"]);
    let idle = site.warm_up(1);
    site.kill_before("claim", &["provision", "--run-id=2"]);
    assert_eq!(site.standings(), ["idle"]);
    let next = site.provision("3", 1).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], idle));
    assert_eq!(site.tickets(), 0);
}

#[test]
fn after_the_claim_the_threshold_ends_the_machine_with_no_refresh() {
    let site = AwsHarness::with(&["--claim-timeout-sec=3"]);
    site.warm_up(1);
    site.kill_before("commit", &["provision", "--run-id=2"]);
    assert_eq!(site.standings(), ["claimed 2"]);
    site.until_machines(0);
    site.until_empty();
}

#[test]
fn after_the_claim_the_release_of_the_run_finds_it_though_no_commit_was_made() {
    let site = AwsHarness::with(&["--self-termination-grace-sec=60"]);
    site.warm_up(2);
    site.kill_before("commit", &["provision", "--run-id=2", "--instance-count=2"]);
    assert_eq!(site.standings(), ["claimed 2", "claimed 2"]);
    let released = site.release("2").succeeded().json();
    assert_eq!(released["instances"].as_array().unwrap().len(), 2);
    assert_eq!(site.refresh(&[])["reaped"].as_array().unwrap().len(), 2);
    site.until_machines(0);
}

#[test]
fn after_the_release_refresh_announces_the_machine_again() {
    let site = AwsHarness::with(&[]);
    let machine = site.provision("1", 1).succeeded().ids();
    site.kill_before("send", &["release", "--run-id=1"]);
    assert_eq!((site.standings(), site.tickets()), (vec!["idle".to_owned()], 0));
    assert_eq!(site.refresh(&[])["requeued"], json!(machine));
    let next = site.provision("2", 1).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], machine));
}

#[test]
fn after_the_reap_the_machine_ends_itself_with_no_refresh() {
    let site = AwsHarness::with(&["--self-termination-grace-sec=60"]);
    let machine = site.provision("1", 1).succeeded().ids();
    site.ondeck(&["release", "--run-id=1", "--idle-time-sec=3"]).succeeded();
    site.until_expired(&machine);
    site.kill_before("terminate", &["refresh"]);
    assert_eq!(site.standings(), Vec::<String>::new());
    site.until_machines(0);
}

#[test]
fn after_the_reap_refresh_sweeps_a_machine_that_does_not_end_itself() {
    let site = AwsHarness::with(&["--self-termination-grace-sec=60"]);
    let machines = site.provision("1", 1).succeeded().ids();
    site.ondeck(&["release", "--run-id=1", "--idle-time-sec=3"]).succeeded();
    assert!(site.gateway.ec2().kill_agent(&machines[0]));
    site.until_expired(&machines);
    site.kill_before("terminate", &["refresh"]);
    assert_eq!(site.standings(), Vec::<String>::new());
    assert_eq!(site.machines().len(), 1, "terminated in the store, and alive");
    let swept = site.refresh(&["--self-termination-grace-sec=0.1"])["orphansTerminated"].clone();
    assert_eq!(swept, json!(machines));
    site.until_empty();
}

#[test]
fn a_provision_that_is_interrupted_dumps_what_it_has_touched() {
    let site = AwsHarness::with(&[]);
    site.warm_up(1);
    let provision = site.start(&["provision", "--run-id=2", "--instance-count=3", "-v"]);
    provision.until_it_says("register");
    provision.signal(rustix::process::Signal::INT);
    provision.finish().exited(130);
    site.until_machines(0);
    assert_eq!(site.standings(), Vec::<String>::new());
    site.until_empty();
}

/// Events wait for company for a while, and the release is stopped before that is over.
#[test]
fn a_release_that_is_told_to_stop_leaves_the_events_of_what_it_has_done() {
    let site = AwsHarness::with(&[]);
    let [machine] = &site.provision("1", 1).succeeded().ids()[..] else { panic!("one machine") };
    assert!(site.gateway.ec2().kill_agent(machine));
    site.control.reset();
    let release = site.start(&["release", "--run-id=1", "-v"]);
    release.until_it_says("release");
    release.signal(rustix::process::Signal::TERM);
    release.finish().exited(143);
    let calls = site.control.calls();
    assert_eq!(site.standings(), ["idle"], "it was let go: {calls:?}");
    let events = site.control.count(Service::DynamoDb, "BatchWriteItem");
    assert_eq!(events, 1, "{calls:?}");
}
