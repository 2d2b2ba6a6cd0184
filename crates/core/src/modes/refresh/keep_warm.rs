//! Keep warm: renews idle machines up to the configured minimum, launches those that are missing,
//! and replaces those that have reached a limit of their lifetime.
//!
//! New machines are provisioned for a run of refresh's own and then released, so each of them has
//! been validated and has passed the handshake before it enters the pool.

mod census;
mod later;

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use self::census::{Census, IdleMachine, Share};
use super::limit::{self, Limit};
use super::survey::Survey;
use super::{Outcome, ceiling, spend};
use crate::inputs::times::TimeOverrides;
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{InstanceId, ResourceClass, RunId};
use crate::model::lifetime::Lifetime;
use crate::model::min_idle::Minimum;
use crate::model::record::Record;
use crate::model::settings::Settings;
use crate::model::ticket::Ticket;
use crate::modes::handshake::announce;
use crate::modes::plane::{NotCommitted, Plane, Reaped, readable};
use crate::modes::provision::{Origin, ProvisionOptions, Request, provision};
use crate::modes::release::release;
use crate::ports::{PortResult, RecordScope};
use crate::runtime::stop::StopSignal;

/// The ids of the runs for which refresh provisions begin with this.
const RUN_PREFIX: &str = "keep-warm-";

/// The shortest time for which a machine of the minimum stays idle.
const SHORTEST: Duration = Duration::from_secs(30 * 60);

/// Why idle machines are terminated.
const TOO_OLD: &str = "it has reached the limit of its lifetime";
const USED_UP: &str = "it has served a run, and reuse is never";

/// Whether refresh owns the run, to warm machines up.
pub(crate) fn is_own_run(run: &RunId) -> bool {
    run.as_str().starts_with(RUN_PREFIX)
}

/// How long a machine of the minimum stays idle from its launch or renewal on.
pub(crate) fn hold(settings: &Settings) -> Duration {
    settings.times.idle_time.max(SHORTEST)
}

/// Keeps the minimum. A minimum that cannot be reached is a warning; the error is that the store did
/// not answer, or that `stop` was raised.
pub(super) async fn keep_warm(
    plane: &Plane,
    settings: &Settings,
    survey: Option<&Survey>,
    limit: Option<Limit>,
    stop: &StopSignal,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let Some(limit) = limit else {
        return keep_minimums(plane, settings, survey, None, stop, outcome).await;
    };
    let idle = stop.unless_raised(later::hand_over(plane, settings, outcome)).await??;
    outcome.warmed += idle.len();
    let kept = keep_minimums(plane, settings, survey, Some(limit), stop, outcome).await;
    if !idle.is_empty() && !stop.is_raised() {
        let announced = later::announce(plane, settings, &idle, outcome);
        let announced = limit::handshakes(plane, Some(limit), announced);
        stop.unless_raised(announced).await?.unwrap_or(Ok(()))?;
    }
    kept
}

async fn keep_minimums(
    plane: &Plane,
    settings: &Settings,
    survey: Option<&Survey>,
    limit: Option<Limit>,
    stop: &StopSignal,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let minimums = settings.min_idle.at(plane.now());
    let is_retired = |record: &Record| record.departure.is_wanted();
    let none_retired = survey.is_none_or(|survey| !survey.live.iter().any(is_retired));
    if minimums.is_empty() && !Lifetime::of(settings).is_limited() && none_retired {
        return Ok(());
    }
    let live: Vec<Record> = match survey {
        Some(survey) if minimums.is_empty() => survey.live.clone(),
        _ if limit.is_some() => later::live(plane).await?,
        _ => readable(plane.retried(|| plane.store.list(RecordScope::Live)).await?),
    };
    let census = Census::take(plane, settings, &live).await?;
    let used_up: Vec<&IdleMachine> = census.used_up.iter().collect();
    stop.unless_raised(retire(plane, &used_up, USED_UP, outcome)).await??;
    let (due, types) = (due(&census), plane.compute.default_types());
    let shares = census.share_out(minimums.clone(), settings, &types, &[]);
    let without_due = census.share_out(minimums.clone(), settings, &types, &due);
    // What is idle in the place of a machine that is due is kept in its stead.
    let is_replaced = |other: &Share| limit.is_some() && other.is_full();
    let both = shares.iter().zip(&without_due);
    let kept = both.map(|(share, other)| if is_replaced(other) { other } else { share });
    let kept: Vec<&Share> = kept.collect();
    stop.unless_raised(renew(plane, settings, &census, &kept, outcome)).await??;

    if let Some(limit) = limit {
        // What is due is replaced first. It is spare as soon as others are idle in its place.
        let order = Order { plane, settings, minimums, limit, stop };
        order.launch_missing(&census, &due, outcome).await?;
    } else {
        let shares = (&shares[..], &minimums[..]);
        replace(plane, settings, &census, shares, &due, stop, outcome).await?;
    }
    // What no minimum needs is not replaced.
    let is_needed = |index: &usize| {
        let mut both = shares.iter().zip(&without_due);
        both.any(|(share, other)| share.machines.contains(index) && !is_replaced(other))
    };
    let spare: Vec<&IdleMachine> = due
        .iter()
        .filter(|index| !is_needed(index))
        .map(|index| &census.available[*index])
        .collect();
    stop.unless_raised(retire(plane, &spare, TOO_OLD, outcome)).await??;
    Ok(())
}

