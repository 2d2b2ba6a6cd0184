//! Waiting for agents.
//!
//! Claim checks, validation and the release handshake wait for the status of several agents at
//! once. They poll at the same moments and share one batched read.

use std::time::Duration;

use crate::model::ids::InstanceId;
use crate::model::signal::AgentStatus;
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::ports::PortResult;
use crate::runtime::batcher::Batcher;
use crate::runtime::poll::{PollInterval, Wait, wait_until};

/// How long a read waits for others to join it. Timers that are due together fire within this.
const JOIN_WINDOW: Duration = Duration::from_millis(3);

/// Polls agent status. All waits on one watch share their reads.
#[derive(Debug)]
pub(crate) struct AgentWatch<'a> {
    plane: &'a Plane,
    interval: PollInterval,
    reads: Batcher<InstanceId, AgentStatus>,
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Watched<T> {
    /// `judge` returned a value.
    Judged(T),
    /// `judge` returned nothing until the deadline. Carries the last status.
    TimedOut(AgentStatus),
}

impl<'a> AgentWatch<'a> {
    pub(crate) fn new(plane: &'a Plane, interval: PollInterval) -> AgentWatch<'a> {
        AgentWatch { plane, interval, reads: Batcher::default() }
    }

    /// Polls the status of one agent until `judge` returns a value or `deadline` has passed. The
    /// agent has only just been given something to do, so the first read waits for one interval.
    /// Fails if the store stays unavailable.
    pub(crate) async fn wait<T>(
        &self,
        id: &InstanceId,
        at_most: Duration,
        judge: impl Fn(&AgentStatus, Timestamp) -> Option<T>,
    ) -> PortResult<Watched<T>> {
        let clock = &*self.plane.clock;
        let wait = Wait::begin(clock, at_most, self.interval);
        wait.delay_first_question(clock).await;
        let last = std::sync::Mutex::new(AgentStatus::default());
        let look = || async {
            let status = self.look(id).await?;
            let judgement = judge(&status, self.plane.now());
            *last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = status;
            Ok(judgement)
        };
        let judged = wait_until(clock, wait, look).await?;
        Ok(match judged {
            Some(judgement) => Watched::Judged(judgement),
            None => Watched::TimedOut(
                last.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner),
            ),
        })
    }

    /// Reads the status of one agent, together with all reads that are due now.
    pub(crate) async fn look(&self, id: &InstanceId) -> PortResult<AgentStatus> {
        let read = |ids: Vec<InstanceId>| async move {
            self.plane.retried(|| self.plane.store.agent_status(&ids)).await
        };
        let join_window = || self.plane.clock.sleep(JOIN_WINDOW);
        self.reads.ask_after(join_window, id.clone(), read).await
    }
}
