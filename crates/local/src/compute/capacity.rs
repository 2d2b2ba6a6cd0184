//! Capacity: which machines may be launched now, as rows of the list of machines.

use ondeck_core::model::ids::{InvalidId, ProviderName};
use ondeck_core::model::record::MachineSpec;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Machine, Order};
use rusqlite::Transaction;

use super::catalogue::MachineType;
use super::identity;
use super::machines::{self, ListedMachine};
use super::options::Options;

/// The outcome of looking for capacity.
pub(super) enum Reservation {
    /// The intent was launched before, and these of its machines exist.
    Before(Vec<Machine>),
    /// These machines may be started; the texts say why there are not more.
    Now(Vec<Machine>, Vec<String>),
}

/// Reserves capacity in one transaction, so that concurrent launches never take the same.
pub(super) fn reserve(
    transaction: &Transaction<'_>,
    order: &Order,
    options: &Options,
    now: Timestamp,
) -> rusqlite::Result<Reservation> {
    let before = machines::of_intent(transaction, &order.intent)?;
    let before: Vec<ListedMachine> =
        before.into_iter().filter(ListedMachine::was_started).collect();
    if !before.is_empty() {
        let there = before.into_iter().filter(|listed| listed.may_be_there(now));
        let machines = there.map(|listed| listed.machine);
        return Ok(Reservation::Before(machines.collect()));
    }
    if let Some(failure) = &options.launch_failure {
        return Ok(Reservation::Now(Vec::new(), vec![failure.clone()]));
    }
    let fitting = options.catalogue.fitting(&order.requirements);
    if fitting.is_empty() {
        return Ok(Reservation::Now(Vec::new(), vec![nothing_fits(order)]));
    }
    let mut alive = machines::not_ended(transaction)?;
    alive.retain(|listed| listed.is_up(now));
    let mut types: Vec<String> =
        alive.into_iter().map(|listed| listed.machine.spec.instance_type).collect();
    let mut machines = Vec::new();
    let mut shortfalls = Vec::new();
    while machines.len() < order.count as usize {
        match room(options, &fitting, &types) {
            Ok(this) => {
                let machine = new_machine(order, this, now);
                let boot_ms = this.boot_ms.unwrap_or(options.boot_ms);
                machines::insert(transaction, &machine, &order.run, boot_ms)?;
                types.push(this.name.clone());
                machines.push(machine);
            }
            Err(limit) => {
                let (got, wanted) = (machines.len(), order.count);
                let code = "InsufficientInstanceCapacity";
                shortfalls.push(format!("{code}: {got} of {wanted} launched, {limit}"));
                break;
            }
        }
    }
    Ok(Reservation::Now(machines, shortfalls))
}

/// Returns the best type with free capacity. Fails with the limits that are reached.
fn room<'a>(
    options: &Options,
    fitting: &[&'a MachineType],
    alive: &[String],
) -> Result<&'a MachineType, String> {
    if let Some(capacity) = options.capacity
        && alive.len() >= capacity
    {
        return Err(format!("the home's capacity is {capacity}"));
    }
    let has_room = |this: &&&MachineType| {
        let same = alive.iter().filter(|name| **name == this.name).count();
        this.capacity.is_none_or(|capacity| same < capacity)
    };
    fitting.iter().find(has_room).copied().ok_or_else(|| {
        let limit = |this: &&MachineType| {
            format!("the capacity of {} is {}", this.name, this.capacity.unwrap_or_default())
        };
        fitting.iter().map(limit).collect::<Vec<_>>().join(", ")
    })
}

fn nothing_fits(order: &Order) -> String {
    let requirements = &order.requirements;
    format!(
        "no type of the catalogue has {} vCPU, at least {} MiB, is to be had as {} and is one of {}",
        requirements.size.cpu, requirements.size.mem, requirements.usage, requirements.types
    )
}

/// A name for a new machine, in the form that EC2 gives them.
fn new_name() -> Result<ProviderName, InvalidId> {
    ProviderName::new(format!("i-0{:016x}", fastrand::u64(..)))
}

fn new_machine(order: &Order, this: &MachineType, now: Timestamp) -> Machine {
    Machine {
        id: new_name().and_then(|name| identity(&name)).expect("digits and a dash"),
        spec: MachineSpec {
            resource_class: order.requirements.class.clone(),
            instance_type: this.name.clone(),
            usage_class: order.requirements.usage,
            cpu: this.cpu,
            mem: this.mem,
        },
        intent: order.intent.clone(),
        launched_at: now,
        image: None,
    }
}
