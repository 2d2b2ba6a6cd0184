use super::*;
use crate::model::credentials::Minted;
use crate::model::departure::Departure;
use crate::model::ids::{IntentId, ResourceClass, RunId};
use crate::model::label::Label;
use crate::model::record::{Counts, MachineSpec};
use crate::model::requirements::UsageClass;
use crate::model::reuse::Reuse;
use crate::modes::provision::ProvisionOptions;

fn now() -> Timestamp {
    Timestamp::parse("2026-11-18T12:00:00Z").unwrap()
}

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(minutes * 60)
}

fn id(id: &str) -> InstanceId {
    InstanceId::new(id).unwrap()
}

fn spec() -> MachineSpec {
    MachineSpec {
        resource_class: ResourceClass::new("large").unwrap(),
        instance_type: "c6i.large".to_owned(),
        usage_class: UsageClass::Spot,
        cpu: 2,
        mem: 4_096,
    }
}

fn record(name: &str, state: State, age: Duration) -> Record {
    Record {
        requested: crate::model::machine_label::RequestedLabel::OfRun,
        id: id(name),
        state,
        run: None,
        suffix: None,
        threshold: state.is_live().then(|| now() + minutes(5)),
        spec: spec(),
        counts: Counts::default(),
        reuse: Reuse::Always,
        departure: Departure::None,
        created_at: now().before(age),
        updated_at: now().before(age),
        ticketed_at: None,
        settings_version: None,
    }
}

fn machine(name: &str, age: Duration) -> Machine {
    Machine {
        id: id(name),
        spec: spec(),
        intent: IntentId::new("a").unwrap(),
        launched_at: now().before(age),
        image: None,
    }
}

/// Compares with default times, where machines are listed within a minute.
fn compared(records: &[Record], unreadable: &[&str], machines: &[Machine]) -> Compared {
    let live = records.iter().filter(|it| it.state.is_live()).map(|it| it.id.clone()).collect();
    let suspicious = suspicious(&live, machines);
    let unreadable = unreadable.iter().map(|id| (*id).to_owned()).collect();
    let around = (&Settings::default(), minutes(1), now());
    compare(records, &unreadable, machines, &suspicious, around)
}

#[test]
fn machines_and_records_are_compared_once_they_are_old_enough() {
    let hour = minutes(60);
    let both = (record("i-1", State::Idle, hour), machine("i-1", hour));
    assert_eq!(compared(std::slice::from_ref(&both.0), &[], &[both.1]), Compared::default());

    let gone = compared(&[record("i-1", State::Idle, hour)], &[], &[]);
    assert_eq!(gone, Compared { gone: vec![id("i-1")], orphans: Vec::new() });
    let young = record("i-1", State::Created, Duration::from_secs(60));
    assert_eq!(compared(&[young], &[], &[]), Compared::default(), "the list may lag");

    let orphans = |records: &[Record], unreadable: &[&str], age| {
        compared(records, unreadable, &[machine("i-1", age)]).orphans
    };
    assert_eq!(orphans(&[], &[], hour), [id("i-1")]);
    assert_eq!(orphans(&[], &[], minutes(3)), [], "its agent still waits for the record");
    assert_eq!(orphans(&[], &["i-1"], hour), [], "a record that cannot be read may be live");
    assert_eq!(orphans(&[record("i-1", State::Terminated, hour)], &[], hour), [id("i-1")]);
}

fn problem(kind: ProblemKind, machines: &[&str]) -> Problem {
    let machines: Vec<InstanceId> = machines.iter().map(|name| id(name)).collect();
    let message = format!("{} machines without a recent heartbeat", machines.len());
    Problem { kind, machines, message, hint: "do it" }
}

