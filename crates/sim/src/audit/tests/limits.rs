//! Deadlines, lifetimes, the count of the ceiling, and what idle agents learn.

use std::collections::BTreeMap;

use ondeck_core::model::ceiling::MachineCount;
use ondeck_core::model::heartbeat::{Heartbeat, PROTOCOL};
use ondeck_core::modes::refresh;
use ondeck_core::ports::{Receipt, ReceivedMessage};

use super::*;

/// An auditor that knows these settings, which are in force from the beginning.
fn with_settings(audit: &mut Audit, settings: &[(&str, &str)]) {
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    let settings: BTreeMap<String, String> = settings.iter().map(owned).collect();
    audit.stored.push((at(0), settings));
}

/// A release that began at 10 s gives the machine, which has had this many runs, an idle time.
fn released(settings: &[(&str, &str)], runs: u32, idle: u64) -> Option<Invariant> {
    after(|audit| {
        with_settings(audit, settings);
        audit.release_begins(Pid(1), at(10));
        let counts = Counts { runs, ..Counts::default() };
        let running = Record { counts, ..record(State::Running, "a", Some(600)) };
        let counts = Counts { generation: 1, ..counts };
        let idle = Record { counts, ..record(State::Idle, "", Some(100 + idle)) };
        let when = (at(100), at(100));
        audit.wrote(Pid(1), Transition::Release, Some(&running), &idle, when, None);
    })
}

#[test]
fn a_release_gives_the_idle_time_of_the_settings() {
    let settings = [("idle-time-sec", "90")];
    assert_eq!(released(&settings, 1, 90), None);
    assert_eq!(released(&settings, 1, 91), Some(Invariant::Deadline));
    assert_eq!(released(&settings, 1, 0), Some(Invariant::Deadline), "it has reached no limit");
}

#[test]
fn a_release_gives_no_time_to_a_machine_that_has_reached_a_limit() {
    let by_runs = [("idle-time-sec", "90"), ("max-runs-per-machine", "2")];
    assert_eq!(released(&by_runs, 2, 0), None);
    assert_eq!(released(&by_runs, 2, 90), Some(Invariant::Deadline));
    assert_eq!(released(&by_runs, 1, 90), None);
    // Limits of ages are spread over the last tenth.
    for (minutes, none, all) in [("1", true, false), ("1.7", true, true), ("3", false, true)] {
        let by_age = [("idle-time-sec", "90"), ("max-machine-age-min", minutes)];
        assert_eq!(released(&by_age, 1, 0).is_none(), none, "{minutes}");
        assert_eq!(released(&by_age, 1, 90).is_none(), all, "{minutes}");
    }
}

#[test]
fn a_claim_lasts_as_long_as_the_call_says_and_may_wait_for_room() {
    let claimed = |settings: &[(&str, &str)], times: &[(&'static str, &'static str)], span: u64| {
        after(|audit| {
            with_settings(audit, settings);
            let ask = Ask { times: times.to_vec(), ..Ask::of(1) };
            audit.provision_begins(Pid(1), &run("a"), &ask, at(10));
            let [idle, claimed] = [(State::Idle, "", 500), (State::Claimed, "a", 20 + span)]
                .map(|(state, owner, until)| record(state, owner, Some(until)));
            let when = (at(20), at(20));
            audit.wrote(Pid(1), Transition::Claim, Some(&idle), &claimed, when, None);
        })
    };
    let plain = [("claim-timeout-sec", "200")];
    assert_eq!(claimed(&plain, &[], 200), None);
    assert_eq!(claimed(&plain, &[("claim-timeout-sec", "150")], 150), None);
    assert_eq!(claimed(&plain, &[("claim-timeout-sec", "150")], 200), Some(Invariant::Deadline));
    let waits = |ceiling| {
        [("claim-timeout-sec", "200"), ("ceiling-patience-sec", "20"), ("max-machines", ceiling)]
    };
    assert_eq!(claimed(&waits("9"), &[], 220), None);
    assert_eq!(claimed(&waits("large=2"), &[], 220), None);
    assert_eq!(claimed(&waits("xlarge=2"), &[], 220), Some(Invariant::Deadline));
    assert_eq!(claimed(&waits(""), &[], 220), Some(Invariant::Deadline));
}

