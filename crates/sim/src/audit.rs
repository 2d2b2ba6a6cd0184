//! The auditor: checks the invariants after every event. It is written from the design and does not
//! ask core which changes are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::ids::{InstanceId, IntentId, RunId};
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::provision;
use ondeck_core::ports::{Machine, Order};

use crate::kernel::{Micros, Pid};
use crate::simulated_machines::{MachineView, SimulatedMachines};

/// The largest difference between two clocks.
pub(crate) const SKEW: Duration = Duration::from_secs(10);

/// How long an agent may take to notice that the operator has reassigned its machine by hand.
const NOTICE_WITHIN: Duration = Duration::from_secs(60);

/// An agent that terminates its machine must have read its record within this time, which is longer
/// than it waits for an answer.
const ASKED_WITHIN: Micros = 10_000_000;

/// A violated invariant, and what violated it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    pub how: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant.as_str(), self.how)
    }
}

/// A property that must hold in every history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// The owner of an instance never changes from one run directly to another.
    OneOwner,
    /// Every change of a record is a row of the table of transitions.
    LegalTransition,
    /// A listening runner has the label of its machine's owner.
    Label,
    /// An agent serves its machine's owner.
    ServesOwner,
    /// A job runs on a machine of its own run.
    Job,
    /// An idle machine that is marked as announced has a ticket in its queue.
    Reachable,
    /// A refresh that succeeds announces or expires every idle machine that was not announced.
    Repaired,
    /// A machine is announced only after its runner, job and label are gone.
    Announced,
    /// A machine is terminated only after its record, and never by its agent before its threshold.
    StoreFirst,
    /// Without faults, no machine is expired before its threshold.
    NoWaste,
    /// A run whose provision succeeds has exactly the machines in its answer. A run whose
    /// provision fails has none.
    AllOrNothing,
    /// A launch happens once, however often the order is repeated.
    LaunchedOnce,
    /// An intent is written before the launch that it describes.
    IntentFirst,
    /// Every call of a mode ends.
    EveryCallEnds,
    /// Without faults every provision succeeds. After faults, the next provision succeeds.
    Succeeds,
    /// An agent whose record names another run leaves its run and serves that one.
    Follows,
    /// A machine with an agent terminates after all deadlines, even without a refresh.
    TerminatesItself,
    /// When all deadlines have passed and refresh has run, nothing is left.
    NothingLeft,
    /// No process of a history panics.
    NoPanic,
}

impl Invariant {
    /// The name of the invariant in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Invariant::OneOwner => "one owner",
            Invariant::LegalTransition => "legal transitions",
            Invariant::Label => "label is the owner's",
            Invariant::ServesOwner => "agent serves the owner",
            Invariant::Job => "job on its own machine",
            Invariant::Reachable => "idle is reachable",
            Invariant::Repaired => "refresh repairs",
            Invariant::Announced => "announced when free",
            Invariant::StoreFirst => "store first",
            Invariant::NoWaste => "no waste",
            Invariant::AllOrNothing => "all or nothing",
            Invariant::LaunchedOnce => "launched once",
            Invariant::IntentFirst => "intent first",
            Invariant::EveryCallEnds => "every call ends",
            Invariant::Succeeds => "provision succeeds",
            Invariant::Follows => "agent follows",
            Invariant::TerminatesItself => "machine terminates itself",
            Invariant::NothingLeft => "nothing left",
            Invariant::NoPanic => "no panic",
        }
    }
}

/// What one process has ordered from compute for a run.
#[derive(Debug, Default)]
struct Ordered {
    wanted: usize,
    intents: BTreeSet<IntentId>,
    launched: BTreeSet<InstanceId>,
}

/// The state of the auditor.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    violation: Option<Violation>,
    /// Every record as it was last written.
    records: BTreeMap<InstanceId, Record>,
    /// When each agent last asked for its record.
    asked: BTreeMap<Pid, Micros>,
    /// The answers of the store to each agent, with the time at which each arrives: the last that
    /// has arrived, and all that are still on their way.
    answers: BTreeMap<Pid, Vec<(Micros, Option<Record>)>>,
    /// Machines that the operator has reassigned by hand, and until when their
    /// agents may not notice.
    by_hand: BTreeMap<InstanceId, Timestamp>,
    /// When each machine started to run for its current owner.
    running_since: BTreeMap<InstanceId, Timestamp>,
    /// Machines that the operator took by hand from the run that they were running for, and since
    /// when they had been running.
    lost_by_hand: BTreeMap<(InstanceId, RunId), Timestamp>,
    /// The idle states, by instance and threshold, for which a ticket was sent.
    sent: BTreeSet<(InstanceId, Timestamp)>,
    intents: BTreeSet<IntentId>,
    launched: BTreeMap<(Pid, RunId), Ordered>,
    /// Whether expiring a machine before its threshold violates an invariant.
    pub(crate) forbid_waste: bool,
    /// The grace that the plan sets: how old a machine without a record must be to be an orphan.
    pub(crate) grace: Duration,
    changed: bool,
}

