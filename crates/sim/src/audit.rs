//! The promises, checked after every step. Written against the design and not against the code:
//! nothing here asks core what it allows.

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
use crate::simulated_machines::{SimulatedMachines, View};

/// How far apart two clocks may be.
pub(crate) const SKEW: Duration = Duration::from_secs(10);

/// The minimum age of a machine without a record when a process terminates it: the grace that
/// plans set, by a clock that is ahead.
const YOUNG: Duration = Duration::from_secs(20);

/// How long an agent may take to notice that the operator has reassigned its machine by hand.
const NOTICE: Duration = Duration::from_secs(60);

/// An agent that terminates its machine has asked the store no longer ago than this, which is longer
/// than it waits for an answer.
const ASKED: Micros = 10_000_000;

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The promise that did not hold.
    pub promise: Invariant,
    /// What broke it, for the report.
    pub how: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise.as_str(), self.how)
    }
}

/// A property that must hold in every history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// An instance has one owner at the most.
    OneOwner,
    /// Records change by the table of transitions, and not otherwise.
    Table,
    /// A listening runner has the label of its machine's owner.
    Label,
    /// An agent serves its machine's owner.
    Belief,
    /// A job runs on a machine of its own run.
    Job,
    /// An idle machine that was announced can be reached through the queue.
    Reachable,
    /// An idle machine that was not announced is, or is expired, by a refresh that succeeds.
    Repaired,
    /// A machine is announced only after its runner has gone.
    Announced,
    /// A machine is ended after its record, and never while it is busy within its threshold.
    StoreFirst,
    /// Without faults no machine is given up before its time.
    NoWaste,
    /// A provision that succeeds has what it says, and one that fails has nothing.
    AllOrNothing,
    /// A launch is made once, however often it is asked for.
    LaunchedOnce,
    /// No machine is launched without an intent that was written before.
    IntentFirst,
    /// Every call of a mode comes to an end.
    Ends,
    /// Without faults every provision succeeds, and after faults the next one does.
    Succeeds,
    /// An agent follows every change of its record.
    Follows,
    /// A machine with an agent ends by itself.
    EndsItself,
    /// When all deadlines have passed and refresh has run, nothing is left.
    NothingLeft,
    /// No process panics in any history.
    NoPanic,
}

impl Invariant {
    /// In a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            Invariant::OneOwner => "one owner",
            Invariant::Table => "legal transitions",
            Invariant::Label => "label is the owner's",
            Invariant::Belief => "agent serves the owner",
            Invariant::Job => "job on its own machine",
            Invariant::Reachable => "idle is reachable",
            Invariant::Repaired => "refresh repairs",
            Invariant::Announced => "announced when free",
            Invariant::StoreFirst => "store first",
            Invariant::NoWaste => "no waste",
            Invariant::AllOrNothing => "all or nothing",
            Invariant::LaunchedOnce => "launched once",
            Invariant::IntentFirst => "intent first",
            Invariant::Ends => "every call ends",
            Invariant::Succeeds => "provision succeeds",
            Invariant::Follows => "agent follows",
            Invariant::EndsItself => "machine ends itself",
            Invariant::NothingLeft => "nothing left",
            Invariant::NoPanic => "no panic",
        }
    }
}

/// What a process has ordered for a run.
#[derive(Debug, Default)]
struct Ordered {
    wanted: usize,
    intents: BTreeSet<IntentId>,
    launched: BTreeSet<InstanceId>,
}

/// What the auditor knows.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    violation: Option<Violation>,
    /// Every record as it was last written.
    records: BTreeMap<InstanceId, Record>,
    /// When each agent has last asked for its record.
    asked: BTreeMap<Pid, Micros>,
    /// What the store has answered to each agent, and when the answer arrives: the last that has
    /// arrived, and all after it.
    answers: BTreeMap<Pid, Vec<(Micros, Option<Record>)>>,
    /// Machines that the operator has reassigned by hand, and until when agents may not know.
    by_hand: BTreeMap<InstanceId, Timestamp>,
    /// When each machine started to run for its owner.
    running_since: BTreeMap<InstanceId, Timestamp>,
    /// What an operator took away by hand from a run that it was running for, and since when it
    /// had been.
    lost_by_hand: BTreeMap<(InstanceId, RunId), Timestamp>,
    /// The idle states of which a ticket has been in the queue.
    sent: BTreeSet<(InstanceId, Timestamp)>,
    intents: BTreeSet<IntentId>,
    /// What each process has ordered for which run.
    launched: BTreeMap<(Pid, RunId), Ordered>,
    /// Whether no machine may be given up before its time.
    pub(crate) frugal: bool,
    changed: bool,
}

