//! The ceiling, as one launch meets it: places are reserved before the launch, and those that it
//! does not need are given back after it. With a cap on what machines may cost, the same write reserves
//! money. Claims of idle machines need neither.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;

use super::{Attempt, Request, selection};
use crate::inputs::times::Times;
use crate::model::ceiling::{Limits, MachineCount, Reservation, ReservationVerdict, Settlement};
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{IntentId, ResourceClass};
use crate::model::money::Money;
use crate::model::requirements::Requirements;
use crate::model::settings::Settings;
use crate::model::spend::{ReservedSpend, Spend, SpendLimit, SpendSettlement};
use crate::model::summary::WaitCause;
use crate::model::timestamp::Timestamp;
use crate::modes::tariff::{Priced, Tariff, longest, no_price};
use crate::ports::Machine;
use crate::runtime::poll::{PollInterval, Wait, wait_until};

/// How soon a provision that waits for room looks again; it looks less often as it waits longer.
const LOOK: Duration = Duration::from_millis(500);

/// How long a refresh may take from setting a ceiling to counting the machines.
const COUNTED_WITHIN: Duration = Duration::from_secs(30);

/// How often a launch asks while the day of the count changes.
const ATTEMPTS: u32 = 10;

/// The most machines that a settlement names, so that the count stays small.
const NAMED_MACHINES: usize = 100;

/// The places of one launch.
#[derive(Debug)]
pub(super) struct Places {
    /// How many machines to launch.
    pub(super) count: u32,
    /// How many machines were claimed while there was no room.
    pub(super) claimed: u32,
    /// `None` if there is neither a ceiling nor a cap.
    reservation: Option<Reservation>,
    /// The types that may be launched below the cap; `None` if there is none.
    pub(super) priced: Option<Priced>,
}

/// What one launch asks for.
struct Wish<'a> {
    intent: &'a IntentId,
    limits: Limits,
    /// `None` if there is no cap.
    priced: Option<Priced>,
}