/// An idle machine that is announced, and one that a run owns.
fn judgement() -> Judgement {
    let idle = Record { ticketed_at: Some(now()), ..record("i-1", State::Idle, minutes(60)) };
    let run = Some(RunId::new("7").unwrap());
    let owned = Record { run, ..record("i-2", State::Running, minutes(60)) };
    crate::modes::status::judgement::judge(crate::modes::status::Reading {
        at: now(),
        settings: Settings { max_machines: "2 large=9".parse().unwrap(), ..Settings::default() },
        machines: [idle, owned].map(|record| (record, Default::default())).to_vec(),
        unreadable: Vec::new(),
        tickets: Vec::new(),
        count: None,
        hand_overs: None,
    })
}

#[test]
fn a_fix_names_the_machines_and_what_is_to_be_raised() {
    let mut judgement = judgement();
    judgement.summary.ceilings[0].machines = Some(2);
    let fix = |kind, machines: &[&str]| {
        of_problem(&problem(kind, machines), &judgement, &[]).unwrap().fix
    };
    assert_eq!(fix(ProblemKind::Silent, &["i-1"]), "ondeck terminate i-1");
    assert_eq!(fix(ProblemKind::Failed, &["i-1", "i-2"]), "ondeck terminate i-1 i-2 --force");
    assert_eq!(fix(ProblemKind::AtCeiling, &[]), "ondeck refresh --max-machines '3 large=9'");
}

#[test]
fn a_machine_that_is_gone_is_not_silent_as_well() {
    let silent = problem(ProblemKind::Silent, &["i-1", "i-2"]);
    assert_eq!(of_problem(&silent, &judgement(), &[]).unwrap().about, ["i-1", "i-2"]);
    let found = of_problem(&silent, &judgement(), &[id("i-1")]).unwrap();
    assert_eq!(
        (found.about, found.what.as_str()),
        (vec!["i-2".to_owned()], "1 without a recent heartbeat")
    );
    assert_eq!(of_problem(&silent, &judgement(), &[id("i-1"), id("i-2")]), None);
    let overdue = problem(ProblemKind::Overdue, &["i-1"]);
    assert!(of_problem(&overdue, &judgement(), &[id("i-1")]).is_some());
}

#[test]
fn a_token_is_old_ten_minutes_before_it_expires() {
    for (left, expected) in [
        (None, None),
        (Some(0), Some(FindingKind::TokenExpired)),
        (Some(10), Some(FindingKind::TokenOld)),
        (Some(11), None),
    ] {
        let minted = |left| Minted {
            target: "https://github.com/acme/web".to_owned(),
            minted_at: now().before(minutes(60 - left)),
            expires_at: now() + minutes(left),
        };
        let settings = Settings { minted: left.map(minted), ..Settings::default() };
        let mut findings = Findings::default();
        judge_token(&settings, now(), &mut findings);
        let kinds: Vec<_> = findings.findings.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, Vec::from_iter(expected), "{left:?}");
        assert_eq!(findings.checked.is_empty(), left.is_none());
    }
}

fn label(run: &str) -> Label {
    Label::from(&RunId::new(run).unwrap())
}

fn demand(run: &str, age: u64) -> Demand {
    Demand {
        run: RunId::new(run).unwrap(),
        options: ProvisionOptions::default(),
        times: BTreeMap::new(),
        at: now().before(Duration::from_secs(age)),
        failed_rescues: None,
        lease: None,
        rerun: None,
        labels: Vec::new(),
    }
}

fn waiting(of: &str, labels: &[(&str, u32)], own: &[(char, u32)]) -> BTreeMap<RunId, WaitingJobs> {
    let jobs = WaitingJobs {
        labels: labels.iter().map(|(name, jobs)| (label(name), *jobs)).collect(),
        machine_labels: own.iter().map(|(digit, jobs)| (own_label(*digit), *jobs)).collect(),
    };
    BTreeMap::from([(RunId::new(of).unwrap(), jobs)])
}

fn own_label(digit: char) -> MachineLabel {
    MachineLabel::new(format!("m{}", digit.to_string().repeat(32))).unwrap()
}

