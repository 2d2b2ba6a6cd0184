use super::*;
use crate::model::ceiling::MachineCount;
use crate::model::departure::Departure;
use crate::model::heartbeat::Heartbeat;
use crate::model::ids::RunId;
use crate::model::machine_label::MachineLabel;
use crate::model::money::Money;
use crate::model::readiness::{IdleRegistration, NOTHING_SAID, Readiness, ReadinessNote};
use crate::model::record::{Counts, MachineSpec};
use crate::model::requirements::UsageClass;
use crate::model::reuse::Reuse;
use crate::model::signal::{Signal, used_up};
use crate::model::spend::Spend;

fn noon() -> Timestamp {
    Timestamp::parse("2026-05-31T12:00:00Z").unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn minutes(minutes: u64) -> Duration {
    seconds(minutes * 60)
}

fn class(name: &str) -> ResourceClass {
    ResourceClass::new(name).unwrap()
}

/// A healthy machine whose threshold is 10 minutes ahead.
fn machine(id: &str, state: State) -> (Record, AgentStatus) {
    let run = RunId::new("7").unwrap();
    let record = Record {
        requested: crate::model::machine_label::RequestedLabel::OfRun,
        id: InstanceId::new(id).unwrap(),
        state,
        run: state.is_owned().then_some(run),
        suffix: None,
        threshold: state.is_live().then(|| noon() + minutes(10)),
        spec: MachineSpec {
            resource_class: class("large"),
            instance_type: "c6i.large".into(),
            usage_class: UsageClass::Spot,
            cpu: 2,
            mem: 4_096,
        },
        counts: Counts::default(),
        reuse: Reuse::Always,
        departure: Departure::None,
        created_at: noon().before(minutes(60)),
        updated_at: noon().before(minutes(5)),
        ticketed_at: None,
        settings_version: None,
    };
    (record, AgentStatus { readiness: None, heartbeat: Some(beat(2)), report: None })
}

/// One that is so old, of an agent that beats every 5 s.
fn beat(age: u64) -> Heartbeat {
    Heartbeat::new(noon().before(seconds(age)), seconds(5))
}

fn report(signal: Signal, run: Option<&str>, detail: &str) -> Report {
    let run = run.map(|run| RunId::new(run).unwrap());
    Report {
        machine_label: None,
        signal,
        run,
        suffix: None,
        detail: detail.into(),
        at: noon(),
        generation: None,
    }
}

fn reading(machines: Vec<(Record, AgentStatus)>) -> Reading {
    Reading {
        at: noon(),
        settings: Settings { checked: Some(noon().before(minutes(3))), ..Settings::default() },
        machines,
        unreadable: Vec::new(),
        tickets: vec![(class("large"), 0), (class("xlarge"), 0)],
        count: None,
        hand_overs: None,
    }
}

fn words(machine: &Judged) -> Vec<&'static str> {
    machine.marks.iter().map(Mark::as_str).collect()
}

