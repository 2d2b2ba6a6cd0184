//! Release: returns a run's machines to the pool, by a handshake with each agent.
//!
//! ```text
//! list the run's instances → release each (running → idle) → handshake → ticket
//! ```

use std::time::Duration;

use futures_util::future::join_all;

use crate::inputs::times::TimeOverrides;
use crate::inputs::times::Times;
use crate::lifecycle::{Instance, Live, Running};
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{InstanceId, RunId};
use crate::model::lifetime::Lifetime;
use crate::model::record::{MachineSpec, Record, State};
use crate::modes::handshake::{Handshake, Returned};
use crate::modes::plane::{NotCommitted, Plane, readable};
use crate::modes::refresh::keep_warm;
use crate::ports::PortResult;

/// What a release did.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub run: RunId,
    /// Every machine that belonged to the run when the release began.
    pub instances: Vec<Released>,
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
    /// It was terminated because its idle time is zero or already over, or because it has reached a
    /// limit of its lifetime.
    Terminated,
    /// It was expired: its agent did not answer or reported a failure, or its threshold had
    /// passed. Carries the reason.
    Expired(String),
    /// It was expired in this state (`created` or `claimed`) because its provision never finished.
    Unfinished(State),
    /// Another process changed it before this release could. Carries what was found.
    Superseded(String),
}

impl Outcome {
    /// The failure to report if machines were expired instead of pooled.
    pub fn failure(&self) -> Option<Failure> {
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

/// Releases every machine that the run owns and waits until each is pooled, terminated or expired.
///
/// Returns an error if the settings cannot be read or the store stays unavailable.
pub async fn release(
    plane: &Plane,
    run: &RunId,
    times: &TimeOverrides,
) -> Result<Outcome, Failure> {
    let begun = plane.clock.steady();
    let settings = plane.settings().await?;
    let times = times.in_force(&settings.times)?;
    let started = plane.now();
    let listing = plane.retried(|| plane.store.of_run(run)).await?;
    let records = readable(listing);
    plane.progress.stage(&format!("waiting for machines to deregister: {}", records.len()));
    let handshake = Handshake::new(plane, &times);
    let lifetime = Lifetime::of(&settings);
    let releasing = Releasing { plane, run, times: &times, lifetime, handshake };
    let releases = records.iter().map(|record| releasing.release(record));
    let results = join_all(releases).await.into_iter().collect::<PortResult<Vec<_>>>()?;
    let released = |(record, (disposition, account)): (Record, Reached)| Released {
        used_for: (record.state == State::Running).then(|| started.since(record.updated_at)),
        id: record.id,
        spec: record.spec,
        disposition,
        account,
    };
    let instances = records.into_iter().zip(results).map(released).collect();
    let took = plane.clock.steady().saturating_sub(begun);
    Ok(Outcome { run: run.clone(), instances, took })
}

/// Where one machine was left, and its agent's account.
type Reached = (Disposition, String);

struct Releasing<'a> {
    plane: &'a Plane,
    run: &'a RunId,
    times: &'a Times,
    lifetime: Lifetime,
    handshake: Handshake<'a>,
}

impl Releasing<'_> {
    async fn release(&self, record: &Record) -> PortResult<Reached> {
        let Some(running) = Instance::<Running>::believe(record) else {
            return self.expire_unfinished(record).await;
        };
        let (now, lifetime) = (self.plane.now(), self.lifetime);
        let change = match keep_warm::is_own_run(self.run) {
            true => running.release_unused(now, self.times.idle_time),
            // With no time to be idle, it is terminated after the handshake.
            false if lifetime.is_over(record, now) => running.release(now, Duration::ZERO),
            false => running.release(now, self.times.idle_time),
        };
        let idle = match self.plane.apply(change).await {
            Ok(idle) => idle,
            Err(NotCommitted::Refused(refused)) => {
                let why = refused.to_string();
                let still_owned = refused.found.as_ref().is_some_and(|found| self.owns(found));
                let disposition = match still_owned {
                    true => Disposition::Expired(why),
                    false => Disposition::Superseded(why),
                };
                return Ok((disposition, String::new()));
            }
            Err(NotCommitted::Unreachable(error)) => return Err(error),
        };
        Ok(match self.handshake.take_back(&idle, self.run).await? {
            Returned::Pooled { account } => (Disposition::Pooled, account),
            Returned::Terminated { account } => (Disposition::Terminated, account),
            Returned::Expired(why) => (Disposition::Expired(why), String::new()),
            Returned::Superseded(why) => (Disposition::Superseded(why), String::new()),
        })
    }

    /// Expires a machine that is still `created` or `claimed`: its provision was killed before it
    /// finished. If that provision commits the machine at this very moment, the machine is
    /// released like any other.
    async fn expire_unfinished(&self, record: &Record) -> PortResult<Reached> {
        let without_account = |disposition| Ok((disposition, String::new()));
        let Some(unfinished) = Instance::<Live>::believe(record) else {
            return without_account(Disposition::Superseded(format!("it is {}", record.state)));
        };
        let change = unfinished.expire(self.plane.now()).because("its provision did not finish");
        match self.plane.apply(change).await {
            Ok(_) => without_account(Disposition::Unfinished(record.state)),
            Err(NotCommitted::Refused(refused)) => match refused.found.as_ref() {
                Some(found) if found.state == State::Running && self.owns(found) => {
                    Box::pin(self.release(found)).await
                }
                _ => without_account(Disposition::Superseded(refused.to_string())),
            },
            Err(NotCommitted::Unreachable(error)) => Err(error),
        }
    }

    fn owns(&self, record: &Record) -> bool {
        record.run.as_ref() == Some(self.run)
    }
}
