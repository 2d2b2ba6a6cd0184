//! Tickets of idle machines that have been reaped announce nothing any more. Runs drop such
//! tickets as they meet them; but in a class that nobody asks for they would stay, and the pool
//! would seem deeper than it is.

use super::Outcome;
use super::survey::Survey;
use crate::model::failure::Failure;
use crate::model::ids::ResourceClass;
use crate::model::record::{Record, State};
use crate::model::settings::Settings;
use crate::model::ticket::Ticket;
use crate::modes::plane::Plane;
use crate::ports::{PortResult, Receipt};

/// As many as a queue gives at once.
const BATCH: usize = 10;

/// The most receives of one refresh, for each queue. What is left over waits for the next one,
/// or for a run that meets it: a dead ticket misleads nobody, so it is not worth a refresh that
/// takes long.
const MOST: usize = 10;

/// Goes through each queue that holds more tickets than there are idle machines, and drops
/// what has expired or is no ticket. To go by what this refresh has reaped would not do: an
/// earlier one may have been killed after its reap, and a ticket may be hidden for a while.
pub(super) async fn prune(
    plane: &Plane,
    settings: &Settings,
    survey: &Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    for class in settings.classes.names() {
        let is_idle = |r: &&Record| r.state == State::Idle && r.spec.resource_class == *class;
        let idle = survey.live.iter().filter(is_idle).count();
        let tickets = plane.retried(|| plane.pool.depth(class)).await?.total();
        if tickets > idle {
            outcome.pruned_tickets += prune_class(plane, settings, class, tickets).await?;
        }
    }
    Ok(())
}

async fn prune_class(
    plane: &Plane,
    settings: &Settings,
    class: &ResourceClass,
    tickets: usize,
) -> PortResult<usize> {
    // Hidden until the end, so that each is met once.
    let mut sound = Vec::new();
    let pruned = drop_the_dead(plane, settings, class, tickets, &mut sound).await;
    if !sound.is_empty() {
        plane.retried(|| plane.pool.put_back(class, &sound)).await?;
    }
    pruned
}

async fn drop_the_dead(
    plane: &Plane,
    settings: &Settings,
    class: &ResourceClass,
    tickets: usize,
    sound: &mut Vec<Receipt>,
) -> PortResult<usize> {
    let hold = settings.times.ticket_hold;
    let mut pruned = 0;
    // One pass, however many tickets come in meanwhile.
    for _ in 0..(tickets.div_ceil(BATCH) + 1).min(MOST) {
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
        if !dead.is_empty() {
            plane.retried(|| plane.pool.delete(class, &dead)).await?;
            pruned += dead.len();
        }
    }
    Ok(pruned)
}
