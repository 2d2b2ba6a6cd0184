//! Release: returns a run's machines to the pool, by a handshake with each agent.
//!
//! ```text
//! list the run's instances → release or give back each (→ idle) → handshake → ticket
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::inputs::times::TimeOverrides;
use crate::inputs::times::Times;
use crate::inputs::{Input, Mode};
use crate::lifecycle::{Claimed, Idle, Instance, Live, Pending, Preserved, Refused, Running};
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::Label;
use crate::model::lifetime::Lifetime;
use crate::model::machine_label::RequestedLabel;
use crate::model::record::{MachineSpec, Record, State, Unreadable};
use crate::model::settings::{OnInterruption, Settings};
use crate::model::signal::INTERRUPTED;
use crate::model::timestamp::Timestamp;
use crate::modes::handshake::{Handshake, Returned, give_back, idle_time_given_back, keep_for_job};
use crate::modes::plane::{ChangesTogether, NotCommitted, Plane};
use crate::modes::refresh::keep_warm;
use crate::ports::{Listing, PortError, PortResult};

/// The reason in events, for machines that never became `running`.
const UNFINISHED: &str = "its provision did not finish";

/// The reason in events, for machines of a failed run that stay for people to examine.
const RUN_FAILED_WHY: &str = "its run failed, and it is kept for debugging";

/// Whether the run that is released has failed.
pub const RUN_FAILED: Input = Input::switch(
    "run-failed",
    "The run has failed: keep its machines for debug-on-failure-min, if that is set",
    &[Mode::Release],
);

/// The inputs of release alone.
pub const INPUTS: &[Input] = &[RUN_FAILED];

/// What a release did.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub run: RunId,
    /// Every machine that belonged to the run when the release began.
    pub instances: Vec<Released>,
    /// Records of the run that cannot be read. Their machines are left as they are.
    pub unreadable: Vec<Unreadable>,
    /// How long the release took.
    pub took: Duration,
}

/// One machine that belonged to the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Released {
    pub id: InstanceId,
    pub spec: MachineSpec,
    pub disposition: Disposition,
    /// How long the machine was `running` for the run. `None` if it never was.
    pub used_for: Option<Duration>,
    /// The agent's account of the jobs it ran. Empty if the agent gave none.
    pub account: String,
}

/// Where a release left one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Disposition {
    /// It is idle and has a ticket in the pool.
    Pooled,
    /// Its provision had claimed it and never finished. It is idle and has a ticket in the pool.
    GivenBack,
    /// It was terminated because its idle time is zero or already over, or because it has reached a
    /// limit of its lifetime.
    Terminated,
    /// It was expired: its agent did not answer or reported a failure, or its threshold had
    /// passed. Carries the reason.
    Expired(String),
    /// It was expired because its provider takes it away.
    Interrupted,
    /// Its run has failed, and it stays outside the pool until then, for people to examine.
    Preserved(Timestamp),
    /// It was expired in this state because its provision never finished: it was `created`, or
    /// `claimed` and past its threshold.
    Unfinished(State),
    /// Another process changed it before this release could. Carries what was found.
    Superseded(String),
    /// The store or the pool did not answer, so it is not known where the machine was left. Carries
    /// the error.
    NotReached(String),
}

impl Outcome {
    /// The failure to report if machines could not be reached, or else if some were expired instead
    /// of pooled.
    pub fn failure(&self) -> Option<Failure> {
        self.not_reached().or_else(|| self.expired())
    }

    fn not_reached(&self) -> Option<Failure> {
        let errors = self.instances.iter().filter_map(|one| match &one.disposition {
            Disposition::NotReached(error) => Some((one.id.as_str(), error)),
            _ => None,
        });
        let (ids, errors): (Vec<&str>, Vec<&String>) = errors.unzip();
        let first = errors.first()?;
        let message = format!("machines could not be reached: {}: {first}", ids.join(" "));
        Some(
            Failure::new(FailureKind::Unavailable, message)
                .hint("retry the release; what it cannot reach ends at its threshold"),
        )
    }

