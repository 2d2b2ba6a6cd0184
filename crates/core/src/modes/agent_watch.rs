//! Waiting for what agents say.
//!
//! Claim checks, validation and the release handshake all wait for signs of several instances at
//! once. They ask on the same interval and are answered by one batched read.

use std::time::Duration;

use crate::model::ids::InstanceId;
use crate::model::signal::AgentStatus;
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::ports::PortResult;
use crate::runtime::batcher::Batcher;
use crate::runtime::poll::{PollInterval, Wait, wait_until};

/// How long whoever looks first waits for the others.
const LULL: Duration = Duration::from_millis(3);

/// One watch for all who wait in this process.
#[derive(Debug)]
pub(crate) struct AgentWatch<'a> {
    plane: &'a Plane,
    interval: PollInterval,
    reads: Batcher<InstanceId, AgentStatus>,
}

/// The end of a wait.
#[derive(Debug)]
pub(crate) enum Watched<T> {
    /// The judge has come to a judgement.
    Judged(T),
    /// It had not by the deadline, when these were the signs.
    TimedOut(AgentStatus),
}

impl<'a> AgentWatch<'a> {
    pub(crate) fn new(plane: &'a Plane, interval: PollInterval) -> AgentWatch<'a> {
        AgentWatch { plane, interval, reads: Batcher::default() }
    }

    /// Looks at one instance until `judge` makes something of its signs. It has just been told
    /// something, so the first look is at the next interval.
    pub(crate) async fn wait<T>(
        &self,
        id: &InstanceId,
        deadline: Timestamp,
        judge: impl Fn(&AgentStatus, Timestamp) -> Option<T>,
    ) -> PortResult<Watched<T>> {
        let clock = &*self.plane.clock;
        let wait = Wait { since: clock.now(), deadline, interval: self.interval };
        clock.sleep(self.interval.initial_delay(wait.since)).await;
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

    /// Looks once.
    pub(crate) async fn look(&self, id: &InstanceId) -> PortResult<AgentStatus> {
        let read = |ids: Vec<InstanceId>| async move {
            self.plane.retried(|| self.plane.store.agent_status(&ids)).await
        };
        // All who look on the same interval wake up within a timer's precision.
        let lull = || self.plane.clock.sleep(LULL);
        self.reads.ask_after(lull, id.clone(), read).await
    }
}
