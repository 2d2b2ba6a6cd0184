//! The auditor: checks the invariants after every event. It is written from the design and does not
//! ask core which changes are allowed.

mod care;
mod deadlines;
mod economy;
mod hand_over;
mod health;
mod invariant;
mod labels;
mod ledger;
mod limits;
mod operators;
mod pool_rules;
mod report;
mod reruns;
mod reuse;
mod room;
mod runs;
mod spend;
mod transition;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::ids::{InstanceId, IntentId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::RequestedLabel;
use ondeck_core::model::record::{MachineSpec, Record, State};
use ondeck_core::model::settings::Settings;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Machine, Order};

pub(crate) use self::care::held_for;
pub(crate) use self::deadlines::is_orphan;
use self::economy::Economy;
pub(crate) use self::hand_over::HandOver;
pub use self::invariant::{Invariant, Violation};
use self::labels::Labels;
pub(crate) use self::labels::{Listed, Listening};
use self::pool_rules::{BegunProvision, TicketHistory};
use self::report::Effects;
use self::reruns::Reruns;
use self::transition::legal;
use crate::faults::Fault;
use crate::kernel::{Micros, Pid, timestamp};
use crate::plan::{Ask, Plan};
use crate::simulated_machines::{Condition, MachineView, SimulatedMachines};

/// The largest difference between two clocks.
pub(crate) const SKEW: Duration = Duration::from_secs(10);

/// The longest time after which a request arrives.
const IN_FLIGHT: Duration = Duration::from_secs(32);

/// How long an agent may take to notice that the operator has reassigned its machine by hand.
const NOTICE_WITHIN: Duration = Duration::from_secs(60);

/// How long an agent that is woken waits for a wake-up at most before it looks at its record.
const LONGEST_UNWOKEN: Duration = Duration::from_secs(15);

