//! A computer whose clock is hours off. AWS has one clock for every caller, so it is
//! ahead, or behind, at every endpoint alike, and timestamps in records follow it.

use std::time::Duration;

use ondeck_core::model::timestamp::Timestamp;
use ondeck_standin::{AwsFault, AwsFaultRule};
use serde_json::json;

use crate::aws::harness::{AwsHarness, now};
use crate::harness::Driven;

const HOURS: Duration = Duration::from_secs(3 * 3600);

#[test]
fn a_clock_that_is_hours_behind_is_put_right_by_the_first_refusal() {
    let harness = lifecycle_by_another_clock(3 * 3600);
    // Two minutes at the most, from that moment on.
    for threshold in thresholds(&harness) {
        assert!(threshold > now() + HOURS, "not by AWS's clock: {threshold}");
    }
}

#[test]
fn a_clock_that_is_hours_ahead_is_put_right_by_the_first_refusal() {
    let harness = lifecycle_by_another_clock(-3 * 3600);
    for threshold in thresholds(&harness) {
        assert!(threshold < now(), "not by AWS's clock: {threshold}");
    }
}

/// A busy machine and an idle one, both of which have time left by AWS's clock. Nothing is done
/// about either.
fn lifecycle_by_another_clock(ahead: i64) -> AwsHarness {
    let harness = AwsHarness::bare();
    for endpoint in ["control", "agents", "observer"] {
        harness.gateway.endpoint(endpoint).inject(AwsFaultRule::new(AwsFault::Skew(ahead)));
    }
    harness.set_up(&[]);
    let busy = harness.provision("1", 1).succeeded();
    assert_eq!(busy.sources(), ["cold"]);
    let idle = harness.warm_up(1);
    let refreshed = harness.refresh(&[]);
    for key in ["reaped", "orphansTerminated", "unresponsive", "offlineRunnersRemoved"] {
        assert_eq!(refreshed[key], json!([]), "{refreshed}");
    }
    assert_eq!(refreshed["ticketsPruned"], 0, "{refreshed}");
    assert_eq!((harness.machines().len(), harness.tickets()), (2, 1));
    assert_eq!(harness.standings(), ["idle", "running 1"]);
    let warm = harness.provision("2", 1).succeeded();
    assert_eq!((warm.sources(), warm.ids()), (vec!["warm".to_owned()], idle));
    harness.release("2").succeeded();
    harness
}

fn thresholds(harness: &AwsHarness) -> Vec<Timestamp> {
    let status = harness.status();
    let instances = status["instances"].as_array().unwrap().iter();
    let thresholds: Vec<Timestamp> = instances
        .map(|instance| Timestamp::parse(instance["threshold"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(thresholds.len(), 2);
    thresholds
}
