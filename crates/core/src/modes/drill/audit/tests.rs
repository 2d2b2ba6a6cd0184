use super::*;
use crate::lifecycle::{Idle, Instance};
use crate::model::departure::Departure;
use crate::model::heartbeat::Heartbeat;
use crate::model::ids::IntentId;
use crate::model::record::{Counts, MachineSpec};
use crate::model::reuse::Reuse;
use crate::model::signal::Report;
use crate::modes::operate::tickets::SeenTicket;
use crate::ports::Depth;

fn now() -> Timestamp {
    Timestamp::from_millis(10_000_000)
}
const LAG: Duration = Duration::from_secs(10);

fn id(text: &str) -> InstanceId {
    text.parse().unwrap()
}

fn spec() -> MachineSpec {
    MachineSpec {
        resource_class: "large".parse().unwrap(),
        instance_type: "c6i.large".to_owned(),
        usage_class: "on-demand".parse().unwrap(),
        cpu: 2,
        mem: 4096,
    }
}

/// A record that is an hour old, with an agent that has never reported.
fn live(name: &str, state: State, run: Option<&str>) -> (Record, AgentStatus) {
    let hour = Duration::from_secs(3600);
    let then = Timestamp::from_millis(now().millis() - 3_600_000);
    let record = Record {
        requested: crate::model::machine_label::RequestedLabel::OfRun,
        id: id(name),
        state,
        run: run.map(|run| run.parse().unwrap()),
        suffix: None,
        threshold: Some(now() + hour),
        spec: spec(),
        counts: Counts::default(),
        reuse: Reuse::Always,
        departure: Departure::None,
        settings_version: None,
        created_at: then,
        updated_at: then,
        ticketed_at: Some(then),
    };
    let heartbeat = Some(Heartbeat::new(now(), Duration::from_secs(5)));
    (record, AgentStatus { heartbeat, report: None, readiness: None })
}

fn registered(for_run: &str) -> Option<Report> {
    Some(Report {
        machine_label: None,
        signal: Signal::Registered,
        run: Some(for_run.parse().unwrap()),
        suffix: None,
        detail: String::new(),
        at: now(),
        generation: None,
    })
}

fn machine(name: &str, age: u64) -> Machine {
    Machine {
        id: id(name),
        spec: spec(),
        intent: IntentId::new("x").unwrap(),
        launched_at: Timestamp::from_millis(now().millis() - 1000 * age),
        image: None,
    }
}

/// A run that has a machine, and an idle machine.
fn healthy() -> Look {
    let mut busy = live("i-busy", State::Running, Some("7"));
    busy.1.report = registered("7");
    Look {
        now: now(),
        live: vec![busy, live("i-idle", State::Idle, None)],
        machines: vec![machine("i-busy", 3600), machine("i-idle", 3600)],
        runners: Vec::new(),
    }
}

fn found(look: &Look) -> Vec<(Expectation, String)> {
    let machines = BTreeSet::from([id("i-own"), id("i-idle")]);
    let own = Own { name: "drill-1", machines: &machines };
    let found = audit(look, &own, (&Times::default(), LAG));
    found.into_iter().map(|it| (it.expectation, it.about)).collect()
}

#[test]
fn each_fault_is_found_and_a_healthy_pool_has_none() {
    type Fault = fn(&mut Look);
    type Found = &'static [(Expectation, &'static str)];
    let offline = |name: &str| ListedRunner {
        name: format!("ondeck-{name}"),
        instance: id(name),
        number: 1,
        online: false,
    };
    assert_eq!(found(&healthy()), []);
    let faults: [(&str, Fault, Found); 10] = [
        (
            "a run of the drill has a machine",
            |look| look.live[1] = live("i-idle", State::Claimed, Some("drill-1-2")),
            &[(Expectation::NothingOwned, "i-idle")],
        ),
        (
            "a run of another drill has one",
            |look| look.live[1] = live("i-idle", State::Claimed, Some("drill-2-2")),
            &[],
        ),
        (
            "an idle machine is gone",
            |look| drop(look.machines.pop()),
            &[(Expectation::MachineForEachRecord, "i-idle")],
        ),
        (
            "one that was launched just now is not listed yet",
            |look| {
                look.machines.pop();
                look.live[1].0.created_at = now();
            },
            &[],
        ),
        (
            "one whose time is up is gone",
            |look| {
                look.machines.pop();
                look.live[1].0.threshold = Some(now());
            },
            &[],
        ),
        (
            "the agent has not left its run",
            |look| look.live[1].1.report = registered("6"),
            &[(Expectation::OneOwner, "i-idle")],
        ),
        (
            "a machine of the drill has no record",
            |look| look.machines.push(machine("i-own", 1)),
            &[(Expectation::NoOrphan, "i-own")],
        ),
        ("a new one has none yet", |look| look.machines.push(machine("i-new", 1)), &[]),
        (
            "an old one has none",
            |look| look.machines.push(machine("i-old", 3600)),
            &[(Expectation::NoOrphan, "i-old")],
        ),
        ("a runner of another machine is offline", |_| {}, &[]),
    ];
    for (name, fault, expected) in faults {
        let mut look = healthy();
        fault(&mut look);
        let expected: Vec<_> = expected.iter().map(|(it, id)| (*it, (*id).to_owned())).collect();
        assert_eq!(found(&look), expected, "{name}");
    }
    let mut look = healthy();
    look.runners = vec![offline("i-own"), offline("i-other"), offline("i-idle")];
    let expected = [(Expectation::NoOfflineRunner, "ondeck-i-own".to_owned())];
    assert_eq!(found(&look), expected, "those of live machines and of others do not count");
}

#[test]
fn a_ticket_counts_only_if_a_run_could_believe_it() {
    let ticket = |name: &str, truth: Truth| {
        let (record, _) = live(name, State::Idle, None);
        let ticket = Instance::<Idle>::believe(&record).unwrap().ticket();
        SeenTicket { ticket: Some(ticket), truth }
    };
    let machines = BTreeSet::from([id("i-idle")]);
    let own = Own { name: "drill-1", machines: &machines };
    let mut look = healthy();
    look.machines.pop();
    let tickets = |tickets: Vec<SeenTicket>, unannounced: &[&str]| ClassTickets {
        class: "large".parse().unwrap(),
        depth: Depth::default(),
        tickets,
        unannounced: unannounced.iter().map(|name| id(name)).collect(),
        deleted: 0,
        announced: Vec::new(),
    };
    let kinds = |seen: ClassTickets| -> Vec<Expectation> {
        audit_tickets(&look, &seen, &own).into_iter().map(|it| it.expectation).collect()
    };
    let dead = tickets(vec![ticket("i-idle", Truth::True)], &[]);
    assert_eq!(kinds(dead), [Expectation::NoTicketForDeadMachine]);
    let stale = tickets(vec![ticket("i-idle", Truth::StaleGeneration)], &[]);
    assert_eq!(kinds(stale), [], "the guard of a claim refuses it");
    assert_eq!(kinds(tickets(Vec::new(), &["i-idle"])), [Expectation::Announced]);
    assert_eq!(kinds(tickets(Vec::new(), &["i-other"])), [], "not a machine of the drill");
}
