//! The minimum of idle machines: they are kept, not launched again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::modes::provision::MachineSource;
use ondeck_core::ports::Pool;
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, large, names, request, spec};

const MINUTE: Duration = Duration::from_secs(60);

/// Refreshes every five minutes, as often as GitHub's schedule allows.
async fn refresh_for(harness: &Harness, span: Duration) {
    let end = harness.plane.now() + span;
    while harness.plane.now() < end {
        harness.sleep(5 * MINUTE).await;
        harness.refresh().await;
    }
}

fn launched(harness: &Harness) -> u32 {
    harness.memory.compute.ordered().iter().map(|(_, count)| count).sum()
}

/// The most unexpired tickets that any machine has.
async fn most_tickets(harness: &Harness) -> usize {
    let messages = harness.memory.pool.receive(&large(), 100, Duration::ZERO).await.unwrap();
    let mut tickets: BTreeMap<InstanceId, usize> = BTreeMap::new();
    for message in messages {
        let ticket = Ticket::from_json(&message.body).unwrap();
        if ticket.threshold > harness.plane.now() {
            *tickets.entry(ticket.instance_id).or_default() += 1;
        }
    }
    tickets.into_values().max().unwrap_or_default()
}

#[tokio::test]
async fn a_minimum_is_kept_without_launching_again() {
    // Refresh comes every five minutes, so machines that only last that long are kept as well.
    for idle_time in ["300", "0", "900", "3600"] {
        let harness =
            Harness::patient(&[("min-idle", "large=3"), ("idle-time-sec", idle_time)]).await;
        let first = harness.idle_machines();
        assert_eq!(first.len(), 3, "{idle_time}");
        for _ in 0..20 {
            refresh_for(&harness, 5 * MINUTE).await;
            assert!(most_tickets(&harness).await <= 2, "{idle_time}");
            assert!(harness.depth().await <= 9, "expired tickets are deleted: {idle_time}");
        }
        assert_eq!(
            (harness.idle_machines(), launched(&harness)),
            (first.clone(), 3),
            "{idle_time}"
        );
        assert!(harness.memory.compute.terminated().is_empty(), "{idle_time}");
        let outcome = harness.provision(&request("1", 3)).await;
        assert_eq!(outcome.count(MachineSource::Warm), 3, "{idle_time}");
        assert_eq!(names(&outcome.instances), first, "{idle_time}");
    }
}

#[tokio::test]
async fn a_machine_that_a_run_returns_counts_again() {
    let harness = Harness::patient(&[("min-idle", "large=2")]).await;
    let first = harness.idle_machines();
    for n in 0..10 {
        let run = format!("run-{n}");
        assert_eq!(harness.provision(&request(&run, 2)).await.count(MachineSource::Warm), 2);
        harness.sleep(2 * MINUTE).await;
        harness.release(&run).await;
        harness.sleep(4 * MINUTE).await;
        harness.refresh().await;
    }
    assert_eq!((harness.idle_machines(), launched(&harness)), (first, 2));
}

#[tokio::test]
async fn a_renewal_lasts_for_the_longer_of_idle_time_and_half_an_hour() {
    for (idle_time, minutes) in [("60", 30), ("1800", 30), ("7200", 120)] {
        let harness =
            Harness::patient(&[("min-idle", "large=1"), ("idle-time-sec", idle_time)]).await;
        let threshold = || harness.record("i-0001").unwrap().threshold.unwrap();
        let given = threshold().since(harness.plane.now());
        assert!(given <= minutes * MINUTE && given > (minutes - 1) * MINUTE, "{idle_time}");
        harness.sleep(minutes * MINUTE / 2 - MINUTE).await;
        assert_eq!(harness.refresh().await.renewed, [], "more than half is left: {idle_time}");
        harness.sleep(2 * MINUTE).await;
        assert_eq!(harness.refresh().await.renewed, [id("i-0001")], "{idle_time}");
        assert_eq!(threshold().since(harness.plane.now()), minutes * MINUTE, "{idle_time}");
    }
}

#[tokio::test]
async fn machines_beyond_the_minimum_expire() {
    let harness = Harness::patient(&[]).await;
    harness.provision(&request("1", 4)).await;
    harness.release("1").await;
    harness.refresh_with(&[("min-idle", "large=1")]).await;
    refresh_for(&harness, 30 * MINUTE).await;
    assert_eq!((harness.idle_machines().len(), launched(&harness)), (1, 4));
}

#[tokio::test]
async fn a_dead_machine_is_neither_counted_nor_renewed() {
    let harness = Harness::patient(&[]).await;
    harness.make_defective("i-dead", MachineDefect::NeverBoots);
    let dead = harness.put_idle("i-dead", spec("c6i.large"), 10 * MINUTE).await;
    let outcome = harness.refresh_with(&[("min-idle", "large=1")]).await;
    assert_eq!((outcome.warmed, outcome.renewed), (1, vec![]));
    assert_eq!(harness.record("i-dead").unwrap().threshold, dead.threshold);
}

