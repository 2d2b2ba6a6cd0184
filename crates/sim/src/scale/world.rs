//! The services around the table: queues, the provider, and agents that answer their records. Each
//! call takes a time that is drawn from a stated distribution.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, InvalidId, ProviderName, ResourceClass};
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::requirements::{Requirements, TypePatterns};
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::{AgentStatus, Report, Signal};
use ondeck_core::model::ticket::Ticket;
use ondeck_core::ports::{
    AgentStore, Clock, Compute, Depth, Launched, Machine, Order, Pool, PortResult, Receipt,
    ReceivedMessage,
};
use ondeck_core::testkit::{MemoryCompute, MemoryPool, VirtualTime};

use super::layout::{key, read_units, write_units};
use super::meter::Meter;
use super::store::{MeteredTable, Pace};

/// How many calls a process has under way at once, as the adapters limit it.
const AT_ONCE: usize = 32;
/// The period that heartbeats announce.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// The most messages of one call to SQS.
const MESSAGES: usize = 10;

/// A log-normal distribution, by its median and its 99th percentile in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Latency {
    pub(super) median: f64,
    pub(super) p99: f64,
}

/// Calls within a region, and the life of a machine. None of these was measured on AWS.
pub(super) const DYNAMODB: Latency = Latency { median: 5.0, p99: 25.0 };
pub(super) const SQS: Latency = Latency { median: 8.0, p99: 40.0 };
pub(super) const LAUNCH: Latency = Latency { median: 1_500.0, p99: 4_000.0 };
pub(super) const DESCRIBE: Latency = Latency { median: 150.0, p99: 600.0 };
pub(super) const BOOT: Latency = Latency { median: 35_000.0, p99: 70_000.0 };

impl Latency {
    fn draw(self, random: &mut fastrand::Rng) -> Duration {
        // The 99th percentile of the standard normal distribution.
        const Z99: f64 = 2.326;
        let sigma = (self.p99 / self.median).ln() / Z99;
        // The sum of twelve uniform numbers is close to a normal one.
        let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        Duration::from_secs_f64(self.median * (sigma * normal).exp() / 1e3)
    }
}

/// What all processes share.
#[derive(Debug)]
pub(super) struct ScaleWorld {
    pub(super) time: Arc<VirtualTime>,
    pub(super) meter: Meter,
    pub(super) pool: MemoryPool,
    pub(super) compute: MemoryCompute,
    table: OnceLock<Weak<MeteredTable>>,
    random: Mutex<fastrand::Rng>,
    /// The last answer of each agent: the state that it was to, and its generation.
    answered: Mutex<HashMap<InstanceId, (State, u32)>>,
}

impl ScaleWorld {
    /// A world without machines, and its table.
    pub(super) fn new(seed: u64) -> (Arc<ScaleWorld>, Arc<MeteredTable>) {
        let time = Arc::new(VirtualTime::default());
        let meter = Meter::default();
        let world = Arc::new(ScaleWorld {
            pool: MemoryPool::new(time.clone()),
            compute: MemoryCompute::new(time.clone()),
            table: OnceLock::new(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            answered: Mutex::default(),
            time: time.clone(),
            meter: meter.clone(),
        });
        let table = MeteredTable::new(time, meter, Arc::new(Paced(world.clone())));
        world.table.get_or_init(|| Arc::downgrade(&table));
        (world, table)
    }

    /// Waits for calls, as many at once as a process makes.
    async fn answer(&self, latency: Latency, calls: usize) {
        let span = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            let mut left = calls;
            let mut span = Duration::ZERO;
            while left > 0 {
                let wave = left.min(AT_ONCE);
                let draws = (0..wave).map(|_| latency.draw(&mut random));
                span += draws.max().unwrap_or_default();
                left -= wave;
            }
            span
        };
        self.time.sleep(span).await;
    }

    async fn sqs(&self, operation: &'static str, calls: usize) {
        self.meter.count(operation, calls);
        self.answer(SQS, calls).await;
    }

    /// Has the agent of a machine answer its record, once for each state that calls for an answer.
    fn answer_record(self: &Arc<Self>, record: &Record) {
        if record.state == State::Terminated {
            return;
        }
        let place = (record.state, record.counts.generation);
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let last = answered.insert(record.id.clone(), place);
        drop(answered);
        let must_answer = match record.state {
            State::Created | State::Claimed => true,
            State::Idle => last != Some(place),
            State::Running | State::Terminated => false,
        };
        if must_answer {
            let (world, record) = (self.clone(), record.clone());
            self.time.spawn(async move { world.act(&record).await });
        }
    }

    /// A wake-up, a look at the record, and a signal. A new machine boots first. The runner takes no
    /// time.
    async fn act(&self, record: &Record) {
        let Some(table) = self.table.get().and_then(Weak::upgrade) else { return };
        let id = &record.id;
        if record.state == State::Created {
            self.answer(BOOT, 1).await;
        } else {
            // The message, which the store of the mode counts, reaches a long poll that waits for it.
            self.answer(SQS, 1).await;
            self.meter.count("ReceiveMessage", 1);
            self.meter.count("DeleteMessage", 1);
        }
        table.charge(key("INSTANCE", id), read_units(0, true));
        table.calls("GetItem", 1).await;
        let (signal, generation) = match record.state {
            State::Idle => (Signal::Deregistered, Some(record.counts.generation)),
            _ => (Signal::Registered, None),
        };
        table.charge(key("AGENT", id), write_units(0));
        table.calls("UpdateItem", 1).await;
        let report = Report {
            machine_label: None,
            signal,
            run: record.run.clone(),
            suffix: record.suffix.clone(),
            detail: String::new(),
            at: self.time.now(),
            generation,
        };
        self.beat(&table, id).await;
        table.records.report(id, &report).await.expect("a store in memory");
    }

