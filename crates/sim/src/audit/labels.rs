//! Pools whose machines register while they are idle, under labels of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ondeck_core::model::demand::Demand;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::{MachineLabel, RequestedLabel};
use ondeck_core::model::readiness::Readiness;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::AgentStatus;
use ondeck_core::model::timestamp::Timestamp;

use super::{ASKED_WITHIN, Audit, Invariant, SKEW};
use crate::kernel::{Micros, Pid, timestamp};
use crate::plan::SECOND;
use crate::process_ports::has_a_job;
use crate::simulated_machines::{Condition, MachineView, SimulatedMachines};

/// How long an agent may take to notice that its listener has ended.
const NOTICES_WITHIN: Micros = SECOND;

/// How long an agent whose calls are answered may take to say that its idle machine is ready.
const SAYS_WITHIN: Duration = Duration::from_secs(60);

/// How long an agent that sends heartbeats may go without trying to say so.
const TRIES_WITHIN: Duration = Duration::from_secs(60);

/// How many refreshes may pass until a runner is removed, or the jobs of a label have a machine.
const REFRESHES: u32 = 2;

/// How many labels of a run are kept.
const KEPT: usize = 2_000;

/// How much longer an agent takes to end its machine if it leaves the registration of an idle one.
const PARTING: Micros = 20 * SECOND;

/// Within what time idle agents know of a change of `runner-label`.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);

/// What is known of labels of machines.
#[derive(Debug, Default)]
pub(super) struct Labels {
    /// The run that was named first as the owner of each registration: machine and number.
    served: BTreeMap<(InstanceId, u32), RunId>,
    /// The run that was named first as the owner of each label.
    owners: BTreeMap<MachineLabel, RunId>,
    /// Runners that ought not to be listed, and for how many refreshes.
    stale: BTreeMap<String, u32>,
    /// Labels whose jobs wait and that no machine has, and for how many refreshes.
    unserved: BTreeMap<MachineLabel, u32>,
    /// Idle machines that listen and are not called ready, and since when.
    untold: BTreeMap<InstanceId, (Untold, Timestamp)>,
    /// When the agent of each machine last tried to say whether it is ready.
    tried: BTreeMap<InstanceId, Timestamp>,
}

/// A listener of an idle machine that is not called ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Untold {
    generation: u32,
    number: u32,
    /// How many listeners of the machine there have been.
    listeners: u32,
}

/// What is true of the listener of a machine at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Listening {
    /// The registration that it listens for.
    pub(crate) number: Option<u32>,
    /// Since when none listens.
    pub(crate) silent_since: Option<Micros>,
    pub(crate) frozen_until: Micros,
    pub(crate) at: Micros,
}

/// A runner that is listed and has no job.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) instance: InstanceId,
    pub(crate) number: u32,
    /// Since when its machine is gone, if it is.
    pub(crate) gone_since: Option<Timestamp>,
    pub(crate) status: AgentStatus,
}

impl Audit {
    /// A machine registers a runner under this label. One that a run was given is registered again for
    /// that run only.
    pub(crate) fn registers_own(
        &mut self,
        id: &InstanceId,
        label: &MachineLabel,
        condition: &Condition,
    ) {
        self.registers_prepared(id, condition);
        let (Some(run), owner) = (self.labels.owners.get(label), self.owned_since.get(id)) else {
            return;
        };
        let is_touched = self.touched_by_hand.contains(id);
        if !is_touched && owner.is_none_or(|(owner, _)| owner != run) {
            let how = format!("{id} registers as {label}, which run {run} was given");
            self.violated(Invariant::OneRegistration, how);
        }
    }

    /// An agent names the owner of its registration.
    pub(crate) fn names_owner(
        &mut self,
        id: &InstanceId,
        (label, number): (&MachineLabel, u32),
        run: &RunId,
    ) {
        // The operator has given it to another run.
        if self.touched_by_hand.contains(id) {
            return;
        }
        let key = (id.clone(), number);
        let first = self.labels.served.entry(key).or_insert_with(|| run.clone()).clone();
        let of_label = self.labels.owners.entry(label.clone()).or_insert_with(|| run.clone());
        let of_label = of_label.clone();
        if let Some(other) = [first, of_label].into_iter().find(|other| other != run) {
            let how = format!("number {number} of {id}, {label}, serves {other} and {run}");
            self.violated(Invariant::OneRegistration, how);
        }
    }