impl Audit {
    pub(crate) fn violation(&self) -> Option<Violation> {
        self.violation.clone()
    }

    /// Records a violation, unless there is one already.
    pub(crate) fn violated(&mut self, invariant: Invariant, how: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, how: how.into() });
        }
    }

    /// A transition was committed.
    pub(crate) fn wrote(
        &mut self,
        transition: Transition,
        before: Option<&Record>,
        after: &Record,
        (at, now): (Timestamp, Timestamp),
    ) {
        self.changed = true;
        let owner = |record: &Record| record.run.clone();
        if let (Some(was), Some(is)) = (before.and_then(owner), owner(after))
            && was != is
        {
            self.violated(Invariant::OneOwner, format!("{} went from {was} to {is}", after.id));
        }
        if let Err(how) = legal(transition, before, after, at) {
            self.violated(
                Invariant::LegalTransition,
                format!("{transition} of {}: {how}", after.id),
            );
        }
        if at > now + SKEW {
            let how = format!("{transition} of {} was made for {at}, at {now}", after.id);
            self.violated(Invariant::LegalTransition, how);
        }
        let given_up = transition == Transition::Expire
            && before.is_some_and(|b| b.threshold.is_some_and(|t| t > at + Duration::from_secs(1)));
        if self.forbid_waste && given_up {
            self.violated(Invariant::NoWaste, format!("{} was expired before its time", after.id));
        }
        match transition {
            Transition::Activate | Transition::Commit => {
                self.running_since.insert(after.id.clone(), now);
            }
            Transition::Register | Transition::Claim => {
                self.lost_by_hand.retain(|(id, _), _| *id != after.id);
            }
            _ => {}
        }
        self.records.insert(after.id.clone(), after.clone());
    }

    /// A record existed before the history began.
    pub(crate) fn existing(&mut self, record: &Record) {
        self.records.insert(record.id.clone(), record.clone());
    }

    /// The operator gives a machine to another run by editing its record.
    pub(crate) fn reassigned_by_hand(&mut self, record: &Record, now: Timestamp) {
        let before = self.records.insert(record.id.clone(), record.clone());
        let owner = before.filter(|was| was.state == State::Running).and_then(|was| was.run);
        if let (Some(owner), Some(since)) = (owner, self.running_since.get(&record.id)) {
            self.lost_by_hand.insert((record.id.clone(), owner), *since);
        }
        self.by_hand.insert(record.id.clone(), now + NOTICE_WITHIN);
    }

    /// An agent asks the store for its record.
    pub(crate) fn asks(&mut self, agent: Pid, now: Micros) {
        self.asked.insert(agent, now);
    }

    /// The store answers an agent that has asked for its record. The answer arrives at `arrives`.
    /// An agent that is frozen then receives it when it continues.
    pub(crate) fn answered(
        &mut self,
        agent: Pid,
        record: Option<&Record>,
        (now, arrives): (Micros, Micros),
    ) {
        let answers = self.answers.entry(agent).or_default();
        let arrived = answers.iter().rposition(|(at, _)| *at <= now);
        answers.drain(..arrived.unwrap_or_default());
        answers.push((arrives, record.cloned()));
    }

    /// An intent was written.
    pub(crate) fn intended(&mut self, intent: &IntentId) {
        self.intents.insert(intent.clone());
    }

    /// Machines were launched, or returned again to a caller that repeated its order.
    pub(crate) fn launched(&mut self, by: Pid, order: &Order, machines: &[Machine]) {
        if !self.intents.contains(&order.intent) {
            let how = format!("no intent was recorded for {}, of run {}", order.intent, order.run);
            self.violated(Invariant::IntentFirst, how);
        }
        let ordered = self.launched.entry((by, order.run.clone())).or_default();
        // The first order is for all machines of the run, later ones for those still missing.
        if ordered.intents.is_empty() {
            ordered.wanted = order.count as usize;
        }
        let asked = ordered.launched.len() + order.count as usize;
        let too_many = ordered.intents.insert(order.intent.clone()) && asked > ordered.wanted;
        ordered.launched.extend(machines.iter().map(|machine| machine.id.clone()));
        if too_many || ordered.launched.len() > ordered.wanted {
            let Ordered { wanted, launched, .. } = ordered;
            let (run, asked) = (&order.run, order.count);
            let how = format!("run {run} wanted {wanted}, asked for {asked}, and got {launched:?}");
            self.violated(Invariant::LaunchedOnce, how);
        }
    }

    /// Idle machines were marked as announced.
    pub(crate) fn marked_ticketed(&mut self, tickets: &[Ticket]) {
        let sent = |t: &&Ticket| self.sent.contains(&(t.instance_id.clone(), t.threshold));
        if let Some(ticket) = tickets.iter().find(|ticket| !sent(ticket)) {
            let how = format!("{} counts as announced without a ticket", ticket.instance_id);
            self.violated(Invariant::Reachable, how);
        }
    }

    /// A ticket is being sent.
    pub(crate) fn announced(&mut self, ticket: &Ticket, machine: Option<&MachineView>) {
        self.sent.insert((ticket.instance_id.clone(), ticket.threshold));
        let Some(record) = self.records.get(&ticket.instance_id) else { return };
        let current = record.state == State::Idle && record.threshold == Some(ticket.threshold);
        let Some(machine) = machine.filter(|_| current) else { return };
        let busy = machine.label.as_ref().or(machine.serving.as_ref()).or(machine.job.as_ref());
        if let Some(run) = busy {
            let how = format!("{} still works for {run}", ticket.instance_id);
            self.violated(Invariant::Announced, how);
        }
    }

    /// A ticket is being deleted. `others` is the number of identical tickets in the queue.
    pub(crate) fn deletes(&mut self, ticket: &Ticket, others: usize, now: Timestamp) {
        let Some(record) = self.records.get(&ticket.instance_id) else { return };
        let waits = record.state == State::Idle && record.threshold == Some(ticket.threshold);
        if waits && ticket.threshold > now + SKEW && others == 0 {
            let how = format!("the last ticket of {}, which is idle, was deleted", record.id);
            self.violated(Invariant::Reachable, how);
        }
    }

    /// The control plane terminates a live machine of this age.
    pub(crate) fn terminated(&mut self, id: &InstanceId, age: Duration) {
        let Some(record) = self.records.get(id) else {
            // The grace, measured by a clock that is ahead.
            if age < self.grace.saturating_sub(SKEW) {
                let how =
                    format!("{id} was terminated {age:?} after its launch, before its record");
                self.violated(Invariant::StoreFirst, how);
            }
            return;
        };
        if record.state.is_live() {
            let how = format!("{id} was terminated while its record was {}", record.state);
            self.violated(Invariant::StoreFirst, how);
        }
    }

    /// An agent terminates its own machine at `now`; its own clock shows `clock`. The newest answer
    /// that has arrived must not give a threshold that is still ahead. Unless that answer says
    /// terminated, the agent must have asked the store within [`ASKED_WITHIN`].
    pub(crate) fn terminated_itself(
        &mut self,
        agent: Pid,
        id: &InstanceId,
        (now, clock): (Micros, Timestamp),
    ) {
        let arrived = |answers: &Vec<(Micros, Option<Record>)>| {
            answers.iter().rfind(|(at, _)| *at <= now).and_then(|(_, record)| record.clone())
        };
        let known = self.answers.get(&agent).and_then(arrived);
        if let Some(known) = &known
            && known.state.is_live()
            && known.threshold.is_some_and(|threshold| threshold > clock)
        {
            let how = format!("{id} terminated itself although it knew to be {}", known.state);
            self.violated(Invariant::StoreFirst, how);
        }
        let terminated = known.is_some_and(|known| known.state == State::Terminated);
        let asked = self.asked.get(&agent).is_some_and(|asked| now <= asked + ASKED_WITHIN);
        if !terminated && !asked {
            let how = format!("{id} terminated itself without asking the store");
            self.violated(Invariant::StoreFirst, how);
        }
    }

    /// Compares the owner of each live machine with the run that its job, runner
    /// and agent belong to.
    pub(crate) fn compare(&mut self, machines: &mut SimulatedMachines, now: Timestamp) {
        self.overdue(machines, now);
        if !std::mem::take(&mut self.changed) & !machines.take_changed() {
            return;
        }
        for id in machines.alive() {
            let Some(owner) = self.records.get(&id).and_then(|record| record.run.clone()) else {
                continue;
            };
            let Some(view) = machines.view(&id) else { continue };
            if let Some(until) = self.by_hand.get(&id).copied() {
                if view.label.as_ref() == Some(&owner) {
                    self.by_hand.remove(&id);
                } else if now <= until {
                    continue;
                }
            }
            for (invariant, has) in [
                (Invariant::Job, &view.job),
                (Invariant::Label, &view.label),
                (Invariant::ServesOwner, &view.serving),
            ] {
                if let Some(other) = has.as_ref().filter(|has| **has != owner) {
                    let how = format!("{id} belongs to {owner}, and works for {other}");
                    self.violated(invariant, how);
                }
            }
        }
    }

    /// Reports a machine that the operator reassigned by hand if its agent did not notice in time.
    fn overdue(&mut self, machines: &SimulatedMachines, now: Timestamp) {
        let is_overdue =
            |(id, until): &(&InstanceId, &Timestamp)| now > **until && machines.view(id).is_some();
        if let Some(id) = self.by_hand.iter().find(is_overdue).map(|(id, _)| id.clone()) {
            self.violated(Invariant::Follows, format!("{id} does not serve its new owner"));
        }
    }

    /// A provision that ran from `began` to `now` reports success. It must name as many machines as
    /// were requested. Unless requests may arrive late, it must name every machine that its run
    /// has. Every machine that it names must belong to its run, except one that the operator gave
    /// away after this provision had set it running: a provision does not read such a record again.
    pub(crate) fn succeeded(
        &mut self,
        outcome: &provision::Outcome,
        late: bool,
        (began, now): (Timestamp, Timestamp),
    ) {
        let ids: BTreeSet<&InstanceId> = outcome.instances.iter().map(|one| &one.id).collect();
        let wanted = outcome.requested as usize;
        if ids.len() != wanted || outcome.instances.len() != wanted {
            let how = format!("run {} was given {ids:?} instead of {wanted}", outcome.run);
            self.violated(Invariant::AllOrNothing, how);
        }
        let unknown = |id: &&InstanceId| !late && !ids.contains(id);
        if let Some(id) = self.held_by(&outcome.run, now).iter().find(unknown) {
            let how = format!("run {} has {id}, and was not told", outcome.run);
            self.violated(Invariant::AllOrNothing, how);
        }
        for id in ids {
            let record = self.records.get(id);
            let ours = record.is_some_and(|r| r.run.as_ref() == Some(&outcome.run));
            let lost = self.lost_by_hand.get(&(id.clone(), outcome.run.clone()));
            if !ours && lost.is_none_or(|since| *since < began) {
                let how = format!("run {} was given {id}, which is not its own", outcome.run);
                self.violated(Invariant::AllOrNothing, how);
            }
        }
    }

    /// Returns the machines of a run whose records are live and before their threshold.
    pub(crate) fn held_by(&self, run: &RunId, now: Timestamp) -> Vec<InstanceId> {
        let held = |record: &&Record| {
            record.run.as_ref() == Some(run) && record.state.is_live() && !record.is_expired(now)
        };
        self.records.values().filter(held).map(|record| record.id.clone()).collect()
    }

    /// Returns the record as it was last written.
    pub(crate) fn record(&self, id: &InstanceId) -> Option<&Record> {
        self.records.get(id)
    }
}