impl Audit {
    pub(crate) fn violation(&self) -> Option<Violation> {
        self.violation.clone()
    }

    pub(crate) fn broken(&mut self, promise: Invariant, how: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(Violation { promise, how: how.into() });
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
            self.broken(Invariant::OneOwner, format!("{} went from {was} to {is}", after.id));
        }
        if let Err(how) = legal(transition, before, after, at) {
            self.broken(Invariant::Table, format!("{transition} of {}: {how}", after.id));
        }
        if at > now + SKEW {
            let how = format!("{transition} of {} was made for {at}, at {now}", after.id);
            self.broken(Invariant::Table, how);
        }
        let given_up = transition == Transition::Expire
            && before.is_some_and(|b| b.threshold.is_some_and(|t| t > at + Duration::from_secs(1)));
        if self.frugal && given_up {
            self.broken(Invariant::NoWaste, format!("{} was expired before its time", after.id));
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

    /// A record was there from the beginning.
    pub(crate) fn planted(&mut self, record: &Record) {
        self.records.insert(record.id.clone(), record.clone());
    }

    /// The operator gives a machine to another run, past every rule.
    pub(crate) fn gave_by_hand(&mut self, record: &Record, now: Timestamp) {
        let before = self.records.insert(record.id.clone(), record.clone());
        let owner = before.filter(|was| was.state == State::Running).and_then(|was| was.run);
        if let (Some(owner), Some(since)) = (owner, self.running_since.get(&record.id)) {
            self.lost_by_hand.insert((record.id.clone(), owner), *since);
        }
        self.by_hand.insert(record.id.clone(), now + NOTICE);
    }

    /// An agent asks the store for its record.
    pub(crate) fn asks(&mut self, agent: Pid, now: Micros) {
        self.asked.insert(agent, now);
    }

    /// The store answers an agent that has asked for its record. The answer reaches the agent when
    /// it arrives, or as soon as the agent goes on after that.
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

    /// Machines were launched, or named again to a caller that has repeated the order.
    pub(crate) fn launched(&mut self, by: Pid, order: &Order, machines: &[Machine]) {
        if !self.intents.contains(&order.intent) {
            let how = format!("no intent was recorded for {}, of run {}", order.intent, order.run);
            self.broken(Invariant::IntentFirst, how);
        }
        let ordered = self.launched.entry((by, order.run.clone())).or_default();
        // The first order is for all that is wanted, and others are for what is missing then.
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
            self.broken(Invariant::LaunchedOnce, how);
        }
    }

    /// Idle machines were noted as announced.
    pub(crate) fn noted(&mut self, tickets: &[Ticket]) {
        let sent = |t: &&Ticket| self.sent.contains(&(t.instance_id.clone(), t.threshold));
        if let Some(ticket) = tickets.iter().find(|ticket| !sent(ticket)) {
            let how = format!("{} counts as announced without a ticket", ticket.instance_id);
            self.broken(Invariant::Reachable, how);
        }
    }

    /// A ticket is being sent.
    pub(crate) fn announced(&mut self, ticket: &Ticket, machine: Option<&View>) {
        self.sent.insert((ticket.instance_id.clone(), ticket.threshold));
        let Some(record) = self.records.get(&ticket.instance_id) else { return };
        let current = record.state == State::Idle && record.threshold == Some(ticket.threshold);
        let Some(machine) = machine.filter(|_| current) else { return };
        let busy = machine.label.as_ref().or(machine.belief.as_ref()).or(machine.job.as_ref());
        if let Some(run) = busy {
            let how = format!("{} still works for {run}", ticket.instance_id);
            self.broken(Invariant::Announced, how);
        }
    }

    /// Tickets are being deleted; `others` says how many there are besides of the same words.
    pub(crate) fn deletes(&mut self, ticket: &Ticket, others: usize, now: Timestamp) {
        let Some(record) = self.records.get(&ticket.instance_id) else { return };
        let waits = record.state == State::Idle && record.threshold == Some(ticket.threshold);
        if waits && ticket.threshold > now + SKEW && others == 0 {
            let how = format!("the last ticket of {}, which is idle, was deleted", record.id);
            self.broken(Invariant::Reachable, how);
        }
    }

    /// The control plane ends a machine that is alive, and so old.
    pub(crate) fn terminated(&mut self, id: &InstanceId, age: Duration) {
        let Some(record) = self.records.get(id) else {
            if age < YOUNG {
                let how = format!("{id} was ended {age:?} after its launch, before its record");
                self.broken(Invariant::StoreFirst, how);
            }
            return;
        };
        if record.state.is_live() {
            let how = format!("{id} was ended while its record was {}", record.state);
            self.broken(Invariant::StoreFirst, how);
        }
    }