    /// The first heartbeat of a machine. The others are not played: a reader finds it fresh.
    pub(super) async fn beat(&self, table: &MeteredTable, id: &InstanceId) {
        let beat = Heartbeat::new(self.time.now(), HEARTBEAT);
        table.records.beat(id, &beat).await.expect("a store in memory");
    }
}

/// The pace of the table.
struct Paced(Arc<ScaleWorld>);

#[async_trait]
impl Pace for Paced {
    async fn dynamodb(&self, calls: usize) {
        self.0.answer(DYNAMODB, calls).await;
    }

    fn written(&self, record: &Record) {
        self.0.answer_record(record);
    }

    fn complete(&self, status: &mut AgentStatus) {
        if let Some(beat) = &mut status.heartbeat {
            beat.at = self.0.time.now();
        }
    }
}

/// The world, as a process reaches its queues and its provider.
#[derive(Debug)]
pub(super) struct Services(pub(super) Arc<ScaleWorld>);

#[async_trait]
impl Pool for Services {
    async fn set_up(&self, classes: &[ResourceClass]) -> PortResult<()> {
        self.0.sqs("GetQueueAttributes", classes.len()).await;
        self.0.pool.set_up(classes).await
    }

    async fn receive(
        &self,
        class: &ResourceClass,
        max: usize,
        hold: Duration,
    ) -> PortResult<Vec<ReceivedMessage>> {
        self.0.sqs("ReceiveMessage", 1).await;
        self.0.pool.receive(class, max, hold).await
    }

    async fn extend(
        &self,
        class: &ResourceClass,
        receipts: &[Receipt],
        hold: Duration,
    ) -> PortResult<()> {
        self.0.sqs("ChangeMessageVisibilityBatch", receipts.len().div_ceil(MESSAGES)).await;
        self.0.pool.extend(class, receipts, hold).await
    }

    async fn put_back(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        self.0.sqs("ChangeMessageVisibilityBatch", receipts.len().div_ceil(MESSAGES)).await;
        self.0.pool.put_back(class, receipts).await
    }

    async fn delete(&self, class: &ResourceClass, receipts: &[Receipt]) -> PortResult<()> {
        self.0.sqs("DeleteMessageBatch", receipts.len().div_ceil(MESSAGES)).await;
        self.0.pool.delete(class, receipts).await
    }

    async fn send(&self, tickets: &[Ticket], delay: Duration) -> PortResult<()> {
        let mut classes: BTreeMap<&ResourceClass, usize> = BTreeMap::new();
        for ticket in tickets {
            *classes.entry(&ticket.spec.resource_class).or_default() += 1;
        }
        let calls = classes.values().map(|count| count.div_ceil(MESSAGES)).sum();
        self.0.sqs("SendMessageBatch", calls).await;
        self.0.pool.send(tickets, delay).await
    }

    async fn depth(&self, class: &ResourceClass) -> PortResult<Depth> {
        self.0.sqs("GetQueueAttributes", 1).await;
        self.0.pool.depth(class).await
    }
}

#[async_trait]
impl Compute for Services {
    async fn set_up(&self, settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        self.0.meter.count("DescribeLaunchTemplateVersions", 1);
        self.0.answer(DESCRIBE, 1).await;
        self.0.compute.set_up(settings).await
    }

    fn launchable(
        &self,
        requirements: &Requirements,
        settings: &Settings,
        types: &[&str],
    ) -> Vec<String> {
        self.0.compute.launchable(requirements, settings, types)
    }

    fn default_types(&self) -> TypePatterns {
        self.0.compute.default_types()
    }

    fn identity(&self, name: &ProviderName) -> Result<InstanceId, InvalidId> {
        self.0.compute.identity(name)
    }

    async fn launch(&self, order: &Order, settings: &Settings) -> PortResult<Launched> {
        self.0.meter.count("CreateFleet", 1);
        self.0.answer(LAUNCH, 1).await;
        self.0.compute.launch(order, settings).await
    }

    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        const AT_MOST: usize = 1_000;
        let calls = ids.len().div_ceil(AT_MOST);
        self.0.meter.count("TerminateInstances", calls);
        self.0.answer(DESCRIBE, calls).await;
        self.0.compute.terminate(ids).await
    }

    async fn machines(&self) -> PortResult<Vec<Machine>> {
        const PAGE: usize = 1_000;
        let machines = self.0.compute.machines().await?;
        // Pages follow each other.
        for _ in 0..machines.len().div_ceil(PAGE).max(1) {
            self.0.meter.count("DescribeInstances", 1);
            self.0.answer(DESCRIBE, 1).await;
        }
        Ok(machines)
    }
}
