//! Explain: what has happened to a run or a machine, from what is stored about it. It reads only, and
//! reads a bounded amount, however large the pool is.

pub(super) mod chain;
mod sight;
mod subject;
mod typical;

pub use chain::{Gap, Step};
pub use sight::Sight;
pub use typical::{PhaseName, Spread, Typical};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::{join, join3};

use self::subject::Subject;
use crate::model::demand::Demand;
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::intent::Intent;
use crate::model::label::Label;
use crate::model::machine_label::RunnerLabel;
use crate::model::record::{EventRow, Record, Unreadable};
use crate::model::settings::Settings;
use crate::model::signal::AgentStatus;
use crate::model::summary::{LONGEST_LIST, ProvisionSummary};
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::modes::refresh::keep_warm::is_own_run;
use crate::ports::{Events, History};

/// The most events of one machine that are read.
pub const EVENTS_OF_MACHINE: usize = 200;
/// The most events of one run that are read.
pub const EVENTS_OF_RUN: usize = 500;
/// The most calls of provision of one run that are read.
pub const CALLS_OF_RUN: usize = 20;
/// How many calls of other runs the typical values come from, at the most.
pub const RECENT_CALLS: usize = 50;

/// What is known about a run or a machine.
#[derive(Debug, Clone)]
pub enum Story {
    Run(Box<RunStory>),
    Machine(Box<MachineStory>),
}

/// The life of a machine, and its present state.
#[derive(Debug, Clone)]
pub struct MachineStory {
    pub id: InstanceId,
    /// When it was read.
    pub now: Timestamp,
    /// Its record; `None` if there is none, or if it cannot be read.
    pub record: Option<Record>,
    /// Why its record cannot be read.
    pub unreadable: Option<Unreadable>,
    pub status: AgentStatus,
    /// Its events, oldest first, with the gaps between them.
    pub life: Vec<Step>,
    /// When its agent saw that the last run had claimed it; `None` if the records do not tell.
    pub sight: Option<Sight>,
    /// Whether machines of the pool register before a run claims them.
    pub registers_idle: bool,
    /// How long after its threshold the machine terminates itself.
    pub grace: Duration,
}

/// What a run asked for, and what became of it.
#[derive(Debug, Clone)]
pub struct RunStory {
    /// The run, or the label of it that was asked about.
    pub label: Label,
    /// When it was read.
    pub now: Timestamp,
    /// What it asked for last, under each label.
    pub demands: Vec<Demand>,
    /// What its calls of provision did, as far as they could say it. Oldest first.
    pub calls: Vec<ProvisionSummary>,
    pub machines: Vec<MachineOfRun>,
    /// Launches for the run whose outcome is not stored.
    pub open_launches: Vec<Intent>,
    /// When the first event was that was read, if there are earlier ones.
    pub unread_before: Option<Timestamp>,
    pub typical: Typical,
}

/// One machine, as far as the run is concerned.
#[derive(Debug, Clone)]
pub struct MachineOfRun {
    pub id: InstanceId,
    /// The events that concern the run, oldest first, with the gaps between them.
    pub steps: Vec<Step>,
    /// The present record; `None` if it is gone.
    pub record: Option<Record>,
    /// What its agent has written, if the run owns it now.
    pub status: AgentStatus,
    /// When its agent saw that the run had claimed it; `None` if the records do not tell.
    pub sight: Option<Sight>,
}

/// Finds out what the text names, a run, a label or a machine, and reads its story. Fails with
/// `InvalidInput` if nothing is stored about it.
pub async fn explain(plane: &Plane, history: &dyn History, text: &str) -> Result<Story, Failure> {
    let settings = plane.settings().await?;
    match subject::find(plane, history, text).await? {
        Subject::Machine(id, events) => {
            Ok(Story::Machine(Box::new(machine(plane, &settings, id, events).await?)))
        }
        Subject::Run(label) => {
            let story = run(plane, history, &settings, label).await?;
            if story.is_empty() {
                return Err(subject::unknown(text));
            }
            Ok(Story::Run(Box::new(story)))
        }
    }
}

