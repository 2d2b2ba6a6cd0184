//! Prune tickets: deletes expired and malformed tickets. Provisions delete those they receive, but
//! in a class that no run requests they would stay and make the pool look deeper than it is.

use futures_util::future::join_all;

use super::Outcome;
use super::survey::Survey;
use crate::model::failure::Failure;
use crate::model::ids::ResourceClass;
use crate::model::record::{Record, State};
use crate::model::settings::Settings;
use crate::model::ticket::Ticket;
use crate::modes::plane::Plane;
use crate::ports::{PortResult, Receipt};

/// The most messages that one receive returns.
const BATCH: usize = 10;

/// The most receives of one refresh for each queue. An expired ticket does no harm, so the rest is
/// left to the next refresh or to a provision that receives it.
const MAX_RECEIVES: usize = 10;

/// How many queues of classes without idle machines one refresh asks for their depth, beside those
/// that it has a reason to ask.
const WITHOUT_IDLE: usize = 4;

/// Searches each queue that holds more tickets than there are idle machines. Classes with idle
/// machines are asked about each time, and so are those that are `looked_at`: because machines of them
/// were just reaped, or once an hour. Of the others, [`WITHOUT_IDLE`] are, chosen at random: an earlier
/// refresh may have been killed after its reap, and a ticket may have been hidden at that time.
pub(super) async fn prune(
    plane: &Plane,
    settings: &Settings,
    survey: &Survey,
    looked_at: impl Fn(&ResourceClass) -> bool,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let idle = |class: &ResourceClass| {
        let is_idle = |r: &&Record| r.state == State::Idle && r.spec.resource_class == *class;
        survey.live.iter().filter(is_idle).count()
    };
    let (mut asked, mut others): (Vec<&ResourceClass>, Vec<&ResourceClass>) =
        settings.classes.names().partition(|class| idle(class) > 0 || looked_at(class));
    if others.len() > WITHOUT_IDLE {
        let start = plane.random.number() % others.len() as u64;
        others.rotate_left(usize::try_from(start).unwrap_or_default());
        others.truncate(WITHOUT_IDLE);
    }
    asked.extend(others);
    let depths = asked.iter().map(|class| plane.retried(|| plane.pool.depth(class)));
    for (class, depth) in asked.iter().zip(join_all(depths).await) {
        // A machine that is renewed for its minimum may have two.
        let renews = settings.min_idle.iter().any(|(minimum, _)| minimum == *class);
        let most = if renews { idle(class) * 2 } else { idle(class) };
        let tickets = depth?.total();
        if tickets > most {
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
    // Valid tickets stay hidden until the end, so that each is received once.
    let mut valid = Vec::new();
    let pruned = delete_expired(plane, settings, class, tickets, &mut valid).await;
    if !valid.is_empty() {
        plane.retried(|| plane.pool.put_back(class, &valid)).await?;
    }
    pruned
}

async fn delete_expired(
    plane: &Plane,
    settings: &Settings,
    class: &ResourceClass,
    tickets: usize,
    valid: &mut Vec<Receipt>,
) -> PortResult<usize> {
    let hold = settings.times.ticket_hold;
    let mut pruned = 0;
    // One pass, even if more tickets arrive meanwhile.
    for _ in 0..(tickets.div_ceil(BATCH) + 1).min(MAX_RECEIVES) {
        let messages = plane.retried(|| plane.pool.receive(class, BATCH, hold)).await?;
        if messages.is_empty() {
            break;
        }
        let now = plane.now();
        let mut dead = Vec::new();
        for message in messages {
            match Ticket::from_json(&message.body) {
                Ok(ticket) if ticket.threshold > now => valid.push(message.receipt),
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
