//! Brings records into a desired state by legal transitions.

use std::time::Duration;

use crate::lifecycle::{Created, Idle, Instance, Live, Pending, Running, TypedState, Verdict};
use crate::model::departure::Departure;
use crate::model::ids::{InstanceId, ResourceClass, RunId};
use crate::model::label::Label;
use crate::model::record::{Counts, MachineSpec, Record, State};
use crate::model::requirements::UsageClass;
use crate::model::timestamp::Timestamp;
use crate::ports::{AgentStore, Store};

/// The time of the changes under test. It is far ahead, because a store may let items expire some
/// time after they were written.
pub(super) fn noon() -> Timestamp {
    Timestamp::parse("2095-05-31T12:00:00.000Z").expect("a time")
}

/// The time of the transitions that prepare a record.
pub(super) fn morning() -> Timestamp {
    noon().before(Duration::from_secs(3_600))
}

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).expect("an id")
}

pub(super) fn run(name: &str) -> RunId {
    RunId::new(name).expect("an id")
}

pub(super) fn spec() -> MachineSpec {
    MachineSpec {
        resource_class: ResourceClass::new("large").expect("a name"),
        instance_type: "c6i.large".to_owned(),
        usage_class: UsageClass::Spot,
        cpu: 2,
        mem: 4_096,
    }
}

/// The state, the owner and the threshold that a test needs.
#[derive(Debug, Clone)]
pub(super) struct DesiredRecord {
    pub(super) state: State,
    pub(super) run: RunId,
    pub(super) threshold: Timestamp,
    pub(super) departure: Departure,
}

impl DesiredRecord {
    pub(super) fn new(state: State, run: &RunId, threshold: Timestamp) -> DesiredRecord {
        DesiredRecord { state, run: run.clone(), threshold, departure: Departure::None }
    }

    /// The same of a machine that an operator has marked.
    pub(super) fn departing(self, departure: Departure) -> DesiredRecord {
        DesiredRecord { departure, ..self }
    }

    /// The label that [`arrange`] gives an owned record.
    fn label(&self) -> Label {
        Label::new(self.run.clone(), "arranged".parse().ok())
    }

    /// The generation that [`arrange`] brings about.
    pub(super) fn generation(&self) -> u32 {
        u32::from(matches!(self.state, State::Idle | State::Claimed))
    }

    /// The record that a process with an outdated view believes in.
    pub(super) fn believed(&self, id: &InstanceId) -> Record {
        Record {
            requested: crate::model::machine_label::RequestedLabel::OfRun,
            id: id.clone(),
            state: self.state,
            run: Some(self.run.clone()).filter(|_| self.state.is_owned()),
            suffix: self.label().suffix.filter(|_| self.state.is_owned()),
            threshold: Some(self.threshold).filter(|_| self.state.is_live()),
            spec: spec(),
            counts: Counts { generation: self.generation(), ..Counts::default() },
            created_at: morning(),
            updated_at: morning(),
            ticketed_at: None,
            settings_version: None,
            reuse: crate::model::reuse::Reuse::Always,
            departure: self.departure,
        }
    }
}

/// Makes a change that the store must admit.
pub(super) async fn make<S: TypedState>(store: &dyn Store, pending: Pending<S>) -> Instance<S> {
    let verdict = store.write(pending.change()).await.expect("the store answers");
    pending.settle(verdict).unwrap_or_else(|refused| panic!("a legal change was lost: {refused}"))
}

/// Registers a new instance and brings it into the desired state. Returns its record.
pub(super) async fn arrange<S: Store + AgentStore>(
    store: &S,
    id: &InstanceId,
    desired: &DesiredRecord,
) -> Record {
    let at = morning();
    let last = desired.threshold.since(at);
    let created = |first| Instance::<Created>::register(id, &spec(), desired.label(), at, first);
    match desired.state {
        State::Created => drop(make(store, created(last)).await),
        State::Running => drop(running(store, created(ms(1)), last).await),
        State::Idle => drop(idle(store, created(ms(1)), last).await),
        State::Claimed => {
            let idle = idle(store, created(ms(1)), ms(1)).await;
            drop(make(store, idle.claim(desired.label(), at, last)).await);
        }
        State::Terminated => {
            let created = make(store, created(ms(1))).await;
            let expired = make(store, created.expire(at)).await;
            drop(make(store, expired.reap(at)).await);
        }
    }
    let record = store.record(id).await.expect("the store answers");
    if let Some(live) = record.as_ref().and_then(Instance::<Live>::believe) {
        match desired.departure {
            Departure::None => {}
            Departure::Retired => drop(make(store, live.retire(at)).await),
            Departure::Drained => drop(make(store, live.drain(at)).await),
        }
    }
    let record = store.record(id).await.expect("the store answers");
    record.unwrap_or_else(|| panic!("{id} was registered and is not there"))
}

async fn running(
    store: &dyn Store,
    created: Pending<Created>,
    last: Duration,
) -> Instance<Running> {
    let created = make(store, created).await;
    make(store, created.activate(morning(), last)).await
}

async fn idle(store: &dyn Store, created: Pending<Created>, last: Duration) -> Instance<Idle> {
    let running = running(store, created, ms(1)).await;
    make(store, running.release(morning(), last)).await
}

/// Whether the store made the change.
pub(super) fn agreed(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Agreed(_))
}