#[test]
fn only_machines_that_have_reached_a_limit_are_replaced() {
    let rotated = |runs: u32| {
        after(|audit| {
            with_settings(audit, &[("max-runs-per-machine", "2")]);
            let counts = Counts { runs, ..Counts::default() };
            audit.existing(&Record { counts, ..record(State::Terminated, "", None) });
            let outcome = refresh::Outcome { rotated: vec![id()], ..refresh::Outcome::default() };
            audit.refresh_rotates(&outcome, (at(10), at(20)));
        })
    };
    assert_eq!(rotated(2), None);
    assert_eq!(rotated(1), Some(Invariant::Lifetime));
    let kept = |ticketed: bool, runs: u32, claimed: Option<u32>| {
        after(|audit| {
            with_settings(audit, &[("max-runs-per-machine", "2")]);
            audit.is_steady = true;
            audit.refresh_begins(Pid(1), &BTreeMap::new(), at(10));
            let counts = Counts { runs, ..Counts::default() };
            if let Some(claimed) = claimed {
                let other = InstanceId::new("i-2").unwrap();
                audit.existing(&Record {
                    id: other.clone(),
                    counts: Counts { runs: claimed, ..counts },
                    ..record(State::Claimed, "a", Some(600))
                });
                audit.changed_at.insert(other, at(12));
            }
            let ticketed_at = ticketed.then(|| at(0));
            let idle = record(State::Idle, "", Some(600));
            audit.existing(&Record { counts, ticketed_at, ..idle });
            audit.refresh_rotates(&refresh::Outcome::default(), (at(10), at(20)));
        })
    };
    assert_eq!(kept(true, 2, None), Some(Invariant::Lifetime), "it must not stay");
    assert_eq!(kept(true, 1, None), None);
    assert_eq!(kept(false, 2, None), None, "it is still leaving its run");
    assert_eq!(kept(true, 2, Some(3)), None, "the other one was to go, and a run has claimed it");
    assert_eq!(kept(true, 2, Some(1)), Some(Invariant::Lifetime), "the other one was not to go");
}

#[test]
fn a_machine_is_replaced_also_if_the_write_arrives_after_the_refresh_has_ended() {
    let expired = |runs: u32, by: usize| {
        after(|audit| {
            with_settings(audit, &[("max-runs-per-machine", "2")]);
            audit.forbid_waste = true;
            audit.refresh_begins(Pid(1), &BTreeMap::new(), at(10));
            audit.release_begins(Pid(2), at(10));
            audit.refresh_keeps(Pid(1), at(15));
            let counts = Counts { runs, ..Counts::default() };
            let idle = Record { counts, ..record(State::Idle, "", Some(600)) };
            audit.spare(Pid(by), Transition::Expire, Some(&idle), at(20), None);
        })
    };
    assert_eq!(expired(2, 1), None);
    assert!(expired(1, 1).is_some(), "it has not reached the limit");
    assert!(expired(2, 2).is_some(), "only a refresh replaces machines");
}

#[test]
fn the_count_covers_all_machines_that_a_ceiling_limits() {
    let counted = |ceiling: &str, total: u32, of_class: u32| {
        after(|audit| {
            with_settings(audit, &[("max-machines", ceiling)]);
            audit.release_begins(Pid(1), at(10));
            let large = ResourceClass::new("large").unwrap();
            let count = MachineCount {
                since: at(0),
                version: 1,
                recounts: 0,
                total,
                classes: [(large, of_class)].into(),
                reservations: BTreeMap::new(),
                spend: None,
            };
            let machine = |name: &str| Machine {
                id: InstanceId::new(name).unwrap(),
                spec: record(State::Created, "a", None).spec,
                intent: IntentId::new("x").unwrap(),
                launched_at: at(0),
                image: None,
            };
            audit.counts(Pid(1), &count, &[machine("i-1"), machine("i-2")]);
        })
    };
    let short = Some(Invariant::Counted);
    assert_eq!(counted("9", 2, 0), None);
    assert_eq!(counted("9", 1, 2), short);
    assert_eq!(counted("large=9", 0, 2), None, "the pool is not limited");
    assert_eq!(counted("large=9", 9, 1), short);
    assert_eq!(counted("xlarge=9", 0, 0), None);
    assert_eq!(counted("", 0, 0), None);
}

