//! Rescue: provisions again for runs whose jobs are queued while they lack machines. This happens when
//! a machine dies or is taken away, and with "Re-run failed jobs": the job that calls provision is not
//! among the failed ones, and GitHub leaves the others queued for a day without telling the user.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;

use super::machines::Machines;
use crate::inputs::times::Times;
use crate::model::demand::Demand;
use crate::model::failure::{Failure, FailureKind};
use crate::model::label::Label;
use crate::model::machine_label::MachineLabel;
use crate::model::settings::{Rescue, Settings};
use crate::modes::plane::{Plane, readable};
use crate::modes::provision::{self, MachineSource, PoolSearch, Request, provision};
use crate::modes::refresh::Outcome;
use crate::modes::refresh::limit::{self, Limit};
use crate::ports::{PortResult, WaitingJobs};
use crate::runtime::stop::StopSignal;

/// Rescues runs, or reports them, as the `rescue` setting says.
pub(super) struct Rescuer<'a> {
    pub(super) plane: &'a Plane,
    pub(super) settings: &'a Settings,
    /// With it, a rescue does not wait for the machines that it launches.
    pub(super) limit: Option<Limit>,
    pub(super) stop: &'a StopSignal,
    /// Whether it is not known of some run whether it can be given machines.
    pub(super) is_undecided: AtomicBool,
}

/// Machines that a run lacks under the label of one demand.
struct Wanted {
    /// How many for jobs that wait for the label of the run.
    jobs: u32,
    /// The labels of machines that its jobs wait for, of those that it was given.
    named: Vec<MachineLabel>,
}

impl Wanted {
    /// How many they are.
    fn machines(&self) -> u32 {
        self.jobs.saturating_add(u32::try_from(self.named.len()).unwrap_or(u32::MAX))
    }

    fn is_nothing(&self) -> bool {
        self.machines() == 0
    }
}

