//! What a careful program does: it refuses what means nothing, accepts what is sound, asks for no more
//! than it needs, and believes what agents say.

use std::time::Duration;

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::{AgentStatus, Signal};
use ondeck_core::model::timestamp::Timestamp;

use super::{Audit, Invariant, SKEW};
use crate::kernel::Pid;

/// How long a mode may take to look at the report of an agent again.
const LOOKS_WITHIN: Duration = Duration::from_secs(15);
/// With so many registrations, refresh knows the usual time of one.
const ENOUGH: usize = 7;

impl Audit {
    /// A refresh has ended, and refused its settings or not; `all_done` if nothing else failed.
    pub(crate) fn judges_settings(&mut self, by: Pid, is_refused: bool, all_done: bool) {
        let is_unsound = self.unsound.remove(&by).unwrap_or_default();
        let is_wrong = if is_refused { !is_unsound } else { is_unsound && all_done };
        if is_wrong {
            let how = format!("settings were refused: {is_refused}, and should be: {is_unsound}");
            self.violated(Invariant::Contradiction, how);
        }
    }

    /// Credentials for agents were stored.
    pub(crate) fn stored_credentials(&mut self, now: Timestamp, expires: Timestamp) {
        self.minted = Some((now, expires));
    }

    /// A refresh has ended that began then, with or without having changed settings. Credentials that
    /// had become too old by then must have been renewed, unless the refresh was given another forge.
    pub(crate) fn renews_credentials(&mut self, by: Pid, (began, now): (Timestamp, Timestamp)) {
        let Some((minted, expires)) = self.minted else { return };
        let settings = self.settings_since(began);
        let times = settings.iter().map(|settings| &settings.times);
        let is_old = times.into_iter().all(|times| {
            minted + times.registration_token_refresh + SKEW < began
                || expires < began + times.claim_registration_timeout.saturating_sub(SKEW)
        });
        let has_forge = !self.other_forges.contains(&by);
        if is_old && has_forge && self.calls_are_answered {
            let how = format!("a refresh leaves credentials of {minted} at {now}");
            self.violated(Invariant::FewCredentials, how);
        }
    }

    /// A refresh was given a forge that is not that of the pool.
    pub(crate) fn has_another_forge(&mut self, by: Pid) {
        self.other_forges.insert(by);
    }

    /// A refresh asks the forge for credentials. It must not, as long as those that are stored will do.
    pub(crate) fn mints(&mut self, by: Pid, now: Timestamp) {
        let (Some(began), Some((minted, expires))) = (self.began(by), self.minted) else { return };
        let is_alone =
            self.refreshes_at_work() <= 1 && self.refresh_ended.is_none_or(|it| it < began);
        let times = self.settings_since(minted).into_iter().map(|settings| &settings.times);
        let will_do = times.into_iter().all(|times| {
            now + SKEW < minted + times.registration_token_refresh
                && now + times.claim_registration_timeout + SKEW < expires
        });
        if will_do && is_alone && self.calls_are_answered && minted + SKEW < began {
            let how = format!("new credentials at {now}, and those of {minted} will do");
            self.violated(Invariant::FewCredentials, how);
        }
    }

    /// A provision claims a machine. It must not be one that it has given back, unless it has a job of
    /// the run.
    pub(crate) fn claims(
        &mut self,
        by: Pid,
        claimed: &Record,
        status: &AgentStatus,
        now: Timestamp,
    ) {
        let began = self.provisions.get(&by).map(|provision| provision.began);
        let Some(began) = began.filter(|began| !self.has_ceiling_since(*began)) else { return };
        let again = self.given_back.contains(&(by, claimed.id.clone()));
        if again && held_for(status) != claimed.run.as_ref() && self.is_quiet {
            let how = format!("{} is claimed again at {now}, since {began}", claimed.id);
            self.violated(Invariant::FewHedges, how);
        }
    }

    /// A mode gives a machine up at `now`. If its agent has said that it failed, the mode must not have
    /// waited for it; refreshes and operators come when they come, and wait for no idle one. A refresh must not give up an idle one whose runner has a job.
    pub(crate) fn gives_up(
        &mut self,
        by: Pid,
        transition: Transition,
        before: Option<&Record>,
        (status, has_job): (&AgentStatus, bool),
        now: Timestamp,
    ) {
        let Some(before) =
            before.filter(|it| transition == Transition::Expire && !it.is_expired(now))
        else {
            return;
        };
        let troubled = self.touched_by_hand.contains(&before.id);
        let report = status.report.as_ref();
        let failed = report.filter(|report| {
            matches!(report.signal, Signal::PrepareFailed | Signal::DeregisterFailed)
                && report.at > before.updated_at + SKEW
        });
        let waited = failed.is_some_and(|report| report.at + SKEW + LOOKS_WITHIN < now);
        let comes_later = self.is_refresh(by) || self.is_operator(by);
        let waits = before.state == State::Idle && !comes_later;
        if waited && waits && self.calls_are_answered && !troubled {
            let how = format!("{} is given up at {now}, and has said {failed:?}", before.id);
            self.violated(Invariant::Believed, how);
        }
        let is_kept = before.state == State::Idle && has_job && held_for(status).is_some();
        if is_kept && self.is_refresh(by) && self.agents_beat && !troubled {
            let how = format!("a refresh gives up {}, which has a job", before.id);
            self.violated(Invariant::JobKept, how);
        }
    }

    /// The usual time of a registration is stored, while the live machines have taken these times.
    pub(crate) fn stores_usual_time(&mut self, stored: Duration, mut took: Vec<Duration>) {
        /// Refresh has read them a moment before: some may have changed since.
        const CHANGED: usize = 2;
        took.sort_unstable();
        let least = took.get(CHANGED).filter(|_| took.len() > 2 * CHANGED);
        if let Some(least) = least.filter(|least| self.index_lag.is_zero() && stored < **least) {
            let how = format!("{stored:?} is not usual, and most took {least:?}");
            self.violated(Invariant::TrueReport, how);
        }
    }

    /// A refresh has succeeded, which began then. If machines enough have registered long before, it
    /// knows the usual time.
    pub(crate) fn knows_usual_time(&mut self, began: Timestamp, registered: &[InstanceId]) {
        let long_ago = |id: &&InstanceId| {
            self.changed_at.get(id).is_some_and(|at| *at + self.index_lag + SKEW < began)
        };
        let known =
            self.stored.last().is_some_and(|(_, all)| all.contains_key("registration-p95-ms"));
        if registered.iter().filter(long_ago).count() >= ENOUGH && !known {
            let how = "the usual time of a registration is not stored";
            self.violated(Invariant::TrueReport, how);
        }
    }
}

/// The run that gave the machine back, if the agent has said that the runner has a job of it.
pub(crate) fn held_for(status: &AgentStatus) -> Option<&RunId> {
    let report = status.report.as_ref()?;
    report.run.as_ref().filter(|run| report.is_held_for(run))
}
