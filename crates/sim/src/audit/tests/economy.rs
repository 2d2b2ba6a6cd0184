//! What modes and agents must not do in vain.

use std::collections::BTreeMap;
use std::time::Duration;

use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::modes::refresh;
use ondeck_core::ports::{Receipt, ReceivedMessage};
use provision::{MachineSource, Milestones, Provisioned, Timings};

use super::*;

const VIOLATED: Option<Invariant> = Some(Invariant::Economical);

/// An auditor of a history in which calls take a hundredth of a second.
fn quiet(audit: &mut Audit) {
    (audit.is_quiet, audit.calls_are_answered, audit.agents_beat) = (true, true, true);
    audit.calls_take(Duration::from_millis(10));
    let stored = BTreeMap::from([("signal-poll-sec".to_owned(), "0.1".to_owned())]);
    audit.stored.push((at(0), stored));
    audit.settings_in_force(at(0), Settings::default());
}

fn outcome(source: MachineSource, registered: u64, ready: u64) -> provision::Outcome {
    let milestones = Milestones {
        found: None,
        owned: Duration::ZERO,
        registered: Duration::from_millis(registered),
        ready: Duration::from_millis(ready),
    };
    let given = Provisioned {
        id: id(),
        label: "a".to_owned(),
        source,
        spec: record(State::Running, "a", None).spec,
        milestones,
        why: String::new(),
    };
    provision::Outcome {
        run: run("a"),
        label: (&run("a")).into(),
        requested: 1,
        usage: UsageClass::OnDemand,
        instances: vec![given],
        timings: Timings::default(),
        search: provision::PoolSearch::default(),
        failure: None,
        terminated: Vec::new(),
        returned: Vec::new(),
        kept: Vec::new(),
        clean_up_failures: Vec::new(),
    }
}

/// A provision of twenty seconds ends with this outcome. `before` tells what it did.
fn ended(outcome: &provision::Outcome, before: impl FnOnce(&mut Audit)) -> Option<Invariant> {
    after(|audit| {
        quiet(audit);
        audit.provision_begins(Pid(1), &run("a"), &Ask::of(1), at(100));
        before(audit);
        audit.provision_is_economical(Pid(1), outcome, (at(100), at(120)), &[]);
    })
}

#[test]
fn a_machine_that_is_ready_is_noticed_soon() {
    let noticed =
        |registered, ready| ended(&outcome(MachineSource::Cold, registered, ready), |_| ());
    assert_eq!(noticed(8_000, 9_500), None, "an eighth of the time later");
    assert_eq!(noticed(1_000, 9_500), VIOLATED);
    assert_eq!(noticed(50, 350), None, "a few calls and pauses later");
    let adopted = outcome(MachineSource::Adopted, 0, 9_500);
    assert_eq!(ended(&adopted, |_| ()), None, "it was ready before");
}

#[test]
fn the_status_of_agents_is_read_less_and_less_often() {
    let reads = |count: u32| {
        ended(&outcome(MachineSource::Cold, 9_000, 9_100), |audit| {
            (0..count).for_each(|_| audit.reads_status(Pid(1)));
        })
    };
    assert_eq!(reads(150), None);
    assert_eq!(reads(200), VIOLATED, "ten times a second");
}

#[test]
fn an_empty_pool_is_believed() {
    let searched = |millis: u64, before: fn(&mut Audit)| {
        let mut outcome = outcome(MachineSource::Cold, 9_000, 9_100);
        outcome.search.asked = true;
        outcome.timings.selection = Duration::from_millis(millis);
        ended(&outcome, before)
    };
    assert_eq!(searched(60, |_| ()), None);
    assert_eq!(searched(1_000, |_| ()), VIOLATED);
    let touched = |audit: &mut Audit| audit.touches_tickets("large", at(95));
    assert_eq!(searched(1_000, touched), None, "another run may hold a ticket");
    let other = |audit: &mut Audit| audit.touches_tickets("xlarge", at(95));
    assert_eq!(searched(1_000, other), VIOLATED, "of another class");
}

#[test]
fn a_provision_says_how_many_machines_do_not_suit() {
    let searched = |tickets: usize| {
        let mut outcome = outcome(MachineSource::Cold, 9_000, 9_100);
        (outcome.search.asked, outcome.search.tickets) = (true, tickets);
        ended(&outcome, |audit| {
            let (receipt, body) = (Receipt("r".to_owned()), ticket(500).to_json());
            let message = ReceivedMessage { receipt, body };
            // The same one twice is one machine.
            audit.received(Pid(1), &[message.clone(), message], at(101));
        })
    };
    assert_eq!(searched(1), None);
    assert_eq!(searched(2), Some(Invariant::TrueReport));
}

#[test]
fn an_adopted_machine_is_renewed_once() {
    let renewed = |times: usize, source| {
        after(|audit| {
            let written = vec![(Transition::Renew, id()); times];
            quiet(audit);
            audit.provision_begins(Pid(1), &run("a"), &Ask::of(1), at(100));
            let outcome = outcome(source, 9_000, 9_100);
            audit.provision_is_economical(Pid(1), &outcome, (at(100), at(120)), &written);
        })
    };
    assert_eq!(renewed(1, MachineSource::Adopted), None);
    assert_eq!(renewed(2, MachineSource::Adopted), VIOLATED);
    assert_eq!(renewed(2, MachineSource::Warm), None, "it has waited for others");
}

