//! A fleet of thousands of machines for an hour: the real control plane on virtual time, and a count
//! of what it consumes.
//!
//! Provision, release and refresh are the real ones. Agents are modelled by what they do when their
//! records change; their heartbeats and their waiting are counted and not played. Latencies are drawn
//! from the distributions in `world.rs`.

mod layout;
mod meter;
mod result;
mod store;
mod world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::lifecycle::{Idle, Instance};
use ondeck_core::model::ids::{InstanceId, IntentId, ResourceClass, RunId};
use ondeck_core::model::record::{Counts, MachineSpec, Record, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::settings::Settings;
use ondeck_core::modes::plane::{KnownSettings, Plane};
use ondeck_core::modes::provision::{MachineSource, Provisioned, Request, provision};
use ondeck_core::modes::refresh::{AbsentForge, refresh};
use ondeck_core::modes::release::release;
use ondeck_core::ports::{Clock, Machine, Pool};
use ondeck_core::runtime::stop::StopSignal;
use ondeck_core::testkit::{SeededRandom, SilentProgress};

pub use meter::{Counted, KEY_LIMITS, KeyUse, Meter, MeteredKey, Units};
pub use result::ScaleResult;
pub use store::{AtOnce, MeteredStore, MeteredTable, Pace};
use world::{ScaleWorld, Services};

/// The size of the fleet and its work.
#[derive(Debug, Clone, Copy)]
pub struct ScaleOptions {
    pub seed: u64,
    /// How many machines there are at the beginning.
    pub machines: usize,
    /// How many runs begin in an hour.
    pub runs_an_hour: usize,
    /// What is played before anything is counted, so that most machines have runs.
    pub warm_up: Duration,
    /// The span after the warm-up in which calls are counted.
    pub counted: Duration,
}

impl Default for ScaleOptions {
    fn default() -> ScaleOptions {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        ScaleOptions {
            seed: 1,
            machines: 10_000,
            runs_an_hour: 2_000,
            warm_up: minutes(35),
            counted: minutes(60),
        }
    }
}

/// How many machines a run asks for, with the share of runs that do, in percent. The mean is 9.6.
const SIZES: [(u32, u32); 5] = [(1, 20), (4, 25), (8, 25), (16, 20), (32, 10)];
/// How long a run takes, in seconds.
const DURATION: std::ops::Range<u64> = 12 * 60..32 * 60;
/// Which part of the runs asks for each class, in percent.
const CLASSES: [(&str, u32); 3] = [("large", 40), ("xlarge", 35), ("2xlarge", 25)];
/// Which part of the machines refresh keeps idle, in percent.
const MIN_IDLE: usize = 22;
const REFRESH: Duration = Duration::from_secs(60);
/// The longest that a run may have its machines.
const MAX_RUNTIME: Duration = Duration::from_secs(3_600);
/// The shards that a fleet of this size has, see `refresh/index_shards.rs`.
const SHARDS_FOR: usize = 1_000;

/// What processes have reported.
#[derive(Debug, Default)]
struct Tally {
    /// How long each provision took whose machines were all idle before.
    warm: Vec<Duration>,
    runs: usize,
    machines_warm: usize,
    machines_cold: usize,
    refreshes: Vec<Duration>,
    failures: BTreeMap<String, usize>,
    /// Machines in each minute: all, and those that a run has.
    fleet: Vec<(usize, usize)>,
}

/// A fleet at work.
struct Fleet {
    options: ScaleOptions,
    world: Arc<ScaleWorld>,
    table: Arc<MeteredTable>,
    tally: Mutex<Tally>,
    random: Mutex<fastrand::Rng>,
}

/// Plays a fleet and counts what it consumes.
pub fn play_scale(options: &ScaleOptions) -> ScaleResult {
    let (world, table) = ScaleWorld::new(options.seed);
    let random = Mutex::new(fastrand::Rng::with_seed(options.seed));
    let tally = Mutex::default();
    let fleet = Arc::new(Fleet { options: *options, world, table, tally, random });
    let time = fleet.world.time.clone();
    let end = options.warm_up + options.counted;
    let starting = fleet.clone();
    time.spawn(async move { starting.begin(end).await });
    let counting = fleet.clone();
    time.spawn(async move { counting.begin_to_count().await });
    time.play(end);
    let counted = fleet.world.meter.take();
    let tally = std::mem::take(&mut *fleet.tally());
    ScaleResult::of(*options, counted, tally)
}

impl Fleet {
    fn tally(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets what was counted up to the end of the warm-up.
    async fn begin_to_count(&self) {
        self.world.time.sleep(self.options.warm_up).await;
        self.world.meter.take();
        *self.tally() = Tally::default();
    }

    /// Sets the pool up, fills it, and starts what happens until `end`.
    async fn begin(self: Arc<Self>, end: Duration) {
        let minimum = |percent: u32| {
            (self.options.machines * MIN_IDLE * percent as usize / 10_000).to_string()
        };
        let minimums = CLASSES.map(|(class, percent)| format!("{class}={}", minimum(percent)));
        let given = BTreeMap::from([
            ("min-idle".to_owned(), minimums.join(" ")),
            ("idle-time-sec".to_owned(), "900".to_owned()),
        ]);
        self.fill().await;
        let plane = self.plane("set-up");
        let set_up = refresh(&plane, &given, &StopSignal::never()).await;
        set_up.expect("the pool can be set up");
        let (runs, refreshes) = (self.clone(), self.clone());
        self.world.time.spawn(async move { runs.start_runs(end).await });
        self.world.time.spawn(async move { refreshes.refresh_regularly(end).await });
    }

    /// Adds the machines that are there from the beginning.
    async fn fill(&self) {
        let settings = Settings::from_map(&BTreeMap::new()).expect("the defaults are sound");
        let shards = self.options.machines.div_ceil(SHARDS_FOR).next_power_of_two();
        let shards = u32::try_from(shards).expect("a small number");
        let mut number = 0;
        for (class, percent) in CLASSES {
            let class = ResourceClass::new(class).expect("a sound name");
            let size = settings.classes.get(&class).expect("a class of the defaults");
            let spec = MachineSpec {
                resource_class: class,
                instance_type: "c6i.large".to_owned(),
                usage_class: UsageClass::OnDemand,
                cpu: size.cpu,
                mem: size.mem,
            };
            for _ in 0..self.options.machines * percent as usize / 100 {
                number += 1;
                self.add_idle(number, &spec, shards).await;
            }
        }
    }

    async fn add_idle(&self, number: usize, spec: &MachineSpec, shards: u32) {
        let now = self.world.time.now();
        let lasts = Duration::from_secs(self.draw(|random| random.u64(600..2_400)));
        let record = Record {
            requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
            id: InstanceId::new(format!("i-{number:017x}")).expect("a sound id"),
            state: State::Idle,
            run: None,
            threshold: Some(now + lasts),
            spec: spec.clone(),
            created_at: now,
            updated_at: now,
            ticketed_at: Some(now),
            settings_version: None,
            reuse: Reuse::Always,
            departure: ondeck_core::model::departure::Departure::None,
            suffix: None,
            counts: Counts::default(),
        };
        self.world.compute.insert(Machine {
            id: record.id.clone(),
            spec: record.spec.clone(),
            intent: IntentId::new("preset").expect("a sound id"),
            launched_at: now,
            image: None,
        });
        let idle: Instance<Idle> = Instance::believe(&record).expect("it is idle");
        let sent = self.world.pool.send(&[idle.ticket()], Duration::ZERO).await;
        sent.expect("a pool in memory");
        self.world.beat(&self.table, &record.id).await;
        self.table.insert(record, shards);
    }

    async fn start_runs(self: Arc<Self>, end: Duration) {
        let mean = 3_600.0 / self.options.runs_an_hour as f64;
        for number in 0.. {
            // Exponential, so that runs come independently of each other.
            let pause = self.draw(|random| -mean * (1.0 - random.f64()).ln());
            self.world.time.sleep(Duration::from_secs_f64(pause)).await;
            if self.world.time.elapsed() >= end {
                return;
            }
            let fleet = self.clone();
            self.world.time.spawn(async move { fleet.run(number).await });
        }
    }

    /// One run: provision, work, release.
    async fn run(&self, number: u64) {
        let run = RunId::new(format!("{}", 9_000_000_000 + number)).expect("a sound id");
        let plane = self.plane(&format!("provision {run}"));
        let mut request = Request::of_run(run.clone());
        let (size, class) =
            self.draw(|random| (weighted(random, &SIZES), weighted(random, &CLASSES)));
        request.options.count = size;
        request.options.class = ResourceClass::new(class).expect("a sound name");
        request.times = TimeOverrides(vec![("max-runtime-min", MAX_RUNTIME)]);
        let began = plane.clock.steady();
        let outcome = provision(&plane, &request, &StopSignal::never()).await;
        plane.store.finish().await.expect("a store in memory");
        let took = plane.clock.steady().saturating_sub(began);
        {
            let is_warm = |it: &&Provisioned| it.source == MachineSource::Warm;
            let warm = outcome.instances.iter().filter(is_warm).count();
            let mut tally = self.tally();
            tally.runs += 1;
            tally.machines_warm += warm;
            tally.machines_cold += outcome.instances.len() - warm;
            match &outcome.failure {
                Some(failure) => *tally.failures.entry(failure.message.clone()).or_default() += 1,
                None if warm == outcome.instances.len() => tally.warm.push(took),
                None => {}
            }
        }
        if outcome.failure.is_some() {
            return;
        }
        let seconds = self.draw(|random| random.u64(DURATION));
        self.world.time.sleep(Duration::from_secs(seconds)).await;
        let plane = self.plane(&format!("release {run}"));
        if let Err(failure) = release(&plane, &run, &TimeOverrides::default()).await {
            *self.tally().failures.entry(failure.message).or_default() += 1;
        }
        plane.store.finish().await.expect("a store in memory");
    }

    async fn refresh_regularly(self: Arc<Self>, end: Duration) {
        for number in 0.. {
            let due = REFRESH * number;
            let now = self.world.time.elapsed();
            self.world.time.sleep(due.saturating_sub(now)).await;
            if self.world.time.elapsed() >= end {
                return;
            }
            self.refresh_once(number).await;
        }
    }

    async fn refresh_once(&self, number: u32) {
        let plane = self.plane(&format!("refresh {number}"));
        let live = self.table.records.select(|record| record.state.is_live());
        let owned = live.iter().filter(|record| record.run.is_some()).count();
        self.tally().fleet.push((live.len(), owned));
        let began = plane.clock.steady();
        let outcome = refresh(&plane, &BTreeMap::new(), &StopSignal::never()).await;
        plane.store.finish().await.expect("a store in memory");
        let took = plane.clock.steady().saturating_sub(began);
        let mut tally = self.tally();
        tally.refreshes.push(took);
        match outcome.map(|outcome| outcome.failure) {
            Ok(None) => {}
            Ok(Some(failure)) | Err(failure) => {
                *tally.failures.entry(failure.message).or_default() += 1;
            }
        }
    }

    /// The ports of a new process.
    fn plane(&self, name: &str) -> Plane {
        let services = Arc::new(Services(self.world.clone()));
        let seed = crate::kernel::digest(&[&self.options.seed, &name]);
        Plane {
            store: Arc::new(MeteredStore::new(&self.table)),
            pool: services.clone(),
            compute: services,
            forge: Arc::new(AbsentForge),
            clock: self.world.time.clone(),
            random: Arc::new(SeededRandom::new(seed)),
            progress: Arc::new(SilentProgress),
            known_settings: KnownSettings::default(),
        }
    }
}

/// Draws one of several, each with its share in percent.
fn weighted<T: Copy>(random: &mut fastrand::Rng, of: &[(T, u32)]) -> T {
    let mut drawn = random.u32(0..of.iter().map(|(_, share)| share).sum());
    for (value, share) in of {
        if drawn < *share {
            return *value;
        }
        drawn -= share;
    }
    of[0].0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> ScaleOptions {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        ScaleOptions {
            machines: 100,
            runs_an_hour: 20,
            warm_up: minutes(10),
            counted: minutes(30),
            ..ScaleOptions::default()
        }
    }

    #[test]
    fn one_seed_makes_one_count() {
        let (first, again) = (play_scale(&small()), play_scale(&small()));
        assert!(first.runs() > 3, "{}", first.shown());
        assert_eq!(first.shown(), again.shown());
    }

    #[test]
    fn a_small_fleet_is_far_below_the_limits_and_fails_nothing() {
        let result = play_scale(&small());
        assert!(result.keys_above_limit().is_empty(), "{}", result.shown());
        assert!(result.failures().is_empty(), "{:?}", result.failures());
    }
}