#[test]
fn each_unusual_thing_about_a_machine_is_marked() {
    type Change = fn(&mut Record, &mut AgentStatus, &mut Settings);
    let cases: &[(&str, State, Change, &[&str])] = &[
        ("healthy", State::Running, |_, _, _| {}, &[]),
        ("at its limit", State::Idle, |_, s, _| s.heartbeat = Some(beat(15)), &[]),
        ("a dead agent", State::Idle, |_, s, _| s.heartbeat = Some(beat(16)), &["silent"]),
        (
            "a longer period of its own",
            State::Idle,
            |_, s, _| s.heartbeat = Some(Heartbeat { period: seconds(30), ..beat(80) }),
            &[],
        ),
        ("never heard of", State::Running, |_, s, _| s.heartbeat = None, &["silent"]),
        ("starting", State::Created, |_, s, _| s.heartbeat = None, &[]),
        (
            "a new one that stopped",
            State::Created,
            |_, s, _| s.heartbeat = Some(beat(16)),
            &["silent"],
        ),
        ("at its threshold", State::Idle, |r, _, _| r.threshold = Some(noon()), &["overdue"]),
        ("almost", State::Idle, |r, _, _| r.threshold = Some(noon() + seconds(1)), &[]),
        (
            "dead and past its threshold",
            State::Running,
            |r, s, _| {
                r.threshold = Some(noon().before(minutes(1)));
                s.heartbeat = Some(beat(90));
            },
            &["silent", "overdue"],
        ),
        (
            "taken away",
            State::Running,
            |_, s, _| s.heartbeat = Some(Heartbeat { interrupted: true, ..beat(1) }),
            &["retiring"],
        ),
        (
            "of a run that wants it for itself",
            State::Running,
            |r, _, _| (r.reuse, r.counts.runs) = (Reuse::Never, 1),
            &["retiring"],
        ),
        ("drained", State::Running, |r, _, _| r.departure = Departure::Drained, &["retiring"]),
        (
            "old",
            State::Idle,
            |_, _, settings| settings.max_machine_age = Some(minutes(60)),
            &["retiring"],
        ),
        ("young", State::Idle, |_, _, settings| settings.max_machine_age = Some(minutes(90)), &[]),
        (
            "used often",
            State::Idle,
            |r, _, settings| (r.counts.runs, settings.max_runs_per_machine) = (3, Some(3)),
            &["retiring"],
        ),
        ("kept for people", State::Running, |r, _, _| r.reuse = Reuse::Preserved, &["preserved"]),
        (
            "kept for people, and dead",
            State::Running,
            |r, s, _| (r.reuse, s.heartbeat) = (Reuse::Preserved, Some(beat(60))),
            &["silent", "preserved"],
        ),
        (
            "cannot be prepared",
            State::Created,
            |_, s, _| s.report = Some(report(Signal::PrepareFailed, None, "no disk")),
            &["failed"],
        ),
        (
            "cannot register for its run",
            State::Claimed,
            |_, s, _| s.report = Some(report(Signal::RegisterFailed, Some("7"), "no")),
            &["failed"],
        ),
        (
            "could not register for another run",
            State::Claimed,
            |_, s, _| s.report = Some(report(Signal::RegisterFailed, Some("6"), "no")),
            &[],
        ),
        (
            "has served its only run",
            State::Idle,
            |_, s, _| {
                s.report = Some(report(Signal::DeregisterFailed, Some("6"), &used_up("1 job")));
            },
            &["retiring"],
        ),
        (
            "gone",
            State::Terminated,
            |r, s, _| (r.threshold, s.heartbeat) = (None, Some(beat(600))),
            &[],
        ),
    ];
    for (name, state, change, expected) in cases {
        let (mut record, mut status) = machine("i-1", *state);
        let mut reading = reading(Vec::new());
        change(&mut record, &mut status, &mut reading.settings);
        reading.machines.push((record, status));
        let judgement = judge(reading);
        assert_eq!(words(&judgement.machines[0]), *expected, "{name}");
    }
}

#[test]
fn machines_are_grouped_by_state_and_the_urgent_ones_come_first() {
    let mut machines = vec![
        machine("i-idle", State::Idle),
        machine("i-running-soon", State::Running),
        machine("i-running-late", State::Running),
        machine("i-running-dead", State::Running),
        machine("i-running-over", State::Running),
        machine("i-created", State::Created),
        machine("i-gone", State::Terminated),
        machine("i-claimed", State::Claimed),
        machine("i-kept", State::Running),
    ];
    machines[2].0.threshold = Some(noon() + minutes(20));
    machines[3].1.heartbeat = Some(beat(60));
    machines[4].0.threshold = Some(noon().before(seconds(5)));
    machines[8].0.reuse = Reuse::Preserved;
    let judgement = judge(reading(machines));
    let ids: Vec<&str> = judgement.machines.iter().map(|it| it.record.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "i-running-dead",
            "i-running-over",
            "i-running-soon",
            "i-running-late",
            "i-claimed",
            "i-created",
            "i-idle",
            "i-kept",
            "i-gone",
        ]
    );
    assert_eq!(judgement.machines[0].group, Group::Running);
    let kinds: Vec<&str> = judgement.summary.problems.iter().map(|it| it.kind.as_str()).collect();
    assert_eq!(kinds, ["silent", "overdue"]);
    let silent = &judgement.summary.problems[0];
    assert_eq!(silent.message, "1 machine without a recent heartbeat");
    assert_eq!(silent.machines[0].as_str(), "i-running-dead");
}