    /// An agent terminates its own machine, at `now`, which is `clock` by its own clock. It never
    /// does so within the threshold that the newest answer gave which has arrived. Unless that
    /// answer says terminated, it has asked the store just before.
    pub(crate) fn ended_itself(
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
            let how = format!("{id} ended itself although it knew to be {}", known.state);
            self.broken(Invariant::StoreFirst, how);
        }
        let terminated = known.is_some_and(|known| known.state == State::Terminated);
        let asked = self.asked.get(&agent).is_some_and(|asked| now <= asked + ASKED);
        if !terminated && !asked {
            let how = format!("{id} terminated itself without asking the store");
            self.broken(Invariant::StoreFirst, how);
        }
    }

    /// Who owns what, and who works for whom.
    pub(crate) fn compare(&mut self, yard: &mut SimulatedMachines, now: Timestamp) {
        self.overdue(yard, now);
        if !std::mem::take(&mut self.changed) & !yard.take_changed() {
            return;
        }
        for id in yard.alive() {
            let Some(owner) = self.records.get(&id).and_then(|record| record.run.clone()) else {
                continue;
            };
            let Some(view) = yard.view(&id) else { continue };
            if let Some(until) = self.by_hand.get(&id).copied() {
                if view.label.as_ref() == Some(&owner) {
                    self.by_hand.remove(&id);
                } else if now <= until {
                    continue;
                }
            }
            for (promise, has) in [
                (Invariant::Job, &view.job),
                (Invariant::Label, &view.label),
                (Invariant::Belief, &view.belief),
            ] {
                if let Some(other) = has.as_ref().filter(|has| **has != owner) {
                    let how = format!("{id} belongs to {owner}, and works for {other}");
                    self.broken(promise, how);
                }
            }
        }
    }

    /// Reports a machine that the operator reassigned by hand if its agent did not notice in time.
    fn overdue(&mut self, yard: &SimulatedMachines, now: Timestamp) {
        let is_overdue =
            |(id, until): &(&InstanceId, &Timestamp)| now > **until && yard.view(id).is_some();
        if let Some(id) = self.by_hand.iter().find(is_overdue).map(|(id, _)| id.clone()) {
            self.broken(Invariant::Follows, format!("{id} does not serve its new owner"));
        }
    }

    /// A provision that began then has said that it succeeded. Where nothing arrives late, it
    /// knows of all that its run has. What it names is its run's own, except for a machine that an
    /// operator gave away after this provision had set it running: no provision looks at one again.
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
            self.broken(Invariant::AllOrNothing, how);
        }
        let unknown = |id: &&InstanceId| !late && !ids.contains(id);
        if let Some(id) = self.held_by(&outcome.run, now).iter().find(unknown) {
            let how = format!("run {} has {id}, and was not told", outcome.run);
            self.broken(Invariant::AllOrNothing, how);
        }
        for id in ids {
            let record = self.records.get(id);
            let ours = record.is_some_and(|r| r.run.as_ref() == Some(&outcome.run));
            let lost = self.lost_by_hand.get(&(id.clone(), outcome.run.clone()));
            if !ours && lost.is_none_or(|since| *since < began) {
                let how = format!("run {} was given {id}, which is not its own", outcome.run);
                self.broken(Invariant::AllOrNothing, how);
            }
        }
    }

    /// The live records of a run that are within their threshold.
    pub(crate) fn held_by(&self, run: &RunId, now: Timestamp) -> Vec<InstanceId> {
        let held = |record: &&Record| {
            record.run.as_ref() == Some(run) && record.state.is_live() && !record.is_expired(now)
        };
        self.records.values().filter(held).map(|record| record.id.clone()).collect()
    }

    /// The latest threshold of all.
    pub(crate) fn record(&self, id: &InstanceId) -> Option<&Record> {
        self.records.get(id)
    }
}

/// The table of transitions.
fn legal(
    transition: Transition,
    before: Option<&Record>,
    after: &Record,
    at: Timestamp,
) -> Result<(), String> {
    use State::{Claimed, Created, Idle, Running, Terminated};
    let Some(before) = before else {
        let born = transition == Transition::Register && after.state == Created;
        return if born && after.run.is_some() { Ok(()) } else { Err("from nothing".to_owned()) };
    };
    let (from, to) = (before.state, after.state);
    let states = match transition {
        Transition::Register => false,
        Transition::Activate => (from, to) == (Created, Running),
        Transition::Claim => (from, to) == (Idle, Claimed),
        Transition::Commit => (from, to) == (Claimed, Running),
        Transition::Release => (from, to) == (Running, Idle),
        Transition::GiveBack => (from, to) == (Claimed, Idle),
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
        Transition::Expire | Transition::Register => kept,
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
    Ok(())
}

#[cfg(test)]
mod tests;
