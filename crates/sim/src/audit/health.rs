//! Which machines are healthy, by the truth of the world, and must not be given up.

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::refresh;
use std::time::Duration;

use super::deadlines::IsOver;
use super::{Audit, Invariant, SKEW};
use crate::kernel::{Pid, timestamp};
use crate::simulated_machines::{Condition, SimulatedMachines};

/// A machine that misses its registration this often in a row may be retired.
const MISSED_REGISTRATIONS: u32 = 2;

impl Audit {
    /// A transition was committed. A machine that has worked for a run, and has no failure of its
    /// own, must not be expired before its threshold.
    pub(super) fn spare(
        &mut self,
        by: Pid,
        transition: Transition,
        before: Option<&Record>,
        at: Timestamp,
        condition: Option<&Condition>,
    ) {
        let Some(before) = before.filter(|_| transition == Transition::Expire) else { return };
        let early = before.threshold.is_some_and(|t| t > at + Duration::from_secs(1));
        let began = self.began(by).unwrap_or(at);
        // Refresh replaces idle machines that have reached a limit of their lifetime.
        let is_replaced = before.state == State::Idle
            && self.all_refreshes.contains(&by)
            && self.is_over(before, began, at) != IsOver::No;
        // The release of a run ends what a rescue is still creating for it, and lets a provision that
        // is at work fail, because it takes machines that this has adopted.
        let released = before.run.as_ref().and_then(|run| self.last_releases.get(run));
        let is_released = before.state == State::Created
            && !self.is_refresh(by)
            && (!self.provisions.contains_key(&by)
                || released.is_some_and(|at| began < *at + self.index_lag));
        // A run that gets machines of its own has used this one before it gave it back, or one that
        // asks for its own would get a machine that counts as unused.
        let last_run = self.owned_since.get(&before.id).map(|(run, _)| run);
        let is_used_up = before.state == State::Idle
            && condition.is_some_and(|it| it.has_worked)
            && (before.counts.runs == 0
                || last_run.is_some_and(|run| self.asks_for_own_machines(run)));
        // A process whose clock is behind does not see yet that another has expired it.
        let is_expired = before.threshold.is_some_and(|threshold| threshold <= before.updated_at);
        // An operator wants it to leave.
        let is_wanted_gone = self.is_operator(by) || Audit::is_wanted_gone(before);
        let is_unready = before.state == State::Idle && Audit::is_unready(condition, at);
        let is_excused = is_replaced || is_released || is_used_up || is_wanted_gone;
        if !early || is_excused || is_unready || is_expired {
            return;
        }
        let how = format!("{} was expired before its time, {}", before.id, before.state);
        if self.forbid_waste {
            let changed = self.settings.len() > 1;
            let invariant = if changed { Invariant::SettingsKeep } else { Invariant::NoWaste };
            self.violated(invariant, how);
        } else if self.is_spared && self.is_healthy(before, condition) {
            self.violated(Invariant::Spared, how);
        }
    }

    /// A claimed machine was given back. If the time for its registration was changed shortly before the
    /// claim, its agent, whose wake-up was lost, may have looked by the old settings, too late.
    pub(super) fn given_back_unaware(&mut self, id: &InstanceId) {
        let Some((_, claimed)) = self.owned_since.get(id) else { return };
        let times =
            self.texts_since("claim-registration-timeout-sec", claimed.before(self.looks_within));
        if times.iter().any(|time| *time != times[0]) {
            self.unaware_of_times.insert(id.clone());
        }
    }

    /// The store has refused an agent that looked at its record. It backs off from half a second to half
    /// a minute, and looks once more before it terminates its machine: some fifteen times in two minutes,
    /// where an agent that is not refused looks hundreds of times.
    pub(crate) fn look_refused(&mut self, agent: Pid, now: Timestamp) {
        const SPAN: Duration = Duration::from_secs(120);
        const MOST: usize = 24;
        let looks = self.refused_looks.entry(agent).or_default();
        looks.retain(|at| *at + SPAN > now);
        looks.push(now);
        if looks.len() > MOST {
            let how = format!("an agent that is refused has looked {} times", looks.len());
            self.violated(Invariant::BacksOff, how);
        }
    }

    /// A refresh that has succeeded began at `began`. It must name the running machines whose
    /// heartbeats had stopped long before.
    pub(crate) fn refresh_sees_silence(
        &mut self,
        outcome: &refresh::Outcome,
        (began, now): (Timestamp, Timestamp),
        machines: &SimulatedMachines,
    ) {
        if !self.is_quiet || outcome.failure.is_some() || self.index_lag > Duration::ZERO {
            return;
        }
        let is_silent = |record: &&Record| {
            let id = &record.id;
            let since = self.changed_at.get(id).copied().unwrap_or(record.updated_at);
            let beat = machines.condition(id).and_then(|it| it.last_beat);
            let beat = beat.or_else(|| machines.removed_at(id)).map(timestamp);
            let long_ago = |time: Timestamp| time + self.tolerance() < began;
            record.state == State::Running
                && !record.is_expired(now + SKEW)
                && long_ago(since)
                && beat.is_some_and(long_ago)
        };
        let mut silent = self.records.values().filter(is_silent).map(|record| record.id.clone());
        let missed = silent.find(|id| !outcome.silent.contains(id));
        if let Some(id) = missed {
            self.violated(
                Invariant::TrueReport,
                format!("a refresh does not say that {id} is silent"),
            );
        }
    }

    /// Whether no failure of the machine itself can be a reason to give it up. A machine that is
    /// still being created has not shown that it works.
    fn is_healthy(&self, record: &Record, condition: Option<&Condition>) -> bool {
        let (Some(condition), Some(since)) = (condition, self.changed_at.get(&record.id)) else {
            return false;
        };
        let unaware = u32::from(self.unaware_of_times.contains(&record.id));
        record.state != State::Created
            && !self.touched_by_hand.contains(&record.id)
            && !condition.is_broken
            && condition.notice_at.is_none()
            && condition.last_beat.is_some()
            && condition.slow_registrations + unaware < MISSED_REGISTRATIONS
            && timestamp(condition.troubled_until) < *since
    }
}
