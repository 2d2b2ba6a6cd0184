//! Receiving tickets from the queue of a class: how many receives are made at once, and when the
//! queue counts as empty.
//!
//! A quick receive may miss tickets ([`Pool::receive`](crate::ports::Pool::receive)), and the numbers of a queue may be out of
//! date. So an empty answer is confirmed by further receives and the numbers, all asked together.
//! If they agree, the queue counts as empty. If the numbers say that tickets are visible, a thorough
//! receive decides. If other receivers hold tickets, the queue is asked again for the pickup patience.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};

use super::Attempt;
use crate::model::ids::ResourceClass;
use crate::model::summary::WaitCause;
use crate::modes::plane::Plane;
use crate::modes::provision::journal::Journal;
use crate::ports::{Depth, PortResult, ReceivedMessage};
use crate::runtime::poll::{PollInterval, Wait, wait_until};

/// The most messages that one receive returns.
const BATCH: usize = 10;
/// The most receives that are made at once.
const AT_ONCE: usize = 16;
/// How many receives confirm an empty answer.
const CONFIRMATIONS: usize = 3;

#[derive(Debug)]
pub(super) struct Queue<'a> {
    plane: &'a Plane,
    journal: &'a Journal,
    class: &'a ResourceClass,
    hold: Duration,
    patience: Duration,
    interval: PollInterval,
}

impl<'a> Queue<'a> {
    pub(super) fn new(attempt: &'a Attempt<'_>) -> Queue<'a> {
        Queue {
            plane: attempt.plane,
            journal: &attempt.journal,
            class: &attempt.requirements.class,
            hold: attempt.times.ticket_hold,
            patience: attempt.times.pickup_patience,
            interval: PollInterval::fixed(attempt.times.signal_poll),
        }
    }

    /// Receives about `wanted` tickets, and at least one if there are any. An empty answer means that
    /// the queue counts as empty. `hidden_by_us` returns how many tickets this run holds.
    pub(super) async fn receive(
        &self,
        wanted: usize,
        hidden_by_us: impl Fn() -> usize,
    ) -> PortResult<Vec<ReceivedMessage>> {
        let clock = &*self.plane.clock;
        let wait = Wait::begin(clock, self.patience, self.interval);
        let is_waiting = AtomicBool::new(false);
        let is_waiting_for_others = AtomicBool::new(false);
        let ask = || async {
            if is_waiting.swap(true, Ordering::Relaxed) {
                is_waiting_for_others.store(true, Ordering::Relaxed);
                return self.ask_again(wanted, hidden_by_us()).await;
            }
            let messages = self.receive_together(&shares(wanted)).await?;
            if !messages.is_empty() {
                return Ok(Some(messages));
            }
            self.confirm_empty(wanted, hidden_by_us()).await
        };
        let begun = clock.steady();
        let answer = wait_until(clock, wait, ask).await?;
        if is_waiting_for_others.load(Ordering::Relaxed) {
            self.journal.waited((begun, clock.steady()), WaitCause::Tickets, "");
        }
        Ok(answer.unwrap_or_default())
    }

    pub(super) async fn depth(&self) -> PortResult<Depth> {
        self.plane.retried(|| self.plane.pool.depth(self.class)).await
    }

    /// Asks again after an empty answer. Returns `None` if other receivers hold tickets that they may
    /// put back.
    async fn confirm_empty(
        &self,
        wanted: usize,
        hidden_by_us: usize,
    ) -> PortResult<Option<Vec<ReceivedMessage>>> {
        let sizes = [wanted.div_ceil(CONFIRMATIONS).clamp(1, BATCH); CONFIRMATIONS];
        let again = self.receive_together(&sizes);
        let (messages, depth) = join(again, self.depth()).await;
        let (mut messages, depth) = (messages?, depth?);
        if messages.is_empty() && depth.visible > 0 {
            messages = self.receive_thoroughly(wanted.min(BATCH)).await?;
        }
        if !messages.is_empty() || depth.held <= hidden_by_us {
            return Ok(Some(messages));
        }
        Ok(None)
    }

    /// Asks once more while other receivers hold tickets. Nothing hurries then, so one receive looks
    /// thoroughly instead of several quick ones.
    async fn ask_again(
        &self,
        wanted: usize,
        hidden_by_us: usize,
    ) -> PortResult<Option<Vec<ReceivedMessage>>> {
        let receive = self.receive_thoroughly(wanted.clamp(1, BATCH));
        let (messages, depth) = join(receive, self.depth()).await;
        let messages = messages?;
        let is_over = !messages.is_empty() || depth?.held <= hidden_by_us;
        Ok(is_over.then_some(messages))
    }

    /// Makes receives of these sizes at once. Fails only if no receive has brought a ticket: tickets
    /// that were received must not be lost to the failure of another receive.
    async fn receive_together(&self, sizes: &[usize]) -> PortResult<Vec<ReceivedMessage>> {
        let pool = &self.plane.pool;
        let receives = sizes
            .iter()
            .map(|size| self.plane.retried(move || pool.receive(self.class, *size, self.hold)));
        let mut messages = Vec::new();
        let mut failed = None;
        for received in join_all(receives).await {
            match received {
                Ok(received) => messages.extend(received),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if messages.is_empty() => Err(error),
            Some(error) => {
                tracing::debug!("one of several receives failed: {error}");
                Ok(messages)
            }
            None => Ok(messages),
        }
    }

    async fn receive_thoroughly(&self, max: usize) -> PortResult<Vec<ReceivedMessage>> {
        let pool = &self.plane.pool;
        self.plane.retried(|| pool.receive_thoroughly(self.class, max, self.hold)).await
    }
}

/// The sizes of the receives that together take `wanted` tickets, or as many as can be taken at once.
fn shares(wanted: usize) -> Vec<usize> {
    let wanted = wanted.clamp(1, AT_ONCE * BATCH);
    let receives = wanted.div_ceil(BATCH);
    (0..receives).map(|n| wanted / receives + usize::from(n < wanted % receives)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_take_what_is_wanted_together() {
        for (wanted, sizes) in [
            (0, vec![1]),
            (1, vec![1]),
            (10, vec![10]),
            (15, vec![8, 7]),
            (50, vec![10; 5]),
            (9_999, vec![10; 16]),
        ] {
            assert_eq!(shares(wanted), sizes, "{wanted}");
        }
    }
}