#[test]
fn the_summary_counts_live_machines_by_class_and_state() {
    let mut machines = vec![
        machine("i-1", State::Idle),
        machine("i-2", State::Idle),
        machine("i-3", State::Running),
        machine("i-4", State::Terminated),
        machine("i-5", State::Idle),
        machine("i-6", State::Terminated),
    ];
    machines[1].0.updated_at = noon().before(minutes(9));
    machines[4].0.spec.resource_class = class("huge");
    let mut reading = reading(machines);
    reading.tickets = vec![(class("large"), 2), (class("small"), 0), (class("xlarge"), 1)];
    let summary = judge(reading).summary;
    assert_eq!(summary.groups, BTreeMap::from([(Group::Running, 1), (Group::Idle, 3)]));
    let shown: Vec<(&str, usize, usize)> = summary
        .classes
        .iter()
        .map(|it| (it.class.as_str(), it.groups.values().sum(), it.tickets))
        .collect();
    assert_eq!(shown, [("large", 3, 2), ("xlarge", 0, 1), ("huge", 1, 0)]);
    let (oldest, age) = summary.oldest_idle.unwrap();
    assert_eq!((oldest.as_str(), age), ("i-2", minutes(9)));
    assert_eq!(summary.problems, [], "a healthy pool");
}

#[test]
fn the_warm_share_goes_by_events_and_is_unknown_without_them() {
    let handed = |transition: &str, run: &str, minute: u64| EventRow {
        instance: InstanceId::new("i-1").unwrap(),
        at: noon().before(minutes(minute)),
        transition: transition.into(),
        from: None,
        to: State::Running,
        run: Some(RunId::new(run).unwrap()),
        why: String::new(),
    };
    let share = |hand_overs| {
        let reading = Reading { hand_overs, ..reading(Vec::new()) };
        judge(reading).summary.warm.map(|warm| (warm.warm, warm.handed_over, warm.since))
    };
    assert_eq!(share(None), None, "not read");
    assert_eq!(share(Some(Vec::new())), None, "none was handed over, or the events are lost");
    let events = vec![
        handed("commit", "9", 1),
        handed("activate", "8", 2),
        handed("commit", "8", 2),
        handed("activate", "keep-warm-0123", 30),
    ];
    assert_eq!(share(Some(events)), Some((2, 3, noon().before(minutes(2)))));
    assert_eq!(share(Some(vec![handed("activate", "keep-warm-0123", 3)])), None);
}

#[test]
fn refresh_is_overdue_if_it_left_no_note_or_a_machine_for_too_long() {
    for (noted, over_by, expected) in [
        (Some(0), None, false),
        (Some(90), None, false),
        (Some(91), None, true),
        (None, None, false),
        (Some(1), Some(15), false),
        (Some(1), Some(16), true),
        (None, Some(16), true),
    ] {
        let mut idle = machine("i-1", State::Idle);
        if let Some(over_by) = over_by {
            idle.0.threshold = Some(noon().before(minutes(over_by)));
        }
        let mut reading = reading(vec![idle]);
        reading.settings.checked = noted.map(|noted| noon().before(minutes(noted)));
        let summary = judge(reading).summary;
        assert_eq!(summary.refresh_overdue, expected, "noted {noted:?}, over by {over_by:?}");
        let is_unknown =
            summary.problems.iter().any(|problem| problem.kind == ProblemKind::RefreshFailed);
        assert_eq!(is_unknown, noted.is_none());
        let is_told =
            summary.problems.iter().any(|problem| problem.kind == ProblemKind::RefreshOverdue);
        assert_eq!(is_told, expected);
    }
}

#[test]
fn a_ceiling_is_shown_with_its_count_if_that_is_known() {
    let since = noon().before(minutes(30));
    let mut count = MachineCount::empty(since);
    count.total = 5;
    count.classes.insert(class("large"), 3);
    let shown = |ceiling_since, count| {
        let mut reading = reading(Vec::new());
        reading.settings.max_machines = "5 large=4".parse().unwrap();
        reading.settings.ceiling_since = ceiling_since;
        reading.count = count;
        judge(reading).summary
    };
    let summary = shown(Some(since), Some(count.clone()));
    let numbers: Vec<_> = summary.ceilings.iter().map(|it| (it.machines, it.max)).collect();
    assert_eq!(numbers, [(Some(5), 5), (Some(3), 4)]);
    assert_eq!(summary.problems.len(), 1, "the pool is full, the class is not");
    assert_eq!(summary.problems[0].kind, ProblemKind::AtCeiling);
    for (since, count) in [(Some(noon()), Some(count)), (Some(since), None)] {
        let summary = shown(since, count);
        assert!(summary.ceilings.iter().all(|it| it.machines.is_none()), "a void or no count");
        assert_eq!(summary.problems, []);
    }
}

