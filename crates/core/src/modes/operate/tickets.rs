//! The tickets of the pool: which of them are true, and what to do about the others.
//!
//! A queue can only be looked at by receiving: a ticket that is looked at is hidden from runs until it
//! is put back. All tickets of a class are put back as soon as the last one was looked at, and a process
//! that is killed before that leaves them hidden for [`Times::ticket_hold`](crate::inputs::times::Times).

use std::collections::{BTreeMap, BTreeSet};

use crate::lifecycle::{Idle, Instance};
use crate::model::excerpt::one_line;
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::record::{Record, State};
use crate::model::settings::Settings;
use crate::model::signal::Report;
use crate::model::ticket::Ticket;
use crate::model::timestamp::Timestamp;
use crate::modes::handshake::announce;
use crate::modes::plane::{Plane, readable};
use crate::ports::{Depth, PortResult, Receipt, RecordScope};
use crate::runtime::stop::StopSignal;

/// The most messages that one receive returns.
const BATCH: usize = 10;

/// What there is in the pool, and what was done about it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Whether nothing was changed.
    pub is_plan: bool,
    pub classes: Vec<ClassTickets>,
    /// Why not every class was looked at.
    pub failure: Option<Failure>,
}

/// The tickets of one class.
#[derive(Debug, Clone)]
pub struct ClassTickets {
    pub class: ResourceClass,
    pub depth: Depth,
    /// Those that could be received. The rest is hidden by runs, or was not found.
    pub tickets: Vec<SeenTicket>,
    /// Idle machines without a ticket, which a repair announces.
    pub unannounced: Vec<InstanceId>,
    /// How many tickets were deleted.
    pub deleted: usize,
    /// The machines that were announced.
    pub announced: Vec<InstanceId>,
}

/// One ticket, and what it is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenTicket {
    /// `None` if it cannot be read.
    pub ticket: Option<Ticket>,
    pub truth: Truth,
}

/// Whether a run that receives the ticket gets the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Truth {
    /// The machine is idle as announced.
    True,
    /// As `True`, but another ticket announces the same.
    Duplicate,
    /// The time that it announces is over.
    Expired,
    /// The machine has served a run since.
    StaleGeneration,
    /// The machine is not idle.
    NotIdle(State),
    /// An operator has drained the machine.
    Drained,
    /// There is no record of the machine.
    UnknownMachine,
    /// It is not a ticket. Carries the reason.
    Unreadable(String),
    /// The machine's record cannot be read.
    UnreadableRecord,
}

impl Truth {
    /// Whether a repair deletes the ticket.
    pub fn is_surplus(&self) -> bool {
        !matches!(self, Truth::True | Truth::UnreadableRecord)
    }

    /// The word in the JSON output.
    pub fn as_str(&self) -> &'static str {
        match self {
            Truth::True => "true",
            Truth::Duplicate => "duplicate",
            Truth::Expired => "expired",
            Truth::StaleGeneration => "stale-generation",
            Truth::NotIdle(_) => "not-idle",
            Truth::Drained => "drained",
            Truth::UnknownMachine => "unknown-machine",
            Truth::Unreadable(_) => "unreadable",
            Truth::UnreadableRecord => "unreadable-record",
        }
    }
}

/// Looks at the tickets of the class, or of all classes. With `repair`, deletes those that are not true
/// and announces idle machines that have none.
pub async fn look(
    plane: &Plane,
    class: Option<&ResourceClass>,
    repair: bool,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    let settings = stop.unless_raised(plane.settings()).await??;
    let known: Vec<ResourceClass> = settings.classes.names().cloned().collect();
    let classes = match class {
        Some(class) if !known.contains(class) => {
            let names: Vec<&str> = known.iter().map(ResourceClass::as_str).collect();
            return Err(Failure::invalid(format!("resource class not configured: {class}"))
                .hint(format!("configured classes are {}", names.join(", "))));
        }
        Some(class) => vec![class.clone()],
        None => known,
    };
    let mut outcome = Outcome { is_plan: !repair, ..Outcome::default() };
    for class in classes {
        plane.progress.stage(&format!("looking at the tickets of class {class}"));
        let mut hidden = Vec::new();
        let looked =
            stop.unless_raised(look_at(plane, &settings, &class, repair, &mut hidden)).await;
        // Also after a signal or a failure: runs must not wait for what was looked at.
        if !hidden.is_empty() {
            plane.retried(|| plane.pool.put_back(&class, &hidden)).await?;
        }
        match looked {
            Ok(looked) => outcome.classes.push(looked?),
            Err(stop) => {
                outcome.failure = Some(stop.into());
                break;
            }
        }
    }
    Ok(outcome)
}

