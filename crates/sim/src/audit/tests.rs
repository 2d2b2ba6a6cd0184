mod care;
mod economy;
mod labels;
mod limits;
mod reruns;
mod room;
mod runs;
mod spend;

use ondeck_core::model::ids::ResourceClass;
use ondeck_core::model::record::Counts;
use ondeck_core::model::record::MachineSpec;
use ondeck_core::model::requirements::{ClassSize, Requirements, UsageClass};

use ondeck_core::modes::provision;

use super::*;
use crate::plan::Ask;

const NOW: u64 = 1_000_000;

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(NOW + second * 1000)
}

fn id() -> InstanceId {
    InstanceId::new("i-1").unwrap()
}

fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

fn record(state: State, owner: &str, threshold: Option<u64>) -> Record {
    Record {
        requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
        id: id(),
        state,
        run: RunId::new(owner).ok(),
        threshold: threshold.map(at),
        spec: MachineSpec {
            resource_class: ResourceClass::new("large").unwrap(),
            instance_type: "c6i.large".to_owned(),
            usage_class: UsageClass::OnDemand,
            cpu: 2,
            mem: 4096,
        },
        created_at: at(0),
        updated_at: at(0),
        ticketed_at: None,
        settings_version: None,
        reuse: ondeck_core::model::reuse::Reuse::Always,
        departure: ondeck_core::model::departure::Departure::None,
        suffix: None,
        counts: Counts::default(),
    }
}

fn ticket(threshold: u64) -> Ticket {
    Ticket {
        instance_id: id(),
        spec: record(State::Idle, "", None).spec,
        threshold: at(threshold),
        generation: 0,
        runs: Some(1),
    }
}

fn after(write: impl FnOnce(&mut Audit)) -> Option<Invariant> {
    let mut audit = Audit::default();
    write(&mut audit);
    audit.violation().map(|violation| violation.invariant)
}

#[test]
fn only_the_rows_of_the_table_are_legal() {
    use State::{Claimed, Created, Idle, Running, Terminated};
    use Transition as T;
    let idle = record(Idle, "", Some(60));
    let claimed = record(Claimed, "a", Some(60));
    let running = record(Running, "a", Some(60));
    let created = record(Created, "a", Some(60));
    let gone = record(Terminated, "", None);
    let next = |record: &Record| Record {
        counts: Counts { generation: record.counts.generation + 1, ..record.counts },
        ..record.clone()
    };
    let ran = |record: &Record| Record {
        counts: Counts { runs: record.counts.runs + 1, ..record.counts },
        ..record.clone()
    };
    let missed = |record: &Record| Record {
        counts: Counts {
            missed_registrations: record.counts.missed_registrations + 1,
            ..record.counts
        },
        ..record.clone()
    };
    let late = |record: &Record| Record { threshold: Some(at(1)), ..record.clone() };
    let of = |owner: &str, record: &Record| Record { run: Some(run(owner)), ..record.clone() };
    let legal = [
        (T::Register, None, &created),
        (T::Activate, Some(&created), &ran(&running)),
        (T::Claim, Some(&idle), &claimed),
        (T::Commit, Some(&claimed), &ran(&running)),
        (T::Commit, Some(&missed(&claimed)), &ran(&running)),
        (T::Release, Some(&running), &next(&idle)),
        (T::GiveBack, Some(&claimed), &next(&idle)),
        (T::GiveBack, Some(&claimed), &missed(&next(&idle))),
        (T::Renew, Some(&idle), &idle),
        (T::Renew, Some(&running), &running),
        (T::Expire, Some(&running), &late(&running)),
        (T::Reap, Some(&late(&idle)), &gone),
        (T::Reap, Some(&late(&created)), &gone),
    ];
    for (transition, before, to) in legal {
        let violated =
            after(|audit| audit.wrote(Pid(1), transition, before, to, (at(2), at(2)), None));
        assert_eq!(violated, None, "{transition}");
    }
    let illegal = [
        (T::Register, None, &idle, Invariant::LegalTransition),
        (T::Claim, Some(&running), &claimed, Invariant::LegalTransition),
        (T::Claim, Some(&claimed), &of("b", &claimed), Invariant::OneOwner),
        (T::Claim, Some(&late(&idle)), &claimed, Invariant::LegalTransition),
        (T::Commit, Some(&claimed), &of("b", &running), Invariant::OneOwner),
        (T::Activate, Some(&idle), &running, Invariant::LegalTransition),
        (T::Release, Some(&running), &of("a", &idle), Invariant::LegalTransition),
        (T::GiveBack, Some(&running), &idle, Invariant::LegalTransition),
        (T::Release, Some(&running), &idle, Invariant::LegalTransition),
        (T::Claim, Some(&idle), &next(&claimed), Invariant::LegalTransition),
        (T::Commit, Some(&claimed), &running, Invariant::LegalTransition),
        (T::Commit, Some(&claimed), &missed(&ran(&running)), Invariant::LegalTransition),
        (T::Release, Some(&running), &missed(&next(&idle)), Invariant::LegalTransition),
        (T::Renew, Some(&claimed), &claimed, Invariant::LegalTransition),
        (T::Renew, Some(&late(&idle)), &idle, Invariant::LegalTransition),
        (T::Renew, Some(&idle), &next(&idle), Invariant::LegalTransition),
        (T::Expire, Some(&running), &running, Invariant::LegalTransition),
        (T::Reap, Some(&running), &gone, Invariant::LegalTransition),
        (T::Reap, Some(&gone), &gone, Invariant::LegalTransition),
        (T::Activate, Some(&gone), &running, Invariant::LegalTransition),
    ];
    for (transition, before, to, invariant) in illegal {
        let violated =
            after(|audit| audit.wrote(Pid(1), transition, before, to, (at(2), at(2)), None));
        assert_eq!(violated, Some(invariant), "{transition} of {before:?} to {to:?}");
    }
    let ahead =
        after(|audit| audit.wrote(Pid(1), T::Claim, Some(&idle), &claimed, (at(30), at(2)), None));
    assert_eq!(ahead, Some(Invariant::LegalTransition), "for a time that no clock can show");
}