/// What a refresh with a time limit launches for minimums.
struct Order<'a> {
    plane: &'a Plane,
    settings: &'a Settings,
    minimums: Vec<Minimum>,
    limit: Limit,
    stop: &'a StopSignal,
}

impl Order<'_> {
    /// Launches the machines that are missing, and replacements of those that are due, unless another
    /// refresh does that at this moment.
    async fn launch_missing(
        &self,
        census: &Census,
        due: &[usize],
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let (plane, stop) = (self.plane, self.stop);
        if self.missing(census, due).is_empty() {
            return Ok(());
        }
        if !self.limit.allows_launch(plane) {
            outcome.warnings.push(limit::NO_TIME.to_owned());
            return Ok(());
        }
        let taken = stop.unless_raised(later::take_lease(plane, self.limit)).await??;
        let Some(leased) = taken else {
            tracing::info!("another refresh launches machines for the minimum");
            return Ok(());
        };
        let launched = self.launch_all(outcome).await;
        later::give_back(plane, &leased).await;
        launched
    }

    /// Counts again, because the refresh that had the lease before may have launched machines.
    async fn launch_all(&self, outcome: &mut Outcome) -> Result<(), Failure> {
        let (plane, settings) = (self.plane, self.settings);
        let census = self.stop.unless_raised(later::census(plane, settings)).await??;
        for (minimum, missing) in self.missing(&census, &due(&census)) {
            if !self.limit.allows_launch(plane) {
                outcome.warnings.push(limit::NO_TIME.to_owned());
                break;
            }
            let limit = Some(self.limit);
            launch(plane, settings, &minimum, missing, limit, self.stop, outcome).await?;
        }
        Ok(())
    }

    /// The minimums that lack machines if those that are due do not count.
    fn missing(&self, census: &Census, due: &[usize]) -> Vec<(Minimum, u32)> {
        let types = self.plane.compute.default_types();
        let shares = census.share_out(self.minimums.clone(), self.settings, &types, due);
        let missing = shares.into_iter().map(|share| (share.missing(), share.minimum));
        missing.filter(|(missing, _)| *missing > 0).map(|(missing, of)| (of, missing)).collect()
    }
}

/// Launches the machines that are missing, and replaces those that are due.
async fn replace(
    plane: &Plane,
    settings: &Settings,
    census: &Census,
    (shares, minimums): (&[Share], &[Minimum]),
    due: &[usize],
    stop: &StopSignal,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let mut has_launched = false;
    for (index, share) in shares.iter().enumerate() {
        let mut replaced: Vec<&IdleMachine> = machines(census, share, due);
        let mut missing = share.missing();
        // A launch takes a while, and another refresh may have launched the others meanwhile, or
        // replaced the same machines.
        if missing > 0 && has_launched {
            let now = missing_now(plane, settings, minimums, index);
            missing = missing.min(stop.unless_raised(now).await??);
        }
        if !replaced.is_empty() && has_launched {
            replaced = stop.unless_raised(still_idle(plane, replaced)).await??;
        }
        let count = missing + u32::try_from(replaced.len()).unwrap_or(u32::MAX);
        has_launched |= count > 0;
        let launched = count == 0
            || launch(plane, settings, &share.minimum, count, None, stop, outcome).await?;
        if launched {
            stop.unless_raised(retire(plane, &replaced, TOO_OLD, outcome)).await??;
        }
    }
    Ok(())
}