    /// A job passes the hook of a machine, and runs from now on. The machine must belong to its run. As long
    /// as its agent has not said that it has left the run that gave it back, that counts as well.
    pub(crate) fn let_in(&mut self, id: &InstanceId, job: &Label, status: &AgentStatus) {
        let last = self.owned_since.get(id).map(|(run, _)| run);
        let owner = match self.records.get(id) {
            Some(record) if record.run.is_some() => record.run.as_ref(),
            Some(record) if has_left(record, status) => None,
            _ => last,
        };
        // The operator has given it to another run, and its agent may not know yet.
        let is_taken_by_hand = self.touched_by_hand.contains(id) && last == Some(&job.run);
        if owner != Some(&job.run) && !is_taken_by_hand {
            let how = format!("{id} belongs to {owner:?}, and lets in a job of {job}");
            self.violated(Invariant::Job, how);
        }
    }

    /// A job is refused, or waits in vain for its owner. Without faults, a run's own label lets it in.
    pub(crate) fn refused(&mut self, id: &InstanceId, job: &Label, own: &MachineLabel) {
        if self.forbid_waste && self.labels.owners.get(own) == Some(&job.run) {
            let how = format!("{id} refuses a job of {job}, which was given {own}");
            self.violated(Invariant::LabelWorks, how);
        }
    }

    /// A ticket is sent for a machine in its present idle state. Its registration, if it has one, has
    /// served no run.
    pub(super) fn announces_unused(&mut self, id: &InstanceId, machine: &MachineView) {
        let Some(seat) = &machine.seat else { return };
        if let Some(run) = &seat.owner {
            let how = format!("{id} is announced, and still lets in jobs of {run}");
            return self.violated(Invariant::Job, how);
        }
        if let Some(run) = self.labels.served.get(&(id.clone(), seat.number)).cloned() {
            let how =
                format!("{id} is announced, and still listens under {}, of {run}", seat.label);
            self.violated(Invariant::OneRegistration, how);
        }
    }

    /// A hook lets in jobs of this run on a machine that belongs to `owner`.
    pub(super) fn hook_is_right(&mut self, id: &InstanceId, owner: &Label, machine: &MachineView) {
        let named = machine.seat.as_ref().and_then(|seat| seat.owner.as_ref());
        if let Some(other) = named.filter(|named| **named != owner.run) {
            let how = format!("{id} belongs to {owner}, and lets in jobs of {other}");
            self.violated(Invariant::Job, how);
        }
    }

    /// A heartbeat has reached the store, which an agent sent when `then` was true. A machine that the
    /// store calls ready then was.
    pub(crate) fn beats_ready(
        &mut self,
        id: &InstanceId,
        status: &AgentStatus,
        then: &Listening,
        now: Timestamp,
    ) {
        let Some(record) = self.records.get(id).filter(|record| record.state == State::Idle) else {
            return;
        };
        // In a pool whose machines register for their run, no mode asks for the note, and an agent that
        // starts does not take back what an earlier process said.
        if self.had_labels_of_runs_since(now.before(KNOWN_WITHIN)) {
            return;
        }
        // One that was written meanwhile is judged by the next heartbeat.
        let sent = status.heartbeat.map(|beat| beat.at);
        let note = status.readiness.as_ref().filter(|note| sent.is_some_and(|at| note.at < at));
        let Some(said) = note.and_then(|note| note.registration(record.counts.generation)) else {
            return;
        };
        let noticed = |since: Micros| since.max(then.frozen_until) + NOTICES_WITHIN < then.at;
        let is_wrong = match then.number {
            Some(number) => number != said.number,
            None => then.silent_since.is_none_or(noticed),
        };
        if is_wrong {
            let how = format!("{id} is called ready at {now}, as {said:?}, and was {then:?}");
            self.violated(Invariant::ReadyIsReady, how);
        }
    }

    /// Whether the settings have said at any moment since then that machines have the label of their run.
    fn had_labels_of_runs_since(&self, time: Timestamp) -> bool {
        let mut kinds = self.stored_since(time).into_iter().filter_map(|it| it.get("runner-label"));
        kinds.any(|kind| kind == "run")
    }

    /// An agent tries to say whether its machine is ready.
    pub(crate) fn tries_to_say(&mut self, id: &InstanceId, now: Timestamp) {
        self.labels.tried.insert(id.clone(), now);
    }