#[test]
fn a_renewal_does_not_shorten_the_time_of_a_machine() {
    let idle = record(State::Idle, "", Some(90));
    for (threshold, violated) in [(95, None), (90, None), (89, Some(Invariant::LegalTransition))] {
        let renewed = Record { threshold: Some(at(threshold)), ..idle.clone() };
        let found = after(|audit| {
            audit.wrote(Pid(1), Transition::Renew, Some(&idle), &renewed, (at(2), at(2)), None);
        });
        assert_eq!(found, violated, "until {threshold}");
    }
}

#[test]
fn the_last_ticket_of_an_idle_machine_is_kept() {
    let idle = record(State::Idle, "", Some(60));
    let deleted = |found: &Record, ticket: &Ticket, others: usize| {
        after(|audit| {
            audit.existing(found);
            audit.deletes(ticket, others, at(0));
        })
    };
    let current = ticket(60);
    assert_eq!(deleted(&idle, &current, 0), Some(Invariant::Reachable));
    assert_eq!(deleted(&idle, &current, 1), None, "another is left");
    let later = Record { counts: Counts { generation: 1, ..idle.counts }, ..idle.clone() };
    assert_eq!(deleted(&later, &current, 0), None, "of an earlier idle state");
    let renewed = Record { threshold: Some(at(90)), ..idle.clone() };
    assert_eq!(deleted(&renewed, &current, 0), Some(Invariant::Reachable), "renewed");
    let announced_again = after(|audit| {
        audit.existing(&renewed);
        audit.announced(&ticket(90), None, at(0));
        audit.deletes(&current, 0, at(0));
    });
    assert_eq!(announced_again, None, "renewed and announced again");
    assert_eq!(deleted(&record(State::Claimed, "a", Some(60)), &current, 0), None, "claimed");
    let overdue = record(State::Idle, "", Some(5));
    assert_eq!(deleted(&overdue, &ticket(5), 0), None, "past it by some clock");
    assert_eq!(after(|audit| audit.marked_ticketed(&[current], at(2))), Some(Invariant::Reachable));
}

