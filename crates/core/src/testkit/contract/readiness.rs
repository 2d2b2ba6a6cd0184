//! What a pool needs whose machines register while they are idle: what an agent says about that, and what
//! a record says about the label.

use super::arrange::{DesiredRecord, arrange, instance, make, morning, ms, noon, run, spec};
use super::store::StatusOfRemoved;
use crate::lifecycle::{Created, Idle, Instance};
use crate::model::heartbeat::Heartbeat;
use crate::model::label::Label;
use crate::model::machine_label::{MachineLabel, RequestedLabel};
use crate::model::readiness::{IdleRegistration, Readiness, ReadinessNote};
use crate::model::record::State;
use crate::model::signal::{AgentStatus, Report, Signal};
use crate::ports::{AgentStore, Store};

fn label(digit: &str) -> MachineLabel {
    MachineLabel::new(format!("m{}", digit.repeat(32))).expect("a sound label")
}

/// The note is beside heartbeat and signal, and neither replaces another. One that arrives late changes
/// nothing, and it goes with the record.
pub(super) async fn readiness<S: Store + AgentStore>(store: &S, of_removed: StatusOfRemoved) {
    let id = instance("i-ready");
    let desired = DesiredRecord::new(State::Terminated, &run("left"), noon());
    arrange(store, &id, &desired).await;
    let status = async || {
        let found = store.agent_status(std::slice::from_ref(&id)).await;
        found.expect("the store answers").remove(0)
    };
    let ready = |number, at| ReadinessNote {
        readiness: Readiness::Ready(IdleRegistration { generation: 3, label: label("1"), number }),
        at,
    };
    let why = "the listener \"died\"\nat once".to_owned();
    let lost = Readiness::NotReady { since: morning(), why };
    let lost = ReadinessNote { readiness: lost, at: noon() };
    let early = ready(1, morning());
    let note = async |note| store.note_readiness(&id, note).await.expect("the store answers");
    assert!(note(&early).await);
    let alone = AgentStatus { readiness: Some(early.clone()), ..AgentStatus::default() };
    assert_eq!(status().await, alone, "a machine that has said nothing else");

    let report = Report {
        signal: Signal::Deregistered,
        run: Some(run("left")),
        suffix: None,
        detail: String::new(),
        at: morning(),
        generation: Some(3),
        machine_label: None,
    };
    let beat = Heartbeat::new(noon(), ms(5_000));
    store.report(&id, &report).await.expect("a signal is written");
    store.beat(&id, &beat).await.expect("a beat is written");
    let again = ready(2, noon());
    for (sent, kept) in [(&lost, &lost), (&early, &lost), (&again, &again)] {
        assert_eq!(note(sent).await, sent == kept, "{sent:?}");
        let expected = AgentStatus {
            heartbeat: Some(beat),
            report: Some(report.clone()),
            readiness: Some(kept.clone()),
        };
        assert_eq!(status().await, expected, "after {sent:?}");
    }

    store.remove(std::slice::from_ref(&id)).await.expect("the store removes it");
    if of_removed == StatusOfRemoved::Deleted {
        assert_eq!(status().await, AgentStatus::default());
    }
}

/// The record says what its owner wants the runner to be registered with, for as long as there is one,
/// and each change but those that say so leaves it.
pub(super) async fn the_requested_label<S: Store + AgentStore>(store: &S) {
    let (id, at, last) = (instance("i-requested"), morning(), ms(60_000));
    let shown = async || {
        let record = store.record(&id).await.expect("the store answers").expect("registered");
        (record.state, record.label().map(|label| label.to_string()), record.requested)
    };
    let large = || Label::new(run("this"), "large".parse().ok());
    let of_large = Some("this-large".to_owned());
    let named = |digit| RequestedLabel::Named(label(digit));

    let created = Instance::<Created>::register(&id, &spec(), large(), at, last);
    let created = make(store, created.requesting(RequestedLabel::OfMachine)).await;
    let of_machine = RequestedLabel::OfMachine;
    assert_eq!(shown().await, (State::Created, of_large.clone(), of_machine.clone()));
    make(store, created.retire(at)).await;
    assert_eq!(shown().await, (State::Created, of_large.clone(), of_machine.clone()));
    let running = make(store, created.activate(at, last).naming(Some(label("4")))).await;
    assert_eq!(shown().await, (State::Running, of_large.clone(), named("4")));
    assert_eq!(running.requested(), &named("4"));
    let running = make(store, running.renew(at, at + last)).await;
    assert_eq!(shown().await, (State::Running, of_large, named("4")));
    let idle = make(store, running.release(at, last)).await;
    assert_eq!(shown().await, (State::Idle, None, RequestedLabel::OfRun));

    let claim = idle.claim(&run("this"), at, last).requesting(named("5"));
    let claimed = make(store, claim).await;
    let of_this = Some("this".to_owned());
    assert_eq!(shown().await, (State::Claimed, of_this.clone(), named("5")));
    make(store, claimed.give_back(at, last)).await;
    assert_eq!(shown().await, (State::Idle, None, RequestedLabel::OfRun));
    let record = store.record(&id).await.expect("the store answers").expect("registered");
    let idle = Instance::<Idle>::believe(&record).expect("idle");
    let claimed =
        make(store, idle.claim(&run("this"), at, last).requesting(of_machine.clone())).await;
    let running = make(store, claimed.commit(at, last)).await;
    assert_eq!(
        shown().await,
        (State::Running, of_this.clone(), of_machine),
        "no label was reported"
    );
    let idle = make(store, running.release(at, last)).await;
    make(store, idle.claim(&run("this"), at, last)).await;
    assert_eq!(
        shown().await,
        (State::Claimed, of_this, RequestedLabel::OfRun),
        "as without labels"
    );
}
