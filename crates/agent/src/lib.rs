//! The agent: one small program on each machine of the pool.
//!
//! It reads what the control plane writes about its machine, drives the runner accordingly, and
//! says what came of it. Beside that it beats, and watches the deadline that ends the machine
//! when nobody else does.

mod cycle;
mod deadline;
mod memory;
mod voice;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, join, select};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::signal::Signal;
use ondeck_core::ports::{AgentStore, Clock, Host, Random, Runner};

use crate::memory::Memory;

/// How long the last look before the end may take: somebody may just have claimed the machine.
const ONE_LOOK: Duration = Duration::from_secs(1);

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
        let (begun, memory) = (self.clock.steady(), Memory::new(self.clock.now()));
        // First of all, because how often to beat is itself a setting.
        self.learn(&memory).await;
        // The first answer may have put the clock right, and with it the moment of birth.
        let age = self.clock.steady().saturating_sub(begun);
        memory.was_born(self.clock.now().before(age));
        let work = join(self.work(&memory), self.heed_interruption(&memory));
        let why = match select(pin!(self.watch(&memory)), pin!(work)).await {
            Either::Left((why, _)) => why,
            Either::Right((never, _)) => match never.0 {},
        };
        tracing::warn!(instance = %self.id, "ending this machine: {why}");
        self.host.terminate(&why).await;
        why
    }

    /// Beats, and keeps an eye on the threshold, whatever the cycle is busy with. Returns when
    /// the machine must end.
    async fn watch(&self, memory: &Memory) -> String {
        loop {
            // A store that never answers must not keep the machine alive.
            let times = memory.times();
            let left = deadline::end_at(&memory.standing(), &times).since(self.clock.now());
            let patience = left.max(ONE_LOOK);
            let beat = pin!(self.beat_and_look(memory));
            let beaten = match select(beat, self.clock.sleep(patience)).await {
                Either::Left((beaten, _)) => beaten,
                Either::Right(_) => false,
            };

            let (times, now) = (memory.times(), self.clock.now());
            if let Some(why) = deadline::why_end(&memory.standing(), &times, now) {
                return why;
            }
            let left = deadline::end_at(&memory.standing(), &times).since(now);
            // A few lost beats make a machine unhealthy, so a lost one is made up for soon.
            let period = times.heartbeat_period;
            let next = if beaten { period } else { period / MAKE_UP };
            self.clock.sleep(next.min(left)).await;
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