/// An agent that terminates its machine must have read its record within this time, which is longer
/// than it waits for an answer.
const ASKED_WITHIN: Micros = 10_000_000;

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
    /// What each process of the control plane has done.
    effects: BTreeMap<Pid, Effects>,
    /// When each machine that was released last had started to run for its owner.
    running_before: BTreeMap<InstanceId, Timestamp>,
    /// When each machine started to run for its current owner, or was last renewed for it. A release
    /// reports how long a machine was used since then.
    running_since: BTreeMap<InstanceId, Timestamp>,
    /// Machines that the operator took by hand from the run that they were running for, and since
    /// when they had been running.
    lost_by_hand: BTreeMap<(InstanceId, RunId), Timestamp>,
    /// The idle states, by instance and threshold, for which a ticket was sent.
    sent: BTreeSet<(InstanceId, Timestamp)>,
    /// The same, by when the record first said so.
    marked: BTreeMap<(InstanceId, Timestamp), Timestamp>,
    /// Those of which the ticket was sent by one of several refreshes at the same time.
    sent_beside: BTreeSet<(InstanceId, Timestamp)>,
    intents: BTreeSet<IntentId>,
    launched: BTreeMap<(Pid, RunId), Ordered>,
    /// Each machine as it was launched.
    specs: BTreeMap<InstanceId, MachineSpec>,
    /// When each machine was launched.
    launched_at: BTreeMap<InstanceId, Timestamp>,
    /// Since when each machine has been idle.
    idle_since: BTreeMap<InstanceId, Timestamp>,
    /// When each record last changed.
    changed_at: BTreeMap<InstanceId, Timestamp>,
    /// The last run that registered or claimed each machine, and when.
    owned_since: BTreeMap<InstanceId, (RunId, Timestamp)>,
    /// Machines that a run had given back and took again, because their runners have its jobs. It has
    /// them besides those that it asked for.
    kept_for_jobs: BTreeSet<InstanceId>,
    /// Machines that the operator has ever reassigned by hand.
    touched_by_hand: BTreeSet<InstanceId>,
    /// The calls of operators.
    operators: BTreeSet<Pid>,
    /// All settings that have been in force, each with the time from which it was.
    settings: Vec<(Timestamp, Settings)>,
    /// The same, as they were stored.
    stored: Vec<(Timestamp, BTreeMap<String, String>)>,
    /// The runs whose jobs each machine has had.
    worked_for: BTreeMap<InstanceId, BTreeSet<RunId>>,
    /// When a machine was last claimed.
    last_claim: Option<Timestamp>,
    /// Whether nothing fails and lists do not lag, so that the minimum can be kept.
    is_steady: bool,
    /// How long a refresh may take.
    time_limit: Option<Duration>,
    /// When settings were first stored.
    first_stored: Option<Timestamp>,
    /// How much later lists show a write at most.
    index_lag: Duration,
    tickets: BTreeMap<String, TicketHistory>,
    /// Who received each receipt.
    receivers: BTreeMap<String, Pid>,
    provisions: BTreeMap<Pid, BegunProvision>,
    /// What each run has asked for.
    asked_by_runs: BTreeMap<RunId, Vec<Ask>>,
    /// Runs that have completed: since when, and after how many refreshes they still had machines.
    completed: BTreeMap<RunId, (Timestamp, u32)>,
    /// The runs of which a refresh has read that jobs wait for a label of the run.
    waiting_for_run_label: BTreeSet<(Pid, RunId)>,
    reruns: Reruns,
    labels: Labels,
    economy: Economy,
    /// Labels whose jobs wait and whose machines are gone, and for how many refreshes.
    unserved: BTreeMap<Label, u32>,
    /// Whether machines that die or are taken away are the only faults.
    only_deaths: bool,
    /// Whether calls work as in a quiet history, though machines may be taken away.
    judges_runs: bool,
    /// How late an agent may look at its record because it waits for a wake-up.
    looks_within: Duration,
    /// Whether each agent that is up is seen to be.
    agents_beat: bool,
    /// The provisions that have not reported, with their runs.
    provisions_at_work: BTreeMap<Pid, RunId>,
    /// When the last provision of each run ended.
    last_provisions: BTreeMap<RunId, Timestamp>,
    /// When each run last lost a machine to its release.
    last_releases: BTreeMap<RunId, Timestamp>,
    /// When a provision last ended.
    provision_ended: Option<Timestamp>,
    /// Whether the provider lists machines at once.
    lists_at_once: bool,
    /// When each process of the control plane began.
    begun: BTreeMap<Pid, Timestamp>,
    /// The last refresh that succeeded: when it began, and when it ended.
    last_refresh: Option<(Timestamp, Timestamp)>,
    /// Machines whose launchers began when no ceiling limited their class, and when they were launched.
    launched_unaware: BTreeMap<InstanceId, Timestamp>,
    /// The day for which each launch was reserved that may cost money.
    reserved_days: BTreeMap<IntentId, Timestamp>,
    /// By when a refresh has seen of each machine that is gone that it is.
    paid_until: BTreeMap<InstanceId, Timestamp>,
    /// When a refresh last ended, successful or not.
    refresh_ended: Option<Timestamp>,
    /// The names of the settings that each refresh was given, and when it began.
    refreshes: BTreeMap<Pid, (BTreeSet<String>, Timestamp)>,
    /// All refreshes, also those that have ended. What they wrote last may arrive later.
    all_refreshes: BTreeSet<Pid>,
    /// The refreshes that have ended without an outcome.
    gone_refreshes: BTreeSet<Pid>,
    /// Whether a refresh must refuse the settings that it was given.
    unsound: BTreeMap<Pid, bool>,
    refused_set_ups: BTreeSet<Pid>,
    /// When the credentials of agents were last stored, and when they expire.
    minted: Option<(Timestamp, Timestamp)>,
    /// The refreshes that were given another forge than that of the pool.
    other_forges: BTreeSet<Pid>,
    /// What each provision has given back.
    given_back: BTreeSet<(Pid, InstanceId)>,
    /// Whether every call is answered.
    calls_are_answered: bool,
    /// The refreshes that have stored settings that they were given.
    stored_given: BTreeSet<Pid>,
    /// Whether no fault is injected into the calls of agents.
    agents_spared: bool,
    /// Whether healthy machines must be spared: clocks do not make heartbeats look too old.
    is_spared: bool,
    /// Whether calls and queues work, so that what is announced is found.
    is_quiet: bool,
    /// Machines whose agents may have missed a registration because they knew other times.
    unaware_of_times: BTreeSet<InstanceId>,
    /// When agents looked at their records in vain, because the store refuses them.
    refused_looks: BTreeMap<Pid, Vec<Timestamp>>,
    /// Whether expiring a machine before its threshold violates an invariant.
    forbid_waste: bool,
    /// The grace that the plan sets: how old a machine without a record must be to be an orphan.
    grace: Duration,
    changed: bool,
}