#[test]
fn only_a_free_machine_is_announced() {
    let idle = record(State::Idle, "", Some(60));
    let announced = |view: MachineView, generation: u32| {
        after(|audit| {
            audit.existing(&idle);
            audit.announced(&Ticket { generation, ..ticket(60) }, Some(&view), at(0));
        })
    };
    let free = MachineView {
        label: None,
        serving: None,
        job: None,
        seat: None,
        is_dirty: false,
        notice_at: None,
    };
    assert_eq!(announced(free.clone(), 0), None);
    for busy in [
        MachineView { label: Some((&run("a")).into()), ..free.clone() },
        MachineView { serving: Some((&run("a")).into()), ..free.clone() },
        MachineView { job: Some((&run("a")).into()), ..free.clone() },
        MachineView { is_dirty: true, ..free.clone() },
    ] {
        assert_eq!(announced(busy.clone(), 0), Some(Invariant::Announced), "{busy:?}");
        assert_eq!(announced(busy, 1), None, "a ticket of another idle state");
    }
}

#[test]
fn records_are_terminated_before_machines() {
    let terminated = |found: Option<Record>, age: u64| {
        after(|audit| {
            audit.grace = Duration::from_secs(30);
            found.iter().for_each(|record| audit.existing(record));
            audit.terminated(&id(), Duration::from_secs(age));
        })
    };
    assert_eq!(
        terminated(Some(record(State::Running, "a", Some(60))), 99),
        Some(Invariant::StoreFirst)
    );
    assert_eq!(terminated(Some(record(State::Idle, "", Some(1))), 99), Some(Invariant::StoreFirst));
    assert_eq!(terminated(Some(record(State::Terminated, "", None)), 99), None);
    assert_eq!(terminated(None, 99), None, "no process has registered it");
    let early = Some(Invariant::StoreFirst);
    assert_eq!(terminated(None, 19), early, "its launcher may still register it");
    assert_eq!(terminated(None, 20), None, "by a clock that is ten seconds ahead");
}

/// An agent terminates its machine at 30 s. An early answer said that the machine is running until
/// `threshold`. The agent asked again at `asked`. If `arrives` is given, the answer says that the
/// machine is idle until 90 s, and arrives then. All times are in seconds.
fn terminated_itself(threshold: u64, asked: u64, arrives: Option<u64>) -> Option<Invariant> {
    let micros = |second: u64| second * 1_000_000;
    after(|audit| {
        let running = record(State::Running, "a", Some(threshold));
        audit.answered(Pid(1), Some(&running), (micros(1), micros(2)));
        audit.asks(Pid(1), micros(asked));
        if let Some(arrives) = arrives {
            let idle = record(State::Idle, "", Some(90));
            audit.answered(Pid(1), Some(&idle), (micros(asked), micros(arrives)));
        }
        audit.terminated_itself(Pid(1), &id(), (micros(30), at(30)));
    })
}

#[test]
fn an_agent_follows_the_newest_answer_that_has_arrived() {
    let violated = Some(Invariant::StoreFirst);
    assert_eq!(terminated_itself(20, 28, None), None, "past its threshold");
    assert_eq!(terminated_itself(60, 28, None), violated, "within it");
    assert_eq!(terminated_itself(20, 28, Some(29)), violated, "a newer answer has arrived");
    assert_eq!(terminated_itself(20, 28, Some(31)), None, "it has not arrived yet");
    assert_eq!(terminated_itself(60, 28, Some(31)), violated, "the older one says so, too");
}

#[test]
fn an_agent_asks_before_it_terminates_its_machine() {
    let violated = Some(Invariant::StoreFirst);
    assert_eq!(terminated_itself(20, 20, None), None, "it has waited for an answer");
    assert_eq!(terminated_itself(20, 19, None), violated, "too long ago");
    assert_eq!(terminated_itself(9, 10, None), None, "its time was up when it asked");
    let never_asked = after(|audit| audit.terminated_itself(Pid(1), &id(), (30, at(30))));
    assert_eq!(never_asked, violated);
    let terminated = after(|audit| {
        let gone = record(State::Terminated, "", None);
        audit.answered(Pid(1), Some(&gone), (1, 2));
        audit.terminated_itself(Pid(1), &id(), (60_000_000, at(60)));
    });
    assert_eq!(terminated, None, "a terminated record is final");
}

