//! The sentences, as snapshots.

use std::time::Duration;

use insta::assert_snapshot;
use ondeck_core::model::demand::Demand;
use ondeck_core::model::departure::Departure;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, IntentId, RunId};
use ondeck_core::model::intent::Intent;
use ondeck_core::model::label::Label;
use ondeck_core::model::record::{Counts, EventRow, MachineSpec, Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::signal::{AgentStatus, Report as AgentReport, Signal};
use ondeck_core::model::summary::{
    CallEnding, CallOrigin, CallResult, CandidateNote, CandidateOutcome, HedgeNote, LaunchNote,
    MachineNote, Phases, ProvisionSummary, SearchCounts, WaitCause, WaitNote,
};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::explain::{
    Gap, MachineOfRun, MachineStory, RunStory, Sight, Step, Story, Typical,
};
use ondeck_core::modes::provision::{ProvisionOptions, Request, SourcePolicy};

use super::{ExplainReport, layout};

fn at(seconds: u64) -> Timestamp {
    Timestamp::parse("2026-11-18T12:00:00Z").unwrap() + Duration::from_secs(seconds)
}

fn id(text: &str) -> InstanceId {
    InstanceId::new(text).unwrap()
}

fn run(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

/// The text without colours, in 80 columns.
fn told(story: Story) -> String {
    let text = layout::text(&ExplainReport::of(story), Some(80));
    let text = anstream::adapter::strip_str(&text).to_string();
    let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(widest <= 80, "{widest} columns:\n{text}");
    text
}

/// The sentences of a run, in one line.
fn told_text(story: RunStory) -> String {
    let text = told(Story::Run(Box::new(story)));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn event(seconds: u64, transition: &str, to: State, of: Option<&str>, why: &str) -> EventRow {
    EventRow {
        instance: id("i-1"),
        at: at(seconds),
        transition: transition.to_owned(),
        from: None,
        to,
        run: of.map(run),
        why: why.to_owned(),
    }
}

fn step(seconds: u64, transition: &str, to: State, of: Option<&str>, before: Option<&str>) -> Step {
    let event = event(seconds, transition, to, of, "");
    Step::Event { event, before: before.map(run) }
}

fn because(step: Step, why: &str) -> Step {
    match step {
        Step::Event { event, before } => {
            Step::Event { event: EventRow { why: why.to_owned(), ..event }, before }
        }
        gap => gap,
    }
}

fn record(state: State, of: Option<&str>) -> Record {
    Record {
        requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
        id: id("i-1"),
        state,
        run: of.map(run),
        suffix: None,
        threshold: state.is_live().then(|| at(300)),
        spec: MachineSpec {
            resource_class: "large".parse().unwrap(),
            instance_type: "c6i.large".to_owned(),
            usage_class: UsageClass::Spot,
            cpu: 2,
            mem: 4096,
        },
        counts: Counts { generation: 1, runs: 2, missed_registrations: 0 },
        reuse: Reuse::Always,
        departure: Departure::None,
        created_at: at(0),
        updated_at: at(9),
        ticketed_at: None,
        settings_version: None,
    }
}

fn machine(record: Option<Record>, life: Vec<Step>) -> MachineStory {
    let heartbeat = Some(Heartbeat::new(at(58), Duration::from_secs(5)));
    let report = AgentReport {
        signal: Signal::Registered,
        run: Some(run("7")),
        suffix: None,
        detail: String::new(),
        at: at(12),
        generation: None,
        machine_label: None,
    };
    MachineStory {
        id: id("i-1"),
        now: at(60),
        record,
        unreadable: None,
        status: AgentStatus { readiness: None, heartbeat, report: Some(report) },
        life,
        sight: None,
        registers_idle: false,
        grace: Duration::from_secs(60),
    }
}

#[test]
fn the_life_of_a_machine() {
    use State::{Claimed, Created, Idle, Running};
    let gap = Gap {
        from: Some((Idle, at(40))),
        to: Some(Claimed),
        until: Some(at(50)),
        is_unread: false,
    };
    let life = vec![
        step(0, "register", Created, Some("7"), None),
        step(10, "activate", Running, Some("7"), Some("7")),
        because(step(15, "renew", Running, Some("7"), Some("7")), "adopted"),
        step(20, "release", Idle, None, Some("7")),
        step(30, "claim", Claimed, Some("8"), None),
        because(step(40, "give-back", Idle, None, Some("8")), "another machine was ready first"),
        Step::Gap(gap),
        step(50, "commit", Running, Some("9"), None),
        because(step(55, "expire", Running, Some("9"), Some("9")), "by hand."),
        step(56, "release", Idle, None, None),
        because(step(57, "reap", State::Terminated, None, None), "idle for too long"),
    ];
    assert_snapshot!("life", told(Story::Machine(Box::new(machine(None, life)))));
}

#[test]
fn a_claim_that_its_agent_saw_late_is_told_where_it_was_seen() {
    use State::{Claimed, Running};
    let in_one_line = |story| told(story).split_whitespace().collect::<Vec<_>>().join(" ");
    let life = || {
        vec![
            step(30, "claim", Claimed, Some("8"), None),
            step(50, "commit", Running, Some("8"), None),
        ]
    };
    let told_after = |millis: u64| {
        let after = Duration::from_millis(millis);
        let sight = Some(Sight { run: run("8"), at: at(30) + after, after });
        let of_machine = MachineStory { sight: sight.clone(), ..machine(None, life()) };
        let of_run = MachineOfRun { sight, ..of_run("i-1", life(), None) };
        let of_run = story(Vec::new(), vec![of_run]);
        [Story::Machine(Box::new(of_machine)), Story::Run(Box::new(of_run))].map(in_one_line)
    };
    for text in told_after(12_300) {
        let (_, late) = text.split_once("12:00:42.300 The agent of i-1 saw the claim of").unwrap();
        assert!(late.contains("12 s after it was made") && late.contains("12:00:50"), "{text}");
    }
    for (millis, is_told) in [(0, false), (1_999, false), (2_000, true)] {
        for text in told_after(millis) {
            assert_eq!(text.contains("saw the claim"), is_told, "{millis}: {text}");
        }
    }
}

#[test]
fn what_a_run_has_that_its_provider_takes_away() {
    let mut status = AgentStatus { readiness: None, heartbeat: None, report: None };
    let now = |status: &AgentStatus| {
        let record = Some(record(State::Running, Some("7")));
        let machine = MachineOfRun { status: status.clone(), ..of_run("i-1", Vec::new(), record) };
        let story = story(Vec::new(), vec![machine]);
        ExplainReport::of(Story::Run(Box::new(story))).present.concat()
    };
    assert!(now(&status).ends_with("(in 4 min 00 s)."), "{}", now(&status));
    let beat = Heartbeat::new(at(58), Duration::from_secs(5));
    status.heartbeat = Some(Heartbeat { interrupted: true, ..beat });
    assert!(now(&status).ends_with(super::INTERRUPTED), "{}", now(&status));
}

#[test]
fn why_a_machine_is_still_there() {
    let mut shown = String::new();
    let mut show = |what: &str, story: MachineStory| {
        let text = told(Story::Machine(Box::new(story)));
        let now = text.split_once("\nnow\n").unwrap().1;
        shown += &format!("# {what}\n{now}\n");
    };
    let of = |state: State, owner: Option<&str>| machine(Some(record(state, owner)), Vec::new());
    let with = |record: Record| machine(Some(record), Vec::new());
    show("created", of(State::Created, Some("7")));
    show("claimed", of(State::Claimed, Some("7")));
    show("running", of(State::Running, Some("7")));
    let preserved = Record { reuse: Reuse::Preserved, ..record(State::Running, Some("7")) };
    show("preserved", with(preserved));
    let suffix = Some("big".parse().unwrap());
    show("under a suffix", with(Record { suffix, ..record(State::Running, Some("7")) }));
    show("idle, not announced", of(State::Idle, None));
    show("idle", with(Record { ticketed_at: Some(at(10)), ..record(State::Idle, None) }));
    show("idle, used up", with(Record { reuse: Reuse::Never, ..record(State::Idle, None) }));
    for departure in [Departure::Drained, Departure::Retired] {
        for (state, owner) in [(State::Idle, None), (State::Running, Some("7"))] {
            let what = format!("{} and {}", state.as_str(), departure.stored());
            show(&what, with(Record { departure, ..record(state, owner) }));
        }
    }
    let late = MachineStory { now: at(400), ..of(State::Running, Some("7")) };
    show("past its time, and silent", late);
    let quiet = AgentStatus::default();
    show("without a heartbeat", MachineStory { status: quiet, ..of(State::Created, Some("7")) });
    show("terminated", of(State::Terminated, None));
    show("without a record", machine(None, Vec::new()));
    assert_snapshot!("still_there", shown);
}

fn options(count: u32) -> ProvisionOptions {
    ProvisionOptions { count, ..ProvisionOptions::default() }
}

fn summary(count: u32) -> ProvisionSummary {
    ProvisionSummary {
        run: run("7"),
        origin: CallOrigin::Run,
        began: at(0),
        at: at(30),
        asked: options(count),
        search: SearchCounts::default(),
        candidates: Vec::new(),
        hedges: Vec::new(),
        launches: Vec::new(),
        waits: Vec::new(),
        machines: Vec::new(),
        phases: Phases { preparation_ms: Some(20), total_ms: 30_000, ..Phases::default() },
        ending: CallEnding { result: CallResult::HandingOver, ..CallEnding::default() },
        omitted: 0,
    }
}

fn story(calls: Vec<ProvisionSummary>, machines: Vec<MachineOfRun>) -> RunStory {
    RunStory {
        label: Label::from(&run("7")),
        now: at(60),
        demands: Vec::new(),
        calls,
        machines,
        open_launches: Vec::new(),
        unread_before: None,
        typical: Typical::default(),
    }
}

fn of_run(name: &str, steps: Vec<Step>, record: Option<Record>) -> MachineOfRun {
    let record = record.map(|record| Record { id: id(name), ..record });
    MachineOfRun { id: id(name), steps, record, status: AgentStatus::default(), sight: None }
}

#[test]
fn a_machine_fails_its_checks_after_its_claim() {
    for (noted, claimed) in [(0, 0), (0, 1), (2_000, 1)] {
        let note = CandidateNote {
            machine: id("i-1"),
            outcome: CandidateOutcome::Unhealthy,
            why: String::new(),
            winner: None,
            after_ms: noted,
        };
        let call = ProvisionSummary { candidates: vec![note], ..summary(1) };
        let claim = step(claimed, "claim", State::Claimed, Some("7"), None);
        let told =
            told(Story::Run(Box::new(story(vec![call], vec![of_run("i-1", vec![claim], None)]))));
        let (claimed, failed) = (told.find("claimed i-1"), told.find("i-1 failed its checks"));
        assert!(claimed.unwrap() < failed.unwrap(), "{told}");
    }
}

#[test]
fn a_run_that_met_everything() {
    let note = |machine: &str, outcome, why: &str, after_ms| CandidateNote {
        machine: id(machine),
        outcome,
        why: why.to_owned(),
        winner: (outcome == CandidateOutcome::Lost).then(|| run("8")),
        after_ms,
    };
    let launch = |usage, count, launched, why: &str, after_ms| LaunchNote {
        intent: IntentId::new("00aa").unwrap(),
        usage,
        count,
        launched,
        why: why.to_owned(),
        after_ms,
        took_ms: 1_400,
    };
    let wait = |cause, why: &str, after_ms, took_ms| WaitNote {
        cause,
        why: why.to_owned(),
        after_ms,
        took_ms,
    };
    let call = ProvisionSummary {
        asked: ProvisionOptions {
            usage: UsageClass::Spot,
            types: Some("c7i.* m7i.*".parse().unwrap()),
            capacity_fallback: true,
            ..options(3)
        },
        search: SearchCounts {
            asked: true,
            tickets: 9,
            claimed: 1,
            unsuitable: [("its type is not allowed".to_owned(), 2)].into(),
            void: 1,
            lost: 1,
            unhealthy: 1,
            given_back: 2,
            hedges: 1,
        },
        candidates: vec![
            note("i-2", CandidateOutcome::Unsuitable, "its type is not allowed", 40),
            note("i-3", CandidateOutcome::Expired, "", 41),
            note("i-4", CandidateOutcome::Lost, "", 60),
            note("i-5", CandidateOutcome::Gone, "", 61),
            note("i-6", CandidateOutcome::Unhealthy, "its heartbeat stopped", 2_000),
            note("i-7", CandidateOutcome::Unregistered, "not registered within 30 s", 9_000),
            note("i-8", CandidateOutcome::TooNew, "", 9_001),
            note("i-9", CandidateOutcome::LostToHedge, "", 9_002),
            note("i-1", CandidateOutcome::Ready, "", 9_003),
        ],
        hedges: vec![HedgeNote { machine: id("i-9"), way: None, after_ms: 4_000 }],
        launches: vec![
            launch(UsageClass::Spot, 2, Some(1), "InsufficientInstanceCapacity", 10_000),
            launch(UsageClass::Spot, 1, Some(0), "no room", 12_000),
            launch(UsageClass::OnDemand, 1, Some(1), "", 14_000),
            launch(UsageClass::OnDemand, 1, None, "EC2 is out of reach", 16_000),
        ],
        waits: vec![
            wait(WaitCause::Token, "", 0, 15),
            wait(WaitCause::Tickets, "", 50, 300),
            wait(WaitCause::Room, "the pool has 5 of 5 machines, 2 more are needed", 9_500, 400),
            wait(WaitCause::Provider, "RequestLimitExceeded", 11_500, 500),
        ],
        machines: vec![MachineNote {
            machine: id("i-1"),
            source: "warm".to_owned(),
            way: None,
            found_ms: Some(30),
            owned_ms: 50,
            registered_ms: Some(8_000),
            ready_ms: Some(9_003),
        }],
        phases: Phases {
            preparation_ms: Some(20),
            adoption_ms: Some(1),
            selection_ms: Some(9_400),
            creation_ms: Some(7_000),
            validation_ms: Some(12_000),
            clean_up_ms: None,
            total_ms: 30_000,
        },
        omitted: 4,
        ..summary(3)
    };
    let steps = vec![
        step(1, "claim", State::Claimed, Some("7"), None),
        step(30, "commit", State::Running, Some("7"), Some("7")),
    ];
    let machines = vec![of_run("i-1", steps, Some(record(State::Running, Some("7"))))];
    assert_snapshot!("everything", told(Story::Run(Box::new(story(vec![call], machines)))));
}

#[test]
fn how_a_run_ended() {
    let mut shown = String::new();
    let mut show = |what: &str, story: RunStory| {
        shown += &format!("# {what}\n{}\n\n", told(Story::Run(Box::new(story))));
    };
    let ending = CallEnding {
        result: CallResult::Failed,
        kind: "no-capacity".to_owned(),
        message: "not enough capacity, 1 of 3 machines launched: no room".to_owned(),
        terminated: 1,
        returned: 1,
        kept: 0,
        unfinished: vec!["i-3 was not terminated: EC2 is out of reach".to_owned()],
    };
    let pool = ProvisionOptions { machine_source: SourcePolicy::Pool, ..options(1) };
    let nothing = SearchCounts { asked: true, ..SearchCounts::default() };
    let failed = ProvisionSummary { ending, asked: pool, search: nothing, ..summary(1) };
    show("failed", story(vec![failed], Vec::new()));

    let mut killed = story(Vec::new(), Vec::new());
    killed.demands = vec![Demand::of(&Request::of_run(run("7")), at(3))];
    killed.open_launches = vec![Intent {
        id: IntentId::new("00aa").unwrap(),
        run: run("7"),
        class: None,
        count: 2,
        usage: UsageClass::OnDemand,
        deadline: at(600),
        outcome: String::new(),
    }];
    show("killed after the intent", killed);

    let created = |name: &str| {
        let steps = vec![step(2, "register", State::Created, Some("7"), None)];
        of_run(name, steps, Some(record(State::Created, Some("7"))))
    };
    let note = |name: &str| MachineNote {
        machine: id(name),
        source: "cold".to_owned(),
        way: None,
        found_ms: None,
        owned_ms: 2_000,
        registered_ms: Some(20_000),
        ready_ms: Some(20_100),
    };
    let two = ProvisionSummary { machines: vec![note("i-1"), note("i-2")], ..summary(2) };
    show(
        "killed before the hand-over",
        story(vec![two.clone()], vec![created("i-1"), created("i-2")]),
    );
    let mut handed = created("i-1");
    handed.steps.push(step(30, "activate", State::Running, Some("7"), Some("7")));
    handed.record = Some(record(State::Running, Some("7")));
    show("killed between two activations", story(vec![two], vec![handed, created("i-2")]));

    let adopted = MachineNote { source: "adopted".to_owned(), ..note("i-1") };
    let again = ProvisionSummary { machines: vec![adopted], ..summary(1) };
    show("adopted", story(vec![again], Vec::new()));

    let rescue = ProvisionSummary {
        origin: CallOrigin::Rescue,
        asked: ProvisionOptions { machine_source: SourcePolicy::New, ..options(1) },
        ending: CallEnding::default(),
        ..summary(1)
    };
    let gap = Gap { from: Some((State::Running, at(40))), to: None, until: None, is_unread: false };
    let lost = of_run("i-1", vec![Step::Gap(gap)], None);
    show(
        "a rescue that another version wrote, and a lost release",
        story(vec![rescue], vec![lost]),
    );
    assert_snapshot!("endings", shown);
}

#[test]
fn a_machine_is_named_once_in_a_line() {
    let adopted = |at| because(step(at, "renew", State::Running, Some("7"), Some("7")), "adopted");
    let twice = |name| of_run(name, vec![adopted(5), adopted(5)], None);
    let told = |machines| {
        let lines = ExplainReport::of(Story::Run(Box::new(story(Vec::new(), machines)))).timeline;
        lines.into_iter().map(|line| line.text).collect::<Vec<_>>()
    };
    assert_eq!(told(vec![twice("i-1")]), ["i-1 got more time: adopted."]);
    let both = told(vec![twice("i-1"), twice("i-2")]);
    assert_eq!(both, ["i-1 and i-2 got more time: adopted."]);
}

#[test]
fn events_that_were_not_read_are_not_called_lost() {
    let note = |name: &str| MachineNote {
        machine: id(name),
        source: "cold".to_owned(),
        way: None,
        found_ms: None,
        owned_ms: 2_000,
        registered_ms: None,
        ready_ms: None,
    };
    let unread = Gap { from: None, to: Some(State::Running), until: Some(at(40)), is_unread: true };
    let call = ProvisionSummary { machines: vec![note("i-1"), note("i-2")], ..summary(2) };
    let told = |machines| {
        let mut story = story(vec![call.clone()], machines);
        story.unread_before = Some(at(30));
        let lines = ExplainReport::of(Story::Run(Box::new(story))).timeline;
        lines.into_iter().skip(1).map(|line| line.text).collect::<Vec<_>>()
    };
    let released = || step(40, "release", State::Idle, None, None);
    let cut = || of_run("i-1", vec![Step::Gap(unread.clone()), released()], None);
    let whole = of_run("i-2", vec![step(31, "activate", State::Running, Some("7"), None)], None);
    let of_run = "The run has earlier events that were not read.";
    let of_machine = "i-1 has earlier events that were not read.";
    let handed = "i-2 was ready, and was handed to the run.";
    let ending = "Events tell that 1 of 2 machines were handed to the run. Earlier events, which were \
                  not read, may tell of the others.";
    let lines = told(vec![cut(), whole]);
    assert!(lines.iter().all(|line| !line.contains("unknown")), "{lines:#?}");
    for line in [of_run, of_machine, handed, ending] {
        assert!(lines.iter().any(|it| it == line), "{line}: {lines:#?}");
    }
    let none = told(vec![cut()]).join("\n");
    assert!(none.contains("Earlier events, which were not read, may tell whether"), "{none}");
}

#[test]
fn a_call_is_not_told_by_the_hand_over_of_another_one() {
    let note = |name: &str| MachineNote {
        machine: id(name),
        source: "cold".to_owned(),
        way: None,
        found_ms: None,
        owned_ms: 2_000,
        registered_ms: None,
        ready_ms: None,
    };
    let call = |machines: Vec<MachineNote>| ProvisionSummary { machines, ..summary(2) };
    let handed =
        |name| of_run(name, vec![step(30, "activate", State::Running, Some("7"), None)], None);
    let killed = || call(vec![note("i-1"), note("i-2")]);
    let other = call(vec![note("i-3"), note("i-4")]);
    let both = story(vec![killed(), other], vec![handed("i-3"), handed("i-4")]);
    let told: Vec<usize> = both.calls.iter().map(|call| both.handed_over(call)).collect();
    assert_eq!(told, [0, 2]);
    let shown = told_text(both);
    assert!(shown.contains("Whether that was done is unknown: no event tells it."), "{shown}");

    let cut = call((0..12).map(|n| note(&format!("i-{n}"))).collect());
    assert_eq!(story(Vec::new(), vec![handed("i-13")]).handed_over(&cut), 1, "the list is cut");
}

#[test]
fn a_pool_whose_tickets_others_hold_is_not_said_to_be_empty() {
    let wait =
        WaitNote { cause: WaitCause::Tickets, why: String::new(), after_ms: 30, took_ms: 5_000 };
    let search = SearchCounts { asked: true, ..SearchCounts::default() };
    let told = |waits| {
        told_text(story(
            vec![ProvisionSummary { waits, search: search.clone(), ..summary(1) }],
            Vec::new(),
        ))
    };
    let (held, empty) = (told(vec![wait]), told(Vec::new()));
    let (of_held, of_empty) =
        ("gave no ticket: other calls held them", "announced no idle machine");
    assert!(held.contains(of_held) && !held.contains(of_empty), "{held}");
    assert!(empty.contains(of_empty) && !empty.contains(of_held), "{empty}");
}

#[test]
fn long_names_and_wide_characters_fit_the_terminal() {
    let role =
        "arn:aws:sts::111122223333:assumed-role/AWSReservedSSO_ondeck-steward_0123456789abcdef";
    let why =
        format!("drained by {role}/alice@example.com: ディスクが古いので交換します、明日までに");
    let steps = vec![because(step(1, "drain", State::Idle, None, None), &why)];
    let report = ExplainReport::of(Story::Machine(Box::new(machine(None, steps))));
    for columns in [40, 60, 80] {
        let text = layout::text(&report, Some(columns));
        let text = anstream::adapter::strip_str(&text).to_string();
        let widest = text.lines().map(crate::control::report::status::width).max();
        assert!(widest <= Some(columns), "{columns}:\n{text}");
        let joined: String = text.split_whitespace().collect();
        assert!(joined.contains("alice@example.com") && joined.contains("明日までに"), "{text}");
    }
}

#[test]
fn a_text_from_outside_starts_no_line_of_its_own() {
    let mut call = summary(1);
    call.ending = CallEnding {
        result: CallResult::Failed,
        message: "x\n::error::y\x1b[31m".to_owned(),
        ..CallEnding::default()
    };
    let steps = vec![because(step(1, "reap", State::Terminated, None, None), "a\r\n::warning::b")];
    let story = Story::Run(Box::new(story(vec![call], vec![of_run("i-1", steps, None)])));
    // A log that GitHub reads is not wrapped.
    let text = layout::text(&ExplainReport::of(story), None);
    let text = anstream::adapter::strip_str(&text).to_string();
    assert!(text.contains("a ::warning::b") && !text.contains('\r'), "{text}");
    assert!(!text.lines().any(|line| line.trim_start().starts_with("::")), "{text}");
}
