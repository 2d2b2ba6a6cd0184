//! Teardown: terminates every machine of a pool, and deletes what ondeck has created for it.
//!
//! ```text
//! refuse while in use → close → drain → launch template → drain → runners → queues, files → tables
//! ```
//!
//! A closed pool admits no provision, and refresh neither creates infrastructure nor launches
//! machines in it. The tables go last: until then the records show a second call what is left, so
//! teardown may be killed anywhere and called again.

mod remains;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use self::remains::MachineInUse;
use self::remains::Remains;
use crate::lifecycle::{Instance, Live};
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::settings::{CHECKED, CLOSED, Settings};
use crate::modes::plane::Plane;
use crate::modes::refresh::orphans;
use crate::ports::{Infrastructure, Machine, PortError, PortResult, Resource, ResourceKind};
use crate::runtime::poll::{PollInterval, Wait, wait_until};
use crate::runtime::stop::StopSignal;

/// How often a drain looks whether machines are left, after the first seconds.
const LOOK: Duration = Duration::from_secs(2);
/// How long terminated machines may still be listed.
const SETTLING: Duration = Duration::from_secs(60);

/// Why machines are terminated.
const WHY: &str = "the pool is torn down";

/// How to treat machines that runs own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Terminates machines that runs own, instead of refusing.
    pub force: bool,
    /// Waits so long for their runs to end. If zero, a pool in use is left open.
    pub wait: Duration,
}

/// What a teardown did, or what one would do.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Whether nothing was changed, and the rest lists what exists.
    pub is_plan: bool,
    /// Whether the pool is closed: nothing is claimed or launched in it.
    pub closed: bool,
    /// Machines that were terminated, or exist.
    pub machines: Vec<InstanceId>,
    /// Machines and launches that belong to runs and are in the way.
    pub in_use: Vec<MachineInUse>,
    /// Names of the runners that were removed from the forge, or are on its list.
    pub runners: Vec<String>,
    /// What was deleted, or exists.
    pub resources: Vec<Resource>,
    /// Problems that did not stop any step.
    pub warnings: Vec<String>,
    /// Why something is left.
    pub failure: Option<Failure>,
}

/// Lists what a teardown would terminate, remove and delete. Changes nothing. Of `parts`, the one with
/// the records comes last.
pub async fn plan(
    plane: &Plane,
    parts: &[Arc<dyn Infrastructure>],
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    let listed = async {
        let teardown = Teardown::begin(plane, parts, Options::default()).await?;
        let remains = teardown.remains().await?;
        let mut outcome = Outcome { is_plan: true, closed: teardown.closed, ..Outcome::default() };
        outcome.machines = remains.machines();
        outcome.in_use = remains.in_use(plane.now());
        outcome.runners = remains.runners.into_iter().map(|runner| runner.name).collect();
        outcome.warnings = remains.warnings;
        for part in parts {
            let existing = plane.retried(|| part.existing(&teardown.classes)).await?;
            outcome.resources.extend(existing);
        }
        outcome.resources.sort_by_key(|resource| resource.kind);
        Ok(outcome)
    };
    stop.unless_raised(listed).await?
}

/// Tears the pool down. A failure leaves the pool closed, unless it is that runs own machines and
/// there was no time to wait for them; a later call continues.
pub async fn teardown(
    plane: &Plane,
    parts: &[Arc<dyn Infrastructure>],
    options: Options,
    stop: &StopSignal,
) -> Outcome {
    let mut outcome = Outcome::default();
    let work = async {
        let teardown = Teardown::begin(plane, parts, options).await?;
        outcome.closed = teardown.closed;
        let done = teardown.carry_out(&mut outcome).await;
        outcome.machines = teardown.terminated().iter().cloned().collect();
        done
    };
    outcome.failure = match stop.unless_raised(work).await {
        Ok(done) => done.err(),
        Err(stop) => Some(stop.into()),
    };
    outcome
}

/// Deletes what is left of a pool without records and without machines, or lists it.
pub async fn files(parts: &[Arc<dyn Infrastructure>], is_plan: bool) -> Outcome {
    let mut outcome = Outcome { is_plan, ..Outcome::default() };
    let deleted = async {
        for part in parts {
            for resource in part.existing(&[]).await? {
                if !is_plan {
                    part.delete(&resource).await?;
                }
                outcome.resources.push(resource);
            }
        }
        Ok::<_, PortError>(())
    };
    let failure = deleted.await.err().map(Failure::from);
    Outcome { failure, ..outcome }
}

/// Opens a pool that a teardown has closed. The next refresh creates what is missing. Returns whether
/// it was closed.
pub async fn cancel(plane: &Plane) -> Result<bool, Failure> {
    let stored = plane.retried(|| plane.store.settings()).await?;
    if !stored.contains_key(CLOSED) {
        return Ok(false);
    }
    let opened = BTreeMap::from([CLOSED, CHECKED].map(|name| (name.to_owned(), String::new())));
    plane.retried(|| plane.store.put_settings(&opened)).await?;
    Ok(true)
}

