use std::collections::BTreeSet;

use crate::model::ids::{InstanceId, ProviderName};
use crate::model::settings::Settings;
use crate::ports::{Compute, Machine, Order};

/// Checks what [`Compute`] states about launching, listing and terminating. The provider must have
/// room for `order`, which must be for more than one machine and under an intent of its own.
pub async fn compute_suite(compute: &dyn Compute, order: &Order, settings: &Settings) {
    assert!(order.count > 1, "one machine shows nothing about several");
    compute.set_up(settings).await.expect("the settings are complete");
    compute.set_up(settings).await.expect("setting up twice is no error");

    let launched = compute.launch(order, settings).await.expect("it launches");
    assert_eq!(launched.shortfalls, Vec::<String>::new(), "there is room");
    assert_eq!(launched.passing, Vec::<String>::new(), "it is not busy");
    let ids = ids(&launched.machines);
    assert_eq!(ids.len(), order.count as usize, "as many as ordered, each with its own id");
    for machine in &launched.machines {
        assert_eq!(machine.intent, order.intent, "a machine names its launch");
        assert_eq!(machine.spec.resource_class, order.requirements.class);
        assert_eq!(machine.spec.usage_class, order.requirements.usage);
    }

    let again = compute.launch(order, settings).await.expect("an order can be repeated");
    assert_eq!(self::ids(&again.machines), ids, "the same order launches once");
    assert_eq!(of(compute, order).await, ids, "all of them are listed, and no other of the intent");
    let image = compute.current_image(settings).await.expect("it says what it boots");
    for machine in compute.machines().await.expect("it lists") {
        if machine.intent == order.intent {
            assert_eq!(machine.image, image, "it has just been booted");
        }
    }

    let one: Vec<InstanceId> = ids.iter().take(1).cloned().collect();
    compute.terminate(&one).await.expect("it terminates");
    let rest: BTreeSet<InstanceId> = ids.iter().skip(1).cloned().collect();
    assert_eq!(of(compute, order).await, rest, "the terminated one is gone, the others are not");
    let all: Vec<InstanceId> = ids.into_iter().collect();
    compute.terminate(&all).await.expect("one that is already terminated is no error");
    assert_eq!(of(compute, order).await, BTreeSet::new());

    identity_tells_machines_apart(compute);
}

fn identity_tells_machines_apart(compute: &dyn Compute) {
    let identity = |name: &str| compute.identity(&ProviderName::new(name).expect("a valid name"));
    let (one, other) = ("i-0123456789abcdef0", "i-0123456789abcdef1");
    assert_eq!(identity(one), identity(one), "the agent derives what the control plane does");
    assert_ne!(identity(one), identity(other));
}

fn ids(machines: &[Machine]) -> BTreeSet<InstanceId> {
    machines.iter().map(|machine| machine.id.clone()).collect()
}

/// The machines of the order that the provider lists.
async fn of(compute: &dyn Compute, order: &Order) -> BTreeSet<InstanceId> {
    let mut machines = compute.machines().await.expect("it lists");
    machines.retain(|machine| machine.intent == order.intent);
    ids(&machines)
}
