//! A service that is gone for longer than any caller waits. Every mode that needs it says so and
//! gives up, and the next refresh repairs what they left.

use ondeck_standin::{AwsFault, AwsFaultRule, Service};

use super::within_calls;
use crate::aws::harness::AwsHarness;
use crate::harness::{Driven, until};

#[test]
fn a_service_that_is_gone_is_given_up_within_bounds() {
    std::thread::scope(|scope| {
        for service in [Service::DynamoDb, Service::Sqs, Service::Ec2] {
            scope.spawn(move || given_up(service));
        }
    });
}

fn given_up(service: Service) {
    let harness = AwsHarness::with(&["--idle-time-sec=180", "--max-runtime-min=5"]);
    let busy = harness.provision("1", 1).succeeded().ids();
    harness.warm_up(1);
    harness.control.inject(AwsFaultRule::new(AwsFault::Status(503)).service(service));
    let exits = |code: i32, most: usize, arguments: &[&str]| {
        let done = within_calls(&harness, most, || harness.ondeck(arguments));
        assert_eq!(done.code, code, "{service:?}: {done:?}");
    };
    // Two machines, so that one must be launched and every service is needed.
    exits(6, 150, &["provision", "--run-id=2", "--instance-count=2"]);
    // A release that lets machines go needs nothing of EC2.
    exits(if service == Service::Ec2 { 0 } else { 6 }, 50, &["release", "--run-id=1"]);
    // Each of the seven queues is asked for ten times.
    exits(6, 150, &["refresh"]);
    harness.control.clear_faults();

    let refreshed = harness.refresh(&[]);
    if service == Service::Sqs {
        assert_eq!(refreshed["requeued"], serde_json::json!(busy), "let go, but not announced");
    }
    if service == Service::DynamoDb {
        assert_eq!(harness.records()[&busy[0]], "running 1", "not even begun");
        harness.release("1").succeeded();
    }
    until("every live machine has its record", || {
        harness.refresh(&[]);
        harness.machines() == harness.records().into_keys().collect()
    });
    assert!(
        harness.standings().iter().all(|standing| standing == "idle"),
        "{:?}",
        harness.records()
    );
    assert_eq!(harness.provision("3", 1).succeeded().sources(), ["warm"], "{service:?}");
}
