use std::collections::BTreeMap;

use super::*;
use crate::model::departure::Departure;
use crate::model::heartbeat::Heartbeat;
use crate::model::ids::RunId;
use crate::model::machine_label::{MachineLabel, RequestedLabel};
use crate::model::readiness::IdleRegistration;
use crate::model::record::{Counts, MachineSpec};
use crate::model::requirements::UsageClass;
use crate::model::reuse::Reuse;
use crate::model::settings::SettingsVersion;
use crate::model::signal::Report;

/// An hour after the pool began.
fn now() -> Timestamp {
    Timestamp::from_millis(3_600_000)
}

/// What the agent of a machine has said, each so many minutes ago.
#[derive(Debug, Clone, Copy)]
enum Says {
    Registered(u64),
    Fails(u64),
    Nothing,
    /// It has said in an earlier idle state that it is registered.
    OfEarlier,
    /// It fails, and its heartbeat has stopped.
    Silent(u64),
    /// It has registered for its run.
    Serves(u64),
    /// It was registered when its run claimed it.
    WasReady(u64),
    /// It could not register for its run.
    CannotServe(u64),
    /// It has not registered for its run yet, but for an earlier one.
    ServedEarlier(u64),
    /// It has registered for its run, and its heartbeat has stopped.
    ServesSilently(u64),
}

fn ago(minutes: u64) -> Timestamp {
    now().before(Duration::from_secs(60 * minutes))
}

fn machine(n: usize, class: &str, says: Says) -> (Record, AgentStatus) {
    let report = match says {
        Says::Serves(minutes) | Says::ServesSilently(minutes) => {
            Some((Signal::Registered, "7", minutes))
        }
        Says::WasReady(_) => Some((Signal::Registered, "7", 0)),
        Says::CannotServe(minutes) => Some((Signal::RegisterFailed, "7", minutes)),
        Says::ServedEarlier(minutes) => Some((Signal::Registered, "6", minutes)),
        _ => None,
    };
    let run = report.is_some().then(|| RunId::new("7").unwrap());
    let record = Record {
        requested: RequestedLabel::OfRun,
        id: InstanceId::new(format!("i-{n}")).unwrap(),
        state: if run.is_some() { State::Running } else { State::Idle },
        run,
        suffix: None,
        threshold: Some(now() + Duration::from_secs(600)),
        spec: MachineSpec {
            resource_class: ResourceClass::new(class).unwrap(),
            instance_type: "c6i.large".to_owned(),
            usage_class: UsageClass::Spot,
            cpu: 2,
            mem: 4_096,
        },
        counts: Counts { generation: 3, ..Counts::default() },
        reuse: Reuse::Always,
        departure: Departure::None,
        created_at: ago(55),
        updated_at: ago(5),
        ticketed_at: None,
        settings_version: None,
    };
    let label = MachineLabel::new(format!("m{n:032x}")).unwrap();
    let registered = |generation| {
        Readiness::Ready(IdleRegistration { generation, label: label.clone(), number: 1 })
    };
    let fails = |minutes| Readiness::NotReady { since: ago(minutes), why: "no answer".to_owned() };
    let (readiness, at) = match says {
        Says::Registered(minutes) | Says::WasReady(minutes) => (Some(registered(3)), ago(minutes)),
        Says::OfEarlier => (Some(registered(2)), ago(30)),
        Says::Fails(minutes) | Says::Silent(minutes) => (Some(fails(minutes)), ago(1)),
        _ => (None, now()),
    };
    let is_silent = matches!(says, Says::Silent(_) | Says::ServesSilently(_));
    let beat = if is_silent { ago(2) } else { now() };
    let report = report.map(|(signal, run, minutes)| Report {
        machine_label: None,
        signal,
        run: Some(RunId::new(run).unwrap()),
        suffix: None,
        detail: String::new(),
        at: ago(minutes),
        generation: None,
    });
    let status = AgentStatus {
        heartbeat: Some(Heartbeat::new(beat, Duration::from_secs(5))),
        report,
        readiness: readiness.map(|readiness| ReadinessNote { readiness, at }),
    };
    (record, status)
}