impl Rescuer<'_> {
    /// Rescues a run under each label that jobs wait for. Fails as [`Rescuer::rescue`] does.
    pub(super) async fn rescue_all(
        &self,
        demands: Vec<Demand>,
        waiting: &WaitingJobs,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        for demand in demands {
            let jobs = waiting.labels.get(&demand.label()).copied().unwrap_or_default();
            let waits = |label: &&MachineLabel| waiting.machine_labels.contains_key(*label);
            let named: Vec<MachineLabel> = demand.labels.iter().filter(waits).cloned().collect();
            let wanted = Wanted { jobs, named };
            if wanted.jobs > 0 || !wanted.named.is_empty() {
                self.rescue(demand, &wanted, outcome).await?;
            }
        }
        Ok(())
    }

    /// Provisions for one label what is missing of what the run asked for at first. A failed rescue
    /// is a warning; the error is that the store did not answer, or that `stop` was raised.
    async fn rescue(
        &self,
        demand: Demand,
        wanted: &Wanted,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let (plane, label) = (self.plane, demand.label());
        // The list may lag, and a provision may have finished since it was read.
        if self.missing(&demand, wanted).await?.is_nothing() {
            return Ok(());
        }
        if self.settings.rescue == Rescue::Report {
            let problem = format!("jobs wait for a run that has no machine: {label}");
            outcome.strand(label, problem);
            return Ok(());
        }
        let failed = demand.failed_rescues.filter(|failed| plane.now() < failed.not_before());
        if let Some(failed) = failed {
            let (times, next) = (failed.times, failed.not_before());
            let problem =
                format!("run {label} was not rescued in {times} attempts, next attempt at {next}");
            outcome.strand(label, problem);
            return Ok(());
        }
        if self.limit.is_some_and(|limit| !limit.allows_launch(plane)) {
            outcome.warnings.push(format!("run {label} was not rescued: {}", limit::NO_TIME));
            self.is_undecided.store(true, Ordering::Relaxed);
            return Ok(());
        }
        let Some(leased) = self.take_lease(&demand).await? else {
            tracing::info!(%label, "another refresh rescues the run");
            self.is_undecided.store(true, Ordering::Relaxed);
            return Ok(());
        };
        // The refresh that had the lease before may have rescued the run.
        let missing = self.missing(&demand, wanted).await?;
        if missing.is_nothing() {
            self.give_back(&leased, demand).await;
            return Ok(());
        }
        let jobs = wanted.machines();
        plane.progress.stage(&format!("rescuing run {label}: {jobs} jobs wait for a machine"));
        let machines = missing.machines();
        tracing::warn!(%label, jobs, missing = machines, "jobs wait without a machine; provisioning again");
        let provisioned = self.provision(&demand, missing).await;
        self.conclude(label, demand, &leased, provisioned, outcome).await
    }

    /// Provisions what is missing: one machine for each label of a machine, and the rest together. Returns
    /// the outcome that says most about the next attempt ([`weight`]), with the machines that others have
    /// given the run.
    async fn provision(&self, demand: &Demand, missing: Wanted) -> provision::Outcome {
        let leaves_new = self.limit.is_some();
        let plain = (missing.jobs > 0).then(|| demand.again(missing.jobs));
        let named = missing
            .named
            .into_iter()
            .map(|label| Request { named: Some(label), ..demand.again(1) });
        let requests: Vec<Request> =
            plain.into_iter().chain(named).map(|it| Request { leaves_new, ..it }).collect();
        let provisions = requests.iter().map(|request| provision(self.plane, request, self.stop));
        let mut outcomes = join_all(provisions).await;
        let requested = outcomes.iter().map(|outcome| outcome.requested).sum();
        let heaviest = (0..outcomes.len()).max_by_key(|at| {
            let part = &outcomes[*at];
            weight(part.failure.as_ref(), &part.search)
        });
        let mut worst = outcomes.swap_remove(heaviest.unwrap_or(0));
        worst.requested = requested;
        for other in outcomes {
            worst.kept.extend(other.kept);
            worst.kept.extend(other.instances.iter().map(|given| given.id.clone()));
            worst.instances.extend(other.instances);
        }
        worst
    }

    /// Gives the lease back with the result of the rescue, and reports it.
    async fn conclude(
        &self,
        label: Label,
        demand: Demand,
        leased: &Demand,
        provisioned: provision::Outcome,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let Some(failure) = provisioned.failure else {
            let is_left = self.limit.is_some() && provisioned.count(MachineSource::Cold) > 0;
            // A rescue counts as failed until its machines serve the run. If they never do, the next
            // attempt waits longer.
            let next = match is_left {
                true => demand.failed_again(self.plane.now()),
                false => Demand { failed_rescues: None, ..demand },
            };
            self.give_back(leased, next).await;
            outcome.rescued.push(label);
            return Ok(());
        };
        if is_told_to_stop(&failure) {
            self.give_back(leased, demand).await;
            return Err(failure);
        }
        let next = match reaches_machines(&failure, &provisioned.search) {
            true => demand.failed_again(self.plane.now()),
            false => demand,
        };
        self.give_back(leased, next).await;
        if provisioned.kept.is_empty() {
            let problem = format!("run {label} cannot be rescued: {failure}");
            outcome.strand(label, problem);
        } else {
            let kept = provisioned.kept.len();
            let asked = provisioned.requested;
            let problem = format!("run {label} was given {kept} of {asked} machines: {failure}");
            outcome.warnings.push(problem);
            outcome.rescued.push(label);
        }
        Ok(())
    }

    /// Which machines the run lacks under the label of the demand, read consistently.
    async fn missing(&self, demand: &Demand, wanted: &Wanted) -> Result<Wanted, Failure> {
        let plane = self.plane;
        let look = async {
            let listing = plane.retried(|| plane.store.of_run(&demand.run)).await?;
            Machines::look(plane, &self.settings.times, self.limit, &readable(listing)).await
        };
        let machines = self.stop.unless_raised(look).await??;
        let jobs = match wanted.jobs {
            0 => 0,
            jobs => machines.serving(&demand.label()).missing(demand, jobs),
        };
        let named = wanted.named.iter().filter(|label| machines.is_unserved(label));
        Ok(Wanted { jobs, named: named.cloned().collect() })
    }

    /// The demand with a lease of this refresh; `None` if another refresh has one, or if the run has
    /// stored another request meanwhile. The lease outlasts a rescue, and no longer holds when this
    /// process was killed before it gave the lease back.
    async fn take_lease(&self, demand: &Demand) -> PortResult<Option<Demand>> {
        let (plane, stored) = (self.plane, &self.settings.times);
        let now = plane.now();
        if demand.is_being_rescued(now) {
            return Ok(None);
        }
        // The rescue goes by the times of the run's own call, which may be longer.
        let own = demand.again(1).times.over(stored.clone());
        let longest = |times: &Times| times.created_timeout + times.claim_timeout;
        let until = now + longest(stored).max(longest(&own));
        let leased = demand.clone().leased(plane.random.number(), until);
        let taken = plane.replace_demand(Some(demand), &leased).await?;
        Ok(taken.then_some(leased))
    }

    /// Stores the result of the rescue, and the demand without a lease. The lease ends by itself if that
    /// fails. A provision of the run may have stored labels meanwhile, and these stay.
    async fn give_back(&self, leased: &Demand, next: Demand) {
        let result = next.failed_rescues;
        let change = |found: Option<&Demand>| {
            let held = found.filter(|found| found.lease == leased.lease)?;
            Some(Demand { failed_rescues: result, lease: None, ..held.clone() })
        };
        let stored = self.plane.change_demand(leased, Some(leased.clone()), change).await;
        if let Err(error) = stored {
            let label = leased.label();
            tracing::warn!(%label, "the result of its rescue was not stored: {error}");
        }
    }
}

