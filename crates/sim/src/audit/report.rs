//! Compares what a mode reports with what it did.

use std::collections::BTreeSet;
use std::time::Duration;

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, IntentId};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::release::{Disposition, Released};
use ondeck_core::modes::{provision, refresh, release};

use super::{Audit, Invariant, SKEW};
use crate::agent_machine::account_of;
use crate::kernel::Pid;
use crate::simulated_machines::SimulatedMachines;

/// Times are reported in milliseconds.
const ROUNDING: Duration = Duration::from_millis(5);

/// What one process of the control plane did, by the effects of its calls.
#[derive(Debug, Default)]
pub(super) struct Effects {
    written: Vec<(Transition, InstanceId)>,
    sent: BTreeSet<InstanceId>,
    terminated: BTreeSet<InstanceId>,
    removed_runners: BTreeSet<String>,
    closed_intents: BTreeSet<IntentId>,
    deleted_tickets: usize,
    forgotten_records: usize,
    launched: usize,
}

impl Effects {
    fn has(&self, transition: Transition, id: &InstanceId) -> bool {
        self.written.iter().any(|(made, of)| *made == transition && of == id)
    }
}

impl Audit {
    pub(super) fn note_written(&mut self, by: Pid, transition: Transition, id: &InstanceId) {
        self.of(by).written.push((transition, id.clone()));
    }

    pub(crate) fn note_announced(&mut self, by: Pid, id: &InstanceId) {
        self.of(by).sent.insert(id.clone());
    }

    pub(crate) fn note_terminated(&mut self, by: Pid, ids: &[InstanceId]) {
        self.of(by).terminated.extend(ids.iter().cloned());
    }

    pub(crate) fn note_removed_runner(&mut self, by: Pid, name: &str) {
        self.of(by).removed_runners.insert(name.to_owned());
    }

    pub(crate) fn note_closed(&mut self, by: Pid, intent: &IntentId) {
        self.of(by).closed_intents.insert(intent.clone());
    }

    pub(crate) fn note_deleted(&mut self, by: Pid, tickets: usize) {
        self.of(by).deleted_tickets += tickets;
    }

    pub(crate) fn note_forgotten(&mut self, by: Pid, records: usize) {
        self.of(by).forgotten_records += records;
    }

    pub(super) fn note_launched(&mut self, by: Pid, machines: usize) {
        self.of(by).launched += machines;
    }

    fn of(&mut self, by: Pid) -> &mut Effects {
        self.effects.entry(by).or_default()
    }

    /// A provision of this length reports an outcome.
    pub(crate) fn provision_reports(
        &mut self,
        by: Pid,
        outcome: &provision::Outcome,
        lasted: Duration,
    ) {
        self.effects.remove(&by);
        // Another process may have done it first.
        let is_live = |id: &&InstanceId| self.records.get(id).is_some_and(|r| r.state.is_live());
        let is_owned = |id: &&InstanceId| {
            self.records.get(id).is_some_and(|record| record.run.as_ref() == Some(&outcome.run))
        };
        let wrong = outcome.terminated.iter().find(is_live);
        if let Some(id) = wrong.or_else(|| outcome.returned.iter().find(is_owned)).cloned() {
            return self.untrue(format!("{id} was not cleaned up by run {}", outcome.run));
        }
        let timings = &outcome.timings;
        let phases = timings.adoption
            + timings.selection
            + timings.creation
            + timings.validation
            + timings.post_provision;
        // Reading the settings is part of no phase.
        if timings.total > lasted + ROUNDING || timings.total.abs_diff(phases) > ROUNDING {
            return self.untrue(format!("a provision took {lasted:?}, and reports {timings:?}"));
        }
        let warm = outcome.count(provision::MachineSource::Warm);
        if outcome.failure.is_none() && outcome.search.claimed < warm {
            return self.untrue(format!("{warm} machines were warm: {:?}", outcome.search));
        }
        for given in &outcome.instances {
            let it = &given.milestones;
            let found = it.found.unwrap_or(it.owned);
            let in_order = [found, it.owned, it.registered, it.ready, lasted + ROUNDING];
            let is_pooled = given.source == provision::MachineSource::Warm;
            if !in_order.is_sorted() || is_pooled != it.found.is_some() {
                self.untrue(format!("{} has {it:?} after {lasted:?}", given.id));
            }
        }
    }

