//! Jobs whose machines were taken away, and which of them refresh re-runs.

use std::collections::{BTreeMap, BTreeSet};

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::State;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{FailedJob, Rerun};

use super::{Audit, Invariant, SKEW};
use crate::kernel::Pid;
use crate::simulated_machines::SimulatedMachines;

/// How many refreshes a cut-off job may have to wait for. The forge limits requests, so a refresh may
/// leave some runs to the next.
const REFRESHES: u32 = 4;

/// What the auditor knows about re-runs.
#[derive(Debug, Default)]
pub(super) struct Reruns {
    /// Since when the store has known that a machine will be taken away.
    known: BTreeMap<InstanceId, Timestamp>,
    /// Machines that a refresh has seen so, with the run that they belonged to.
    noted: BTreeMap<InstanceId, RunId>,
    /// The runs that refresh has asked the forge to re-run jobs of.
    asked_for: BTreeSet<RunId>,
    /// The runs that were opened again after they had completed.
    reopened: BTreeSet<RunId>,
    /// The runs with cut-off jobs that have completed, and for how many refreshes.
    waiting: BTreeMap<RunId, u32>,
}

fn is_rerun(text: &String) -> bool {
    text == "rerun"
}

impl Audit {
    /// A heartbeat has told the store that a machine will be taken away.
    pub(crate) fn says_that_it_is_interrupted(&mut self, id: &InstanceId, now: Timestamp) {
        self.reruns.known.entry(id.clone()).or_insert(now);
    }

    /// A completed run was opened again. What failed before is no longer its latest attempt.
    pub(super) fn is_opened_again(&mut self, run: &RunId) {
        self.reruns.reopened.insert(run.clone());
    }

    /// A refresh asks the forge to re-run jobs of a run: once, if the settings say so, and only if jobs
    /// were cut off. One job is re-run by itself.
    pub(crate) fn reruns(
        &mut self,
        by: Pid,
        run: &RunId,
        what: Rerun,
        machines: &SimulatedMachines,
    ) {
        self.note_rerun(by, run);
        let failed = machines.failed_jobs(run);
        let is_cut_off =
            |job: &&FailedJob| job.instance.as_ref().is_some_and(|id| machines.is_interrupted(id));
        let cut_off: Vec<u64> = failed.iter().filter(is_cut_off).map(|job| job.id).collect();
        let is_meant = match what {
            Rerun::Job(id) => cut_off.contains(&id),
            Rerun::FailedJobs => cut_off.len() > 1,
        };
        let began = self.began(by).filter(|_| self.is_refresh(by));
        let is_wanted = began
            .is_some_and(|began| self.texts_since("on-interruption", began).iter().any(is_rerun));
        let is_first = self.reruns.asked_for.insert(run.clone());
        if !is_wanted || !is_meant && machines.has_completed(run) || !is_first {
            let how = format!("{what:?} of run {run}, cut off: {cut_off:?}, first: {is_first}");
            self.violated(Invariant::RerunOnce, how);
        }
    }

    /// A refresh that did all it could has looked after runs. It has noted which machines will be taken
    /// away, and has re-run the jobs that were cut off on machines that an earlier one had noted.
    pub(super) fn refresh_reruns(
        &mut self,
        (began, now): (Timestamp, Timestamp),
        machines: &SimulatedMachines,
    ) {
        if !self.texts_since("on-interruption", began).iter().all(is_rerun) {
            self.reruns.noted.clear();
            return;
        }
        let completed = |run: &RunId| self.completed.get(run).is_some_and(|(at, _)| *at < began);
        let is_cut_off = |(run, job): &(&RunId, FailedJob)| {
            let noted = job.instance.as_ref().and_then(|id| self.reruns.noted.get(id));
            noted == Some(run)
        };
        let Reruns { asked_for, reopened, .. } = &self.reruns;
        let is_done = |run: &RunId| asked_for.contains(run) || reopened.contains(run);
        let runs = self.completed.keys().filter(|run| completed(run) && !is_done(run));
        let runs: Vec<RunId> = runs
            .filter(|run| machines.failed_jobs(run).into_iter().any(|job| is_cut_off(&(run, job))))
            .cloned()
            .collect();
        self.reruns.waiting.retain(|run, _| runs.contains(run));
        for run in runs {
            let refreshes = self.reruns.waiting.entry(run.clone()).or_default();
            *refreshes += 1;
            if *refreshes >= REFRESHES {
                let how = format!("jobs of run {run} were cut off, and are not re-run");
                return self.violated(Invariant::RerunOnce, how);
            }
        }
        let shown = began.before(self.index_lag + SKEW);
        let seen = self.records.values().filter(|record| {
            let known = self.reruns.known.get(&record.id).is_some_and(|at| *at < shown);
            let changed = self.changed_at.get(&record.id).is_some_and(|at| *at < shown);
            known && changed && record.state == State::Running && !record.is_expired(now + SKEW)
        });
        let seen = seen.filter_map(|record| Some((record.id.clone(), record.run.clone()?)));
        let seen: Vec<(InstanceId, RunId)> = seen.collect();
        self.reruns.noted.extend(seen);
    }
}