#[test]
fn heartbeats_come_as_often_as_they_say() {
    let second = |millis: u64, interrupted: bool, threshold: u64| {
        after(|audit| {
            quiet(audit);
            audit.existing(&record(State::Idle, "", Some(threshold)));
            let beat =
                |millis: u64| Heartbeat::new(at(0) + Duration::from_millis(millis), SKEW / 2);
            audit.beats_in_time(Pid(1), &beat(0), &id(), Timestamp::from_millis(0));
            let next = Heartbeat { interrupted, ..beat(millis) };
            audit.beats_in_time(Pid(1), &next, &id(), Timestamp::from_millis(0));
        })
    };
    assert_eq!(second(5_000, false, 900), None);
    assert_eq!(second(1_000, false, 900), VIOLATED);
    assert_eq!(second(1_000, true, 900), None, "it has news");
    assert_eq!(second(1_000, false, 9), None, "its time is nearly up");
}

#[test]
fn a_heartbeat_may_follow_soon_on_one_that_was_not_sent_or_announced_more_time() {
    let second = |period: u64, troubled_until: u64| {
        after(|audit| {
            quiet(audit);
            audit.existing(&record(State::Idle, "", Some(900)));
            for (sent, period) in [(10, 10), (12, period)] {
                let beat = Heartbeat::new(at(sent), Duration::from_secs(period));
                audit.beats_in_time(Pid(1), &beat, &id(), at(troubled_until));
            }
        })
    };
    assert_eq!(second(10, 0), VIOLATED);
    assert_eq!(second(20, 0), VIOLATED, "a longer period is no reason");
    assert_eq!(second(1, 0), None, "the period is shorter now");
    assert_eq!(second(10, 11), None, "the first was not sent");
    assert_eq!(second(10, 9), VIOLATED, "the trouble was over");
}

#[test]
fn settings_are_stored_if_they_change() {
    let stores = |changes: &[(&str, &str)]| {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let changes: BTreeMap<String, String> = changes.iter().map(owned).collect();
        let before = BTreeMap::from([("index-shards".to_owned(), "2".to_owned())]);
        after(|audit| {
            quiet(audit);
            audit.refresh_begins(Pid(1), &BTreeMap::new(), at(0));
            audit.stores_news(Pid(1), &changes, &before);
        })
    };
    assert_eq!(stores(&[("index-shards", "4")]), None);
    assert_eq!(stores(&[("index-shards", "2")]), VIOLATED);
    assert_eq!(stores(&[("runs-marker", "")]), VIOLATED, "there is none to remove");
    assert_eq!(stores(&[("index-shards", "2"), ("set-up-by", "1")]), None, "set-up stores all");
}

/// A rescue begins at 100 s and orders machines, and another begins at `again`.
fn rescued(again: u64, rescued: bool, between: fn(&mut Audit)) -> Option<Invariant> {
    after(|audit| {
        quiet(audit);
        let label = Label::from(&run("a"));
        audit.refresh_begins(Pid(1), &BTreeMap::new(), at(90));
        audit.begins_rescue(Pid(1), &label, at(100));
        audit.launched.entry((Pid(1), run("a"))).or_default();
        let mut outcome = refresh::Outcome::default();
        match rescued {
            true => outcome.rescued.push(label.clone()),
            false => outcome.stranded.push(label.clone()),
        }
        audit.concludes_rescues(Pid(1), &outcome);
        between(audit);
        audit.begins_rescue(Pid(2), &label, at(again));
    })
}

#[test]
fn a_rescue_that_failed_is_tried_again_after_four_minutes() {
    let violated = Some(Invariant::BacksOff);
    assert_eq!(rescued(200, false, |_| ()), violated);
    assert_eq!(rescued(340, false, |_| ()), None);
    assert_eq!(rescued(200, true, |_| ()), None, "it had not failed");
    let asks = |audit: &mut Audit| audit.asks_again(&run("a"));
    assert_eq!(rescued(200, false, asks), None, "the run has asked itself");
    let twice = |audit: &mut Audit| {
        let failed = audit.economy.failed_rescue(&Label::from(&run("a")));
        *failed = (2, at(100));
    };
    assert_eq!(rescued(340, false, twice), violated, "after eight minutes the second time");
}

#[test]
fn calls_are_repeated_after_pauses_that_differ() {
    let paused = |micros: &[u64]| {
        after(|audit| micros.iter().for_each(|it| audit.pauses(Duration::from_micros(*it))))
    };
    assert_eq!(paused(&[25_000; 12]), VIOLATED);
    assert_eq!(paused(&[25_000; 11]), None, "too few to tell");
    assert_eq!(paused(&[25_000, 31_000].repeat(12)), None);
    assert_eq!(paused(&[2_000; 30]), None, "another call of the same kind");
}
