//! Runs: whose jobs wait, who has completed, and which machines have jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::refresh;
use ondeck_core::ports::WaitingJobs;

use super::limits::KEPT_FOR;
use super::{Audit, Invariant, SKEW};
use crate::kernel::{Pid, timestamp};
use crate::plan::{Ask, spans};
use crate::simulated_machines::SimulatedMachines;

/// How long an agent may take to notice that its time is up, besides the skew of its clock.
const NOTICES_WITHIN: Duration = Duration::from_secs(5);

/// How many refreshes a run may have to wait for.
const REFRESHES: u32 = 2;

impl Audit {
    /// A run is open: it has begun, or its jobs are run again.
    pub(crate) fn run_opens(&mut self, run: &RunId) {
        if self.completed.remove(run).is_some() {
            self.is_opened_again(run);
        }
    }

    /// A run has completed, with or without a release.
    pub(crate) fn run_completes(&mut self, run: &RunId, now: Timestamp) {
        self.completed.entry(run.clone()).or_insert((now, 0));
    }

    /// A change is written to a machine, which has a job or not. A refresh must not take a machine
    /// from its job before the threshold. To give back a claimed one does not take it: the agent stays
    /// until the job is over.
    pub(crate) fn takes_from_job(
        &mut self,
        by: Pid,
        transition: Transition,
        before: Option<&Record>,
        (has_job, now): (bool, Timestamp),
    ) {
        let takes = matches!(
            transition,
            Transition::Release | Transition::GiveBack | Transition::Expire | Transition::Reap
        );
        let is_judged = self.is_refresh(by) || self.is_operator(by);
        let Some(before) = before.filter(|_| takes && has_job && is_judged) else {
            return;
        };
        let has_time = before.threshold.is_some_and(|threshold| threshold > now + SKEW);
        let is_troubled = self.touched_by_hand.contains(&before.id);
        let is_kept = match before.state {
            State::Running => true,
            // A rescue that fails gives up machines whose agents are silent.
            State::Created | State::Claimed => {
                self.agents_beat && transition != Transition::GiveBack
            }
            State::Idle | State::Terminated => false,
        };
        if is_kept && has_time && !is_troubled && self.is_quiet {
            let who = if self.is_operator(by) { "an operator" } else { "a refresh" };
            let how = format!("{who} makes {transition} of {}, which has a job", before.id);
            self.violated(Invariant::JobKept, how);
        }
    }

    /// A change was written to a machine, whose agent had said or not that its runner has a job of the
    /// run that gave it back.
    pub(crate) fn keeps_for_job(&mut self, transition: Transition, id: &InstanceId, is_held: bool) {
        match transition {
            Transition::Claim if is_held => _ = self.kept_for_jobs.insert(id.clone()),
            Transition::Claim | Transition::Release | Transition::GiveBack => {
                self.kept_for_jobs.remove(id);
            }
            _ => {}
        }
    }

    /// A refresh has given a machine to a run, which then has no more than it asked for. Machines that
    /// are gone or have not registered do not count, nor do those that are kept for a job, nor what the
    /// run's own provision has added since the refresh began.
    pub(crate) fn rescue_gives(
        &mut self,
        by: Pid,
        transition: Transition,
        after: &Record,
        machines: &SimulatedMachines,
        now: Timestamp,
    ) {
        let gives = matches!(transition, Transition::Activate | Transition::Commit);
        let Some(label) = after.label().filter(|_| gives && self.is_refresh(by)) else { return };
        let ended = self.last_provisions.get(&label.run).copied();
        let provisions = self.provisions_at_work.values().any(|at_work| *at_work == label.run)
            || ended.is_some_and(|ended| self.began(by).is_some_and(|began| began <= ended));
        // An earlier refresh with a time limit has launched it, before the run's own provision ended.
        let is_late = self.leaves_new() && ended.is_some_and(|ended| after.created_at <= ended);
        let provisions = provisions || is_late && transition == Transition::Activate;
        let asked = self.asked_under(&label).map(|ask| ask.count).max();
        let Some(asked) = asked.filter(|_| self.agents_beat && self.is_quiet && !provisions) else {
            return;
        };
        // A run that is given the machines of old labels again may have more, one for each of them.
        if let Some(own) = after.requested.named() {
            let named = self.machines_named(&label.run, own, machines, now);
            if named > 1 {
                let how = format!("rescues give run {label} {named} machines as {own}");
                self.violated(Invariant::RescuedOnce, how);
            }
            return;
        }
        let serves = |id: &InstanceId| {
            let running = self.records.get(id).is_some_and(|it| it.state == State::Running);
            let registered = machines.condition(id).and_then(|it| it.registered.as_ref());
            let takes_jobs = registered.is_some_and(|(of, _)| *of == label);
            running && takes_jobs && !self.kept_for_jobs.contains(id)
        };
        let held = self.held_under(&label, now).iter().filter(|id| serves(id)).count();
        if held > usize::try_from(asked).unwrap_or(usize::MAX) {
            let how = format!(
                "run {label} has asked for {asked} machines, and a refresh makes it {held}"
            );
            self.violated(Invariant::RescuedOnce, how);
        }
    }

