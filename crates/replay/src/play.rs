//! One point of the grid: the whole history, with the modes as they are.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::money::Money;
use ondeck_core::model::prices::Prices;
use ondeck_core::model::record::State;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::settings::REGISTRATION_P95;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::plane::{KnownSettings, Plane};
use ondeck_core::modes::provision::{MachineSource, Request, provision};
use ondeck_core::modes::refresh::{AbsentForge, refresh};
use ondeck_core::modes::release::release;
use ondeck_core::ports::{Clock, Store};
use ondeck_core::runtime::stop::StopSignal;
use ondeck_core::testkit::{SeededRandom, SilentProgress};

use crate::history::{History, HistoryRun};
use crate::model::{Model, Point};
use crate::world::{Life, Provider, World};

/// How long before the first run the pool is set up, so that its minimum is there by then.
const LEAD: Duration = Duration::from_secs(15 * 60);
/// How much longer a run may have its machines than it takes.
const SLACK: Duration = Duration::from_secs(30 * 60);
/// How long after the last planned end is played at most: until every run has ended that waited, or was
/// repeated.
const TRAIL: Duration = Duration::from_secs(366 * 24 * 3_600);
/// How often a run whose machines were interrupted is run again.
const MOST_REPEATS: u32 = 10;
/// EC2 charges for a minute at least.
const LEAST_CHARGED: Duration = Duration::from_secs(60);
/// How long records of terminated machines are kept. Less than the default, because each refresh reads
/// them.
const RETENTION: &str = "60";

/// What a point of the grid means for a history.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Measured {
    /// How many runs were given all their machines.
    pub runs: usize,
    /// How many runs were not, or could not release theirs.
    pub failed: usize,
    /// The first reason of that.
    pub failure: Option<String>,
    /// How often a run was run again because a machine was interrupted.
    pub repeated: usize,
    /// How many machines runs were given, and how many of these came from the pool.
    pub handed_over: usize,
    pub warm: usize,
    pub launched: usize,
    /// How long each run waited for its machines, in ascending order. A run that was repeated has
    /// waited for all of them.
    pub waits: Vec<Duration>,
    /// What the machines cost between the first start and the last planned end, and what part of it
    /// they were busy for.
    pub cost: Money,
    pub busy: Money,
    /// The time of machines whose type has no price. It is not in the cost.
    pub unpriced: Duration,
}

impl Measured {
    /// The share of machines that came from the pool; 0 if there were none.
    pub fn warm_share(&self) -> f64 {
        self.warm as f64 / self.handed_over.max(1) as f64
    }

    pub fn mean_wait(&self) -> Duration {
        let count = u32::try_from(self.waits.len()).unwrap_or(u32::MAX).max(1);
        self.waits.iter().sum::<Duration>() / count
    }

    /// The shortest wait that so many percent of the runs did not exceed; zero if there were none.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.waits.len() * percent).div_ceil(100).max(1);
        self.waits.get(rank - 1).copied().unwrap_or_default()
    }
}

/// Plays a history at a point of the grid.
pub(crate) fn play(history: &History, point: &Point, model: Model, prices: &Prices) -> Measured {
    let (since, until) = (history.since(), history.until());
    let began = since.before(LEAD);
    let world = World::new(began, model);
    let pool = Arc::new(Pool {
        since,
        until,
        model,
        usage: point.usage,
        measured: Mutex::default(),
        world: world.clone(),
    });
    let given = settings(history, point, model);
    let refreshing = pool.clone();
    world.time.spawn(async move { refreshing.refresh_regularly(given).await });
    for (number, run) in history.runs().iter().enumerate() {
        let (pool, run) = (pool.clone(), run.clone());
        world.time.spawn(async move { pool.run(number, &run).await });
    }
    world.time.play(until.since(began) + TRAIL);
    let mut measured = std::mem::take(&mut *pool.measured());
    measured.waits.sort_unstable();
    for life in world.lives() {
        charge(&mut measured, &life, prices, (since, until));
    }
    measured
}

/// What refresh is given at the beginning.
fn settings(history: &History, point: &Point, model: Model) -> BTreeMap<String, String> {
    let minimum = point.min_idle_setting(&history.classes());
    // A registration always takes the same time. A pool that knows that claims no second machine.
    let known = model.registration + Duration::from_secs(1);
    BTreeMap::from([
        ("idle-time-sec".to_owned(), point.idle_time.as_secs_f64().to_string()),
        ("min-idle".to_owned(), minimum),
        ("retention-min".to_owned(), RETENTION.to_owned()),
        (REGISTRATION_P95.to_owned(), known.as_millis().to_string()),
    ])
}

/// A pool at work.
#[derive(Debug)]
struct Pool {
    since: Timestamp,
    until: Timestamp,
    model: Model,
    usage: UsageClass,
    world: Arc<World>,
    measured: Mutex<Measured>,
}

