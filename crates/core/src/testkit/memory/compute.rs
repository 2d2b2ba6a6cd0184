use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use super::{ClockAndDebug, lock, out_of_reach, turn};
use crate::model::ids::{InstanceId, IntentId, InvalidId, ProviderName};
use crate::model::record::MachineSpec;
use crate::model::requirements::{Requirements, TypePatterns, UsageClass};
use crate::model::settings::Settings;
use crate::model::timestamp::Timestamp;
use crate::ports::{Compute, Launched, Machine, Order, PortError, PortResult};

/// The instance types of a request that names none.
const DEFAULT_TYPES: &str = "c* m* r*";

#[derive(Debug, Default)]
struct Fleet {
    machines: BTreeMap<InstanceId, Machine>,
    terminated: Vec<InstanceId>,
    launched: BTreeMap<IntentId, Launched>,
    ordered: Vec<(UsageClass, u32)>,
    partial: VecDeque<PartialLaunch>,
    counter: u32,
    capacity: Option<usize>,
    withheld: Option<UsageClass>,
    down: bool,
    /// How many new orders are served before the others fail, and with which error.
    launch_error: Option<(usize, PortError)>,
    set_up_refused: bool,
    answers_lost: bool,
    unlisted: bool,
    listing_lag: Duration,
    image: Option<String>,
}

/// Why an order gets fewer machines than it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartialLaunch {
    /// The provider has no more than this many machines.
    NoCapacity(u32),
    /// The provider throttles the order after this many machines.
    Throttled(u32),
}

/// A provider in memory, on which launches take no time.
#[derive(Debug)]
pub struct MemoryCompute {
    fleet: Mutex<Fleet>,
    clock: Arc<dyn ClockAndDebug>,
}

impl MemoryCompute {
    /// No machines yet, and no limit.
    pub(super) fn clock(&self) -> &dyn ClockAndDebug {
        &*self.clock
    }

    pub fn new(clock: Arc<dyn ClockAndDebug>) -> MemoryCompute {
        MemoryCompute { fleet: Mutex::default(), clock }
    }

    /// Limits the number of machines that exist at once.
    pub fn set_capacity(&self, capacity: usize) {
        lock(&self.fleet).capacity = Some(capacity);
    }

    /// Serves the next orders only in part, one entry for each order.
    pub fn serve_next(&self, partial: impl IntoIterator<Item = PartialLaunch>) {
        lock(&self.fleet).partial.extend(partial);
    }

    /// The usage class and the count of every order, repetitions excluded.
    pub fn ordered(&self) -> Vec<(UsageClass, u32)> {
        lock(&self.fleet).ordered.clone()
    }

    /// Has no capacity of this usage class from now on.
    pub fn withhold(&self, usage: UsageClass) {
        lock(&self.fleet).withheld = Some(usage);
    }

    /// Fails every call from now on.
    pub fn go_down(&self) {
        lock(&self.fleet).down = true;
    }

    /// Serves `orders` more orders. From then on, fails each launch with this error and launches
    /// nothing.
    pub fn fail_launches_after(&self, orders: usize, error: PortError) {
        let mut fleet = lock(&self.fleet);
        fleet.launch_error = Some((fleet.ordered.len() + orders, error));
    }

    /// No call fails from now on.
    pub fn repair(&self) {
        let mut fleet = lock(&self.fleet);
        (fleet.down, fleet.launch_error, fleet.answers_lost) = (false, None, false);
        fleet.partial.clear();
    }

    /// Refuses to be set up from now on, or no longer.
    pub fn refuse_set_up(&self, refuse: bool) {
        lock(&self.fleet).set_up_refused = refuse;
    }

    /// From now on, launches machines but loses the answer, and does not list any machine.
    pub fn lose_launches(&self) {
        let mut fleet = lock(&self.fleet);
        (fleet.answers_lost, fleet.unlisted) = (true, true);
    }

    /// Boots machines from this image from now on.
    pub fn use_image(&self, image: &str) {
        lock(&self.fleet).image = Some(image.to_owned());
    }

    /// Lists machines only when this time has passed since their launch.
    pub fn list_late(&self, lag: Duration) {
        lock(&self.fleet).listing_lag = lag;
    }

    pub fn list_all(&self) {
        lock(&self.fleet).unlisted = false;
    }

    fn answer(&self) -> PortResult<()> {
        if lock(&self.fleet).down {
            return Err(out_of_reach("compute"));
        }
        Ok(())
    }

    fn heard(fleet: &Fleet) -> PortResult<()> {
        if fleet.answers_lost {
            let reason = "no answer in time".to_owned();
            return Err(PortError::Unavailable { service: "compute", reason });
        }
        Ok(())
    }

    /// Adds a machine without any order.
    pub fn insert(&self, machine: Machine) {
        lock(&self.fleet).machines.insert(machine.id.clone(), machine);
    }

    /// Passes the machines and the answered orders to `to`.
    pub fn show(&self, to: &mut dyn FnMut(&dyn std::fmt::Debug)) {
        let fleet = lock(&self.fleet);
        to(&(&fleet.machines, &fleet.launched));
    }

