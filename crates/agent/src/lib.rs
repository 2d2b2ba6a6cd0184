//! The agent: one small program on each machine of the pool.
//!
//! It reads what the control plane writes about its machine, drives the runner accordingly, and
//! signals the result. Beside that it sends heartbeats and watches the deadline, past which it
//! terminates the machine even if refresh does not.

mod cycle;
mod deadline;
mod memory;
mod voice;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, FutureExt, join, select};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::signal::Signal;
use ondeck_core::ports::{AgentStore, Clock, Host, Random, Runner};
use ondeck_core::runtime::retry::{Retry, retry};

use crate::deadline::Moment;
use crate::memory::Memory;

/// How long an agent waits for the store before it terminates its machine by what it remembers: the
/// number of waits, and the length of each. If the process is stopped during one of them, it takes
/// in what was answered meanwhile during the next.
const LAST_LOOK: (u32, Duration) = (5, Duration::from_secs(1));

/// How many such looks an agent makes at the most, if its process is stopped during each of them.
const LOOKS: u32 = 3;

/// How many times as often a beat is tried that could not be sent.
const MAKE_UP: u32 = 4;

/// One agent and what it works with.
pub struct Agent {
    /// The machine it lives on.
    pub id: InstanceId,
    /// What it reads and says.
    pub store: Arc<dyn AgentStore>,
    /// The runner it drives.
    pub runner: Arc<dyn Runner>,
    pub host: Arc<dyn Host>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
}

impl Agent {
    /// Lives until its machine must end, ends it, and gives the reason.
    pub async fn live(&self) -> String {
        let memory = Memory::new(self.clock.steady());
        // First of all, because how often to beat is itself a setting.
        self.learn(&memory).await;
        let work = join(self.work(&memory), self.heed_interruption(&memory));
        let why = match select(pin!(self.watch(&memory)), pin!(work)).await {
            Either::Left((why, _)) => why,
            Either::Right((never, _)) => match never.0 {},
        };
        tracing::warn!(instance = %self.id, "ending this machine: {why}");
        self.host.terminate(&why).await;
        why
    }

    /// Beats and watches the threshold, beside the cycle and not blocked by it. Returns when
    /// the machine must end.
    async fn watch(&self, memory: &Memory) -> String {
        loop {
            // A store that never answers must not keep the machine alive.
            let left = self.left(memory);
            let mut beat = pin!(self.beat_and_look(memory).fuse());
            let beaten = match select(beat.as_mut(), self.clock.sleep(left)).await {
                Either::Left((beaten, _)) => beaten,
                Either::Right(_) => false,
            };
            if let Some(why) = self.must_end(memory, beat).await {
                return why;
            }

            // A few lost beats make a machine unhealthy, so a lost one is made up for soon.
            let period = memory.times().heartbeat_period;
            let next = if beaten { period } else { period / MAKE_UP };
            self.clock.sleep(next.min(self.left(memory))).await;
        }
    }

    /// How long the machine may go on by what the agent remembers.
    fn left(&self, memory: &Memory) -> Duration {
        deadline::left(&memory.standing(), &memory.times(), Moment::of(&*self.clock))
    }

    /// Returns why the machine must terminate now, or `None` if it need not.
    ///
    /// What the agent remembers may be out of date: its process may have been stopped for minutes.
    /// So where its memory says that the deadline has passed, it asks the store, and the answer
    /// decides. A call that is `in_flight` goes on meanwhile, because its answer may have arrived
    /// already. Memory decides only if the store does not answer within [`LAST_LOOK`]. A record
    /// that says terminated is final, and needs no second look.
    async fn must_end(
        &self,
        memory: &Memory,
        in_flight: impl Future<Output = bool> + Unpin,
    ) -> Option<String> {
        let now = || Moment::of(&*self.clock);
        let why = || deadline::why_end(&memory.standing(), &memory.times(), now());
        why()?;
        if !memory.standing().is_final() {
            let look = pin!(self.look_again(memory));
            if let Either::Right((_, look)) = select(look, in_flight).await {
                look.await;
            }
        }
        why()
    }

    /// Looks until the store answers, for as long as [`LAST_LOOK`] says at the most. A look during
    /// which the process was stopped may have an old answer, and is followed by another one, as
    /// often as [`LOOKS`] allows.
    async fn look_again(&self, memory: &Memory) {
        let (waits, wait) = LAST_LOOK;
        for _ in 0..LOOKS {
            let begun = self.clock.steady();
            let look = retry(&*self.clock, &*self.random, Retry::PATIENT, |_| self.look(memory));
            let mut look = pin!(look.fuse());
            for _ in 0..waits {
                if let Either::Left(_) = select(look.as_mut(), self.clock.sleep(wait)).await {
                    break;
                }
            }
            if self.clock.steady().saturating_sub(begun) <= wait * (waits + 1) {
                return;
            }
            // What was answered meanwhile is taken in, in case the store has gone since.
            drop(select(look, self.clock.sleep(wait)).await);
        }
    }

    /// A failure leaves what was known last, and its deadline goes on counting. Gives whether the
    /// beat was sent.
    async fn beat_and_look(&self, memory: &Memory) -> bool {
        let beat = self.store.beat(&self.id, self.clock.now()).await;
        if let Err(error) = &beat {
            tracing::warn!("heartbeat not sent: {error}");
        }
        drop(self.look(memory).await);
        beat.is_ok()
    }

    /// A machine that is about to be taken away takes no new run, and says so while it can.
    async fn heed_interruption(&self, memory: &Memory) {
        let notice = self.host.interruption().await;
        tracing::warn!("{notice}");
        memory.interrupt(&notice);
        if memory.serving().is_none() {
            self.say(memory, Signal::PrepareFailed, None, &notice).await;
        }
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Agent({})", self.id)
    }
}
