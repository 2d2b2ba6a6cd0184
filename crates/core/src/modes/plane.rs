//! The control plane's view of the world: its ports, and the few things every mode does with
//! them.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::lifecycle::{Instance, LiveState, Pending, Refused, Terminated, TypedState, Verdict};
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::Record;
use crate::model::settings::Settings;
use crate::model::timestamp::Timestamp;
use crate::ports::{
    Clock, Compute, Forge, Listing, Pool, PortError, PortResult, Progress, Random, Store,
};
use crate::runtime::retry::{Retry, retry};

/// The ports that a mode works with. Made in one place, by whoever chose the backend.
#[derive(Clone)]
pub struct Plane {
    /// Records.
    pub store: Arc<dyn Store>,
    /// Tickets.
    pub pool: Arc<dyn Pool>,
    /// Machines.
    pub compute: Arc<dyn Compute>,
    /// Runners and jobs.
    pub forge: Arc<dyn Forge>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Chance.
    pub random: Arc<dyn Random>,
    /// Whoever watches.
    pub progress: Arc<dyn Progress>,
}

/// Why a change was not made.
#[derive(Debug, Clone)]
pub enum NotCommitted {
    /// Something else stands there. An answer.
    Refused(Box<Refused>),
    /// The store did not answer.
    Unreachable(PortError),
}

impl std::fmt::Display for NotCommitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotCommitted::Refused(refused) => refused.fmt(f),
            NotCommitted::Unreachable(error) => error.fmt(f),
        }
    }
}

impl Plane {
    /// This moment.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// What refresh wrote down.
    pub async fn settings(&self) -> Result<Settings, Failure> {
        let map = self.retried(|| self.store.settings()).await?;
        Settings::from_map(&map).map_err(|error| {
            Failure::invalid(format!("a stored setting cannot be read: {error}"))
                .hint("run ondeck refresh with a valid value for the setting")
        })
    }

    /// Calls a port with the project's retry.
    pub async fn retried<T, F>(&self, mut call: impl FnMut() -> F) -> PortResult<T>
    where
        F: Future<Output = PortResult<T>>,
    {
        retry(&*self.clock, &*self.random, Retry::SHORT, |_| call()).await
    }

    /// Asks the store to make a change. Every state change of the system passes here, and is
    /// logged here.
    ///
    /// A write whose answer was lost is written again: if it had been made, the refusal carries
    /// the very record that it would have left, and counts as agreement.
    pub async fn commit<S: TypedState>(
        &self,
        pending: Pending<S>,
    ) -> Result<Instance<S>, NotCommitted> {
        let change = pending.change();
        let verdict = retry(&*self.clock, &*self.random, Retry::SHORT, |attempt| async move {
            Ok(match self.store.write(change).await? {
                Verdict::Refused(Some(found)) if attempt > 0 && change.is_done_in(&found) => {
                    Verdict::Agreed(found)
                }
                verdict => verdict,
            })
        })
        .await
        .map_err(NotCommitted::Unreachable)?;
        let (transition, id, why) =
            (change.transition(), change.id().clone(), change.why().to_owned());
        match pending.settle(verdict) {
            Ok(instance) => {
                let run = instance.run().map_or("", RunId::as_str);
                tracing::info!(instance = %id, state = %instance.state(), run, why, "{transition}");
                Ok(instance)
            }
            Err(refused) => {
                tracing::info!("{refused}");
                Err(NotCommitted::Refused(refused))
            }
        }
    }

    /// Ends an instance: its time is made up, it is reaped, and if that was won, its machine is
    /// terminated. Store first, machine second: a crash in between leaves a machine that nobody
    /// will be given, and that the sweep or its own deadline ends.
    pub async fn retire<S: LiveState>(&self, instance: &Instance<S>, why: &str) -> PortResult<()> {
        match self.expire_and_reap(instance, why).await? {
            Some(_) => self.terminate(std::slice::from_ref(instance.id())).await,
            None => Ok(()),
        }
    }

    /// Ends several instances with one terminate call. Gives those that could not be ended.
    pub async fn retire_all<S: LiveState>(
        &self,
        instances: &[Instance<S>],
        why: &str,
    ) -> Vec<(InstanceId, PortError)> {
        let mut failed = Vec::new();
        let mut won = Vec::new();
        let reaped =
            join_all(instances.iter().map(|instance| self.expire_and_reap(instance, why))).await;
        for (instance, reaped) in instances.iter().zip(reaped) {
            match reaped {
                Ok(Some(_)) => won.push(instance.id().clone()),
                Ok(None) => {}
                Err(error) => failed.push((instance.id().clone(), error)),
            }
        }
        if let Err(error) = self.terminate(&won).await {
            failed.extend(won.into_iter().map(|id| (id, error.clone())));
        }
        failed
    }

    /// Ends machines, if there are any to end.
    pub async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.retried(|| self.compute.terminate(ids)).await?;
        tracing::info!(count = ids.len(), "terminated {}", listed(ids));
        Ok(())
    }

    /// Expires and reaps. `None` if somebody else has it or has done it already.
    pub async fn expire_and_reap<S: LiveState>(
        &self,
        instance: &Instance<S>,
        why: &str,
    ) -> PortResult<Option<Instance<Terminated>>> {
        let expired = match self.commit(instance.expire(self.now()).because(why)).await {
            Ok(expired) => expired,
            Err(NotCommitted::Refused(_)) => return Ok(None),
            Err(NotCommitted::Unreachable(error)) => return Err(error),
        };
        match self.commit(expired.reap(self.now()).because(why)).await {
            Ok(terminated) => Ok(Some(terminated)),
            Err(NotCommitted::Refused(_)) => Ok(None),
            Err(NotCommitted::Unreachable(error)) => Err(error),
        }
    }
}

/// The records of a listing; the unreadable ones are named in the log and skipped.
pub fn readable(listing: Listing) -> Vec<Record> {
    for row in listing.unreadable {
        tracing::warn!("{row}; skipped");
    }
    listing.records
}

/// Ids in one line.
pub fn listed(ids: &[InstanceId]) -> String {
    ids.iter().map(InstanceId::as_str).collect::<Vec<_>>().join(" ")
}

impl std::fmt::Debug for Plane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Plane")
    }
}