    /// Launches in full, or only in part. A repeated order gets the first answer again.
    pub fn launch_partially(
        &self,
        order: &Order,
        partial: Option<PartialLaunch>,
    ) -> PortResult<Launched> {
        self.answer()?;
        let launched_at = self.clock.now();
        let mut fleet = lock(&self.fleet);
        if let Some(launched) = fleet.launched.get(&order.intent) {
            Self::heard(&fleet)?;
            return Ok(launched.clone());
        }
        if let Some((orders, error)) = &fleet.launch_error
            && fleet.ordered.len() >= *orders
        {
            return Err(error.clone());
        }
        fleet.ordered.push((order.requirements.usage, order.count));
        let mut launched = Launched::default();
        for number in 0..order.count {
            if let Some(PartialLaunch::Throttled(most)) = partial
                && number >= most
            {
                launched.passing.push("RequestLimitExceeded".to_owned());
                continue;
            }
            let short = matches!(partial, Some(PartialLaunch::NoCapacity(most)) if number >= most);
            let full = fleet.capacity.is_some_and(|capacity| fleet.machines.len() >= capacity);
            if short || full || fleet.withheld == Some(order.requirements.usage) {
                launched.shortfalls.push("InsufficientInstanceCapacity".to_owned());
                continue;
            }
            fleet.counter += 1;
            let image = fleet.image.clone();
            let machine = Machine { image, ..machine(order, fleet.counter, launched_at) };
            fleet.machines.insert(machine.id.clone(), machine.clone());
            launched.machines.push(machine);
        }
        fleet.launched.insert(order.intent.clone(), launched.clone());
        Self::heard(&fleet)?;
        Ok(launched)
    }

    /// Every machine that was terminated, in order.
    pub fn terminated(&self) -> Vec<InstanceId> {
        lock(&self.fleet).terminated.clone()
    }

    /// The machines that are alive.
    pub fn alive(&self) -> Vec<InstanceId> {
        lock(&self.fleet).machines.keys().cloned().collect()
    }

    /// One machine, if it is alive.
    pub fn machine(&self, id: &str) -> Option<Machine> {
        lock(&self.fleet).machines.values().find(|machine| machine.id.as_str() == id).cloned()
    }

    /// Removes a machine as if it had died on its own.
    pub fn kill(&self, id: &InstanceId) {
        lock(&self.fleet).machines.remove(id);
    }
}

fn machine(order: &Order, number: u32, launched_at: Timestamp) -> Machine {
    let requirements = &order.requirements;
    let patterns: Vec<&str> = requirements.types.iter().collect();
    // Names are alternatives, as a provider chooses among them. Of patterns it is the first.
    let are_names = patterns.iter().all(|pattern| !pattern.contains('*'));
    let chosen = if are_names { number as usize % patterns.len().max(1) } else { 0 };
    let pattern = patterns.get(chosen).copied().unwrap_or("c6i.large");
    Machine {
        id: InstanceId::new(format!("i-{number:04}")).expect("a sound id"),
        spec: MachineSpec {
            resource_class: requirements.class.clone(),
            instance_type: pattern.replace('*', "6i.large"),
            usage_class: requirements.usage,
            cpu: requirements.size.cpu,
            mem: requirements.size.mem,
        },
        intent: order.intent.clone(),
        launched_at,
        image: None,
    }
}

#[async_trait]
impl Compute for MemoryCompute {
    async fn set_up(&self, _settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        turn().await;
        if lock(&self.fleet).set_up_refused {
            let (reason, hint) = ("the image is gone".to_owned(), "give another".to_owned());
            return Err(PortError::Unusable { service: "compute", reason, hint });
        }
        Ok(BTreeMap::new())
    }

    fn default_types(&self) -> TypePatterns {
        DEFAULT_TYPES.parse().expect("sound patterns")
    }

    fn launchable(
        &self,
        requirements: &Requirements,
        _settings: &Settings,
        types: &[&str],
    ) -> Vec<String> {
        let is_launched = |name: &&&str| name.ends_with(".large") && requirements.types.admit(name);
        types.iter().filter(is_launched).map(|name| (*name).to_owned()).collect()
    }

    fn identity(&self, name: &ProviderName) -> Result<InstanceId, InvalidId> {
        InstanceId::new(name.as_str())
    }

    async fn launch(&self, order: &Order, _settings: &Settings) -> PortResult<Launched> {
        turn().await;
        let is_new = !lock(&self.fleet).launched.contains_key(&order.intent);
        let partial = if is_new { lock(&self.fleet).partial.pop_front() } else { None };
        self.launch_partially(order, partial)
    }

    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        turn().await;
        self.answer()?;
        let mut fleet = lock(&self.fleet);
        for id in ids {
            if fleet.machines.remove(id).is_some() {
                fleet.terminated.push(id.clone());
            }
        }
        Ok(())
    }

    async fn machines(&self) -> PortResult<Vec<Machine>> {
        turn().await;
        self.answer()?;
        let now = self.clock.now();
        let fleet = lock(&self.fleet);
        let listed = |machine: &&Machine| machine.launched_at + fleet.listing_lag <= now;
        let machines = fleet.machines.values().filter(listed);
        Ok(if fleet.unlisted { Vec::new() } else { machines.cloned().collect() })
    }

    async fn current_image(&self, _settings: &Settings) -> PortResult<Option<String>> {
        turn().await;
        self.answer()?;
        Ok(lock(&self.fleet).image.clone())
    }

    fn listing_lag(&self) -> Duration {
        lock(&self.fleet).listing_lag
    }
}
