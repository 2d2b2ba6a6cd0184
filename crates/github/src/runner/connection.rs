//! Keeps the runner registered and listening for the length of a run: registers it anew if GitHub has
//! deleted it or keeps an old session open, replaces a version that GitHub refuses, and restarts a
//! listener that does not get a session.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::credentials::TokenPurpose;

use super::install::{Installation, Installer};
use super::listener::{DELETED, Listener, ListenerExit, Need, Start, UNCONFIGURED};
use super::program::timeout;
use super::registration::{FILES, RegistrationRequest};
use super::seat::Seat;
use super::{GROUP_SETTING, GitHubRunner, Prepared, hooks};
use crate::names::runner_name;
use crate::packages::URL_SETTING;

/// How many listeners may be ended for not listening in time before the runner counts as not able to
/// listen.
const ATTEMPTS: u32 = 4;

/// How many times the runner is registered anew or updated until one listener listens.
const REPAIRS: u32 = 3;

/// How long a version that GitHub has served is not checked again.
const SERVED: Duration = Duration::from_secs(3600);

/// The state file with the versions that GitHub has refused, one in each line.
const REFUSED: &str = "refused-versions";

/// When a registration takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    BeginningOfRun,
    DuringRun,
}

impl GitHubRunner {
    /// Registers the runner under a new name, after it has removed an earlier registration. At the
    /// beginning of a run it also removes what is not part of the software.
    pub(super) async fn enlist(
        &self,
        prepared: &Prepared,
        seat: &Seat,
        at: Stage,
    ) -> Result<(), String> {
        self.kill_processes(&prepared.user).await?;
        let settings = self.settings().await?;
        let url = settings
            .get(URL_SETTING)
            .ok_or("the address to register with is not set: run ondeck refresh")?;
        let token = self.token(TokenPurpose::Registration).await?;
        let registrar = self.registrar(prepared);
        self.forget_earlier(&registrar).await?;
        if at == Stage::BeginningOfRun {
            prepared.software.clear()?;
        }
        let Installation { root, operator_env, .. } = &prepared.software;
        hooks::write(&self.layout, seat.run.as_ref(), root, operator_env)?;
        let count = self.layout.next_count()?;
        let request = RegistrationRequest {
            url,
            name: &runner_name(&self.options.id, count, &self.options.pool_tag),
            label: &seat.label,
            group: settings.get(GROUP_SETTING).map(|it| it.trim()).filter(|it| !it.is_empty()),
        };
        let add = registrar.add(&request, &token, self.timeouts.configure);
        let (began, added) = tokio::join!(self.begin(), add);
        {
            let mut state = self.state();
            (state.is_removable, state.number) = (true, count);
        }
        began.and(added)
    }

    /// Starts the listener and returns it when it can take jobs.
    ///
    /// A listener that failed to get a session pauses for 11 to 30 s. One that does not listen in time
    /// is therefore ended and started again, each time with twice the patience. If the runner must be
    /// registered anew or updated, that is done in between, up to [`REPAIRS`] times. Fails if the
    /// listener exits for another reason, or [`ATTEMPTS`] of them do not listen in time.
    pub(super) async fn connect(&self, seat: &Seat) -> Result<Listener, String> {
        let (mut late, mut repairs, mut waited) = (0, 0, Duration::ZERO);
        loop {
            self.meet_need(seat).await?;
            if self.state().drained {
                return Err("the runner takes no further job".to_owned());
            }
            let prepared = self.prepared()?;
            let listener = self.start_listener(&prepared, seat)?;
            let patience = self.timeouts.patience(late);
            let exit = match timeout(&*self.clock, patience, listener.started()).await {
                Some(Start::Listening) => match self.refusal(&prepared, &listener).await {
                    None => return Ok(listener),
                    Some(exit) => exit,
                },
                Some(Start::Exited(exit)) => exit,
                Some(Start::Conflicting) => {
                    listener.end(self.timeouts.stop_idle).await;
                    listener.exited().await
                }
                None if listener.is_listening() => return Ok(listener),
                None => {
                    waited += patience;
                    let words = listener.end(self.timeouts.stop_idle).await;
                    self.state().listener = None;
                    let after = waited.as_secs_f32();
                    let problem =
                        format!("the runner does not listen for jobs after {after} s: {words}");
                    tracing::warn!("{problem}");
                    late += 1;
                    if late == ATTEMPTS {
                        return Err(problem);
                    }
                    continue;
                }
            };
            let problem = self.note_exit(&prepared, &exit)?;
            if self.state().need.is_none() || repairs == REPAIRS {
                return Err(problem);
            }
            repairs += 1;
        }
    }