/// One call of teardown.
struct Teardown<'a> {
    plane: &'a Plane,
    parts: &'a [Arc<dyn Infrastructure>],
    options: Options,
    /// The classes that the settings name; empty if there are no settings.
    classes: Vec<ResourceClass>,
    /// Whether the store has its table. Without it no machine has a record.
    has_records: bool,
    closed: bool,
    terminated: Mutex<BTreeSet<InstanceId>>,
}

impl<'a> Teardown<'a> {
    async fn begin(
        plane: &'a Plane,
        parts: &'a [Arc<dyn Infrastructure>],
        options: Options,
    ) -> Result<Teardown<'a>, Failure> {
        let stored = unless_missing(plane.retried(|| plane.store.settings()).await)?;
        let settings = stored.as_ref().map(Settings::from_map);
        // Settings that cannot be read name no classes; the queues are then found by their names.
        let settings = settings.transpose().unwrap_or_else(|error| {
            tracing::warn!("a stored setting cannot be read: {error}");
            None
        });
        let classes = settings.iter().flat_map(|it| it.classes.names().cloned()).collect();
        let has_records = stored.is_some() || has_table(plane, parts).await?;
        let closed = stored.is_some_and(|stored| stored.contains_key(CLOSED));
        let terminated = Mutex::default();
        Ok(Teardown { plane, parts, options, classes, has_records, closed, terminated })
    }

    async fn carry_out(&self, outcome: &mut Outcome) -> Result<(), Failure> {
        if !self.options.force && self.options.wait.is_zero() {
            self.refuse_if_in_use(outcome).await?;
        }
        if self.has_records {
            self.close().await?;
            outcome.closed = true;
        }
        self.drain("terminating the machines", outcome).await?;
        // Without its template no launch succeeds, also not that of a provision that began before the
        // pool was closed. What it has launched until now, the second drain finds.
        self.delete(|kind| kind == ResourceKind::LaunchTemplate, outcome).await?;
        self.drain("looking for machines that were launched meanwhile", outcome).await?;
        self.remove_runners(outcome).await?;
        // Events are written late, and the table is about to go.
        if let Err(error) = self.plane.store.finish().await {
            tracing::warn!("not every event was written: {error}");
        }
        self.plane.progress.stage("deleting queues and files");
        let is_other = |kind| kind != ResourceKind::Table;
        self.delete(is_other, outcome).await?;
        // An agent that was shutting down, or a refresh under way, may have created one again.
        self.delete(is_other, outcome).await?;
        self.plane.progress.stage("deleting the records");
        self.delete(|kind| kind == ResourceKind::Table, outcome).await?;
        outcome.closed = false;
        Ok(())
    }

    async fn refuse_if_in_use(&self, outcome: &mut Outcome) -> Result<(), Failure> {
        let in_use = self.remains().await?.in_use(self.plane.now());
        if in_use.is_empty() {
            return Ok(());
        }
        let hint = "let them end, wait for them with --wait-min, or terminate them with --force";
        let failure = in_use_failure(&in_use, "").hint(hint);
        outcome.in_use = in_use;
        Err(failure)
    }

    /// Closes the pool. One that is closed stays as it is.
    async fn close(&self) -> PortResult<()> {
        if self.closed {
            return Ok(());
        }
        let at = self.plane.now().to_string();
        let closed = BTreeMap::from([(CLOSED.to_owned(), at)]);
        self.plane.retried(|| self.plane.store.put_settings(&closed)).await?;
        tracing::info!("the pool is closed");
        Ok(())
    }

    /// Terminates machines until none is left. Fails if runs still own machines after the wait, or if
    /// the provider still lists machines some time after they were terminated.
    async fn drain(&self, stage: &str, outcome: &mut Outcome) -> Result<(), Failure> {
        let clock = &*self.plane.clock;
        self.plane.progress.stage(stage);
        let began = clock.steady();
        let wait =
            Wait::begin(clock, self.options.wait + SETTLING, PollInterval::fixed(LOOK).prompt());
        let drained = wait_until(clock, wait, || async {
            let remains = self.remains().await?;
            let in_use = remains.in_use(self.plane.now());
            let waited = clock.steady().saturating_sub(began);
            if !self.options.force && !in_use.is_empty() && waited >= self.options.wait {
                return Ok(Some(Err(in_use)));
            }
            if remains.is_empty(self.options.force) {
                return Ok(Some(Ok(remains)));
            }
            self.terminate(&remains).await?;
            Ok::<_, Failure>(None)
        });
        match drained.await? {
            Some(Ok(remains)) => {
                outcome.warnings.extend(remains.warnings);
                let warnings = &mut outcome.warnings;
                warnings.extend(remains.launches.iter().map(remains::unfinished));
                warnings.sort();
                warnings.dedup();
                Ok(())
            }
            Some(Err(in_use)) => {
                let hint = "call it again later, or with --force; --cancel opens the pool again";
                let failure = in_use_failure(&in_use, "the pool is closed, but ").hint(hint);
                outcome.in_use = in_use;
                Err(failure)
            }
            None => {
                let message = format!("machines are still listed after {} s", SETTLING.as_secs());
                Err(Failure::new(FailureKind::Unavailable, message)
                    .hint("call ondeck teardown again"))
            }
        }
    }

    async fn remains(&self) -> Result<Remains, Failure> {
        Remains::take(self.plane, self.has_records).await
    }

    /// Terminates what no run owns, and with force also the rest. Records come first.
    async fn terminate(&self, remains: &Remains) -> Result<(), Failure> {
        let (plane, force, now) = (self.plane, self.options.force, self.plane.now());
        let retired = remains.live.iter().filter(|record| force || !remains::is_owned(record, now));
        let retired: Vec<Instance<Live>> = retired.filter_map(Instance::believe).collect();
        let result = plane.retire_all(&retired, WHY).await;
        let ids = retired.iter().map(|instance| instance.id().clone());
        self.terminated().extend(ids.filter(|id| result.ended(id)));
        if let Some((_, error)) = result.failed.into_iter().next() {
            return Err(error.into());
        }
        let is_free = |machine: &&Machine| force || !remains.is_being_launched(machine);
        let orphans: Vec<&Machine> = remains.orphans.iter().filter(is_free).collect();
        let mut gone = match self.has_records {
            true => orphans::terminate_all(plane, &orphans).await?,
            false => orphans.iter().map(|machine| machine.id.clone()).collect(),
        };
        if force {
            // No process can read their records, so no run can have a use for them.
            gone.extend(remains.unreadable.iter().cloned());
        }
        if !self.has_records || !remains.unreadable.is_empty() {
            plane.terminate(&gone).await?;
        }
        self.terminated().extend(gone);
        Ok(())
    }

    /// Removes the runners of the pool from the forge. One that the forge does not let go is a
    /// warning.
    async fn remove_runners(&self, outcome: &mut Outcome) -> Result<(), Failure> {
        let plane = self.plane;
        for runner in plane.retried(|| plane.forge.runners()).await? {
            match plane.retried(|| plane.forge.remove_runner(&runner.name)).await {
                Ok(()) => outcome.runners.push(runner.name),
                Err(PortError::Forge { reason, .. } | PortError::Limited { reason, .. }) => {
                    outcome.warnings.push(format!("runner {} stays: {reason}", runner.name));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Deletes the resources of these kinds that were not deleted before. Goes on after a failure, and
    /// returns the first.
    async fn delete(
        &self,
        wanted: impl Fn(ResourceKind) -> bool,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let mut first = None;
        for part in self.parts {
            let existing = self.plane.retried(|| part.existing(&self.classes)).await?;
            for resource in existing.into_iter().filter(|resource| wanted(resource.kind)) {
                if outcome.resources.contains(&resource) {
                    continue;
                }
                match self.plane.retried(|| part.delete(&resource)).await {
                    Ok(()) => {
                        let kind = resource.kind.as_str();
                        tracing::info!(name = resource.name, "{kind} deleted");
                        outcome.resources.push(resource);
                    }
                    Err(error) => {
                        tracing::warn!("{error}");
                        first = first.or(Some(error));
                    }
                }
            }
        }
        first.map_or(Ok(()), |error| Err(error.into()))
    }

    fn terminated(&self) -> std::sync::MutexGuard<'_, BTreeSet<InstanceId>> {
        self.terminated.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the place with the records has its table.
async fn has_table(plane: &Plane, parts: &[Arc<dyn Infrastructure>]) -> PortResult<bool> {
    let Some(part) = parts.last() else { return Ok(false) };
    let existing = plane.retried(|| part.existing(&[])).await?;
    Ok(existing.iter().any(|resource| resource.kind == ResourceKind::Table))
}

/// `None` if the store has not been set up.
fn unless_missing<T>(answer: PortResult<T>) -> PortResult<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(PortError::NotSetUp { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn in_use_failure(in_use: &[MachineInUse], prefix: &str) -> Failure {
    /// More would not fit into a line.
    const NAMED: usize = 5;
    let named: Vec<String> = in_use.iter().take(NAMED).map(ToString::to_string).collect();
    let more = in_use.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let message = format!("{prefix}runs own machines: {}{more}", named.join(", "));
    Failure::new(FailureKind::InUse, message)
}
