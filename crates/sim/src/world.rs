//! What all processes of a history share: store, queues, machines, the forge, and the auditor
//! that checks the invariants.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Clock;
use ondeck_core::testkit::{MemoryCompute, MemoryPool, MemoryStore};

use crate::audit::Audit;
use crate::kernel::{Kernel, digest};
use crate::lagging_index::LaggingIndex;
use crate::simulated_machines::SimulatedMachines;

pub(crate) struct World {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) store: MemoryStore,
    pub(crate) pool: MemoryPool,
    pub(crate) compute: MemoryCompute,
    machines: Mutex<SimulatedMachines>,
    index: Mutex<LaggingIndex>,
    audit: Mutex<Audit>,
}

impl World {
    pub(crate) fn new(kernel: Arc<Kernel>) -> World {
        let clock = Arc::new(TrueClock(kernel.clone()));
        World {
            kernel,
            store: MemoryStore::default(),
            pool: MemoryPool::new(clock.clone()),
            compute: MemoryCompute::new(clock),
            machines: Mutex::default(),
            index: Mutex::default(),
            audit: Mutex::default(),
        }
    }

    /// A digest of all records, tickets, machines and listed runners.
    pub(crate) fn digest(&self) -> u64 {
        let mut digests = Vec::new();
        let mut take = |shown: &dyn std::fmt::Debug| digests.push(digest(&[&shown]));
        self.store.show(&mut take);
        self.pool.show(&mut take);
        self.compute.show(&mut take);
        take(&*self.machines());
        digest(&[&digests])
    }

    pub(crate) fn machines(&self) -> MutexGuard<'_, SimulatedMachines> {
        self.machines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets listeners end that cannot go on, and wakes those that wait for that.
    pub(crate) fn end_dead_listeners(&self) {
        let ended = self.machines().end_dead_listeners(self.kernel.now());
        ended.iter().for_each(|id| self.kernel.lapses(id));
    }

    pub(crate) fn index(&self) -> MutexGuard<'_, LaggingIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn audit(&self) -> MutexGuard<'_, Audit> {
        self.audit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clock of queues and providers.
struct TrueClock(Arc<Kernel>);

impl std::fmt::Debug for TrueClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TrueClock")
    }
}

#[async_trait]
impl Clock for TrueClock {
    fn now(&self) -> Timestamp {
        self.0.true_time()
    }

    fn steady(&self) -> Duration {
        Duration::from_millis(self.0.true_time().millis())
    }

    async fn sleep(&self, _span: Duration) {
        unreachable!("services do not sleep");
    }
}

pub(crate) const TARGET: &str = "sim";

/// Credentials that are valid until `expires_at`.
pub(crate) fn credentials(expires_at: Timestamp) -> Credentials {
    let secret = || Secret::new("token");
    Credentials { registration: secret(), removal: secret(), expires_at }
}

/// Returns the answer of an in-memory port, which must be ready within a few polls.
pub(crate) fn at_once<T>(answer: impl Future<Output = T>) -> T {
    let mut answer = pin!(answer);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..4 {
        if let Poll::Ready(answer) = answer.as_mut().poll(&mut context) {
            return answer;
        }
    }
    unreachable!("an in-memory port does not wait");
}