/// How many machines the minimum with this index lacks at this moment.
async fn missing_now(
    plane: &Plane,
    settings: &Settings,
    minimums: &[Minimum],
    index: usize,
) -> Result<u32, Failure> {
    let live = readable(plane.retried(|| plane.store.list(RecordScope::Live)).await?);
    let census = Census::take(plane, settings, &live).await?;
    let types = plane.compute.default_types();
    let shares = census.share_out(minimums.to_vec(), settings, &types, &[]);
    Ok(shares.get(index).map_or(0, Share::missing))
}

/// Renews the machines of the minimum that have little time left, and announces them again.
///
/// Less than half of what a renewal gives is little. So when a machine is renewed for the second
/// time, the ticket of before the first time has expired, and it never has more than two.
async fn renew(
    plane: &Plane,
    settings: &Settings,
    census: &Census,
    shares: &[&Share],
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let hold = hold(settings);
    let machines = shares.iter().flat_map(|share| &share.machines);
    let short = machines.map(|index| &census.available[*index]).filter(|it| it.left < hold / 2);
    let renewals = short.map(|machine| {
        let now = plane.now();
        plane.apply(machine.idle.renew(now, now + hold).because("kept for min-idle"))
    });
    let mut renewed: Vec<Instance<Idle>> = Vec::new();
    let mut unreachable = None;
    for result in join_all(renewals).await {
        match result {
            Ok(idle) => renewed.push(idle),
            // A run has claimed it, or another refresh has ended it.
            Err(NotCommitted::Refused(_)) => {}
            Err(NotCommitted::Unreachable(error)) => unreachable = Some(error),
        }
    }
    let tickets: Vec<Ticket> = renewed.iter().map(Instance::ticket).collect();
    announce(plane, &tickets).await?;
    outcome.renewed.extend(renewed.iter().map(|idle| idle.id().clone()));
    unreachable.map_or(Ok(()), |error| Err(error.into()))
}

/// The machines to be replaced now, because they have reached a limit: of each class one, or a tenth
/// of the idle ones if that is more. Indices into [`Census::available`].
fn due(census: &Census) -> Vec<usize> {
    const PART: usize = 10;
    let class = |machine: &IdleMachine| machine.idle.spec().resource_class.clone();
    let mut idle: BTreeMap<ResourceClass, usize> = BTreeMap::new();
    for machine in &census.available {
        *idle.entry(class(machine)).or_default() += 1;
    }
    let mut taken: BTreeMap<ResourceClass, usize> = BTreeMap::new();
    let over = census.available.iter().enumerate().filter(|(_, machine)| machine.is_over);
    let due = over.filter(|(_, machine)| {
        let class = class(machine);
        let allowed = (idle[&class] / PART).max(1);
        let taken = taken.entry(class).or_default();
        *taken += 1;
        *taken <= allowed
    });
    due.map(|(index, _)| index).collect()
}

/// The machines of a share that are due.
fn machines<'a>(census: &'a Census, share: &Share, due: &[usize]) -> Vec<&'a IdleMachine> {
    let due = share.machines.iter().filter(|index| due.contains(index));
    due.map(|index| &census.available[*index]).collect()
}

/// Those of the machines that are still idle.
async fn still_idle<'a>(
    plane: &Plane,
    machines: Vec<&'a IdleMachine>,
) -> Result<Vec<&'a IdleMachine>, Failure> {
    let ids: Vec<InstanceId> = machines.iter().map(|it| it.idle.id().clone()).collect();
    let records = readable(plane.retried(|| plane.store.records(&ids)).await?);
    let now = plane.now();
    let is_idle = |machine: &&IdleMachine| {
        let same = |record: &&Record| record.id == *machine.idle.id() && !record.is_expired(now);
        let found = records.iter().find(same).and_then(Instance::<Idle>::believe);
        found.is_some_and(|found| found.counts().generation == machine.idle.counts().generation)
    };
    Ok(machines.into_iter().filter(is_idle).collect())
}