#[test]
fn jobs_are_unserved_if_no_machine_has_their_label_and_none_is_about_to() {
    let jobs = waiting("7", &[("7", 3)], &[]);
    for (has, demands, expected) in [
        (&["7"][..], vec![], None),
        (&["8"], vec![demand("7", 119)], None),
        (&["8"], vec![demand("7", 120)], Some(Severity::Error)),
        (&[], vec![demand("8", 500)], Some(Severity::Warning)),
        (&[], vec![], Some(Severity::Warning)),
    ] {
        let labels = has.iter().map(|run| label(run)).collect();
        let known = Known { labels, ..Known::default() };
        let found = unserved(&jobs, &known, &demands, now());
        assert_eq!(found.as_ref().map(|it| it.severity), expected, "{has:?} {demands:?}");
        let Some(found) = found else { continue };
        assert_eq!(found.what, "3 jobs wait for labels that no machine has: 7");
    }
    assert_eq!(unserved(&BTreeMap::new(), &Known::default(), &[], now()), None);
}

#[test]
fn a_label_of_a_machine_is_the_runs_that_was_given_it() {
    let jobs = waiting("7", &[], &[('a', 2), ('b', 1)]);
    let gave = |run: &str, age, digits: &str| Demand {
        labels: digits.chars().map(own_label).collect(),
        ..demand(run, age)
    };
    for (has, demands, expected) in [
        ("ab", vec![], None),
        ("", vec![gave("7", 500, "ab")], Some((3, Severity::Error))),
        ("a", vec![gave("7", 500, "ab")], Some((1, Severity::Error))),
        ("", vec![gave("7", 60, "ab")], None),
        ("b", vec![gave("7", 60, "b")], Some((2, Severity::Warning))),
        ("", vec![gave("8", 500, "ab")], Some((3, Severity::Warning))),
        ("", vec![demand("7", 500)], Some((3, Severity::Warning))),
    ] {
        let machine_labels = has.chars().map(own_label).collect();
        let known = Known { machine_labels, ..Known::default() };
        let found = unserved(&jobs, &known, &demands, now());
        let count = |it: &Finding| it.what.split(' ').next().unwrap().parse().unwrap();
        let found_is = found.as_ref().map(|it| (count(it), it.severity));
        assert_eq!(found_is, expected, "{has} {demands:?}");
        let Some(found) = found.filter(|it| it.about.len() == 1) else { continue };
        assert!(found.about[0].ends_with(" (run 7)"), "{found:?}");
    }
}

#[test]
fn a_runner_is_left_if_it_is_offline_and_its_machine_has_no_record() {
    let runner = |name: &str, online| ListedRunner {
        name: format!("runner-{name}"),
        instance: id(name),
        number: 1,
        online,
    };
    let known = BTreeSet::from(["i-1".to_owned()]);
    let runners = [runner("i-1", false), runner("i-2", true), runner("i-3", false)];
    assert_eq!(offline(&runners, &known).unwrap().about, ["runner-i-3"]);
    assert_eq!(offline(&runners[..2], &known), None);
}

#[test]
fn a_forge_that_refuses_is_the_only_finding_about_it() {
    let refused = Some(("GitHub refused: 401".to_owned(), "check the token".to_owned()));
    let facts = ForgeFacts { refused, ..ForgeFacts::untold("a token") };
    let mut findings = Findings::default();
    let none = &Known::default();
    judge_forge(&facts, none, &[], now(), &mut findings);
    assert_eq!(findings.unchecked, []);
    let [one] = &findings.findings[..] else { panic!("{findings:?}") };
    assert_eq!(one.kind, FindingKind::ForgeRefused);
    for (software, expected) in [
        (Software::Usable, None),
        (Software::Warned("soon".to_owned()), Some(FindingKind::RunnerDeadline)),
        (Software::Unusable("gone".to_owned()), Some(FindingKind::RunnerVersion)),
    ] {
        let facts = ForgeFacts { software: Told::Known(software), ..ForgeFacts::default() };
        let mut findings = Findings::default();
        judge_forge(&facts, none, &[], now(), &mut findings);
        let kinds: Vec<_> = findings.findings.iter().map(|it| it.kind).collect();
        assert_eq!(kinds, Vec::from_iter(expected));
    }
}