/// Checks a change against the table of transitions.
fn legal(
    transition: Transition,
    before: Option<&Record>,
    after: &Record,
    at: Timestamp,
) -> Result<(), String> {
    use State::{Claimed, Created, Idle, Running, Terminated};
    let Some(before) = before else {
        let registered = transition == Transition::Register && after.state == Created;
        return if registered && after.run.is_some() {
            Ok(())
        } else {
            Err("from nothing".to_owned())
        };
    };
    let (from, to) = (before.state, after.state);
    let states = match transition {
        Transition::Register => false,
        Transition::Activate => (from, to) == (Created, Running),
        Transition::Claim => (from, to) == (Idle, Claimed),
        Transition::Commit => (from, to) == (Claimed, Running),
        Transition::Release => (from, to) == (Running, Idle),
        Transition::GiveBack => (from, to) == (Claimed, Idle),
        Transition::Renew => from == to && matches!(from, Idle | Running),
        Transition::Expire => from != Terminated && from == to,
        Transition::Reap => from != Terminated && to == Terminated,
    };
    if !states {
        return Err(format!("{from} to {to}"));
    }
    let kept = before.run == after.run;
    let runs = match transition {
        Transition::Activate | Transition::Commit => kept && after.run.is_some(),
        Transition::Claim => before.run.is_none() && after.run.is_some(),
        Transition::Release | Transition::GiveBack => before.run.is_some() && after.run.is_none(),
        Transition::Reap => after.run.is_none(),
        Transition::Expire | Transition::Renew | Transition::Register => kept,
    };
    if !runs {
        return Err(format!("owner {:?} to {:?}", before.run, after.run));
    }
    let in_time = before.threshold.is_some_and(|threshold| threshold > at);
    let times = match transition {
        Transition::Reap => !in_time && after.threshold.is_none(),
        Transition::Expire => after.threshold.is_some_and(|threshold| threshold <= at),
        _ => in_time && after.threshold.is_some_and(|threshold| threshold >= at),
    };
    if !times {
        return Err(format!("threshold {:?} to {:?}, at {at}", before.threshold, after.threshold));
    }
    let idle_again = u32::from(matches!(transition, Transition::Release | Transition::GiveBack));
    let (then, now) = (before.counts.generation, after.counts.generation);
    if then + idle_again != now {
        return Err(format!("generation {then} to {now}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