async fn look_at(
    plane: &Plane,
    settings: &Settings,
    class: &ResourceClass,
    repair: bool,
    hidden: &mut Vec<Receipt>,
) -> Result<ClassTickets, Failure> {
    let depth = plane.retried(|| plane.pool.depth(class)).await?;
    let received = receive_all(plane, settings, class, depth, hidden).await?;
    let parsed: Vec<_> = received.iter().map(|(_, body)| Ticket::from_json(body)).collect();
    let ids: BTreeSet<InstanceId> =
        parsed.iter().flatten().map(|ticket| ticket.instance_id.clone()).collect();
    let ids: Vec<InstanceId> = ids.into_iter().collect();
    let found = match ids.is_empty() {
        true => crate::ports::Listing::default(),
        false => plane.retried(|| plane.store.records(&ids)).await?,
    };
    let unreadable: BTreeSet<&str> = found.unreadable.iter().map(|row| row.id.as_str()).collect();
    let records: BTreeMap<&InstanceId, &Record> =
        found.records.iter().map(|record| (&record.id, record)).collect();
    let now = plane.now();
    let mut told: BTreeSet<InstanceId> = BTreeSet::new();
    let (mut tickets, mut surplus) = (Vec::new(), Vec::new());
    for ((receipt, _), ticket) in received.iter().zip(parsed) {
        let truth = match &ticket {
            Err(malformed) => Truth::Unreadable(one_line(malformed)),
            Ok(ticket) if unreadable.contains(ticket.instance_id.as_str()) => {
                Truth::UnreadableRecord
            }
            Ok(ticket) => match truth(ticket, records.get(&ticket.instance_id).copied(), now) {
                Truth::True if !told.insert(ticket.instance_id.clone()) => Truth::Duplicate,
                truth => truth,
            },
        };
        if truth.is_surplus() {
            surplus.push(receipt.clone());
        }
        tickets.push(SeenTicket { ticket: ticket.ok(), truth });
    }
    let unannounced = unannounced(plane, class, depth, &told).await?;
    let mut seen = ClassTickets {
        class: class.clone(),
        depth,
        tickets,
        unannounced: unannounced.iter().map(|idle| idle.id().clone()).collect(),
        deleted: 0,
        announced: Vec::new(),
    };
    if repair {
        if !surplus.is_empty() {
            plane.retried(|| plane.pool.delete(class, &surplus)).await?;
            hidden.retain(|receipt| !surplus.contains(receipt));
            seen.deleted = surplus.len();
        }
        let tickets: Vec<Ticket> = unannounced.iter().map(Instance::ticket).collect();
        announce(plane, &tickets).await?;
        seen.announced.clone_from(&seen.unannounced);
    }
    Ok(seen)
}

/// Receives every ticket that is visible, each once: all of them stay hidden until the last was
/// received.
async fn receive_all(
    plane: &Plane,
    settings: &Settings,
    class: &ResourceClass,
    depth: Depth,
    hidden: &mut Vec<Receipt>,
) -> PortResult<Vec<(Receipt, String)>> {
    let hold = settings.times.ticket_hold;
    let mut received = Vec::new();
    // One pass, even if more tickets arrive meanwhile.
    for _ in 0..=depth.total().div_ceil(BATCH) * 2 {
        let messages = plane.retried(|| plane.pool.receive_thoroughly(class, BATCH, hold)).await?;
        if messages.is_empty() {
            break;
        }
        hidden.extend(messages.iter().map(|message| message.receipt.clone()));
        received.extend(messages.into_iter().map(|message| (message.receipt, message.body)));
    }
    Ok(received)
}

fn truth(ticket: &Ticket, record: Option<&Record>, now: Timestamp) -> Truth {
    let Some(record) = record else { return Truth::UnknownMachine };
    if record.state != State::Idle {
        return Truth::NotIdle(record.state);
    }
    if record.counts.generation != ticket.generation {
        return Truth::StaleGeneration;
    }
    if record.departure.is_drained() {
        return Truth::Drained;
    }
    match ticket.threshold <= now || record.is_expired(now) {
        true => Truth::Expired,
        false => Truth::True,
    }
}

/// The idle machines of the class that no ticket announces. If runs hide tickets at this moment, only
/// those count whose records say that they were never announced: the others may be in a run's hands.
async fn unannounced(
    plane: &Plane,
    class: &ResourceClass,
    depth: Depth,
    told: &BTreeSet<InstanceId>,
) -> Result<Vec<Instance<Idle>>, Failure> {
    let live = readable(plane.retried(|| plane.store.list(RecordScope::Live)).await?);
    let now = plane.now();
    let is_candidate = |record: &&Record| {
        record.state == State::Idle
            && record.spec.resource_class == *class
            && !record.is_expired(now)
            && !record.departure.is_drained()
            && !record.reuse.is_never()
            && !told.contains(&record.id)
            && (record.ticketed_at.is_none() || depth.held + depth.delayed == 0)
    };
    let idle: Vec<&Record> = live.iter().filter(is_candidate).collect();
    if idle.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<InstanceId> = idle.iter().map(|record| record.id.clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    let free = idle.into_iter().zip(status).filter(|(record, status)| {
        let free = |report: &Report| report.is_free_in(record.counts.generation, None);
        record.ticketed_at.is_some() || status.report.as_ref().is_some_and(free)
    });
    Ok(free.filter_map(|(record, _)| Instance::believe(record)).collect())
}