#[test]
fn an_idle_agent_goes_by_the_settings_of_the_last_refresh() {
    // The time of a machine's last trouble is a time of the simulation.
    let second = |second: u64| crate::kernel::timestamp(second * 1_000_000);
    let beats = |period: u64, now: u64, ticketed: u64| {
        after(|audit| {
            with_settings(audit, &[("heartbeat-period-sec", "20")]);
            audit.is_quiet = true;
            audit.last_refresh = Some((second(100), second(110)));
            let idle = Record { threshold: Some(second(900)), ..record(State::Idle, "", None) };
            audit.existing(&Record { ticketed_at: Some(second(ticketed)), ..idle });
            let mut machines = SimulatedMachines::default();
            machines.launched(&[Machine {
                id: id(),
                spec: record(State::Idle, "", None).spec,
                intent: IntentId::new("x").unwrap(),
                launched_at: at(0),
                image: None,
            }]);
            let heartbeat = Heartbeat {
                at: second(now),
                period: Duration::from_secs(period),
                protocol: PROTOCOL,
                registration: None,
                busy: false,
                interrupted: false,
            };
            audit.beats(Pid(1), &id(), &heartbeat, &machines, second(now));
        })
    };
    assert_eq!(beats(20, 200, 50), None);
    assert_eq!(beats(5, 200, 50), Some(Invariant::SettingsReach));
    assert_eq!(beats(5, 140, 50), None, "it may not have read them yet");
    assert_eq!(beats(5, 200, 95), None, "the refresh may not have seen it as idle");
}

#[test]
fn a_provision_that_has_ended_hides_no_ticket() {
    let received = |receipt: &str| ReceivedMessage {
        receipt: Receipt(receipt.to_owned()),
        body: ticket(600).to_json(),
    };
    let hides = |by: usize, state: State, hidden: &str| {
        after(|audit| {
            audit.existing(&record(state, "", Some(600)));
            audit.received(Pid(2), &[received("1")], at(1));
            audit.received(Pid(by), &[received("2")], at(2));
            audit.hides_nothing(Pid(1), &[received(hidden)]);
        })
    };
    assert_eq!(hides(1, State::Idle, "2"), Some(Invariant::PutBack));
    assert_eq!(hides(3, State::Idle, "2"), None, "another process received it");
    assert_eq!(hides(1, State::Idle, "1"), None, "another process hides an equal ticket");
    assert_eq!(hides(1, State::Terminated, "2"), None, "it leads nowhere");
}

#[test]
fn refreshes_at_the_same_time_announce_one_renewal() {
    let announced = |beside: bool| {
        after(|audit| {
            audit.is_quiet = true;
            audit.records.insert(id(), record(State::Idle, "", Some(900)));
            let mut all = Vec::new();
            let mut send = |audit: &mut Audit, by: Pid, threshold: u64, now: u64| {
                all.push(ticket(threshold).to_json());
                audit.few_tickets(by, &[ticket(threshold)], &all, at(now));
            };
            let given = BTreeMap::new();
            audit.refresh_begins(Pid(1), &given, at(10));
            if beside {
                audit.refresh_begins(Pid(2), &given, at(11));
            }
            send(audit, Pid(1), 500, 12);
            audit.refresh_keeps(Pid(1), at(13));
            if !beside {
                audit.refresh_begins(Pid(2), &given, at(14));
            }
            send(audit, Pid(2), 501, 15);
            audit.refresh_keeps(Pid(2), at(16));
            audit.refresh_begins(Pid(3), &given, at(300));
            send(audit, Pid(3), 900, 301);
        })
    };
    assert_eq!(announced(true), None);
    assert_eq!(announced(false), Some(Invariant::FewTickets), "each was alone");
}
