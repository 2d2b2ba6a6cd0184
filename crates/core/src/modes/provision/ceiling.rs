//! The ceiling, as one launch meets it: places are reserved before the launch, and those that it
//! does not need are given back after it. Claims of idle machines need no place.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{Attempt, Request, selection};
use crate::inputs::times::Times;
use crate::model::ceiling::{Limits, MachineCount, Reservation, ReservationVerdict, Settlement};
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{IntentId, ResourceClass};
use crate::model::settings::Settings;
use crate::model::summary::WaitCause;
use crate::model::timestamp::Timestamp;
use crate::ports::Machine;
use crate::runtime::poll::{PollInterval, Wait, wait_until};

/// How soon a provision that waits for room looks again; it looks less often as it waits longer.
const LOOK: Duration = Duration::from_millis(500);

/// How long a refresh may take from setting a ceiling to counting the machines.
const COUNTED_WITHIN: Duration = Duration::from_secs(30);

/// The most machines that a settlement names, so that the count stays small.
const NAMED_MACHINES: usize = 100;

/// The places of one launch.
#[derive(Debug)]
pub(super) struct Places {
    /// How many machines to launch.
    pub(super) count: u32,
    /// How many machines were claimed while there was no room.
    pub(super) claimed: u32,
    /// `None` if there is no ceiling.
    reservation: Option<Reservation>,
}

/// The times of a call that may wait for room. Machines that it holds meanwhile must outlast the
/// wait. A call that refresh makes does not wait: other repairs would wait with it.
pub(super) fn times_with_patience(
    mut times: Times,
    request: &Request,
    settings: &Settings,
) -> Times {
    if request.is_of_refresh() || limits(settings, &request.options.class).is_none() {
        times.ceiling_patience = Duration::ZERO;
    }
    times.claim_timeout += times.ceiling_patience;
    times.created_timeout += times.ceiling_patience;
    times
}

/// Reserves places for the launch of `wanted` machines under `intent`. While there is no room, waits
/// for as long as the call's patience lasts, and claims machines that become idle. Then the launch
/// needs fewer places, or none.
///
/// Fails with `AtCeiling` if there is still no room.
pub(super) async fn reserve(
    attempt: &Attempt<'_>,
    intent: &IntentId,
    wanted: u32,
) -> Result<Places, Failure> {
    let Some(limits) = limits(&attempt.settings, &attempt.requirements.class) else {
        return Ok(Places { count: wanted, claimed: 0, reservation: None });
    };
    let refusal = match ask(attempt, intent, wanted, &limits).await? {
        Ok(reservation) => return Ok(granted(reservation, 0)),
        Err(refusal) => refusal,
    };
    let Some(patience) = patience(attempt, &refusal) else { return Err(refusal.into()) };
    attempt.plane.progress.stage(&format!("waiting for room: {refusal}"));
    let (from, why) = (attempt.plane.clock.steady(), refusal.to_string());
    let places = wait(attempt, intent, wanted, &limits, refusal, patience).await;
    attempt.journal.waited((from, attempt.plane.clock.steady()), WaitCause::Room, &why);
    places
}

/// Gives back the places of machines that were not launched. If this fails, the next refresh counts
/// what exists.
pub(super) async fn settle(attempt: &Attempt<'_>, places: &Places, launched: &[Machine]) {
    let Some(reservation) = &places.reservation else { return };
    let plane = attempt.plane;
    let count = u32::try_from(launched.len()).unwrap_or(u32::MAX);
    // Where lists are complete, refresh need not ask for each machine.
    let named = !plane.compute.listing_lag().is_zero() && launched.len() <= NAMED_MACHINES;
    let machines = launched.iter().filter(|_| named).map(|machine| machine.id.clone());
    let settlement = Settlement {
        intent: reservation.intent.clone(),
        class: reservation.class.clone(),
        from: reservation.count,
        to: count.min(reservation.count),
        machines: machines.collect(),
        at: plane.now(),
    };
    if let Err(error) = plane.retried(|| plane.store.settle_reservation(&settlement)).await {
        tracing::warn!("places below the ceiling were not given back: {error}");
    }
}

fn limits(settings: &Settings, class: &ResourceClass) -> Option<Limits> {
    // Refresh notes the time together with the setting. Without it no count is for this ceiling.
    let since = settings.ceiling_since.unwrap_or(Timestamp::from_millis(0));
    settings.max_machines.limits(class, since)
}

fn granted(reservation: Reservation, claimed: u32) -> Places {
    Places { count: reservation.count, claimed, reservation: Some(reservation) }
}