    fn expired(&self) -> Option<Failure> {
        let expired =
            self.instances.iter().filter(|one| matches!(one.disposition, Disposition::Expired(_)));
        let ids: Vec<&str> = expired.map(|one| one.id.as_str()).collect();
        if ids.is_empty() {
            return None;
        }
        let message =
            format!("machines did not return to the pool and were expired: {}", ids.join(" "));
        Some(
            Failure::new(FailureKind::PartlyReleased, message)
                .hint("they terminate on their own, or run ondeck refresh to terminate them now"),
        )
    }
}

/// Releases every machine that the run owns and waits until each is pooled, terminated or expired,
/// or the store or the pool has stopped answering for it.
///
/// Fails if the settings or the list of the run's machines cannot be read.
pub async fn release(
    plane: &Plane,
    run: &RunId,
    times: &TimeOverrides,
) -> Result<Outcome, Failure> {
    release_run(plane, run, times, Occasion::Success).await
}

/// Like [`release`], for a run that has failed: with `debug-on-failure-min`, its running machines are
/// preserved.
pub async fn release_failed(
    plane: &Plane,
    run: &RunId,
    times: &TimeOverrides,
) -> Result<Outcome, Failure> {
    release_run(plane, run, times, Occasion::RunFailed).await
}

/// Like [`release`], of the machines that a completed run had when `listing` was read. The caller has
/// looked after that, and found that the run had not called provision again. If it does so from then
/// on, it keeps the machines that it adopts.
pub(super) async fn release_completed(
    plane: &Plane,
    run: &RunId,
    listing: Listing,
) -> Result<Outcome, Failure> {
    let begun = plane.clock.steady();
    let settings = plane.settings().await?;
    let times = settings.times.clone();
    release_listed(plane, run, (&settings, &times), listing, (Occasion::Completion, begun)).await
}

/// Why a run is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Occasion {
    Success,
    RunFailed,
    /// Refresh has seen that it has completed.
    Completion,
}

async fn release_run(
    plane: &Plane,
    run: &RunId,
    times: &TimeOverrides,
    occasion: Occasion,
) -> Result<Outcome, Failure> {
    let begun = plane.clock.steady();
    let (settings, listing) =
        join(plane.settings(), plane.retried(|| plane.store.of_run(run))).await;
    let settings = settings?;
    let times = times.in_force(&settings.times)?;
    release_listed(plane, run, (&settings, &times), listing?, (occasion, begun)).await
}

async fn release_listed(
    plane: &Plane,
    run: &RunId,
    (settings, times): (&Settings, &Times),
    listing: Listing,
    (occasion, begun): (Occasion, Duration),
) -> Result<Outcome, Failure> {
    let started = plane.now();
    let Listing { records, unreadable } = listing;
    plane.progress.stage(&format!("waiting for machines to deregister: {}", records.len()));
    let handshake = Handshake::new(plane, times, records.len());
    let lifetime = Lifetime::of(settings);
    let taken_away = match settings.on_interruption {
        OnInterruption::None => Ok(BTreeSet::new()),
        OnInterruption::Rerun => taken_away(plane, &records).await,
    };
    let preserve_for = settings.debug_on_failure.filter(|_| occasion == Occasion::RunFailed);
    let releasing = Releasing {
        plane,
        run,
        times,
        lifetime,
        may_ask_again: occasion == Occasion::Completion,
        preserve_for,
        handshake,
        changes: ChangesTogether::default(),
        taken_away,
    };
    let releases = records.iter().map(|record| releasing.release(record));
    let results = join_all(releases).await;
    let released = |(record, result): (Record, PortResult<Reached>)| {
        let (disposition, account) = result
            .unwrap_or_else(|error| (Disposition::NotReached(error.to_string()), String::new()));
        Released {
            used_for: (record.state == State::Running).then(|| started.since(record.updated_at)),
            id: record.id,
            spec: record.spec,
            disposition,
            account,
        }
    };
    let instances = records.into_iter().zip(results).map(released).collect();
    let took = plane.clock.steady().saturating_sub(begun);
    Ok(Outcome { run: run.clone(), instances, unreadable, took })
}