    /// A job starts on a machine, which must not be past its threshold, or preserved, for longer than
    /// its agent takes to notice.
    pub(crate) fn job_starts(
        &mut self,
        id: &InstanceId,
        machines: &SimulatedMachines,
        now: Timestamp,
    ) {
        self.serves_one_run(id, machines);
        let healthy = machines.condition(id).is_some_and(|it| timestamp(it.troubled_until) < now);
        let Some(record) = self.records.get(id).filter(|_| healthy && self.is_quiet) else {
            return;
        };
        let changed = self.changed_at.get(id).copied().unwrap_or(now);
        let is_preserved = record.is_preserved();
        let threshold = record.threshold.filter(|_| !is_preserved);
        let over = threshold.map_or(changed, |threshold| threshold.max(changed));
        let is_over = threshold.is_none_or(|threshold| threshold < now);
        // It cannot know of a change before it looks.
        let looked = changed + self.looks_within;
        if is_over && looked.max(over + SKEW) + NOTICES_WITHIN < now {
            let how = format!("{id} takes a job, and its time was up at {over}");
            self.violated(Invariant::NoJobWhenExpired, how);
        }
    }

    /// Whether a refresh with a time limit has launched the machine, and cannot know yet that it will
    /// not come up.
    fn is_awaited(&self, id: &InstanceId, began: Timestamp) -> bool {
        let stored = self.stored.iter();
        let patience =
            stored.filter_map(|(_, all)| spans::span(all, "validation-timeout-sec")).max();
        let patience = patience.unwrap_or_default() + SKEW * 2;
        let created = self.records.get(id).filter(|record| record.state == State::Created);
        self.leaves_new() && created.is_some_and(|record| began < record.updated_at + patience)
    }