async fn machine(
    plane: &Plane,
    settings: &Settings,
    id: InstanceId,
    events: Events,
) -> Result<MachineStory, Failure> {
    let ids = std::slice::from_ref(&id);
    let (listing, status) = join(
        plane.retried(|| plane.store.records(ids)),
        plane.retried(|| plane.store.agent_status(ids)),
    )
    .await;
    let mut listing = listing?;
    let record = listing.records.pop();
    let life = chain::whole_life(events, record.as_ref());
    let status = status?.pop().unwrap_or_default();
    Ok(MachineStory {
        now: plane.now(),
        unreadable: listing.unreadable.pop(),
        sight: sight::of_claim(&status, &life),
        status,
        life,
        record,
        registers_idle: settings.runner_label == RunnerLabel::Machine,
        grace: settings.times.self_termination_grace,
        id,
    })
}

async fn run(
    plane: &Plane,
    history: &dyn History,
    settings: &Settings,
    label: Label,
) -> Result<RunStory, Failure> {
    let runs = std::slice::from_ref(&label.run);
    let asked = join3(
        plane.retried(|| plane.store.demands(runs)),
        plane.retried(|| history.summaries_of_run(&label.run, CALLS_OF_RUN)),
        plane.retried(|| plane.store.open_intents()),
    );
    let happened = join3(
        plane.retried(|| history.events_of_run(&label.run, EVENTS_OF_RUN)),
        plane.retried(|| plane.store.of_run(&label.run)),
        plane.retried(|| history.recent_summaries(plane.now(), RECENT_CALLS)),
    );
    let ((demands, calls, intents), (events, owned, recent)) = join(asked, happened).await;
    let (mut demands, mut calls, events, owned) = (demands?, calls?, events?, owned?.records);
    // Refresh keeps a lease as the demand of a run of its own, which no call has made.
    demands.retain(|demand| !is_own_run(&demand.run));
    let others = of_other_labels(&label, &calls, &owned);
    if label.suffix.is_some() {
        demands.retain(|demand| demand.label() == label);
        calls.retain(|call| call.label() == label);
    }
    let open_launches = intents?.into_iter().filter(|intent| intent.run == label.run).collect();
    let is_partial = events.is_partial;
    let unread_before = events.rows.iter().map(|row| row.at).min().filter(|_| is_partial);
    let rows = events.rows.into_iter().filter(|row| !others.contains(&row.instance)).collect();
    let machines = machines(plane, &label.run, rows, owned, (&others, is_partial)).await?;
    let typical = Typical::of(&recent?, &label.run, settings);
    let now = plane.now();
    Ok(RunStory { label, now, demands, calls, machines, open_launches, unread_before, typical })
}

/// The machines that are known to have another label than the one that was asked about.
fn of_other_labels(
    label: &Label,
    calls: &[ProvisionSummary],
    owned: &[Record],
) -> BTreeSet<InstanceId> {
    if label.suffix.is_none() {
        return BTreeSet::new();
    }
    let is_other = |of: &Label| of != label;
    let of_calls = calls.iter().filter(|call| is_other(&call.label()));
    let of_calls = of_calls.flat_map(|call| call.machines.iter().map(|note| note.machine.clone()));
    let of_records = owned.iter().filter(|record| record.label().as_ref().is_some_and(is_other));
    of_calls.chain(of_records.map(|record| record.id.clone())).collect()
}

