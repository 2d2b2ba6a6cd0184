//! Compares what a mode reports with what it did.

use std::collections::BTreeSet;
use std::time::Duration;

use ondeck_core::lifecycle::{Change, Transition};
use ondeck_core::model::departure::Departure;
use ondeck_core::model::heartbeat::{Heartbeat, idle_period};
use ondeck_core::model::ids::{InstanceId, IntentId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::release::{Disposition, Released};
use ondeck_core::modes::{provision, refresh, release};
use ondeck_core::ports::ReceivedMessage;

use super::deadlines::IsOver;
use super::{Audit, Invariant, SKEW, is_about};
use crate::agent_machine::account_of;
use crate::kernel::{Pid, timestamp};
use crate::plan::{CLASS_NAMES, contradict, spans};
use crate::simulated_machines::SimulatedMachines;

/// How long an idle agent may take to read its record and the settings again, and to send the next
/// heartbeat.
const LEARNS_WITHIN: Duration = Duration::from_secs(45);

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
    rerun: Vec<RunId>,
    is_limited: bool,
}

impl Effects {
    pub(super) fn has(&self, transition: Transition, id: &InstanceId) -> bool {
        self.written.iter().any(|(made, of)| *made == transition && of == id)
    }

    /// Whether its last change of the machine was to make it idle.
    fn has_returned(&self, id: &InstanceId) -> bool {
        let last = self.written.iter().rev().find(|(_, of)| of == id);
        last.is_some_and(|(made, _)| matches!(made, Transition::GiveBack | Transition::Release))
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

    pub(super) fn note_rerun(&mut self, by: Pid, run: &RunId) {
        self.of(by).rerun.push(run.clone());
    }

    /// The forge limits the requests of a process.
    pub(crate) fn limits_requests(&mut self, by: Pid) {
        self.of(by).is_limited = true;
    }

    fn of(&mut self, by: Pid) -> &mut Effects {
        self.effects.entry(by).or_default()
    }

    /// A change was written. One that gives up, returns or renews a machine must say why.
    pub(crate) fn says_why(&mut self, change: &Change) {
        use Transition::{Expire, GiveBack, Reap, Renew};
        let must = [Expire, GiveBack, Reap, Renew].contains(&change.transition());
        if must && change.why().is_empty() {
            self.untrue(format!("{} of {} has no reason", change.transition(), change.id()));
        }
    }

    /// A provision reports an outcome.
    pub(crate) fn provision_reports(
        &mut self,
        by: Pid,
        outcome: &provision::Outcome,
        (began, now): (Timestamp, Timestamp),
    ) {
        let lasted = now.since(began);
        let effects = self.effects.remove(&by).unwrap_or_default();
        self.provision_ended(by, now);
        self.provision_is_economical(by, outcome, (began, now), &effects.written);
        // Another process may have done it first. An expired machine terminates itself.
        let is_live = |id: &&InstanceId| {
            self.records.get(id).is_some_and(|r| r.state.is_live() && !r.is_expired(now + SKEW))
        };
        // Another call of the run may have claimed it since.
        let is_owned = |id: &&InstanceId| {
            let record = self.records.get(id);
            let is_owned = record.is_some_and(|record| record.run.as_ref() == Some(&outcome.run));
            is_owned && !effects.has_returned(id)
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
        if outcome.search.tickets < outcome.search.claimed {
            return self.untrue(format!("more was claimed than found: {:?}", outcome.search));
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
                // A refresh may have reaped it first, since its time was over.
                Disposition::Terminated => self.records.get(id).is_none_or(|r| !r.state.is_live()),
                Disposition::Unfinished(_) | Disposition::Interrupted => {
                    effects.has(Transition::Expire, id)
                }
                // Another release of the run may have preserved it.
                Disposition::Preserved(_) => {
                    self.records.get(id).is_none_or(|r| !r.state.is_live() || r.is_preserved())
                }
                Disposition::Expired(_)
                | Disposition::Superseded(_)
                | Disposition::NotReached(_) => true,
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
    pub(crate) fn refresh_reports(
        &mut self,
        by: Pid,
        outcome: &refresh::Outcome,
        (began, now): (Timestamp, Timestamp),
    ) {
        let effects = self.effects.remove(&by).unwrap_or_default();
        self.concludes_rescues(by, outcome);
        self.says_what_it_costs(began, &outcome.minimum_hours);
        self.says_what_is_used(began, outcome);
        // If the answer to a write is lost, the same write of another process may be taken for it.
        let is_quiet = self.is_quiet;
        let written = |transition, ids: &[InstanceId]| {
            ids.iter().find(|id| is_quiet && !effects.has(transition, id)).cloned()
        };
        let unsent = outcome.requeued.iter().find(|id| !effects.sent.contains(id)).cloned();
        let alive = outcome.orphans.iter().find(|id| !effects.terminated.contains(id)).cloned();
        let wrong = written(Transition::Reap, &outcome.reaped)
            .or_else(|| written(Transition::Expire, &outcome.unresponsive))
            .or_else(|| written(Transition::Renew, &outcome.renewed))
            .or_else(|| written(Transition::Reap, &outcome.rotated))
            .or_else(|| written(Transition::Reap, &outcome.interrupted))
            .or(unsent)
            .or(alive);
        if let Some(id) = wrong {
            self.untrue(format!("a refresh did not do this with {id}: {outcome:?}"));
        }
        let gives = [Transition::Activate, Transition::Commit, Transition::Renew];
        let leaves = |made: &Transition| self.leaves_new() && *made == Transition::Register;
        let gave = effects.written.iter().any(|(made, _)| gives.contains(made) || leaves(made));
        if self.is_quiet && !outcome.rescued.is_empty() && !gave {
            self.untrue(format!("a refresh gave no machine to {:?}", outcome.rescued));
        }
        let is_limited_by_settings = self.has_ceiling_since(began);
        // The explored scenes begin with times that contradict each other, which a refresh warns of.
        let contradicts =
            self.settings_since(began).iter().any(|all| contradict(&all.times, |_| true));
        let has_reason = !outcome.stranded.is_empty() || outcome.failure.is_some() || contradicts;
        let took = now.since(began);
        let is_wrong = |warning: &&String| {
            let had_no_time = self.had_no_time_to_launch(took, warning);
            !(had_no_time || self.was_told_to_stop(took, warning) || self.ended_busy(warning))
        };
        let wrong: Vec<&String> = outcome.warnings.iter().filter(is_wrong).collect();
        if self.forbid_waste && !has_reason && !is_limited_by_settings && !wrong.is_empty() {
            self.untrue(format!("nothing is wrong, and a refresh warns: {wrong:?}"));
        }
        // A limit passes, and the next refresh does what is left.
        let is_excused = outcome.failure.is_none() && !outcome.warnings.is_empty();
        if self.calls_are_answered && outcome.set_up && effects.is_limited && !is_excused {
            self.untrue(format!("a refresh was limited, and reports {:?}", outcome.failure));
        }
        // The machines of a completed run that do not return to the pool are reported by their run, or
        // not at all, if a refresh with a limit does not wait for all of them. Such a refresh also
        // releases what an earlier one has launched for a minimum, and may replace it at once.
        let is_of_completed = |id: &InstanceId| {
            let is_released = !outcome.completed.is_empty() || self.leaves_new();
            is_released && effects.has(Transition::Release, id) && !outcome.rotated.contains(id)
        };
        let reaps = effects.written.iter().filter(|(made, _)| *made == Transition::Reap);
        let reaped = reaps.filter(|(_, id)| !is_of_completed(id)).count();
        let releases = effects.written.iter().filter(|(made, _)| *made == Transition::Release);
        // Machines that an earlier refresh has launched.
        let handed_over = if self.leaves_new() { releases.count() } else { 0 };
        let listed = |name: &String| !effects.removed_runners.contains(name);
        if outcome.offline_runners.iter().any(listed)
            || outcome.settled_intents > effects.closed_intents.len()
            || outcome.pruned_tickets > effects.deleted_tickets
            || outcome.pruned_records > effects.forgotten_records
            || outcome.warmed > effects.launched.max(handed_over)
            || outcome.starting > 0 && !self.leaves_new()
            || outcome.rerun.iter().any(|run| !effects.rerun.contains(run))
            // A rescue that fails reaps what it has launched, and says why it failed.
            || self.forbid_waste
                && outcome.warnings.is_empty()
                && outcome.reaped.len() + outcome.rotated.len() != reaped
        {
            self.untrue(format!("a refresh did {effects:?}, and reports {outcome:?}"));
        }
    }

    /// Whether refreshes have a time limit, and leave the machines that they launch to the next one.
    pub(super) fn leaves_new(&self) -> bool {
        self.time_limit.is_some()
    }

    /// Whether a refresh that has taken so long may have left these jobs to the next one for lack of
    /// time, as one of its warnings says.
    pub(crate) fn has_no_time_for(
        &self,
        label: &Label,
        took: Duration,
        warnings: &[String],
    ) -> bool {
        let said = format!("run {label} was not rescued: ");
        warnings.iter().any(|warning| {
            warning.starts_with(&said) && self.had_no_time_to_launch(took, warning)
                || self.was_told_to_stop(took, warning)
        })
    }

    /// Whether a refresh that has taken so long may have left what its minimum lacks to the next one, as a
    /// warning says.
    pub(super) fn leaves_the_minimum(&self, took: Duration, warning: &str) -> bool {
        let is_about_a_run = warning.starts_with("run ");
        !is_about_a_run && self.had_no_time_to_launch(took, warning)
            || self.was_told_to_stop(took, warning)
    }

    /// Whether a warning says that there was no time for a launch, which is true of a refresh that has
    /// taken so long.
    fn had_no_time_to_launch(&self, took: Duration, warning: &str) -> bool {
        const LAUNCH: Duration = Duration::from_secs(12);
        self.is_within(LAUNCH, took) && warning.contains("no time is left")
    }

    /// Whether a warning says that the limit has ended a refresh, which is true of one that has taken so
    /// long.
    fn was_told_to_stop(&self, took: Duration, warning: &str) -> bool {
        const CLEAN_UP: Duration = Duration::from_secs(6);
        self.is_within(CLEAN_UP, took) && warning.contains("the time limit was reached")
    }

    /// Whether so long before its limit, or later, a refresh has ended that has taken so long.
    fn is_within(&self, span: Duration, took: Duration) -> bool {
        self.time_limit.is_some_and(|limit| took + span + SKEW > limit)
    }

    /// An agent sends a heartbeat at `now`, by its own clock.
    pub(crate) fn beats(
        &mut self,
        agent: Pid,
        id: &InstanceId,
        heartbeat: &Heartbeat,
        machines: &SimulatedMachines,
        now: Timestamp,
    ) {
        let Some(condition) = machines.condition(id) else { return };
        self.beats_in_time(agent, heartbeat, id, timestamp(condition.troubled_until));
        let busy = machines.is_busy(id);
        let took = condition.registration_took.zip(heartbeat.registration);
        // An agent that hangs measures longer.
        let took = took.filter(|_| self.is_quiet);
        // The agent may have read the settings before.
        let wrong = took.is_some_and(|(took, said)| said + ROUNDING < took || said > took + SKEW);
        self.goes_by_settings(id, heartbeat.period, timestamp(condition.troubled_until), now);
        if heartbeat.at != now || heartbeat.busy != busy || wrong {
            let truth = (now, busy, condition.registration_took);
            self.untrue(format!("{id} sends {heartbeat:?}, and the truth is {truth:?}"));
        }
    }

    /// An agent sends heartbeats with this period. If its machine was idle when the last refresh began
    /// and has been since, the period must be that of settings which were in force since then.
    fn goes_by_settings(
        &mut self,
        id: &InstanceId,
        period: Duration,
        troubled_until: Timestamp,
        now: Timestamp,
    ) {
        let Some((began, ended)) = self.last_refresh.filter(|_| self.is_quiet) else { return };
        let Some(record) = self.records.get(id).filter(|it| it.state == State::Idle) else {
            return;
        };
        let settled = began.before(self.index_lag + SKEW * 2);
        let announced = record.ticketed_at.is_some_and(|at| at < settled);
        let changed = self.idle_since.get(id).is_none_or(|since| *since < settled);
        if !announced || !changed || troubled_until > began || ended + LEARNS_WITHIN > now {
            return;
        }
        let in_force: Vec<Duration> = self
            .stored_since(began)
            .into_iter()
            .filter_map(|settings| spans::span(settings, "heartbeat-period-sec"))
            .collect();
        // An agent that has just left its run may not have read yet that its machine is idle.
        let fits = |it: &Duration| *it == period || idle_period(*it) == period;
        if !in_force.iter().any(fits) {
            let how = format!("{id} sends a heartbeat every {period:?}, not {in_force:?}");
            self.violated(Invariant::SettingsReach, how);
        }
    }

    /// A refresh has ended. It must have replaced machines that have reached a limit of their lifetime,
    /// of each class one or a tenth of the idle ones, and no others.
    pub(crate) fn refresh_rotates(
        &mut self,
        outcome: &refresh::Outcome,
        (began, now): (Timestamp, Timestamp),
    ) {
        let succeeded = outcome.failure.is_none();
        for id in &outcome.rotated {
            let record = self.records.get(id).cloned();
            if record.is_some_and(|record| self.is_over(&record, began, now) == IsOver::No) {
                self.violated(Invariant::Lifetime, format!("{id} has reached no limit"));
            }
        }
        for class in CLASS_NAMES {
            let of_class = |id: &&InstanceId| {
                // What is drained leaves at once.
                let record = self.records.get(id);
                record.is_none_or(|it| it.departure != Departure::Drained)
                    && self.specs.get(id).is_some_and(|it| it.resource_class.as_str() == class)
            };
            let rotated = outcome.rotated.iter().filter(of_class).count();
            let is_idle = |record: &&Record| {
                record.spec.resource_class.as_str() == class && record.state == State::Idle
            };
            // Runs may have claimed some of those that were idle at first.
            let claimed = self.last_claim.is_some_and(|claim| claim + SKEW > began);
            let idle = self.records.values().filter(is_idle).count() + rotated;
            if rotated > (idle / 10).max(1) && !claimed {
                let how = format!("{rotated} {class} machines were replaced at once");
                self.violated(Invariant::Lifetime, how);
            }
            // Another refresh at the same time may have replaced the one that this one chose.
            let ended = self.refresh_ended;
            let alone = self.refreshes_at_work() == 1 && ended.is_none_or(|ended| ended < began);
            let undisturbed = self.is_steady && alone && succeeded && outcome.warnings.is_empty();
            let long_ago = |record: &&Record| {
                let changed = self.changed_at.get(&record.id).copied();
                changed.is_none_or(|changed| changed + SKEW < began)
                    && record.ticketed_at.is_some()
                    && !record.is_expired(now + SKEW)
                    && self.is_over(record, began, began) == IsOver::Yes
            };
            let idle = self.records.values().filter(is_idle);
            let missed = idle.filter(long_ago).map(|record| record.id.clone()).next();
            // A refresh with a time limit replaces it when the new machine is idle.
            let is_begun = self.leaves_new() && outcome.starting + outcome.warmed > 0;
            // A run may have claimed the one that this refresh chose.
            let is_taken = |record: &Record| {
                let changed = self.changed_at.get(&record.id).copied();
                matches!(record.state, State::Claimed | State::Running)
                    && record.spec.resource_class.as_str() == class
                    && changed.is_some_and(|changed| changed + SKEW > began)
                    && self.is_over(record, began, now) != IsOver::No
            };
            let is_excused = is_begun || self.records.values().any(is_taken);
            if let Some(id) = missed.filter(|_| undisturbed && rotated == 0 && !is_excused) {
                self.violated(Invariant::Lifetime, format!("{id} was not replaced"));
            }
        }
        if succeeded {
            self.last_refresh = Some((began, now));
        }
    }

    /// A provision has ended; these tickets are hidden. None of them may be hidden by it.
    pub(crate) fn hides_nothing(&mut self, by: Pid, hidden: &[ReceivedMessage]) {
        let hides = |message: &&ReceivedMessage| {
            let ticket = Ticket::from_json(&message.body).ok();
            let record = ticket.as_ref().and_then(|it| self.records.get(&it.instance_id));
            let leads = ticket.as_ref().zip(record).is_some_and(|(it, of)| is_about(it, of));
            leads && self.receivers.get(&message.receipt.0) == Some(&by)
        };
        if let Some(message) = hidden.iter().find(hides) {
            self.violated(Invariant::PutBack, message.body.clone());
        }
    }

    fn untrue(&mut self, how: String) {
        self.violated(Invariant::TrueReport, how);
    }
}
