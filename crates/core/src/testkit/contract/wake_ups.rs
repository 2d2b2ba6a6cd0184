//! Wake-ups, from the control plane to an agent.

use std::time::Duration;

use crate::model::ids::InstanceId;
use crate::ports::{AgentStore, Clock, News, Store};

/// Shorter than any wait for a wake-up that arrives.
const MOMENT: Duration = Duration::from_millis(50);
/// Longer than a wake-up takes.
const LONG: Duration = Duration::from_secs(20);

/// Asserts the contract of [`Store::wake`], [`AgentStore::listen`] and [`AgentStore::news`] for a store that
/// announces changes. The agent is that of the machine `id`.
///
/// # Panics
/// If a statement of the contract does not hold.
pub async fn wake_up_suite(
    store: &dyn Store,
    agent: &dyn AgentStore,
    id: &InstanceId,
    clock: &dyn Clock,
) {
    agent.listen(id);
    until_quiet(agent, clock).await;

    store.wake(std::slice::from_ref(id));
    let begun = clock.steady();
    assert_eq!(agent.news(clock, MOMENT, LONG).await, News::Announced, "a wake-up is heard");
    assert!(clock.steady().saturating_sub(begun) < LONG, "when it arrives");
    assert_eq!(agent.news(clock, MOMENT, MOMENT).await, News::Quiet, "once");

    agent.listen(id);
    assert_eq!(agent.news(clock, MOMENT, MOMENT).await, News::Quiet, "listening twice is once");

    let another = InstanceId::new("i-another").expect("a sound id");
    store.wake(&[another]);
    assert_eq!(agent.news(clock, MOMENT, MOMENT).await, News::Quiet, "each machine has its own");

    // Also one that arrives before the agent waits for it, and among others.
    store.wake(&[id.clone(), id.clone()]);
    store.wake(std::slice::from_ref(id));
    store.finish().await.expect("it waits for wake-ups under way");
    assert_eq!(agent.news(clock, MOMENT, LONG).await, News::Announced, "none is needed in time");
    // How many of the others are heard one by one, and when, is left to the store.
    let begun = clock.steady();
    let waited = loop {
        let asked = clock.steady();
        if agent.news(clock, MOMENT, 4 * MOMENT).await == News::Quiet {
            break clock.steady().saturating_sub(asked);
        }
        assert!(clock.steady().saturating_sub(begun) < LONG, "it is never quiet");
    };
    assert!(waited >= 4 * MOMENT, "patience is what it waits for");
}

/// Waits until the store can be listened to and there is no further wake-up.
async fn until_quiet(agent: &dyn AgentStore, clock: &dyn Clock) {
    let begun = clock.steady();
    while agent.news(clock, MOMENT, MOMENT).await != News::Quiet {
        assert!(clock.steady().saturating_sub(begun) < LONG, "it is never quiet");
    }
}