/// Where one machine was left, and its agent's account.
type Reached = (Disposition, String);

struct Releasing<'a> {
    plane: &'a Plane,
    run: &'a RunId,
    times: &'a Times,
    lifetime: Lifetime,
    /// Whether the run may call provision while it is released.
    may_ask_again: bool,
    /// How long running machines stay for people; `None` if they return to the pool.
    preserve_for: Option<Duration>,
    handshake: Handshake<'a>,
    changes: ChangesTogether,
    /// Expired as they are, so that refresh sees whose jobs they had. If they are not known, no running
    /// machine is released: its agent could not be asked either.
    taken_away: PortResult<BTreeSet<InstanceId>>,
}

/// The running machines that their provider takes away, or has taken away already. A handshake would
/// remove the run from the record, and refresh could not tell whose jobs it had.
async fn taken_away(plane: &Plane, records: &[Record]) -> PortResult<BTreeSet<InstanceId>> {
    let running = records.iter().filter(|record| record.state == State::Running);
    let ids: Vec<InstanceId> = running.map(|record| record.id.clone()).collect();
    if ids.is_empty() {
        return Ok(BTreeSet::new());
    }
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    let gone = ids.into_iter().zip(status).filter(|(_, status)| status.is_interrupted());
    Ok(gone.map(|(id, _)| id).collect())
}

