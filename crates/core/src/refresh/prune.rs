//! Tickets of idle machines that have been reaped announce nothing any more. Runs drop such
//! tickets as they meet them; but in a class that nobody asks for they would stay, and the pool
//! would seem deeper than it is.

use std::collections::BTreeSet;

use super::Outcome;
use crate::failure::Failure;
use crate::ids::ResourceClass;
use crate::plane::Plane;
use crate::ports::{PortResult, Receipt, Scope};
use crate::record::{Record, State};
use crate::settings::Settings;
use crate::ticket::Ticket;

/// As many as a queue gives at once.
const BATCH: usize = 10;

/// Goes once through each queue that holds more tickets than there are idle machines, and drops
/// what has expired or is no ticket. To go by what this refresh has reaped would not do: an
/// earlier one may have been killed after its reap, and a ticket may be hidden for a while.
pub(super) async fn prune(
    plane: &Plane,
    settings: &Settings,
    emptied: &BTreeSet<ResourceClass>,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let live = plane.retried(|| plane.store.list(Scope::Live)).await?.records;
    let classes: BTreeSet<&ResourceClass> = settings.classes.names().chain(emptied).collect();
    for class in classes {
        let is_idle = |r: &&Record| r.state == State::Idle && r.spec.resource_class == *class;
        let idle = live.iter().filter(is_idle).count();
        if plane.retried(|| plane.pool.depth(class)).await?.total() > idle {
            outcome.pruned += prune_class(plane, settings, class).await?;
        }
    }
    Ok(())
}

async fn prune_class(
    plane: &Plane,
    settings: &Settings,
    class: &ResourceClass,
) -> PortResult<usize> {
    let hold = settings.times.ticket_hold;
    let (mut sound, mut pruned): (Vec<Receipt>, usize) = (Vec::new(), 0);
    loop {
        let messages = plane.retried(|| plane.pool.receive(class, BATCH, hold)).await?;
        if messages.is_empty() {
            break;
        }
        let now = plane.now();
        let mut dead = Vec::new();
        for message in messages {
            match Ticket::from_json(&message.body) {
                Ok(ticket) if ticket.threshold > now => sound.push(message.receipt),
                Ok(_) | Err(_) => dead.push(message.receipt),
            }
        }
        pruned += dead.len();
        if !dead.is_empty() {
            plane.retried(|| plane.pool.delete(class, &dead)).await?;
        }
    }
    // Hidden until now, so that each was met once.
    if !sound.is_empty() {
        plane.retried(|| plane.pool.put_back(class, &sound)).await?;
    }
    Ok(pruned)
}