    /// Remembers what the runner needs after its listener has exited, and a version that GitHub has
    /// refused also for later runs. Forgets a registration that GitHub has deleted, so that nothing asks
    /// to remove it. Returns the reason of the exit.
    pub(super) fn note_exit(
        &self,
        prepared: &Prepared,
        exit: &ListenerExit,
    ) -> Result<String, String> {
        let Installation { root, version, .. } = &prepared.software;
        let is_configured = root.join(FILES[0]).symlink_metadata().is_ok();
        let need = exit.need();
        if need == Some(Need::Version)
            && let Err(why) = self.refuse(version)
        {
            tracing::warn!("the refused version is not recorded: {why}");
        }
        if need == Some(Need::Registration(DELETED)) {
            self.registrar(prepared).forget()?;
        }
        let mut state = self.state();
        state.listener = None;
        state.is_removable &= !exit.has_lost_job();
        state.need = need.or((!is_configured).then_some(Need::Registration(UNCONFIGURED)));
        Ok(exit.reason(version))
    }

    /// Registers the runner anew, or updates it, if its last listener exited for want of that.
    async fn meet_need(&self, seat: &Seat) -> Result<(), String> {
        let Some(need) = self.state().need.clone() else { return Ok(()) };
        let why = match need {
            Need::Registration(why) => why.to_owned(),
            Need::Version => self.update().await?,
        };
        tracing::warn!(label = seat.label, "registering the runner anew: {why}");
        self.enlist(&*self.prepared()?, seat, Stage::DuringRun).await?;
        let mut state = self.state();
        state.need = None;
        state.remarks.push(format!("registered anew: {why}"));
        Ok(())
    }

    /// Replaces the software, whose version GitHub refuses, by another version. Returns what was
    /// done. Fails if no other version is known, or it cannot be downloaded.
    async fn update(&self) -> Result<String, String> {
        let prepared = self.prepared()?;
        let old = prepared.software.version.as_str();
        let refused = self.refused()?;
        self.kill_processes(&prepared.user).await?;
        let user = prepared.user.clone();
        let installer = Installer {
            clock: &*self.clock,
            id: &self.options.id,
            user: &user,
            layout: &self.layout,
            image: &self.options.image,
            timeouts: &self.timeouts,
            refused: &refused,
        };
        let found = installer.find(&self.settings().await?).await;
        let software = found
            .map_err(|why| format!("this version of actions/runner is deprecated: {old}; {why}"))?;
        let new = software.version.clone();
        self.state().prepared = Some(Arc::new(Prepared { user, software }));
        Ok(format!("GitHub refused version {old} of actions/runner, now {new}"))
    }

    fn refuse(&self, version: &str) -> Result<(), String> {
        let mut refused = self.refused()?;
        if !refused.insert(version.to_owned()) {
            return Ok(());
        }
        let lines: String = refused.iter().map(|version| format!("{version}\n")).collect();
        self.layout.save(REFUSED, &lines)
    }

    /// Fails if GitHub refuses the version of the software, because no later run could use it.
    pub(super) fn check_version(&self, prepared: &Prepared) -> Result<(), String> {
        let version = &prepared.software.version;
        let needs_other = self.state().need == Some(Need::Version);
        if needs_other || self.refused()?.contains(version) {
            return Err(format!("GitHub refuses its version of actions/runner: {version}"));
        }
        Ok(())
    }

    /// The versions that GitHub has refused to this machine.
    pub(super) fn refused(&self) -> Result<BTreeSet<String>, String> {
        let lines = self.layout.load(REFUSED)?.unwrap_or_default();
        Ok(lines.lines().map(str::to_owned).collect())
    }

    /// Returns how the listener exited if GitHub refused its version. With a deprecated version the
    /// listener reports that it is listening, and exits when GitHub answers its first request for a job.
    /// GitHub holds that request open for a version that it serves, so that only the time tells. After a
    /// version has been served, registrations skip this wait for an hour; a refusal is then seen by
    /// [`work`](ondeck_core::ports::Runner::work).
    async fn refusal(&self, prepared: &Prepared, listener: &Listener) -> Option<ListenerExit> {
        let version = &prepared.software.version;
        let now = self.clock.steady();
        let is_recent = |at: Duration| now.saturating_sub(at) < SERVED;
        let served = self.state().served.clone();
        if served.is_some_and(|(known, at)| known == *version && is_recent(at)) {
            return None;
        }
        let exit = timeout(&*self.clock, self.timeouts.refuse, listener.exited()).await;
        if exit.is_none() {
            self.state().served = Some((version.clone(), now));
        }
        exit
    }
}

#[cfg(test)]
mod tests {
    use ondeck_core::inputs::times::Times;

    use super::*;
    use crate::runner::Timeouts;

    /// The rest is for the commands that register the runner, which take about a second each.
    #[test]
    fn a_new_machine_waits_until_the_last_listener_is_late() {
        let timeouts = Timeouts::default();
        let all: Duration = (0..ATTEMPTS).map(|late| timeouts.patience(late)).sum();
        assert_eq!(all, Duration::from_secs(5 + 10 + 20 + 40));
        assert!(all + Duration::from_secs(10) < Times::default().validation_timeout);
    }
}
