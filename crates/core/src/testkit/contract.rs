//! The suites that every store, pool, provider of machines and clock must pass. They panic at the first
//! statement of a port that does not hold, and say which it was.
//!
//! The store suite writes no record directly: it brings each into the state it needs by legal
//! transitions, which every store supports.

mod arrange;
mod ceiling;
mod clock;
mod compute;
mod history;
mod pool;
mod readiness;
mod spend;
mod store;
mod transitions;
mod wake_ups;

pub use ceiling::ceiling_race;
pub use clock::clock_suite;
pub use compute::compute_suite;
pub use history::history_suite;
pub use pool::{pool_duplicates_suite, pool_passes_untouched, pool_suite};
pub use spend::spend_race;
pub use store::{StatusOfRemoved, claim_race, store_suite};
pub use wake_ups::wake_up_suite;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::ids::{InstanceId, IntentId, ResourceClass, RunId};
    use crate::model::requirements::{ClassSize, Requirements, TypePatterns, UsageClass};
    use crate::model::settings::Settings;
    use crate::ports::Order;
    use crate::testkit::{Hearing, MemoryCompute, MemoryPool, MemoryStore, VirtualClock};

    #[tokio::test]
    async fn the_virtual_clock() {
        let clock = VirtualClock::new();
        clock_suite(&clock, Some(&|millis| clock.step(millis))).await;
    }

    #[tokio::test]
    async fn the_compute_in_memory() {
        let compute = MemoryCompute::new(Arc::new(VirtualClock::new()));
        let order = Order {
            intent: IntentId::new("suite").unwrap(),
            run: RunId::new("1").unwrap(),
            count: 3,
            requirements: Requirements {
                class: ResourceClass::new("large").unwrap(),
                size: ClassSize { cpu: 2, mem: 4096 },
                usage: UsageClass::Spot,
                types: TypePatterns::any(),
            },
        };
        compute_suite(&compute, &order, &Settings::default()).await;
    }

    #[tokio::test]
    async fn the_store_in_memory() {
        store_suite(&MemoryStore::default(), StatusOfRemoved::Deleted).await;
        let store = MemoryStore::default();
        claim_race(&[&store, &store]).await;
        ceiling_race(&[&store, &store]).await;
        spend_race(&[&store, &store]).await;
    }

    #[tokio::test]
    async fn the_history_in_memory() {
        history_suite(&MemoryStore::default()).await;
    }

    #[tokio::test]
    async fn the_store_in_memory_wakes_an_agent() {
        let store = MemoryStore::default();
        store.announce(Hearing::Works);
        let machine = InstanceId::new("i-1").unwrap();
        wake_up_suite(&store, &store, &machine, &VirtualClock::new()).await;
    }

    #[tokio::test]
    async fn the_pool_in_memory() {
        let clock = Arc::new(VirtualClock::new());
        let pool = MemoryPool::new(clock.clone());
        pool_suite(&pool, &|span| clock.advance(span)).await;

        let class = ResourceClass::new("raw").unwrap();
        pool.send_raw(&class, "{ no ticket");
        pool_passes_untouched(&pool, &class, "{ no ticket").await;
    }

    #[tokio::test]
    async fn the_pool_in_memory_delivers_twice() {
        let pool = MemoryPool::new(Arc::new(VirtualClock::new()));
        pool.deliver_twice();
        pool_duplicates_suite(&pool).await;
    }
}