/// Terminates idle machines, unless a run has claimed them meanwhile.
async fn retire(
    plane: &Plane,
    machines: &[&IdleMachine],
    why: &str,
    outcome: &mut Outcome,
) -> PortResult<()> {
    for machine in machines {
        if let Reaped::Here = plane.expire_and_reap(&machine.idle, why).await? {
            let id: &InstanceId = machine.idle.id();
            plane.terminate(std::slice::from_ref(id)).await?;
            outcome.rotated.push(id.clone());
        }
    }
    Ok(())
}

/// Launches machines for a minimum, or as many as there is room for. Returns whether it launched
/// all of them: if not, the reason is among the warnings.
async fn launch(
    plane: &Plane,
    settings: &Settings,
    minimum: &Minimum,
    missing: u32,
    limit: Option<Limit>,
    stop: &StopSignal,
    outcome: &mut Outcome,
) -> Result<bool, Failure> {
    let class = &minimum.class;
    plane.progress.stage(&format!("launching {class} machines to keep warm: {missing}"));
    let launched = match limit {
        None => warm_up(plane, settings, minimum, missing, stop).await,
        Some(_) => begin_to_warm_up(plane, minimum, missing, stop).await,
    };
    match launched {
        Ok(launched) if limit.is_some() => {
            outcome.starting += launched;
            Ok(true)
        }
        Ok(warmed) => {
            outcome.warmed += warmed;
            Ok(true)
        }
        Err(failure) if matches!(failure.kind, FailureKind::Interrupted | FailureKind::Stopped) => {
            Err(failure)
        }
        Err(failure) => {
            let fits = match failure.kind {
                FailureKind::AtCeiling => ceiling::room(plane, settings, class).await?,
                FailureKind::AtSpendCap => spend::affordable(plane, settings, minimum).await?,
                _ => 0,
            };
            outcome.warnings.push(format!("class {class} is below its minimum: {failure}"));
            if (1..missing).contains(&fits) {
                Box::pin(launch(plane, settings, minimum, fits, limit, stop, outcome)).await?;
            }
            Ok(false)
        }
    }
}

async fn warm_up(
    plane: &Plane,
    settings: &Settings,
    minimum: &Minimum,
    count: u32,
    stop: &StopSignal,
) -> Result<usize, Failure> {
    let run = RunId::new(format!("{RUN_PREFIX}{:016x}", plane.random.number()))
        .map_err(|error| Failure::new(FailureKind::Unexpected, error.to_string()))?;
    let request = Request {
        run: run.clone(),
        options: options(minimum, count),
        // Long enough to be released, and short enough to expire soon if this process dies first.
        times: TimeOverrides(vec![("max-runtime-min", settings.times.release_timeout * 2)]),
        origin: Origin::KeepWarm,
        set_up_patience: None,
        leaves_new: false,
        named: None,
    };
    let provisioned = provision(plane, &request, stop).await;
    if let Some(failure) = provisioned.failure {
        return Err(failure);
    }
    let times = TimeOverrides(vec![("idle-time-sec", hold(settings))]);
    let released = stop.unless_raised(release(plane, &run, &times)).await??;
    match released.failure() {
        Some(failure) => Err(failure),
        None => Ok(released.instances.len()),
    }
}

/// Launches machines and leaves them `created`. Returns how many.
async fn begin_to_warm_up(
    plane: &Plane,
    minimum: &Minimum,
    count: u32,
    stop: &StopSignal,
) -> Result<usize, Failure> {
    let request = Request {
        run: later::run()?,
        options: options(minimum, count),
        times: TimeOverrides::default(),
        origin: Origin::KeepWarm,
        set_up_patience: None,
        leaves_new: true,
        named: None,
    };
    let provisioned = provision(plane, &request, stop).await;
    match provisioned.failure {
        Some(failure) => Err(failure),
        None => Ok(provisioned.instances.len()),
    }
}

fn options(minimum: &Minimum, count: u32) -> ProvisionOptions {
    ProvisionOptions {
        count,
        class: minimum.class.clone(),
        usage: minimum.usage,
        types: minimum.types.clone(),
        ..ProvisionOptions::default()
    }
}
