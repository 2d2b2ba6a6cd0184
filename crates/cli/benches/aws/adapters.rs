//! The adapters for AWS in this process: they launch machines without a mode, measure round trips,
//! and write what agents would.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ondeck_aws::{Cloud, DynamoStore, Ec2Compute, Options, SqsPool};
use ondeck_core::lifecycle::{Created, Instance, Pending};
use ondeck_core::model::ids::{InstanceId, IntentId, ResourceClass, RunId};
use ondeck_core::model::requirements::{ClassSize, Requirements, UsageClass};
use ondeck_core::model::settings::Settings;
use ondeck_core::model::ticket::Ticket;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Compute, Machine, Order, Pool, Random, Store};
use tokio::runtime::{Builder, Runtime};

/// Nothing here depends on chance.
struct Coin;

impl Random for Coin {
    fn number(&self) -> u64 {
        0
    }
}

pub(crate) struct Adapters {
    pub(crate) runtime: Runtime,
    pub(crate) cloud: Cloud,
    pub(crate) store: Arc<DynamoStore>,
}

/// What machines to launch without a mode.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaunchOrder {
    pub(crate) count: u32,
    pub(crate) usage: UsageClass,
    /// Whether the machines wait in the pool. Otherwise a run has them that was never released.
    pub(crate) idle: bool,
    /// How long from now their state may last; in the past if `None`.
    pub(crate) lasts: Option<Duration>,
}

impl Adapters {
    pub(crate) fn at(url: &str, pool: &str) -> Adapters {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let options = Options {
            pool: pool.parse().unwrap(),
            region: None,
            endpoint_url: Some(url.to_owned()),
        };
        let cloud = runtime.block_on(Cloud::connect(options, Arc::new(Coin))).unwrap();
        let store = Arc::new(DynamoStore::new(&cloud));
        Adapters { runtime, cloud, store }
    }

    /// How long one call takes, several times one after the other.
    pub(crate) fn round_trips(&self, times: usize) -> Vec<Duration> {
        let id = InstanceId::new("i-probe").unwrap();
        let call = || self.runtime.block_on(self.store.records(std::slice::from_ref(&id)));
        let timed = |_| {
            let started = Instant::now();
            call().unwrap();
            started.elapsed()
        };
        (0..times).map(timed).collect()
    }

    /// Launches and registers machines, and sends the tickets of idle ones.
    pub(crate) fn launch(&self, order: LaunchOrder) -> Vec<InstanceId> {
        self.runtime.block_on(self.launch_now(order))
    }

    async fn launch_now(&self, order: LaunchOrder) -> Vec<InstanceId> {
        let LaunchOrder { count, usage, idle, lasts } = order;
        let compute = Ec2Compute::new(&self.cloud);
        let run = RunId::new("gone").unwrap();
        let now = SystemTime::now();
        let intent = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
        let order = Order {
            intent: IntentId::new(format!("{intent:x}")).unwrap(),
            run: run.clone(),
            count,
            requirements: Requirements {
                class: ResourceClass::new("large").unwrap(),
                size: ClassSize { cpu: 2, mem: 4096 },
                usage,
                types: compute.default_types(),
            },
        };
        let settings = Settings::from_map(&self.store.settings().await.unwrap()).unwrap();
        let launched = compute.launch(&order, &settings).await.unwrap();
        assert_eq!(launched.machines.len(), count as usize, "{:?}", launched.shortfalls);
        let at = Timestamp::try_from(match lasts {
            Some(_) => now,
            None => now - Duration::from_secs(60),
        });
        let lasts = (at.unwrap(), lasts.unwrap_or(Duration::from_secs(1)));
        // More at once would only wait in this process.
        const AT_ONCE: usize = 32;
        let mut tickets = Vec::new();
        for machines in launched.machines.chunks(AT_ONCE) {
            let settled = machines.iter().map(|machine| self.register(machine, &run, idle, lasts));
            tickets.extend(futures_util::future::join_all(settled).await);
        }
        let tickets: Vec<Ticket> = tickets.into_iter().flatten().collect();
        SqsPool::new(&self.cloud).send(&tickets, Duration::ZERO).await.unwrap();
        self.store.mark_ticketed(&tickets, lasts.0).await.unwrap();
        self.store.finish().await.unwrap();
        launched.machines.into_iter().map(|machine| machine.id).collect()
    }

    /// Gives a machine its record. Returns its ticket if it is to be idle.
    async fn register(
        &self,
        machine: &Machine,
        run: &RunId,
        idle: bool,
        (at, lasts): (Timestamp, Duration),
    ) -> Option<Ticket> {
        let created = Instance::<Created>::register(&machine.id, &machine.spec, run, at, lasts);
        let created = self.write(created).await;
        if !idle {
            return None;
        }
        let running = self.write(created.activate(at, lasts)).await;
        Some(self.write(running.release(at, lasts)).await.ticket())
    }

    async fn write<S>(&self, pending: Pending<S>) -> Instance<S>
    where
        Instance<S>: Sized,
        S: ondeck_core::lifecycle::TypedState,
    {
        let verdict = self.store.write(pending.change()).await.unwrap();
        pending.settle(verdict).unwrap()
    }
}