/// Orders of one provision, each with its intent, the number it asks for, and the machines it gets.
fn ordered(orders: &[(&str, u32, &[&str])]) -> Option<Invariant> {
    after(|audit| {
        for (intent, count, names) in orders {
            let intent = IntentId::new(*intent).unwrap();
            let order = Order {
                intent: intent.clone(),
                run: run("a"),
                count: *count,
                requirements: Requirements {
                    class: ResourceClass::new("large").unwrap(),
                    size: ClassSize { cpu: 2, mem: 4096 },
                    usage: UsageClass::OnDemand,
                    types: "c*".parse().unwrap(),
                },
            };
            let machine = |name: &&str| Machine {
                id: InstanceId::new(*name).unwrap(),
                spec: record(State::Created, "a", None).spec,
                intent: intent.clone(),
                launched_at: at(0),
                image: None,
            };
            let machines: Vec<Machine> = names.iter().map(machine).collect();
            audit.intended(&intent);
            audit.launched(Pid(1), &order, &machines, at(0));
        }
    })
}

#[test]
fn a_second_order_is_only_for_the_missing_machines() {
    for legal in [
        &[("x", 2, &["i-1", "i-2"][..])][..],
        &[("x", 2, &["i-1", "i-2"]), ("x", 2, &["i-1", "i-2"])],
        &[("x", 3, &["i-1"]), ("y", 2, &[]), ("z", 2, &["i-2", "i-3"])],
        // The first order arrives once more, late.
        &[("x", 3, &["i-1"]), ("y", 2, &["i-2", "i-3"]), ("x", 3, &["i-1"])],
    ] {
        assert_eq!(ordered(legal), None, "{legal:?}");
    }
    for illegal in [
        &[("x", 1, &["i-1", "i-2"][..])][..],
        &[("x", 2, &["i-1", "i-2"]), ("x", 2, &["i-3", "i-4"])],
        // Orders as many again although one was launched: a violation even before they are.
        &[("x", 2, &["i-1"]), ("y", 2, &[])],
        &[("x", 2, &["i-1"]), ("y", 1, &["i-2", "i-3"])],
        &[("x", 1, &["i-1"]), ("y", 1, &["i-2"])],
        &[("x", 1, &[]), ("y", 2, &["i-1", "i-2"])],
    ] {
        assert_eq!(ordered(illegal), Some(Invariant::LaunchedOnce), "{illegal:?}");
    }
}

/// A provision of run a, which began at 10 s, reports at 40 s that it has the machine. `before`
/// tells the auditor what happened earlier.
fn answered(before: impl FnOnce(&mut Audit)) -> Option<Invariant> {
    after(|audit| {
        before(audit);
        let outcome = provision::Outcome {
            run: run("a"),
            label: (&run("a")).into(),
            requested: 1,
            usage: UsageClass::OnDemand,
            instances: vec![provision::Provisioned {
                id: id(),
                label: run("a").to_string(),
                source: provision::MachineSource::Warm,
                spec: record(State::Running, "a", None).spec,
                milestones: provision::Milestones::default(),
                why: String::new(),
            }],
            timings: provision::Timings::default(),
            search: provision::PoolSearch::default(),
            failure: None,
            terminated: Vec::new(),
            returned: Vec::new(),
            kept: Vec::new(),
            clean_up_failures: Vec::new(),
        };
        audit.succeeded(HandOver {
            outcome: &outcome,
            ask: &Ask::of(1),
            began: at(10),
            now: at(40),
            is_first: true,
            late: false,
        });
    })
}