/// What a part of a rescue says about the next attempt: one that was told to stop ends the refresh, and after
/// one that has reached machines the next attempt waits. Other failures weigh more than success.
fn weight(failure: Option<&Failure>, search: &PoolSearch) -> u8 {
    match failure {
        None => 0,
        Some(failure) if is_told_to_stop(failure) => 3,
        Some(failure) if reaches_machines(failure, search) => 2,
        Some(_) => 1,
    }
}

fn is_told_to_stop(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::Interrupted | FailureKind::Stopped)
}

/// Whether the attempt may have claimed idle machines, which return, or launched new ones. A request that is
/// refused as it stands reaches no machine: it is tried again as soon as the operator has corrected the
/// settings. Nor does one for which there is no room, unless it found idle machines.
fn reaches_machines(failure: &Failure, search: &PoolSearch) -> bool {
    match failure.kind {
        FailureKind::InvalidInput => search.asked,
        FailureKind::AtCeiling | FailureKind::AtSpendCap => search.claimed > 0,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_that_has_reached_machines_decides_when_a_rescue_is_tried_again() {
        let (nothing, asked) =
            (PoolSearch::default(), PoolSearch { asked: true, ..PoolSearch::default() });
        let claimed = PoolSearch { claimed: 1, ..asked.clone() };
        for (kind, search, weighs) in [
            (None, &claimed, 0),
            (Some(FailureKind::InvalidInput), &nothing, 1),
            (Some(FailureKind::AtCeiling), &asked, 1),
            (Some(FailureKind::AtSpendCap), &asked, 1),
            (Some(FailureKind::InvalidInput), &asked, 2),
            (Some(FailureKind::AtCeiling), &claimed, 2),
            (Some(FailureKind::AtSpendCap), &claimed, 2),
            (Some(FailureKind::NotReady), &nothing, 2),
            (Some(FailureKind::Unavailable), &nothing, 2),
            (Some(FailureKind::Interrupted), &nothing, 3),
            (Some(FailureKind::Stopped), &claimed, 3),
        ] {
            let failure = kind.map(|kind| Failure::new(kind, "failed"));
            assert_eq!(weight(failure.as_ref(), search), weighs, "{kind:?} {search:?}");
        }
    }
}
