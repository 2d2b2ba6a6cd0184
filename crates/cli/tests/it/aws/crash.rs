//! Killed for real between two steps, on AWS: one test for each window, and what closes it.

use std::time::Duration;

use ondeck_standin::{AwsFault, AwsFaultRule, Service};
use serde_json::json;

use super::harness::AwsHarness;
use crate::harness::{Driven, until, with_both_labels, within};

/// A claim ends soon. The run has no new machine to wait for.
const SHORT_CLAIM: [&str; 3] =
    ["--claim-timeout-sec=6", "--claim-registration-timeout-sec=5", "--validation-timeout-sec=0.5"];

#[test]
fn after_the_intent_refresh_settles_it() {
    with_both_labels(|label| {
        let harness =
            AwsHarness::with(&[label, "--created-timeout-sec=1", "--validation-timeout-sec=0.5"]);
        harness.kill_before("launch", &["provision", "--run-id=1"]);
        assert_eq!(harness.machines().len(), 0);
        until("refresh settles the intent", || harness.refresh(&[])["intentsSettled"] == 1);
        assert_eq!(harness.refresh(&[])["intentsSettled"], 0);
        harness.until_empty();
    });
}

#[test]
fn after_the_launch_machines_without_a_record_end_themselves() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label, "--boot-deadline-sec=2"]);
        harness.kill_before("register", &["provision", "--run-id=1", "--instance-count=2"]);
        assert_eq!(harness.standings(), Vec::<String>::new());
        assert_eq!(harness.machines().len(), 2);
        harness.until_machines(0);
    });
}

#[test]
fn after_the_launch_refresh_sweeps_by_tag() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label, "--boot-deadline-sec=60"]);
        harness.kill_before("register", &["provision", "--run-id=1", "--instance-count=2"]);
        let machines = harness.machines();
        until("refresh sweeps them", || {
            harness.refresh(&[])["orphansTerminated"].as_array().unwrap().len() == machines.len()
        });
        harness.until_machines(0);
    });
}

#[test]
fn after_the_registration_the_release_of_the_run_expires_them() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label, "--self-termination-grace-sec=60"]);
        harness.kill_before("activate", &["provision", "--run-id=1", "--instance-count=2"]);
        assert_eq!(harness.standings(), ["created 1", "created 1"]);
        harness.release("1").succeeded();
        assert_eq!(harness.refresh(&[])["reaped"].as_array().unwrap().len(), 2);
        harness.until_machines(0);
    });
}

#[test]
fn after_the_receive_the_queue_shows_the_ticket_again() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label, "--ticket-hold-sec=2", "--pickup-patience-sec=15"]);
        let idle = harness.warm_up(1);
        harness.kill_before("claim", &["provision", "--run-id=2"]);
        assert_eq!(harness.standings(), ["idle"]);
        let next = harness.provision("3", 1).succeeded();
        assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], idle));
        assert_eq!(harness.tickets(), 0);
    });
}

#[test]
fn after_the_claim_the_threshold_ends_the_machine_with_no_refresh() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label]);
        harness.warm_up(1);
        harness.kill_before("commit", &[&["provision", "--run-id=2"], &SHORT_CLAIM[..]].concat());
        assert_eq!(harness.standings(), ["claimed 2"]);
        harness.until_machines(0);
        harness.until_empty();
    });
}

#[test]
fn after_the_claim_the_release_of_the_run_gives_it_back_though_no_commit_was_made() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label, "--self-termination-grace-sec=60"]);
        let idle = harness.warm_up(2);
        harness.kill_before("commit", &["provision", "--run-id=2", "--instance-count=2"]);
        assert_eq!(harness.standings(), ["claimed 2", "claimed 2"]);
        let released = harness.release("2").succeeded().json();
        for instance in released["instances"].as_array().unwrap() {
            assert_eq!(instance["outcome"], "pooled");
            assert_eq!(instance["reason"], "left claimed by an unfinished provision");
        }
        let next = harness.provision("3", 2).succeeded();
        assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned(); 2], idle));
    });
}

#[test]
fn after_the_release_refresh_announces_the_machine_again() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label]);
        let machine = harness.provision("1", 1).succeeded().ids();
        harness.kill_before("send", &["release", "--run-id=1"]);
        assert_eq!((harness.standings(), harness.tickets()), (vec!["idle".to_owned()], 0));
        assert_eq!(harness.refresh(&[])["requeued"], json!(machine));
        let next = harness.provision("2", 1).succeeded();
        assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], machine));
    });
}