impl Releasing<'_> {
    async fn release(&self, record: &Record) -> PortResult<Reached> {
        let now = self.plane.now();
        // A later release of the run, or a refresh that sees it completed, leaves it to people.
        if let (Some(_), Some(until)) = (Instance::<Preserved>::believe(record), record.threshold) {
            return Ok((Disposition::Preserved(until), String::new()));
        }
        if let Some(running) = Instance::<Running>::believe(record) {
            if self.taken_away.as_ref().map_err(PortError::clone)?.contains(&record.id) {
                return self.expire_taken_away(record, &running).await;
            }
            if let Some(span) = self.preserve_for {
                return self.preserve(record, &running, now + span).await;
            }
            return self.return_to_pool(record, self.change(record, &running, now)).await;
        }
        if let Some(claimed) =
            Instance::<Claimed>::believe(record).filter(|_| !record.is_expired(now))
        {
            let idle_time = idle_time_given_back(self.times);
            let change = give_back(self.plane, &claimed, idle_time).await;
            return self.return_to_pool(record, change.because(UNFINISHED)).await;
        }
        self.expire_unfinished(record).await
    }

    fn change(
        &self,
        record: &Record,
        running: &Instance<Running>,
        now: Timestamp,
    ) -> Pending<Idle> {
        if keep_warm::is_own_run(self.run) {
            return running.release_unused(now, self.times.idle_time);
        }
        // With no time to be idle, it is terminated after the handshake.
        let is_over = self.lifetime.is_over(record, now);
        let idle_time = if is_over { Duration::ZERO } else { self.times.idle_time };
        if self.may_ask_again {
            return running.release_unless_renewed(now, idle_time);
        }
        running.release(now, idle_time)
    }

    /// Makes the machine idle and waits until its agent has left the run. If the provision of a
    /// claimed machine commits it at this very moment, it is released like any other.
    async fn return_to_pool(&self, record: &Record, change: Pending<Idle>) -> PortResult<Reached> {
        let idle = match self.plane.apply_beside(&self.changes, change, record).await {
            Ok(idle) => idle,
            Err(NotCommitted::Refused(refused)) => return self.refused(record, &refused).await,
            Err(NotCommitted::Unreachable(error)) => return Err(error),
        };
        let (pooled, returned) = match (record.state, record.label()) {
            (State::Claimed, Some(label)) => {
                match self.handshake.take_back_unless_busy(&idle, self.run).await? {
                    Ok(returned) => (Disposition::GivenBack, returned),
                    Err(held) => return self.end_job(record, &idle, (&label, held.with)).await,
                }
            }
            _ => (Disposition::Pooled, self.handshake.take_back(&idle, self.run).await?),
        };
        Ok(match returned {
            Returned::Pooled { account } => (pooled, account),
            Returned::Terminated { account } => (Disposition::Terminated, account),
            Returned::Interrupted { account } => (Disposition::Interrupted, account),
            Returned::Expired(why) => (Disposition::Expired(why), String::new()),
            Returned::Superseded(why) => (Disposition::Superseded(why), String::new()),
        })
    }

    /// Releases a machine that was claimed for the run, and whose runner has one of its jobs: it has
    /// served the run like any other, and the agent waits for the job until it is told that the run is
    /// over.
    async fn end_job(
        &self,
        record: &Record,
        idle: &Instance<Idle>,
        label: (&Label, RequestedLabel),
    ) -> PortResult<Reached> {
        let running = match keep_for_job(self.plane, self.times, idle, label, record.reuse).await {
            Ok(running) => running,
            // Refresh may have done it already.
            Err(NotCommitted::Refused(refused)) => return self.refused(record, &refused).await,
            Err(NotCommitted::Unreachable(error)) => return Err(error),
        };
        let (counts, threshold) = (running.counts(), running.threshold());
        let record = Record { state: State::Running, counts, threshold, ..record.clone() };
        Box::pin(self.release(&record)).await
    }

    async fn expire_taken_away(
        &self,
        record: &Record,
        running: &Instance<Running>,
    ) -> PortResult<Reached> {
        match self.plane.apply(running.expire(self.plane.now()).because(INTERRUPTED)).await {
            Ok(_) => Ok((Disposition::Interrupted, String::new())),
            Err(NotCommitted::Refused(refused)) => self.refused(record, &refused).await,
            Err(NotCommitted::Unreachable(error)) => Err(error),
        }
    }

    /// Keeps the machine as it is until then. Its agent sees that and takes no further job.
    async fn preserve(
        &self,
        record: &Record,
        running: &Instance<Running>,
        until: Timestamp,
    ) -> PortResult<Reached> {
        let change = running.preserve(self.plane.now(), until).because(RUN_FAILED_WHY);
        match self.plane.apply(change).await {
            Ok(_) => Ok((Disposition::Preserved(until), String::new())),
            Err(NotCommitted::Refused(refused)) => self.refused(record, &refused).await,
            Err(NotCommitted::Unreachable(error)) => Err(error),
        }
    }

    /// Expires a machine whose provision was killed before it finished, and that cannot go back: it
    /// is `created`, or past its threshold.
    async fn expire_unfinished(&self, record: &Record) -> PortResult<Reached> {
        let Some(unfinished) = Instance::<Live>::believe(record) else {
            let why = format!("it is {}", record.state);
            return Ok((Disposition::Superseded(why), String::new()));
        };
        let change = unfinished.expire(self.plane.now()).because(UNFINISHED);
        match self.plane.apply(change).await {
            Ok(_) => Ok((Disposition::Unfinished(record.state), String::new())),
            Err(NotCommitted::Refused(refused)) => self.refused(record, &refused).await,
            Err(NotCommitted::Unreachable(error)) => Err(error),
        }
    }

    /// What a refusal means: the run's provision has changed the machine meanwhile, it is past its
    /// threshold, or it belongs to the run no longer.
    async fn refused(&self, record: &Record, refused: &Refused) -> PortResult<Reached> {
        let why = refused.to_string();
        let disposition = match refused.found.as_ref().filter(|found| self.owns(found)) {
            Some(found) if self.may_ask_again && has_changed(found, record) => {
                Disposition::Superseded(why)
            }
            Some(found) if is_later(found, record) => {
                return Box::pin(self.release(found)).await;
            }
            Some(_) => Disposition::Expired(why),
            None => Disposition::Superseded(why),
        };
        Ok((disposition, String::new()))
    }

    fn owns(&self, record: &Record) -> bool {
        record.run.as_ref() == Some(self.run)
    }
}

/// Whether a machine has gone on from this record.
fn is_later(found: &Record, record: &Record) -> bool {
    found.state != record.state || found.counts.generation != record.counts.generation
}

/// The same, or it was renewed or expired meanwhile.
fn has_changed(found: &Record, record: &Record) -> bool {
    is_later(found, record) || found.threshold != record.threshold
}