#[tokio::test]
async fn a_minimum_is_kept_for_each_kind_of_machine() {
    let given = "large/spot=2 large/spot/m7i.*=1 large=1";
    let harness = Harness::patient(&[("min-idle", given)]).await;
    let mut ordered = harness.memory.compute.ordered();
    ordered.sort();
    let expected = [(UsageClass::Spot, 1), (UsageClass::Spot, 2), (UsageClass::OnDemand, 1)];
    assert_eq!(ordered, expected);
    let of_type =
        harness.memory.store.select(|record| record.spec.instance_type.starts_with("m7i"));
    assert_eq!(of_type.len(), 1);
    refresh_for(&harness, 90 * MINUTE).await;
    assert_eq!(
        (harness.idle_machines().len(), launched(&harness)),
        (4, 4),
        "each counts for one of them"
    );
}

/// The clock of these tests begins on Sunday, 2025-06-15, at 15:06:40 UTC.
#[tokio::test]
async fn a_minimum_ends_with_its_window() {
    let harness = Harness::patient(&[("min-idle", "Sun 17:00-18:00 Europe/Berlin large=2")]).await;
    assert_eq!(harness.idle_machines().len(), 2, "it is 17:06 in Berlin");
    refresh_for(&harness, 50 * MINUTE).await;
    assert_eq!((harness.idle_machines().len(), launched(&harness)), (2, 2));
    refresh_for(&harness, 40 * MINUTE).await;
    assert_eq!(
        (harness.idle_machines().len(), launched(&harness)),
        (0, 2),
        "they were not renewed"
    );
    let outcome =
        harness.refresh_with(&[("min-idle", "Sun 17:00-18:00 Europe/London large=2")]).await;
    assert_eq!(outcome.warmed, 2, "it is 17:36 in London");
    assert_eq!(outcome.minimum_hours.into_values().sum::<f64>(), 2.0);
}

/// A run may have received a ticket before the machine was renewed.
#[tokio::test]
async fn a_run_that_holds_a_ticket_is_not_refused_because_of_a_renewal() {
    for delay in (0..60).step_by(3) {
        let harness = Harness::patient(&[("min-idle", "large=4")]).await;
        harness.sleep(16 * MINUTE).await;
        let asked = request("1", 4);
        let (refreshed, provisioned) = tokio::join!(
            async {
                for _ in 0..delay {
                    tokio::task::yield_now().await;
                }
                harness.refresh().await
            },
            harness.provision(&asked)
        );
        assert_eq!(provisioned.failure, None);
        let warm = provisioned.count(MachineSource::Warm);
        assert_eq!(warm, 4, "after {delay} turns, {} renewed", refreshed.renewed.len());
        harness.assert_never_shared();
    }
}

/// A refresh that is killed after it has renewed a machine leaves it without a note of its ticket.
#[tokio::test]
async fn a_machine_whose_new_ticket_was_not_sent_is_announced_by_the_next_refresh() {
    let harness = Harness::patient(&[("min-idle", "large=1")]).await;
    harness.sleep(16 * MINUTE).await;
    let record = harness.record("i-0001").unwrap();
    let believed = Instance::<Idle>::believe(&record);
    let now = harness.plane.now();
    harness.plane.apply(believed.unwrap().renew(now, now + 30 * MINUTE)).await.unwrap();
    assert_eq!(harness.refresh().await.requeued, [id("i-0001")]);
    harness.sleep(15 * MINUTE).await;
    assert_eq!(harness.provision(&request("1", 1)).await.count(MachineSource::Warm), 1);
}

#[tokio::test]
async fn changed_settings_reach_idle_agents_and_cost_no_machine() {
    let harness = Harness::new().await;
    assert!(harness.provision(&request("1", 10)).await.failure.is_none());
    harness.release("1").await;
    let thresholds = || -> Vec<_> {
        harness.memory.store.select(|_| true).into_iter().map(|record| record.threshold).collect()
    };
    let before = thresholds();
    harness.refresh_with(&[("heartbeat-period-sec", "1")]).await;
    assert_eq!(thresholds(), before, "no machine is idle for longer or shorter");
    harness.sleep(Duration::from_secs(10)).await;
    for record in harness.memory.store.select(|_| true) {
        let status = harness.plane.store.agent_status(&[record.id]).await.unwrap();
        let period = status[0].heartbeat.unwrap().period;
        assert_eq!(period, Duration::from_secs(2), "the agent has read the settings");
    }
    let outcome = harness.provision(&request("2", 10)).await;
    assert_eq!(outcome.count(MachineSource::Warm), 10);
    assert!(harness.memory.compute.terminated().is_empty());
}

#[tokio::test]
async fn what_another_refresh_launched_meanwhile_is_not_launched_again() {
    let harness = Harness::new().await;
    let slow = MachineDefect::RegistersAfter(Duration::from_secs(20));
    harness.make_defective("i-0001", slow);
    let minimum = [("min-idle", "large=1 xlarge=1")];
    tokio::join!(harness.refresh_with(&minimum), async {
        harness.sleep(Duration::from_secs(3)).await;
        harness.refresh().await;
    });
    assert_eq!(launched(&harness), 2, "one of each class");
}