    /// A release of this length reports an outcome.
    pub(crate) fn release_reports(
        &mut self,
        by: Pid,
        outcome: &release::Outcome,
        (began, lasted): (Timestamp, Duration),
    ) {
        let effects = self.effects.remove(&by).unwrap_or_default();
        if outcome.took.abs_diff(lasted) > ROUNDING {
            self.untrue(format!("a release took {lasted:?}, and reports {:?}", outcome.took));
        }
        for one in &outcome.instances {
            let Released { id, disposition, used_for, .. } = one;
            let is_true = match disposition {
                Disposition::Pooled | Disposition::GivenBack => effects.sent.contains(id),
                Disposition::Terminated => effects.has(Transition::Reap, id),
                Disposition::Unfinished(_) => effects.has(Transition::Expire, id),
                Disposition::Expired(_) | Disposition::Superseded(_) => true,
            };
            if !is_true {
                self.untrue(format!("{id} is not {disposition:?}"));
            }
            // An agent that was restarted, or has not noticed its claim, has nothing to say.
            let served = self.forbid_waste && used_for.is_some();
            let account = account_of(&Some(outcome.run.clone()));
            if served && *disposition == Disposition::Pooled && one.account != account {
                self.untrue(format!("{id} did not say {:?}", one.account));
            }
            // Another run may have used it since, or a fault may have made it run twice.
            let comparable = self.forbid_waste && *disposition == Disposition::Pooled;
            let since = self.running_before.get(id).filter(|since| **since < began && comparable);
            if let (Some(used_for), Some(since)) = (used_for, since)
                && used_for.abs_diff(began.since(*since)) > 3 * SKEW
            {
                self.untrue(format!("{id} was not used for {used_for:?}, but since {since}"));
            }
        }
    }

    /// A refresh reports an outcome. Without faults, it must report all that it reaped.
    pub(crate) fn refresh_reports(&mut self, by: Pid, outcome: &refresh::Outcome) {
        let effects = self.effects.remove(&by).unwrap_or_default();
        // If the answer to a write is lost, the same write of another process may be taken for it.
        let is_quiet = self.is_quiet;
        let written = |transition, ids: &[InstanceId]| {
            ids.iter().find(|id| is_quiet && !effects.has(transition, id)).cloned()
        };
        let unsent = outcome.requeued.iter().find(|id| !effects.sent.contains(id)).cloned();
        let alive = outcome.orphans.iter().find(|id| !effects.terminated.contains(id)).cloned();
        let wrong = written(Transition::Reap, &outcome.reaped)
            .or_else(|| written(Transition::Expire, &outcome.unresponsive))
            .or(unsent)
            .or(alive);
        if let Some(id) = wrong {
            self.untrue(format!("a refresh did not do this with {id}: {outcome:?}"));
        }
        let reaps = effects.written.iter().filter(|(made, _)| *made == Transition::Reap);
        let reaped = reaps.count();
        let listed = |name: &String| !effects.removed_runners.contains(name);
        if outcome.offline_runners.iter().any(listed)
            || outcome.settled_intents > effects.closed_intents.len()
            || outcome.pruned_tickets > effects.deleted_tickets
            || outcome.pruned_records > effects.forgotten_records
            || outcome.warmed > effects.launched
            || self.forbid_waste && outcome.reaped.len() != reaped
        {
            self.untrue(format!("a refresh did {effects:?}, and reports {outcome:?}"));
        }
    }

    /// An agent sends a heartbeat at `now`, by its own clock.
    pub(crate) fn beats(
        &mut self,
        id: &InstanceId,
        heartbeat: &Heartbeat,
        machines: &SimulatedMachines,
        now: Timestamp,
    ) {
        let Some(condition) = machines.condition(id) else { return };
        let busy = machines.is_busy(id);
        let took = condition.registration_took.zip(heartbeat.registration);
        // An agent that hangs measures longer.
        let took = took.filter(|_| self.is_quiet);
        // The agent may have read the settings before.
        let wrong = took.is_some_and(|(took, said)| said + ROUNDING < took || said > took + SKEW);
        if heartbeat.at != now || heartbeat.busy != busy || wrong {
            let truth = (now, busy, condition.registration_took);
            self.untrue(format!("{id} sends {heartbeat:?}, and the truth is {truth:?}"));
        }
    }

    fn untrue(&mut self, how: String) {
        self.violated(Invariant::TrueReport, how);
    }
}