/// Asks the store for the places of one launch.
async fn ask(
    attempt: &Attempt<'_>,
    intent: &IntentId,
    count: u32,
    limits: &Limits,
) -> Result<Result<Reservation, Refusal>, Failure> {
    let plane = attempt.plane;
    let reservation = Reservation {
        intent: intent.clone(),
        class: attempt.requirements.class.clone(),
        count,
        deadline: plane.now() + attempt.times.created_timeout,
    };
    let verdict = plane.retried(|| plane.store.reserve(&reservation, limits)).await?;
    if verdict.is_granted(intent) {
        return Ok(Ok(reservation));
    }
    let found = match verdict {
        ReservationVerdict::Refused(found) => found.filter(|found| found.since == limits.since),
        ReservationVerdict::Granted => None,
    };
    let class = reservation.class;
    Ok(Err(Refusal { found, limits: *limits, class, needed: count }))
}

/// How long this call may wait because of a refusal; `None` if waiting cannot help or its patience
/// is used up.
fn patience(attempt: &Attempt<'_>, refusal: &Refusal) -> Option<Duration> {
    let limits = refusal.limits;
    let asked = attempt.request.options.count;
    if [limits.pool, limits.class].iter().flatten().any(|limit| *limit < asked) {
        return None;
    }
    let at_most = match &refusal.found {
        None if attempt.request.is_of_refresh() => Duration::ZERO,
        None => attempt.times.ceiling_patience.max(COUNTED_WITHIN),
        Some(_) => attempt.times.ceiling_patience,
    };
    let now = attempt.plane.clock.steady();
    let waited = now.saturating_sub(attempt.holdings.waits_for_room_since(now));
    at_most.checked_sub(waited).filter(|left| !left.is_zero())
}

async fn wait(
    attempt: &Attempt<'_>,
    intent: &IntentId,
    wanted: u32,
    limits: &Limits,
    refusal: Refusal,
    at_most: Duration,
) -> Result<Places, Failure> {
    let clock = &*attempt.plane.clock;
    let (claimed, last) = (AtomicU32::new(0), Mutex::new(refusal));
    let wait = Wait::begin(clock, at_most, PollInterval::backing_off(LOOK, 8));
    let places = wait_until(clock, wait, || async {
        let before = claimed.load(Ordering::Relaxed);
        let so_far = before + claim_idle(attempt, wanted - before).await?;
        claimed.store(so_far, Ordering::Relaxed);
        if so_far >= wanted {
            return Ok(Some(Places { count: 0, claimed: so_far, reservation: None }));
        }
        match ask(attempt, intent, wanted - so_far, limits).await? {
            Ok(reservation) => Ok(Some(granted(reservation, so_far))),
            Err(refusal) => {
                *last.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
                Ok::<_, Failure>(None)
            }
        }
    });
    match places.await? {
        Some(places) => Ok(places),
        None => Err(last.into_inner().unwrap_or_else(PoisonError::into_inner).into()),
    }
}

/// Claims machines that have become idle since the pool was searched. Returns how many.
async fn claim_idle(attempt: &Attempt<'_>, wanted: u32) -> Result<u32, Failure> {
    if !attempt.request.may_claim() {
        return Ok(0);
    }
    let before = attempt.missing();
    selection::select(attempt, wanted).await?;
    Ok(before - attempt.missing())
}

/// Why a launch has no places.
#[derive(Debug)]
struct Refusal {
    /// `None` if refresh has not counted since the ceiling was set.
    found: Option<MachineCount>,
    limits: Limits,
    class: ResourceClass,
    needed: u32,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { found, limits, class, needed } = self;
        let Some(found) = found else {
            return write!(f, "the machines below max-machines are not counted yet");
        };
        let full = |count: u32, limit: Option<u32>| {
            limit.filter(|limit| u64::from(count) + u64::from(*needed) > u64::from(*limit))
        };
        let of_class = found.of_class(class);
        match (full(found.total, limits.pool), full(of_class, limits.class)) {
            (Some(pool), Some(max)) => write!(
                f,
                "the pool has {} of {pool} machines and class {class} has {of_class} of {max}",
                found.total
            )?,
            (None, Some(max)) => write!(f, "class {class} has {of_class} of {max} machines")?,
            (pool, None) => {
                let max = pool.or(limits.pool).unwrap_or_default();
                write!(f, "the pool has {} of {max} machines", found.total)?;
            }
        }
        match needed {
            1 => f.write_str(", 1 more is needed"),
            _ => write!(f, ", {needed} more are needed"),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        let hint = match refusal.found {
            None => "run ondeck refresh, which counts them",
            Some(_) => {
                "release machines, wait for room with --ceiling-patience-sec, or raise \
                 --max-machines with ondeck refresh"
            }
        };
        Failure::new(FailureKind::AtCeiling, refusal.to_string()).hint(hint)
    }
}