fn with_looks<T>(of: &[(&str, Says)], judge: impl FnOnce(&[Look<'_>], &[Try]) -> T) -> T {
    let machines: Vec<(Record, AgentStatus)> =
        of.iter().enumerate().map(|(n, (class, says))| machine(n, class, *says)).collect();
    let settings = settings();
    let (idle, owned): (Vec<_>, Vec<_>) =
        machines.iter().partition(|(record, _)| record.state == State::Idle);
    let looks: Vec<Look<'_>> = idle
        .into_iter()
        .filter_map(|(record, status)| look(record, status, &settings, now()))
        .collect();
    let tries = owned.into_iter().filter_map(|(record, status)| last_try(record, status, now()));
    judge(&looks, &tries.collect::<Vec<Try>>())
}

fn settings() -> Settings {
    Settings::from_map(&BTreeMap::new()).unwrap()
}

/// The settings have changed since its record was written, so it may go on without a registration.
#[test]
fn a_machine_that_may_not_know_the_settings_is_judged_by_what_it_says_only() {
    let version = SettingsVersion::parse("v1");
    for (says, expected) in
        [(Says::Nothing, false), (Says::OfEarlier, false), (Says::Fails(3), true)]
    {
        let (mut record, status) = machine(0, "large", says);
        record.settings_version.clone_from(&version);
        let look = look(&record, &status, &settings(), now());
        assert_eq!(look.is_some(), expected, "{says:?}");
    }
}

/// The positions of those that are terminated.
fn terminated(of: &[(&str, Says)]) -> Vec<String> {
    with_looks(of, |looks, tries| {
        hopeless(looks, tries, now()).iter().map(|it| it.id.to_string()).collect()
    })
}

#[test]
fn a_machine_is_given_up_if_half_of_its_class_could_register_meanwhile() {
    use Says::{Fails, Nothing, OfEarlier, Registered, Silent};
    let large = |says: &[Says]| -> Vec<(&'static str, Says)> {
        says.iter().map(|says| ("large", *says)).collect()
    };
    for (says, expected) in [
        // GitHub is out of reach for all.
        (large(&[Fails(11), Fails(12), Fails(20)]), &[][..]),
        (large(&[Fails(11), Fails(12), Registered(50), Registered(40)]), &[]),
        // One bad machine among many.
        (large(&[Fails(11), Registered(5), Registered(50), Registered(50)]), &["i-0"]),
        (large(&[Fails(10), Registered(9)]), &["i-0"]),
        (large(&[Fails(9), Registered(5)]), &[]),
        // The others registered before it began to fail, and did not have to since then.
        (large(&[Fails(20), Registered(21), Registered(50)]), &[]),
        (large(&[Fails(40), Registered(21), Registered(50)]), &["i-0"]),
        // Half of them.
        (large(&[Fails(11), Fails(12), Registered(5), Registered(4)]), &["i-0", "i-1"]),
        (large(&[Fails(11), Fails(12), Registered(5)]), &[]),
        // Of those that could not, one began before GitHub was out of reach.
        (large(&[Fails(11), Fails(40), Registered(30), Registered(35)]), &["i-1"]),
        // A class with one machine, and one with a machine of another class beside it.
        (large(&[Fails(59)]), &[]),
        (vec![("large", Fails(11)), ("small", Registered(5))], &[]),
        // What says nothing about GitHub.
        (large(&[Fails(11), Nothing, OfEarlier, Silent(11)]), &[]),
        (large(&[Silent(11), Registered(5)]), &[]),
        (large(&[Nothing, OfEarlier, Registered(5)]), &[]),
    ] {
        assert_eq!(terminated(&says), expected, "{says:?}");
    }
}

/// Most machines may be busy.
#[test]
fn machines_that_runs_have_tell_whether_others_of_the_class_could_register() {
    use Says::{CannotServe, Fails, Registered, ServedEarlier, Serves, ServesSilently, WasReady};
    let large = |says: &[Says]| -> Vec<(&'static str, Says)> {
        says.iter().map(|says| ("large", *says)).collect()
    };
    for (says, expected) in [
        (large(&[Fails(11), Serves(5)]), &["i-0"][..]),
        (large(&[Fails(11), Fails(12), Registered(5), Serves(1), Serves(2)]), &["i-0", "i-1"]),
        (large(&[Fails(11), Fails(12), Serves(5)]), &[]),
        (large(&[Fails(11), Serves(12)]), &[]),
        (large(&[Fails(11), Serves(5), CannotServe(5)]), &[]),
        (large(&[Fails(11), Serves(5), Serves(6), CannotServe(5)]), &["i-0"]),
        (large(&[Fails(11), Serves(5), CannotServe(12)]), &["i-0"]),
        (large(&[Fails(11), WasReady(5)]), &["i-0"]),
        (large(&[Fails(11), WasReady(30)]), &[]),
        (large(&[Fails(11), ServedEarlier(5)]), &[]),
        (large(&[Fails(11), ServesSilently(5)]), &[]),
        (vec![("large", Fails(11)), ("small", Serves(5))], &[]),
    ] {
        assert_eq!(terminated(&says), expected, "{says:?}");
    }
}

#[test]
fn the_warning_counts_machines_that_are_not_ready_and_says_why_the_oldest_is_not() {
    use Says::{Fails, Nothing, OfEarlier, Registered, Silent};
    let said = |says: &[Says]| {
        let of: Vec<(&str, Says)> = says.iter().map(|says| ("large", *says)).collect();
        with_looks(&of, |looks, _| warning(looks, now()))
    };
    assert_eq!(said(&[]), None);
    assert_eq!(said(&[Registered(0), Fails(0), Silent(30)]), None);
    let one = "1 of 2 idle machines are not registered, i-1 for 1 min: no answer";
    assert_eq!(said(&[Registered(0), Fails(1)]).as_deref(), Some(one));
    let two = "2 of 3 idle machines are not registered, i-2 for 7 min: no answer";
    assert_eq!(said(&[Fails(2), Registered(0), Fails(7)]).as_deref(), Some(two));
    for silent in [Nothing, OfEarlier] {
        let told = said(&[silent]).expect("it has been idle for five minutes");
        let expected = "i-0 for 5 min: its agent has not said that it is registered";
        assert!(told.ends_with(expected), "{told}");
    }
}