impl Pool {
    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, failure: &Failure) {
        let mut measured = self.measured();
        measured.failed += 1;
        measured.failure.get_or_insert_with(|| failure.message.clone());
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.world.time.sleep(at.since(self.world.time.now())).await;
    }

    /// Sets the pool up, and refreshes it until the history is over.
    async fn refresh_regularly(&self, mut given: BTreeMap<String, String>) {
        // It is no input, so a refresh is not given it.
        if let Some(known) = given.remove(REGISTRATION_P95) {
            let change = BTreeMap::from([(REGISTRATION_P95.to_owned(), known)]);
            let stored = self.world.store.put_settings(&change).await;
            debug_assert!(stored.is_ok(), "a store in memory does not fail");
        }
        let began = self.since.before(LEAD);
        for number in 0_u32.. {
            self.sleep_until(began + self.model.refresh_every * number).await;
            if self.world.time.now() >= self.until {
                return;
            }
            let plane = self.plane(u64::from(number));
            let outcome = refresh(&plane, &given, &StopSignal::never()).await;
            given.clear();
            if let Err(failure) | Ok(Some(failure)) = outcome.map(|outcome| outcome.failure) {
                self.fail(&failure);
            }
        }
    }

    fn may_be_interrupted(&self) -> bool {
        self.usage == UsageClass::Spot && self.model.interruptions > 0
    }

    /// One run: provision, work, release. It begins again if a machine is interrupted.
    async fn run(&self, number: usize, run: &HistoryRun) {
        self.sleep_until(run.start).await;
        let mut waited = Duration::ZERO;
        for attempt in 0..=MOST_REPEATS {
            let id = RunId::new(format!("{}", 1_000 + 100 * number + attempt as usize))
                .expect("a number is a sound id");
            let plane = self.plane(((number as u64) << 8) + u64::from(attempt) + (1 << 40));
            let began = plane.clock.steady();
            let provisioned = self.provision(&plane, &id, run).await;
            waited += plane.clock.steady().saturating_sub(began);
            let machines = match provisioned {
                Ok(machines) => machines,
                // A machine may be interrupted while it boots.
                Err(_) if self.may_be_interrupted() && attempt < MOST_REPEATS => {
                    self.measured().repeated += 1;
                    continue;
                }
                Err(failure) => return self.fail(&failure),
            };
            let (ready, planned) = (plane.now(), plane.now() + run.length);
            let interrupted = self.world.interruption_of(machines.iter());
            let interrupted = interrupted.filter(|at| *at < planned);
            self.sleep_until(interrupted.unwrap_or(planned)).await;
            let released = release(&plane, &id, &TimeOverrides::default()).await;
            if interrupted.is_some() && attempt < MOST_REPEATS {
                waited += plane.now().since(ready);
                self.measured().repeated += 1;
                continue;
            }
            if let Err(failure) = released {
                self.fail(&failure);
            }
            break;
        }
        let mut measured = self.measured();
        measured.runs += 1;
        measured.waits.push(waited);
    }

    async fn provision(
        &self,
        plane: &Plane,
        id: &RunId,
        run: &HistoryRun,
    ) -> Result<Vec<InstanceId>, Failure> {
        let mut request = Request::of_run(id.clone());
        request.options.count = run.machines;
        request.options.class = run.class.clone();
        request.options.usage = self.usage;
        request.times = TimeOverrides(vec![("max-runtime-min", run.length + SLACK)]);
        let outcome = provision(plane, &request, &StopSignal::never()).await;
        if let Some(failure) = outcome.failure {
            return Err(failure);
        }
        let mut measured = self.measured();
        measured.handed_over += outcome.instances.len();
        measured.warm +=
            outcome.instances.iter().filter(|it| it.source == MachineSource::Warm).count();
        Ok(outcome.instances.into_iter().map(|it| it.id).collect())
    }

    /// The ports of a new process.
    fn plane(&self, number: u64) -> Plane {
        Plane {
            store: self.world.store.clone(),
            pool: self.world.pool.clone(),
            compute: Arc::new(Provider(self.world.clone())),
            forge: Arc::new(AbsentForge),
            clock: self.world.time.clone(),
            random: Arc::new(SeededRandom::new(self.model.seed ^ number.rotate_left(17))),
            progress: Arc::new(SilentProgress),
            known_settings: KnownSettings::default(),
        }
    }
}

/// Adds what a machine cost within these times.
fn charge(
    measured: &mut Measured,
    life: &Life,
    prices: &Prices,
    (since, until): (Timestamp, Timestamp),
) {
    measured.launched += 1;
    let within = |at: Timestamp| at.clamp(since, until);
    let to = life.to.unwrap_or(until).max(life.from + LEAST_CHARGED);
    let span = within(to).since(within(life.from));
    let Some(per_hour) = prices.per_hour(&life.spec) else {
        measured.unpriced += span;
        return;
    };
    measured.cost += per_hour.for_span(span);
    let ends = life.states.iter().skip(1).map(|(at, _)| *at).chain([to]);
    for ((from, state), end) in life.states.iter().zip(ends) {
        if matches!(state, State::Claimed | State::Running) {
            measured.busy += per_hour.for_span(within(end.min(to)).since(within(*from)));
        }
    }
}

#[cfg(test)]
mod tests;