/// The machines that have events of the run, or that it owns now, in the order in which it got them, but
/// for those of `others`. `is_partial`: there are earlier events than these.
async fn machines(
    plane: &Plane,
    run: &RunId,
    rows: Vec<EventRow>,
    owned: Vec<Record>,
    (others, is_partial): (&BTreeSet<InstanceId>, bool),
) -> Result<Vec<MachineOfRun>, Failure> {
    let mut order: Vec<InstanceId> = Vec::new();
    let mut events: BTreeMap<InstanceId, Vec<EventRow>> = BTreeMap::new();
    for row in rows {
        if !events.contains_key(&row.instance) {
            order.push(row.instance.clone());
        }
        events.entry(row.instance.clone()).or_default().push(row);
    }
    let mut records: BTreeMap<InstanceId, Record> =
        owned.into_iter().map(|record| (record.id.clone(), record)).collect();
    let without_events = records.keys().filter(|id| !events.contains_key(*id));
    order.extend(without_events.filter(|id| !others.contains(*id)).cloned().collect::<Vec<_>>());
    let (had, left): (Vec<InstanceId>, Vec<InstanceId>) =
        order.iter().cloned().partition(|id| records.contains_key(id));
    let (found, status) = join(records_of(plane, &left), status_of(plane, &had)).await;
    records.extend(found?.into_iter().map(|record| (record.id.clone(), record)));
    let mut status = status?;
    let machines = order.into_iter().map(|id| {
        let record = records.remove(&id);
        let rows = events.remove(&id).unwrap_or_default();
        let steps = chain::part_of_run(rows, run, record.as_ref(), is_partial);
        let status = status.remove(&id).unwrap_or_default();
        MachineOfRun { sight: sight::of_claim(&status, &steps), steps, record, status, id }
    });
    Ok(machines.collect())
}

async fn records_of(plane: &Plane, ids: &[InstanceId]) -> Result<Vec<Record>, Failure> {
    match ids {
        [] => Ok(Vec::new()),
        ids => Ok(plane.retried(|| plane.store.records(ids)).await?.records),
    }
}

async fn status_of(
    plane: &Plane,
    ids: &[InstanceId],
) -> Result<BTreeMap<InstanceId, AgentStatus>, Failure> {
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let status = plane.retried(|| plane.store.agent_status(ids)).await?;
    Ok(ids.iter().cloned().zip(status).collect())
}

impl RunStory {
    /// Whether nothing is stored about the run.
    fn is_empty(&self) -> bool {
        self.demands.is_empty()
            && self.calls.is_empty()
            && self.machines.is_empty()
            && self.open_launches.is_empty()
    }

    /// The demands without a summary of their call: it is still at work, it was killed, or its summary
    /// was lost or has been deleted since.
    pub fn unfinished(&self) -> impl Iterator<Item = &Demand> {
        let is_told = |demand: &Demand| {
            let mut calls = self.calls.iter().filter(|call| call.label() == demand.label());
            calls.any(|call| call.began <= demand.at && demand.at <= call.at)
        };
        self.demands.iter().filter(move |demand| !is_told(demand))
    }

    /// Whether events of what this call did may exist and were not read.
    pub fn is_unread(&self, call: &ProvisionSummary) -> bool {
        self.unread_before.is_some_and(|first| call.began < first)
    }

    /// How many machines this call has handed to the run, as far as the events tell.
    pub fn handed_over(&self, call: &ProvisionSummary) -> usize {
        let next = self.calls.iter().map(|other| other.began).filter(|began| *began > call.at);
        let until = next.min();
        let is_hand_over = |row: &EventRow| {
            matches!(row.transition.as_str(), "activate" | "commit")
                && row.at >= call.began
                && until.is_none_or(|until| row.at < until)
        };
        // The run may have other calls at the same time. A list that is cut does not tell which are which.
        let is_cut = call.machines.is_empty() || call.machines.len() >= LONGEST_LIST;
        let is_of_call =
            |machine: &MachineOfRun| call.machines.iter().any(|note| note.machine == machine.id);
        let is_handed_over = |machine: &&MachineOfRun| {
            (is_cut || is_of_call(machine))
                && machine.steps.iter().filter_map(Step::event).any(|(row, _)| is_hand_over(row))
        };
        self.machines.iter().filter(is_handed_over).count()
    }
}