    /// A heartbeat of a machine has reached the store. An idle machine is called ready if it has listened for
    /// a minute, and nothing of its own has failed within the last one. Whatever fails, its agent tries to
    /// say so.
    pub(crate) fn beats_listening(
        &mut self,
        id: &InstanceId,
        status: &AgentStatus,
        machine: &MachineView,
        condition: &Condition,
        now: Timestamp,
    ) {
        let is_available = |record: &&Record| {
            record.state == State::Idle
                && !record.is_expired(now + SKEW)
                && !condition.is_broken
                && condition.notice_at.is_none()
                && timestamp(condition.frozen_until) < now
        };
        let record = self.records.get(id).filter(is_available);
        let seat = machine.seat.as_ref().filter(|seat| seat.owner.is_none());
        let (Some(record), Some(seat)) = (record, seat) else {
            self.labels.untold.remove(id);
            return;
        };
        let generation = record.counts.generation;
        let said = status.readiness.as_ref().and_then(|note| note.registration(generation));
        if said.is_some_and(|said| said.number == seat.number && said.label == seat.label) {
            self.labels.untold.remove(id);
            return;
        }
        let untold = Untold { generation, number: seat.number, listeners: condition.listeners };
        let known = self.labels.untold.get(id).filter(|(known, _)| *known == untold);
        let since = known.map_or(now, |(_, since)| *since);
        self.labels.untold.insert(id.clone(), (untold, since));
        let is_troubled = timestamp(condition.troubled_until) >= now;
        let tried = self.labels.tried.get(id).map_or(since, |tried| since.max(*tried));
        if since + SAYS_WITHIN < now && !is_troubled || tried + TRIES_WITHIN < now {
            let said = &status.readiness;
            let how = format!("{id} has listened since {since} as {untold:?}, and says {said:?}");
            self.violated(Invariant::CalledReady, how);
        }
    }

    /// A demand replaces another one of the same run and label, or none.
    pub(crate) fn keeps_labels(&mut self, before: Option<&Demand>, after: &Demand) {
        let Some(before) = before.filter(|_| after.labels.len() < KEPT) else { return };
        if let Some(lost) = before.labels.iter().find(|label| !after.labels.contains(label)) {
            let how = format!("run {} was given {lost}, which its demand loses", after.label());
            self.violated(Invariant::LabelWorks, how);
        }
    }

    /// A provision has reported success, with machines that have these labels. Its demand must name them.
    pub(crate) fn gives_labels(&mut self, given: &[MachineLabel], stored: Option<&Demand>) {
        let distinct: BTreeSet<&MachineLabel> = given.iter().collect();
        let is_known =
            |label: &&MachineLabel| stored.is_some_and(|demand| demand.labels.contains(label));
        if distinct.len() < given.len() {
            let how = format!("two machines have one label: {given:?}");
            self.violated(Invariant::LabelWorks, how);
        } else if let Some(label) = given.iter().find(|label| !is_known(label)) {
            let how = format!("a run was given {label}, which its demand does not name");
            self.violated(Invariant::LabelWorks, how);
        }
    }

    /// A refresh has succeeded, which began then. What is listed and has no job now, and neither had one
    /// then, belongs to a machine that exists, and is not older than the registration that the machine
    /// calls ready.
    pub(crate) fn refresh_unlists(&mut self, by: Pid, listed: &[Listed], began: Timestamp) {
        if self.other_forges.contains(&by) {
            return;
        }
        let long_ago = |at: Timestamp| at + self.index_lag + SKEW * 2 < began;
        let is_stale = |runner: &&Listed| {
            let record = self.records.get(&runner.instance);
            let is_live = record.is_some_and(|record| record.state.is_live());
            let changed = self.changed_at.get(&runner.instance).copied();
            let is_gone =
                !is_live && runner.gone_since.is_some_and(long_ago) && changed.is_none_or(long_ago);
            let note = runner.status.readiness.as_ref().filter(|note| long_ago(note.at));
            let is_old = note.is_some_and(|note| match &note.readiness {
                Readiness::Ready(ready) => is_live && runner.number < ready.number,
                Readiness::NotReady { .. } => false,
            });
            is_gone || is_old
        };
        let stale: BTreeSet<String> =
            listed.iter().filter(is_stale).map(|runner| runner.name.clone()).collect();
        self.labels.stale.retain(|name, _| stale.contains(name));
        for name in stale {
            let refreshes = self.labels.stale.entry(name.clone()).or_default();
            *refreshes += 1;
            if *refreshes >= REFRESHES {
                let how = format!("{name} is listed after {REFRESHES} refreshes");
                return self.violated(Invariant::Unlisted, how);
            }
        }
    }

