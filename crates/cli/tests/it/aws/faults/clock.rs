//! A computer whose clock is hours off. AWS has one clock for every caller, so it is
//! ahead, or behind, at every door alike, and records go by it.

use std::time::Duration;

use ondeck_core::model::timestamp::Timestamp;
use ondeck_standin::{AwsFault, AwsFaultRule};
use serde_json::json;

use crate::aws::harness::{AwsHarness, now};
use crate::harness::Driven;

const HOURS: Duration = Duration::from_secs(3 * 3600);

#[test]
fn a_clock_that_is_hours_behind_is_put_right_by_the_first_refusal() {
    let site = life_by_another_clock(3 * 3600);
    // Two minutes at the most, from that moment on.
    for threshold in thresholds(&site) {
        assert!(threshold > now() + HOURS, "not by AWS's clock: {threshold}");
    }
}

#[test]
fn a_clock_that_is_hours_ahead_is_put_right_by_the_first_refusal() {
    let site = life_by_another_clock(-3 * 3600);
    for threshold in thresholds(&site) {
        assert!(threshold < now(), "not by AWS's clock: {threshold}");
    }
}

/// A busy machine and an idle one, both of which have time left by AWS's clock. Nothing is done
/// about either.
fn life_by_another_clock(ahead: i64) -> AwsHarness {
    let site = AwsHarness::bare();
    for door in ["control", "agents", "onlooker"] {
        site.gateway.endpoint(door).inject(AwsFaultRule::new(AwsFault::Skew(ahead)));
    }
    site.set_up(&[]);
    let busy = site.provision("1", 1).succeeded();
    assert_eq!(busy.sources(), ["cold"]);
    let idle = site.warm_up(1);
    let refreshed = site.refresh(&[]);
    for ended in ["reaped", "orphansTerminated", "unresponsive", "offlineRunnersRemoved"] {
        assert_eq!(refreshed[ended], json!([]), "{refreshed}");
    }
    assert_eq!(refreshed["ticketsPruned"], 0, "{refreshed}");
    assert_eq!((site.machines().len(), site.tickets()), (2, 1));
    assert_eq!(site.standings(), ["idle", "running 1"]);
    let warm = site.provision("2", 1).succeeded();
    assert_eq!((warm.sources(), warm.ids()), (vec!["warm".to_owned()], idle));
    site.release("2").succeeded();
    site
}

fn thresholds(site: &AwsHarness) -> Vec<Timestamp> {
    let status = site.status();
    let instances = status["instances"].as_array().unwrap().iter();
    let thresholds: Vec<Timestamp> = instances
        .map(|instance| Timestamp::parse(instance["threshold"].as_str().unwrap()).unwrap())
        .collect();
    assert_eq!(thresholds.len(), 2);
    thresholds
}