    /// A refresh has succeeded. A run that had completed before the one before it holds nothing, and
    /// one whose jobs had been waiting since then has a machine.
    pub(crate) fn refresh_attends(
        &mut self,
        outcome: &refresh::Outcome,
        (began, now): (Timestamp, Timestamp),
        (waiting, waiting_own): (&BTreeSet<Label>, &[(MachineLabel, Label)]),
        machines: &SimulatedMachines,
    ) {
        // Another refresh may be at work for a run, and a warning says what could not be done. One
        // for each silent or failing machine does not.
        let all_done = outcome.warnings.len() == outcome.silent.len() + outcome.failing.len();
        let alone = self.refreshes_at_work() == 1 && all_done;
        if !self.judges_runs || !alone || outcome.failure.is_some() {
            return;
        }
        let shown = began.before(self.index_lag + SKEW);
        let long_ago = |id: &InstanceId| self.changed_at.get(id).is_none_or(|at| *at < shown);
        let holds = |run: &RunId| self.held_by(run, now + SKEW).into_iter().any(|id| long_ago(&id));
        let holding: BTreeSet<RunId> =
            self.completed.keys().filter(|run| holds(run)).cloned().collect();
        for (run, (at, refreshes)) in &mut self.completed {
            *refreshes = if *at < shown && holding.contains(run) { *refreshes + 1 } else { 0 };
        }
        let kept = self.completed.iter().find(|(_, (_, refreshes))| *refreshes >= REFRESHES);
        if let Some(run) = kept.map(|(run, _)| run.clone()) {
            let how = format!("run {run} has completed, and still has machines");
            return self.violated(Invariant::CompletedHoldsNothing, how);
        }
        self.refresh_reruns((began, now), machines);
        let gone = |id: &InstanceId| {
            let silent = |at| timestamp(at) + self.tolerance() < shown;
            // It takes no further job.
            let notice = machines.condition(id).and_then(|condition| condition.notice_at);
            machines.removed_at(id).or(notice).is_some_and(silent)
        };
        let is_lost = |id: &InstanceId| gone(id) && !self.is_awaited(id, began);
        let unserved = |label: &&Label| {
            let held = self.held_under(label, now);
            self.may_be_rescued(label, began) && held.iter().all(is_lost)
        };
        let unserved: Vec<Label> = waiting.iter().filter(unserved).cloned().collect();
        let unserved_own = |(own, label): &&(MachineLabel, Label)| {
            let held = self.held_by(&label.run, now);
            let named = self.named(&label.run, own);
            let mut named = named.iter().filter(|id| held.contains(id));
            self.may_be_rescued(label, began) && named.all(is_lost)
        };
        let unserved_own: BTreeSet<MachineLabel> =
            waiting_own.iter().filter(unserved_own).map(|(own, _)| own.clone()).collect();
        self.labels_outlive_machines(&unserved_own);
        self.unserved.retain(|label, _| unserved.contains(label));
        for label in unserved {
            let refreshes = self.unserved.entry(label.clone()).or_default();
            *refreshes += 1;
            if *refreshes >= REFRESHES {
                let how = format!("the jobs of run {label} wait, and its machines are gone");
                return self.violated(Invariant::Rescued, how);
            }
        }
    }

    /// What a run has asked for under one of its labels.
    fn asked_under(&self, label: &Label) -> impl DoubleEndedIterator<Item = &Ask> {
        let asks = self.asked_by_runs.get(&label.run).into_iter().flatten();
        asks.filter(move |ask| ask.label(&label.run) == *label)
    }

    /// A refresh has read which jobs of a run wait, which decides what it may give the run.
    pub(crate) fn sees_waiting(&mut self, by: Pid, run: &RunId, waiting: &WaitingJobs) {
        if !waiting.labels.is_empty() {
            self.waiting_for_run_label.insert((by, run.clone()));
        }
    }

    /// How many machines a refresh may launch for a run that has asked under several labels, or that was
    /// given labels of machines: one for each of these, and, if jobs wait for a label of the run, what
    /// the run has asked for. `None` for all others.
    pub(super) fn may_rescue(&self, by: Pid, run: &RunId) -> Option<usize> {
        let mut most: BTreeMap<Option<&str>, u32> = BTreeMap::new();
        for ask in self.asked_by_runs.get(run).into_iter().flatten() {
            let count = most.entry(ask.suffix).or_default();
            *count = ask.count.max(*count);
        }
        let named = self.machine_labels_of(run);
        // Its own runs ask for no label.
        let is_own = run.as_str().starts_with(KEPT_FOR);
        if is_own || most.len() <= 1 && named == 0 {
            return None;
        }
        let waits = self.waiting_for_run_label.contains(&(by, run.clone()));
        let all = if waits { most.values().sum::<u32>() } else { 0 };
        Some(named.saturating_add(usize::try_from(all).unwrap_or(usize::MAX)))
    }

    /// Whether refresh may and can give the run another machine under this label.
    fn may_be_rescued(&self, label: &Label, began: Timestamp) -> bool {
        use ondeck_core::modes::provision::SourcePolicy;
        let rescues = |text: &String| text.is_empty() || text == "provision";
        let asked = self.asked_under(label).next_back();
        self.only_deaths
            && !self.has_ceiling_since(began)
            && self.texts_since("rescue", began).iter().all(rescues)
            && asked.is_some_and(|ask| {
                ask.source != SourcePolicy::Pool && !self.is_contradictory(ask, began)
            })
    }
}