    /// A refresh has succeeded, and nothing fails. Jobs had been waiting since before it began for these
    /// labels, which their runs were given. Each label has a machine.
    pub(crate) fn labels_work(&mut self, waiting: &[(MachineLabel, Label)]) {
        let unserved = waiting.iter().find(|(own, label)| self.named(&label.run, own).is_empty());
        if let Some((own, _)) = unserved {
            let how = format!("jobs wait for {own}, and no machine has it");
            self.violated(Invariant::LabelWorks, how);
        }
    }

    /// A refresh has succeeded, where machines may die. Jobs had been waiting since before it began for
    /// these labels, whose machines were gone before. Each label has a machine after the next one.
    pub(super) fn labels_outlive_machines(&mut self, unserved: &BTreeSet<MachineLabel>) {
        self.labels.unserved.retain(|label, _| unserved.contains(label));
        for own in unserved {
            let refreshes = self.labels.unserved.entry(own.clone()).or_default();
            *refreshes += 1;
            if *refreshes >= REFRESHES {
                let how = format!("jobs wait for {own}, whose machine is gone");
                return self.violated(Invariant::LabelWorks, how);
            }
        }
    }

    /// The machines of the run whose records want this label.
    pub(super) fn named(&self, run: &RunId, own: &MachineLabel) -> Vec<InstanceId> {
        let is_named = |record: &&Record| {
            record.run.as_ref() == Some(run) && record.requested.named() == Some(own)
        };
        self.records.values().filter(is_named).map(|record| record.id.clone()).collect()
    }

    /// How many machines of the run have this label and can take jobs.
    pub(super) fn machines_named(
        &self,
        run: &RunId,
        own: &MachineLabel,
        machines: &SimulatedMachines,
        now: Timestamp,
    ) -> usize {
        let is_named = |record: &&Record| {
            record.run.as_ref() == Some(run)
                && record.state == State::Running
                && !record.is_expired(now)
                && record.requested == RequestedLabel::Named(own.clone())
                && machines.condition(&record.id).is_some_and(|it| it.notice_at.is_none())
                && !self.kept_for_jobs.contains(&record.id)
        };
        self.records.values().filter(is_named).count()
    }

    /// How long ago an agent may have asked for its record that terminates its machine.
    pub(super) fn asked_within(&self) -> Micros {
        let registers = |stored: &BTreeMap<String, String>| {
            stored.get("runner-label").is_some_and(|kind| kind == "machine")
        };
        match self.stored.iter().any(|(_, stored)| registers(stored)) {
            true => ASKED_WITHIN + PARTING,
            false => ASKED_WITHIN,
        }
    }

    /// Whether a warning says that a runner has a job whose machine is gone: the forge calls it busy for a
    /// while.
    pub(super) fn ended_busy(&self, warning: &str) -> bool {
        let machine = warning.split("-own-").next().and_then(|id| InstanceId::new(id).ok());
        let record = machine.and_then(|id| self.records.get(&id));
        warning.ends_with(&has_a_job("")) && record.is_some_and(|it| !it.state.is_live())
    }

    /// How many labels of machines a run was given.
    pub(super) fn machine_labels_of(&self, run: &RunId) -> usize {
        self.labels.owners.values().filter(|owner| *owner == run).count()
    }

    /// Whether refresh may retire an idle machine because it has not been ready for long.
    pub(super) fn is_unready(condition: Option<&Condition>, now: Timestamp) -> bool {
        const TOO_LONG: Duration = Duration::from_secs(600);
        let since = condition.and_then(|condition| condition.silent_since).map(timestamp);
        since.is_some_and(|since| since + TOO_LONG < now + SKEW)
    }
}

/// Whether the agent of an idle machine has said that it has left the run before.
fn has_left(record: &Record, status: &AgentStatus) -> bool {
    let report = status.report.as_ref();
    record.state == State::Idle
        && report.is_some_and(|report| report.is_free_in(record.counts.generation, None))
}