/// A machine is claimed for run a and committed to it, both at `second`.
fn committed(audit: &mut Audit, name: &str, second: u64) {
    let [idle, claimed, running] =
        [(State::Idle, ""), (State::Claimed, "a"), (State::Running, "a")].map(|(state, owner)| {
            let runs = u32::from(state == State::Running);
            Record {
                id: InstanceId::new(name).unwrap(),
                counts: Counts { runs, ..Counts::default() },
                ..record(state, owner, Some(90))
            }
        });
    let when = (at(second), at(second));
    audit.wrote(Pid(1), Transition::Claim, Some(&idle), &claimed, when, None);
    audit.wrote(Pid(1), Transition::Commit, Some(&claimed), &running, when, None);
}

/// An operator gives a machine to run b.
fn edited(audit: &mut Audit, name: &str, state: State) {
    let record = Record { id: InstanceId::new(name).unwrap(), ..record(state, "b", Some(90)) };
    audit.reassigned_by_hand(&record, at(35));
}

#[test]
fn a_provision_that_could_not_see_an_edit_is_not_blamed_for_it() {
    assert_eq!(answered(|audit| committed(audit, "i-1", 30)), None, "no edit");
    let given_away = answered(|audit| {
        committed(audit, "i-1", 30);
        edited(audit, "i-1", State::Running);
    });
    assert_eq!(given_away, None);
    let twice = answered(|audit| {
        committed(audit, "i-1", 30);
        edited(audit, "i-1", State::Running);
        audit.reassigned_by_hand(&record(State::Running, "c", Some(90)), at(36));
    });
    assert_eq!(twice, None);
    let reaped = answered(|audit| {
        committed(audit, "i-1", 30);
        edited(audit, "i-1", State::Running);
        let (late, gone) =
            (record(State::Running, "b", Some(36)), record(State::Terminated, "", None));
        audit.wrote(Pid(1), Transition::Reap, Some(&late), &gone, (at(37), at(37)), None);
    });
    assert_eq!(reaped, None);
}

#[test]
fn a_provision_that_answers_with_what_no_edit_took_from_it_is_blamed() {
    let violated = Some(Invariant::AllOrNothing);
    assert_eq!(answered(|_| {}), violated, "never recorded");
    let anothers = answered(|audit| audit.existing(&record(State::Running, "b", Some(90))));
    assert_eq!(anothers, violated, "of another run, without an edit");
    let given_up = answered(|audit| {
        committed(audit, "i-1", 30);
        let [running, idle] = [(State::Running, "a"), (State::Idle, "")]
            .map(|(state, owner)| record(state, owner, Some(90)));
        let idle = Record { counts: Counts { generation: 1, ..idle.counts }, ..idle };
        audit.wrote(Pid(1), Transition::Release, Some(&running), &idle, (at(35), at(35)), None);
    });
    assert_eq!(given_up, violated, "released");
    let another_machine = answered(|audit| {
        committed(audit, "i-2", 30);
        edited(audit, "i-2", State::Running);
        audit.existing(&record(State::Running, "b", Some(90)));
    });
    assert_eq!(another_machine, violated, "the edit was of another machine");
    let before_its_commit = answered(|audit| {
        audit.existing(&record(State::Claimed, "a", Some(90)));
        edited(audit, "i-1", State::Claimed);
    });
    assert_eq!(before_its_commit, violated, "the store refuses the commit that comes next");
    let before_it_began = answered(|audit| {
        committed(audit, "i-1", 5);
        edited(audit, "i-1", State::Running);
    });
    assert_eq!(before_it_began, violated, "an earlier provision had set it running");
    let from_another_run = answered(|audit| {
        committed(audit, "i-1", 30);
        audit.existing(&record(State::Running, "c", Some(90)));
        edited(audit, "i-1", State::Running);
    });
    assert_eq!(from_another_run, violated, "the edit took it from another run");
    let claimed_since = answered(|audit| {
        committed(audit, "i-1", 30);
        edited(audit, "i-1", State::Running);
        let [idle, claimed] = [(State::Idle, ""), (State::Claimed, "c")]
            .map(|(state, owner)| record(state, owner, Some(90)));
        audit.wrote(Pid(1), Transition::Claim, Some(&idle), &claimed, (at(38), at(38)), None);
    });
    assert_eq!(claimed_since, violated, "it has been in the pool since");
}