/// The times of a call that may wait for room. Machines that it holds meanwhile must outlast the
/// wait. A call that refresh makes does not wait: other repairs would wait with it.
pub(super) fn times_with_patience(
    mut times: Times,
    request: &Request,
    settings: &Settings,
) -> Times {
    let since = Timestamp::from_millis(0);
    let limits = settings.max_machines.limits(&request.options.class, since);
    if request.is_of_refresh() || limits.is_none() {
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
/// Fails with `AtCeiling` if there is still no room, and at once with `AtSpendCap` if there is no money,
/// because it takes until midnight for more.
pub(super) async fn reserve(
    attempt: &Attempt<'_>,
    intent: &IntentId,
    requirements: &Requirements,
    wanted: u32,
) -> Result<Places, Failure> {
    let settings = &attempt.settings;
    let Some(limits) = limits(settings, &requirements.class, attempt.plane.now()) else {
        return Ok(Places { count: wanted, claimed: 0, reservation: None, priced: None });
    };
    let priced = match limits.spend {
        None => None,
        Some(_) => {
            let priced = Tariff::new().priced(&*attempt.plane.compute, requirements, settings);
            let subject = format!("class {}", requirements.class);
            Some(priced.ok_or_else(|| no_price(&subject, &requirements.types))?)
        }
    };
    let wish = Wish { intent, limits, priced };
    let refusal = match ask(attempt, &wish, wanted).await? {
        Ok(reservation) => return Ok(granted(reservation, &wish, 0)),
        Err(refusal) => refusal,
    };
    let Some(patience) = patience(attempt, &refusal) else { return Err(refusal.into()) };
    attempt.plane.progress.stage(&format!("waiting for room: {refusal}"));
    let (from, why) = (attempt.plane.clock.steady(), refusal.to_string());
    let places = wait(attempt, &wish, wanted, refusal, patience).await;
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
        spend: reservation.spend.as_ref().map(|reserved| corrected(attempt, reserved, launched)),
    };
    if let Err(error) = plane.retried(|| plane.store.settle_reservation(&settlement)).await {
        tracing::warn!("places below the ceiling were not given back: {error}");
    }
}

/// What becomes of the money of a launch, now that its machines are known.
fn corrected(
    attempt: &Attempt<'_>,
    reserved: &ReservedSpend,
    launched: &[Machine],
) -> SpendSettlement {
    let (tariff, compute) = (Tariff::new(), &*attempt.plane.compute);
    let price = |machine: &Machine| tariff.of(compute, &attempt.settings, &machine.spec);
    let hourly = launched.iter().map(price).sum();
    let day = reserved.from.start_of_day();
    let needed = ReservedSpend { hourly, ..*reserved };
    let back = reserved.on(day, day) - needed.on(day, day);
    SpendSettlement { day, reserved: reserved.hourly, hourly, back }
}

/// The limits for machines of a class; `None` if there is neither a ceiling nor a cap.
fn limits(settings: &Settings, class: &ResourceClass, now: Timestamp) -> Option<Limits> {
    // Refresh notes the times together with the settings. Without them no count is for these limits.
    let noted = |since: Option<Timestamp>| since.unwrap_or(Timestamp::from_millis(0));
    let since = noted(settings.ceiling_since);
    let of_machines = settings.max_machines.limits(class, since);
    let Some(cap) = settings.max_spend_per_day else { return of_machines };
    let limit = SpendLimit { since: noted(settings.spend_since), cap, day: now.start_of_day() };
    let unlimited = Limits { since, pool: None, class: None, spend: None };
    Some(Limits { spend: Some(limit), ..of_machines.unwrap_or(unlimited) })
}

fn granted(reservation: Reservation, wish: &Wish<'_>, claimed: u32) -> Places {
    let count = reservation.count;
    Places { count, claimed, reservation: Some(reservation), priced: wish.priced.clone() }
}

/// Asks the store for the places and the money of one launch. The first launch of a day carries over
/// what exists, unless refresh has done that.
async fn ask(
    attempt: &Attempt<'_>,
    wish: &Wish<'_>,
    count: u32,
) -> Result<Result<Reservation, Refusal>, Failure> {
    let (plane, intent) = (attempt.plane, wish.intent);
    let mut limits = wish.limits;
    if let Some(limit) = &mut limits.spend {
        limit.day = limit.day.max(plane.now().start_of_day());
    }
    for _ in 0..ATTEMPTS {
        let reservation = reservation(attempt, wish, &limits, count);
        let verdict = plane.retried(|| plane.store.reserve(&reservation, &limits)).await?;
        if verdict.is_granted(intent) {
            return Ok(Ok(reservation));
        }
        let found = match verdict {
            ReservationVerdict::Refused(found) => found.filter(|found| is_for(found, &limits)),
            ReservationVerdict::Granted => None,
        };
        let day = found.as_ref().and_then(|found| found.spend.as_ref()).map(|spend| spend.day);
        match (&mut limits.spend, day, &found) {
            // The clock of another process is a little ahead.
            (Some(limit), Some(day), _) if day > limit.day => limit.day = day,
            (Some(limit), Some(day), Some(found)) if day < limit.day => {
                let longest = longest(&attempt.settings, &attempt.times);
                let version = Some(found.version);
                if let Some(next) = found.clone().on_day(limit.day, longest) {
                    plane.retried(|| plane.store.replace_machine_count(version, &next)).await?;
                }
            }
            _ => return Ok(Err(Refusal { found, limits, reservation })),
        }
    }
    let message = "the count of machines changes too often";
    Err(Failure::new(FailureKind::Busy, message).hint("retry in a few minutes"))
}

/// Whether refresh has counted for these limits.
fn is_for(found: &MachineCount, limits: &Limits) -> bool {
    let spend = found.spend.as_ref();
    let is_capped = |limit: SpendLimit| spend.is_some_and(|spend| spend.since == limit.since);
    found.since == limits.since && limits.spend.is_none_or(is_capped)
}

fn reservation(attempt: &Attempt<'_>, wish: &Wish<'_>, limits: &Limits, count: u32) -> Reservation {
    let now = attempt.plane.now();
    let longest = longest(&attempt.settings, &attempt.times);
    let spend = wish.priced.as_ref().zip(limits.spend).map(|(priced, limit)| ReservedSpend {
        hourly: priced.dearest.times(count.into()),
        from: now.max(limit.day),
        until: now + longest,
    });
    Reservation {
        intent: wish.intent.clone(),
        class: attempt.requirements.class.clone(),
        count,
        deadline: now + attempt.times.created_timeout,
        spend,
    }
}

/// How long this call may wait because of a refusal; `None` if waiting cannot help or its patience
/// is used up.
fn patience(attempt: &Attempt<'_>, refusal: &Refusal) -> Option<Duration> {
    let limits = refusal.limits;
    let asked = attempt.request.options.count;
    let is_hopeless = [limits.pool, limits.class].iter().flatten().any(|limit| *limit < asked);
    if is_hopeless || refusal.lacks_money().is_some() {
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
    wish: &Wish<'_>,
    wanted: u32,
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
            let (reservation, priced) = (None, None);
            return Ok(Some(Places { count: 0, claimed: so_far, reservation, priced }));
        }
        match ask(attempt, wish, wanted - so_far).await? {
            Ok(reservation) => Ok(Some(granted(reservation, wish, so_far))),
            Err(refusal) if refusal.lacks_money().is_some() => Err(refusal.into()),
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
    let (deletes, spent) = mpsc::unbounded_channel();
    let selecting = selection::select(attempt, wanted, deletes);
    selection::beside_deletes(attempt, selecting, spent).await?;
    Ok(before - attempt.missing())
}

/// Why a launch has no places.
#[derive(Debug)]
struct Refusal {
    /// `None` if refresh has not counted since the ceiling was set.
    found: Option<MachineCount>,
    limits: Limits,
    reservation: Reservation,
}

impl Refusal {
    /// What machines cost today, the cap, and what the launch needs, if that is more than is left.
    fn lacks_money(&self) -> Option<(&Spend, Money, Money)> {
        let (limit, asked) = (self.limits.spend?, self.reservation.spend?);
        let spend = self.found.as_ref()?.spend.as_ref()?;
        let needed = asked.on(spend.day, spend.day);
        (spend.committed + needed > limit.cap).then_some((spend, limit.cap, needed))
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { found, limits, reservation } = self;
        let Reservation { class, count: needed, .. } = reservation;
        let Some(found) = found else {
            let name = if limits.spend.is_some() { "max-spend-per-day" } else { "max-machines" };
            return write!(f, "the machines below {name} are not counted yet");
        };
        if let Some((spend, cap, needed)) = self.lacks_money() {
            let (spent, reserved) = (spend.spent, spend.reserved());
            return write!(
                f,
                "of {cap} for machines of this day in UTC, {spent} is spent and {reserved} is \
                 reserved, {needed} more is needed"
            );
        }
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
        if refusal.lacks_money().is_some() {
            let hint = "release machines and run ondeck refresh, wait for midnight in UTC, or raise \
                        --max-spend-per-day or lower --max-machine-age-min with ondeck refresh";
            return Failure::new(FailureKind::AtSpendCap, refusal.to_string()).hint(hint);
        }
        let hint = match refusal.found {
            None => "run ondeck refresh, which counts them",
            Some(_) => {
                "release machines, wait for room with --ceiling-patience-sec, or raise \
                 --max-machines with ondeck refresh"
            }
        };
        let kind = match (&refusal.found, refusal.limits.spend) {
            (None, Some(_)) => FailureKind::AtSpendCap,
            _ => FailureKind::AtCeiling,
        };
        Failure::new(kind, refusal.to_string()).hint(hint)
    }
}