#[test]
fn a_closed_pool_and_unreadable_records_are_problems() {
    let mut reading = reading(Vec::new());
    reading.settings.closed = Some(noon());
    reading.unreadable = vec![Unreadable { id: "i-9".into(), problem: "state is unknown".into() }];
    let kinds: Vec<_> = judge(reading).summary.problems.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [ProblemKind::Closed, ProblemKind::Unreadable]);
}

/// In a pool whose machines register before a run claims them.
#[test]
fn an_idle_machine_is_ready_or_unready_where_it_is_to_be_registered() {
    let label = MachineLabel::new(format!("m{}", "7".repeat(32))).unwrap();
    let ready = |generation| {
        Readiness::Ready(IdleRegistration { generation, label: label.clone(), number: 1 })
    };
    let fails = |since| Readiness::NotReady {
        since: noon().before(seconds(since)),
        why: "no answer".to_owned(),
    };
    let untold = vec![Mark::Unready(NOTHING_SAID.to_owned())];
    for (name, state, said, expected) in [
        ("ready", State::Idle, Some(ready(0)), (Some(true), vec![])),
        ("ready before its last run", State::Idle, Some(ready(4)), (Some(false), untold.clone())),
        ("just idle", State::Idle, Some(fails(59)), (Some(false), vec![])),
        (
            "failing",
            State::Idle,
            Some(fails(60)),
            (Some(false), vec![Mark::Unready("no answer".to_owned())]),
        ),
        ("of an older agent", State::Idle, None, (Some(false), untold)),
        ("working", State::Running, Some(fails(600)), (None, vec![])),
    ] {
        for runner_label in [RunnerLabel::Machine, RunnerLabel::Run] {
            let (record, mut status) = machine("i-1", state);
            status.readiness =
                said.clone().map(|readiness| ReadinessNote { readiness, at: noon() });
            let mut reading = reading(vec![(record, status)]);
            reading.settings.runner_label = runner_label;
            let judgement = judge(reading);
            let (one, summary) = (&judgement.machines[0], &judgement.summary);
            let kinds: Vec<_> = summary.problems.iter().map(|it| it.kind).collect();
            if runner_label == RunnerLabel::Run {
                assert_eq!(
                    (one.is_ready, one.marks.len(), summary.ready),
                    (None, 0, None),
                    "{name}"
                );
                continue;
            }
            let (is_ready, marks) = &expected;
            assert_eq!((&one.is_ready, &one.marks), (is_ready, marks), "{name}");
            assert_eq!(summary.ready, Some(usize::from(*is_ready == Some(true))), "{name}");
            assert_eq!(!kinds.is_empty(), !one.marks.is_empty(), "{name}");
            assert!(kinds.iter().all(|kind| *kind == ProblemKind::Unready), "{name}: {kinds:?}");
        }
    }
}

#[test]
fn money_is_a_problem_from_four_fifths_of_the_cap_of_this_day_on() {
    let (since, day) = (noon().before(minutes(30)), noon().before(minutes(12 * 60)));
    let dollars = |dollars| Money::from_dollars(dollars).unwrap();
    let problems = |committed, hourly, day| {
        let mut count = MachineCount::empty(since);
        count.spend = Some(Spend {
            since,
            day,
            as_of: noon(),
            spent: dollars(1.0),
            hourly: dollars(hourly),
            committed: dollars(committed),
        });
        let mut reading = reading(Vec::new());
        reading.settings.max_spend_per_day = Some(dollars(10.0));
        reading.settings.max_machine_age = Some(minutes(8 * 60));
        (reading.settings.ceiling_since, reading.settings.spend_since) = (Some(since), Some(since));
        reading.count = Some(count);
        let summary = judge(reading).summary;
        let used = summary.spend.unwrap();
        let kinds: Vec<ProblemKind> = summary.problems.iter().map(|it| it.kind).collect();
        (kinds, used.date(), used.spent)
    };
    let today = noon().to_string()[..10].to_owned();
    let told = |kinds: &[ProblemKind], spent| (kinds.to_vec(), today.clone(), dollars(spent));
    assert_eq!(problems(7.9, 0.0, day), told(&[], 1.0));
    assert_eq!(problems(8.0, 0.0, day), told(&[ProblemKind::SpendNearCap], 1.0));
    let yesterday = day.before(minutes(24 * 60));
    assert_eq!(problems(8.0, 0.0, yesterday), told(&[], 0.0), "that was yesterday");
    let runs_on = told(&[ProblemKind::SpendNearCap], 0.0);
    assert_eq!(problems(8.0, 1.0, yesterday), runs_on, "machines run over midnight");
}