#[test]
fn after_the_reap_the_machine_ends_itself_with_no_refresh() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label, "--self-termination-grace-sec=60"]);
        let machine = harness.provision("1", 1).succeeded().ids();
        harness.ondeck(&["release", "--run-id=1", "--idle-time-sec=3"]).succeeded();
        harness.until_expired(&machine);
        harness.kill_before("terminate", &["refresh"]);
        assert_eq!(harness.standings(), Vec::<String>::new());
        harness.until_machines(0);
    });
}

#[test]
fn after_the_reap_refresh_sweeps_a_machine_that_does_not_end_itself() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label, "--self-termination-grace-sec=60"]);
        let machines = harness.provision("1", 1).succeeded().ids();
        harness.ondeck(&["release", "--run-id=1", "--idle-time-sec=3"]).succeeded();
        assert!(harness.gateway.ec2().kill_agent(&machines[0]));
        harness.until_expired(&machines);
        harness.kill_before("terminate", &["refresh"]);
        assert_eq!(harness.standings(), Vec::<String>::new());
        assert_eq!(harness.machines().len(), 1, "terminated in the store, and alive");
        let swept =
            harness.refresh(&["--self-termination-grace-sec=0.1"])["orphansTerminated"].clone();
        assert_eq!(swept, json!(machines));
        harness.until_empty();
    });
}

#[test]
fn a_provision_that_is_interrupted_returns_what_it_claimed_and_ends_what_it_launched() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label]);
        let idle = harness.warm_up(1);
        // New machines take long, so that the provision is not over when it is interrupted.
        harness.refresh(&["--pre-runner-script=sleep 30"]);
        let provision = harness.start(&["provision", "--run-id=2", "--instance-count=3", "-v"]);
        provision.until_it_says("register");
        provision.signal(rustix::process::Signal::INT);
        provision.finish().exited(130);
        harness.until_machines(1);
        assert_eq!(harness.standings(), ["idle"]);
        let next = harness.provision("3", 1).succeeded();
        assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], idle));
    });
}

/// The clean-up cannot write anything. The process ends all the same, and the run's release gives
/// back what is still claimed.
#[test]
fn a_provision_that_is_interrupted_ends_in_time_though_the_store_hangs() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label]);
        let idle = harness.warm_up(1);
        // New machines take long, so that the provision is not over when it is interrupted.
        harness.refresh(&["--pre-runner-script=sleep 30"]);
        let mut provision = harness.start(&["provision", "--run-id=2", "--instance-count=2", "-v"]);
        provision.until_it_says("register");
        assert!(harness.standings().contains(&"claimed 2".to_owned()));
        harness.control.inject(AwsFaultRule::new(AwsFault::Hang).service(Service::DynamoDb));
        provision.signal(rustix::process::Signal::INT);
        assert!(within(Duration::from_millis(7_500), || provision.has_ended()), "it goes on");
        provision.finish().exited(130);
        harness.control.clear_faults();
        harness.release("2").succeeded();
        let next = harness.provision("3", 1).succeeded();
        assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], idle));
    });
}

/// Events wait for company for a while, and the release is stopped before that is over.
#[test]
fn a_release_that_is_told_to_stop_leaves_the_events_of_what_it_has_done() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label]);
        let [machine] = &harness.provision("1", 1).succeeded().ids()[..] else {
            panic!("one machine")
        };
        assert!(harness.gateway.ec2().kill_agent(machine));
        harness.control.reset();
        let release = harness.start(&["release", "--run-id=1", "-v"]);
        release.until_it_says("release");
        release.signal(rustix::process::Signal::TERM);
        release.finish().exited(143);
        let calls = harness.control.calls();
        assert_eq!(harness.standings(), ["idle"], "it was let go: {calls:?}");
        let events = harness.control.count(Service::DynamoDb, "BatchWriteItem");
        assert_eq!(events, 1, "{calls:?}");
    });
}

/// The version of the launch template is there, but no settings name it.
#[test]
fn before_the_settings_are_stored_machines_are_launched_as_before() {
    with_both_labels(|label| {
        let harness = AwsHarness::with(&[label]);
        let volumes = |harness: &AwsHarness, id: &str| {
            let machines = harness.gateway.ec2().machines();
            machines.into_iter().find(|machine| machine.id == id).unwrap().volumes
        };
        harness.kill_before("put-settings", &["refresh", "--volume-size-gb=40"]);
        let before = harness.provision("1", 1).succeeded().ids();
        assert!(volumes(&harness, &before[0]).is_empty(), "launched from the new version");
        harness.refresh(&["--volume-size-gb=40"]);
        let after = harness.provision("2", 1).succeeded().ids();
        assert_eq!(volumes(&harness, &after[0]).into_values().collect::<Vec<_>>(), [40]);
        // The default follows, and stays where it is.
        harness.refresh(&[]);
        harness.refresh(&[]);
        assert_eq!(harness.denials().len(), 0);
    });
}