impl Audit {
    /// Prepares for the history of a plan. If calls are chosen, their faults are not in the plan.
    pub(crate) fn expect(&mut self, plan: &Plan, by_choice: bool) {
        self.forbid_waste = plan.is_clear();
        self.grace = plan.grace();
        self.agents_spared = plan.agents_spared || plan.rates.calls.is_empty();
        self.is_spared = plan.skew <= 8_000 && (plan.is_clear() || !by_choice);
        self.is_quiet = plan.calls_work();
        let calls_fail = !(plan.rates.calls.is_empty() && plan.outages.is_empty());
        self.calls_are_answered = !calls_fail && plan.scripts.is_empty() && !by_choice;
        self.judges_runs = plan.without(Fault::SpotNotice).calls_work();
        self.agents_beat = plan.agents_beat() && !by_choice;
        self.only_deaths = plan.only_deaths() && !by_choice;
        let settings = Settings::from_map(&plan.settings).expect("sound settings");
        self.index_lag = Duration::from_micros(plan.index_lag);
        self.is_steady = plan.is_clear() && plan.index_lag == 0 && !by_choice;
        self.time_limit = plan.time_limit;
        self.lists_at_once = plan.listing_lag == 0;
        self.looks_within = plan.wake_ups.as_ref().map_or(Duration::ZERO, |_| LONGEST_UNWOKEN);
        self.calls_take(Duration::from_micros(plan.rates.latency));
        self.stored.push((timestamp(0), plan.settings.clone()));
        self.settings_in_force(timestamp(0), settings);
    }

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
        by: Pid,
        transition: Transition,
        before: Option<&Record>,
        after: &Record,
        (at, now): (Timestamp, Timestamp),
        condition: Option<&Condition>,
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
        let shortens = before.is_some_and(|before| {
            before.state == State::Idle && after.threshold < before.threshold
        });
        if transition == Transition::Renew && shortens {
            let how = format!("a renewal of {} shortens its time", after.id);
            self.violated(Invariant::LegalTransition, how);
        }
        self.note_written(by, transition, &after.id);
        self.gives_drained(transition, before, after);
        self.spare(by, transition, before, at, condition);
        self.deadline(by, transition, before, (after, at));
        self.changed_at.insert(after.id.clone(), now);
        let is_taken = matches!(transition, Transition::Release | Transition::Preserve);
        if let Some(run) = before.filter(|_| is_taken).and_then(|before| before.run.clone()) {
            self.last_releases.insert(run, now);
        }
        if transition == Transition::Claim {
            self.last_claim = Some(now);
        }
        match transition {
            Transition::Activate | Transition::Commit => {
                self.running_since.insert(after.id.clone(), now);
            }
            Transition::Renew if after.state == State::Running => {
                self.running_since.insert(after.id.clone(), now);
            }
            Transition::GiveBack => {
                self.given_back_unaware(&after.id);
                self.idle_since.insert(after.id.clone(), now);
                self.given_back.insert((by, after.id.clone()));
            }
            Transition::Release => {
                self.idle_since.insert(after.id.clone(), now);
                let since = self.running_since.get(&after.id).copied().unwrap_or(now);
                self.running_before.insert(after.id.clone(), since);
            }
            Transition::Register | Transition::Claim => {
                if let Some(run) = &after.run {
                    self.owned_since.insert(after.id.clone(), (run.clone(), now));
                }
                self.lost_by_hand.retain(|(id, _), _| *id != after.id);
            }
            _ => {}
        }
        self.records.insert(after.id.clone(), after.clone());
        if transition == Transition::Claim {
            self.hedges(by, &after.id, now);
        }
    }

    /// A record existed before the history began.
    pub(crate) fn existing(&mut self, record: &Record) {
        self.specs.insert(record.id.clone(), record.spec.clone());
        self.records.insert(record.id.clone(), record.clone());
    }

    /// The operator gives a machine to another run by editing its record.
    pub(crate) fn reassigned_by_hand(&mut self, record: &Record, now: Timestamp) {
        let before = self.records.insert(record.id.clone(), record.clone());
        let owner = before.filter(|was| was.state == State::Running).and_then(|was| was.run);
        if let (Some(owner), Some(since)) = (owner, self.running_since.get(&record.id)) {
            self.lost_by_hand.insert((record.id.clone(), owner), *since);
        }
        self.touched_by_hand.insert(record.id.clone());
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
    pub(crate) fn launched(
        &mut self,
        by: Pid,
        order: &Order,
        machines: &[Machine],
        now: Timestamp,
    ) {
        if order.count == 0 {
            let how = format!("no machine is ordered for run {}", order.run);
            self.violated(Invariant::Economical, how);
        }
        self.look_in_pool_first(by, order, now);
        self.launches_to_keep(by, order, now);
        self.note_launched(by, machines.len());
        for machine in machines {
            self.specs.insert(machine.id.clone(), machine.spec.clone());
            self.launched_at.entry(machine.id.clone()).or_insert(now);
        }
        if !self.intents.contains(&order.intent) {
            let how = format!("no intent was recorded for {}, of run {}", order.intent, order.run);
            self.violated(Invariant::IntentFirst, how);
        }
        let may_rescue = self.is_refresh(by).then(|| self.may_rescue(by, &order.run)).flatten();
        let ordered = self.launched.entry((by, limits::ordered_for(order))).or_default();
        // The first order is for all machines of the run, later ones for those still missing.
        if ordered.intents.is_empty() {
            ordered.wanted = may_rescue.unwrap_or(order.count as usize);
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
    pub(crate) fn marked_ticketed(&mut self, tickets: &[Ticket], now: Timestamp) {
        for ticket in tickets {
            self.marked.entry((ticket.instance_id.clone(), ticket.threshold)).or_insert(now);
        }
        let sent = |t: &&Ticket| self.sent.contains(&(t.instance_id.clone(), t.threshold));
        if let Some(ticket) = tickets.iter().find(|ticket| !sent(ticket)) {
            let how = format!("{} counts as announced without a ticket", ticket.instance_id);
            self.violated(Invariant::Reachable, how);
        }
    }

    /// A ticket is being sent.
    pub(crate) fn announced(
        &mut self,
        ticket: &Ticket,
        machine: Option<&MachineView>,
        now: Timestamp,
    ) {
        self.sent.insert((ticket.instance_id.clone(), ticket.threshold));
        self.note_sent(ticket, now);
        let Some(record) = self.records.get(&ticket.instance_id) else { return };
        let Some(machine) = machine.filter(|_| is_about(ticket, record)) else { return };
        let busy = machine.label.as_ref().or(machine.serving.as_ref()).or(machine.job.as_ref());
        if let Some(run) = busy {
            let how = format!("{} still works for {run}", ticket.instance_id);
            self.violated(Invariant::Announced, how);
        }
        self.announces_unused(&ticket.instance_id, machine);
        if machine.is_dirty {
            let how = format!("{} was not cleaned", ticket.instance_id);
            self.violated(Invariant::Announced, how);
        }
        let notice = machine.notice_at.map(timestamp).filter(|_| self.agents_spared);
        if notice.is_some_and(|notice| notice + SKEW + IN_FLIGHT < now) {
            let how = format!("{} will be taken away, and is announced", ticket.instance_id);
            self.violated(Invariant::NotInterrupted, how);
        }
    }

    /// A ticket is being deleted. `others` is the number of identical tickets in the queue. A
    /// machine that was renewed may have another, with a later threshold. One that is drained needs none.
    pub(crate) fn deletes(&mut self, ticket: &Ticket, others: usize, now: Timestamp) {
        if others == 0 {
            self.ticket_gone(ticket);
        }
        let Some(record) = self.records.get(&ticket.instance_id) else { return };
        let in_time = |threshold: Timestamp| threshold > now + SKEW;
        let waits = is_about(ticket, record)
            && !record.departure.is_drained()
            && in_time(ticket.threshold)
            && record.threshold.is_some_and(in_time);
        if waits && others == 0 && !self.has_ticket(record, now) {
            let how = format!("the last ticket of {}, which is idle, was deleted", record.id);
            self.violated(Invariant::Reachable, how);
        }
    }

    /// The control plane terminates a live machine of this age.
    pub(crate) fn terminated(&mut self, id: &InstanceId, age: Duration) {
        let Some(record) = self.records.get(id) else {
            self.abandoned(id, age);
            return;
        };
        if record.state.is_live() {
            let how = format!("{id} was terminated while its record was {}", record.state);
            self.violated(Invariant::StoreFirst, how);
        }
    }

    /// A machine was given up this long after its launch, before its provision had registered it.
    pub(crate) fn abandoned(&mut self, id: &InstanceId, age: Duration) {
        // The grace, measured by a clock that is ahead.
        if age < self.grace.saturating_sub(SKEW) {
            let how = format!("{id} was given up {age:?} after its launch, before its record");
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
        // Another process, whose clock is ahead, may have expired it meanwhile.
        if let Some(known) = &known
            && known.state.is_live()
            && known.threshold.is_some_and(|until| until > clock.max(known.updated_at))
        {
            let how = format!("{id} terminated itself although it knew to be {}", known.state);
            self.violated(Invariant::StoreFirst, how);
        }
        let terminated = known.as_ref().is_some_and(|known| known.state == State::Terminated);
        let within = self.asked_within();
        // One that was stopped after it had asked, when its time was up already, goes by the answer.
        let graces =
            self.settings.iter().map(|(_, settings)| settings.times.self_termination_grace);
        let grace = graces.max().unwrap_or_default();
        let was_due = |asked: Micros| {
            let then = clock.before(Duration::from_micros(now.saturating_sub(asked)));
            let until = known.as_ref().and_then(|known| known.threshold);
            until.is_some_and(|until| until + grace <= then)
        };
        let asked = self.asked.get(&agent).copied();
        let asked = asked.is_some_and(|asked| now <= asked + within || was_due(asked));
        if !terminated && !asked {
            let how = format!("{id} terminated itself without asking the store");
            self.violated(Invariant::StoreFirst, how);
        }
    }

    /// Compares the label of each live machine that has an owner with that of its job, its runner and
    /// its agent.
    pub(crate) fn compare(&mut self, machines: &mut SimulatedMachines, now: Timestamp) {
        self.overdue(machines, now);
        if !std::mem::take(&mut self.changed) & !machines.take_changed() {
            return;
        }
        for id in machines.alive() {
            let Some(record) = self.records.get(&id) else { continue };
            let Some(owner) = record.label() else { continue };
            let has_own_label = record.requested != RequestedLabel::OfRun;
            let Some(view) = machines.view(&id) else { continue };
            if let Some(until) = self.by_hand.get(&id).copied() {
                let named = view.seat.as_ref().and_then(|seat| seat.owner.as_ref());
                if view.label.as_ref() == Some(&owner) || named == Some(&owner.run) {
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
                // Any job of a run may name the label of its machine.
                let is_named = has_own_label || view.seat.is_some();
                let fits = |has: &&Label| **has == owner || is_named && has.run == owner.run;
                if let Some(other) = has.as_ref().filter(|has| !fits(has)) {
                    let how = format!("{id} belongs to {owner}, and works for {other}");
                    self.violated(invariant, how);
                }
            }
            self.hook_is_right(&id, &owner, &view);
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

    /// Returns the machines of a run whose records are live and before their threshold.
    pub(crate) fn held_by(&self, run: &RunId, now: Timestamp) -> Vec<InstanceId> {
        let held = |record: &&Record| {
            record.run.as_ref() == Some(run)
                && record.state.is_live()
                && !record.is_expired(now)
                && !record.is_preserved()
        };
        self.records.values().filter(held).map(|record| record.id.clone()).collect()
    }

    /// Those of them that have this label.
    pub(crate) fn held_under(&self, label: &Label, now: Timestamp) -> Vec<InstanceId> {
        let has_label = |id: &InstanceId| {
            self.records.get(id).and_then(Record::label).is_some_and(|it| it == *label)
        };
        self.held_by(&label.run, now).into_iter().filter(has_label).collect()
    }

    /// When the record of a machine last changed.
    pub(crate) fn changed_at(&self, id: &InstanceId) -> Option<Timestamp> {
        self.changed_at.get(id).copied()
    }

    /// When a run last got a machine.
    pub(crate) fn owned_since(&self, id: &InstanceId) -> Option<Timestamp> {
        self.owned_since.get(id).map(|(_, since)| *since)
    }

    /// Returns the record as it was last written.
    pub(crate) fn record(&self, id: &InstanceId) -> Option<&Record> {
        self.records.get(id)
    }
}

/// Whether a ticket announces the present idle state of a machine.
fn is_about(ticket: &Ticket, record: &Record) -> bool {
    record.state == State::Idle && record.counts.generation == ticket.generation
}

#[cfg(test)]
mod tests;
