//! The agent: a small program that runs on each machine of the pool.
//!
//! It reads its machine's record, starts and stops the runner accordingly, and writes a signal
//! about the result. Concurrently it sends heartbeats and watches the machine's deadline. Past the
//! deadline it terminates the machine, even if refresh does not.

mod cycle;
mod deadline;
mod idle;
mod logged;
mod memory;
mod notes;
mod refusals;
mod restarts;
mod store_calls;
mod wake_ups;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, FutureExt, join, select};
use ondeck_core::model::heartbeat::{Heartbeat, idle_period};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::signal::Signal;
use ondeck_core::ports::{AgentStore, Clock, Host, PortResult, Random, Runner};
use ondeck_core::runtime::retry::{Retry, retry};

use crate::deadline::Moment;
use crate::memory::Memory;
use crate::refusals::is_refusal;

/// How long an agent past its deadline waits for the store before it terminates its machine: the
/// number of waits, and the length of each. It waits in several steps, so that a process that is
/// stopped during one step still receives an answer in the next.
const FINAL_READ: (u32, Duration) = (5, Duration::from_secs(1));

/// How many final reads an agent makes at most, if its process is stopped during each of them.
const MAX_FINAL_READS: u32 = 3;

/// How long an agent that terminates its machine waits for the runner to stop listening.
const STOP_LISTENING: Duration = Duration::from_secs(10);

/// How long an agent past its deadline goes on to leave a run that is over. A job is stopped within 16 s.
const LEAVES_WITHIN: Duration = Duration::from_secs(20);

/// The pause between two looks meanwhile.
const LEAVING_PAUSE: Duration = Duration::from_secs(1);

/// How long it waits at most for that, for the removal of a runner that is registered while the machine is
/// idle, and for the store to take back that the machine is ready.
const PARTING: Duration = Duration::from_secs(20);

/// A clock that has moved by this much, beside the time that has passed, was corrected.
const CORRECTION: Duration = Duration::from_secs(1);

/// A heartbeat that was not sent is retried after the heartbeat period divided by this.
const HEARTBEAT_RETRY_DIVISOR: u32 = 4;

/// Why the runner of a machine that is kept for people takes no job.
const PRESERVED: &str = "its run failed, and the machine is kept for debugging";

/// A heartbeat also reads the record, unless the agent's work waits for news and has read it within this
/// many heartbeat periods. That is longer than it waits for a wake-up.
const LOOKED_AT_WITHIN: u32 = 4;

/// One agent with its ports.
pub struct Agent {
    /// The machine that it runs on.
    pub id: InstanceId,
    pub store: Arc<dyn AgentStore>,
    pub runner: Arc<dyn Runner>,
    pub host: Arc<dyn Host>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
}

impl Agent {
    /// Works until the machine must terminate, terminates it, and returns the reason.
    pub async fn live(&self) -> String {
        let memory = Memory::new(self.clock.steady());
        // First, because the heartbeat period is a setting.
        let knows_settings = self.reload_settings(&memory).await;
        if !knows_settings || memory.registers_idle() {
            // What an earlier process of the agent said no longer holds.
            self.withdraw(&memory, "its agent has just started").await;
        }
        let drains = join(self.watch_for_interruption(&memory), self.drain_when_expired(&memory));
        let work = join(self.work(&memory), drains);
        let why = match select(pin!(self.watch(&memory)), pin!(work)).await {
            Either::Left((why, _)) => why,
            Either::Right((never, _)) => match never.0 {},
        };
        tracing::warn!(instance = %self.id, "terminating this machine: {why}");
        self.part(&memory, &why).await;
        self.host.terminate(&why).await;
        why
    }

    /// Keeps the runner from taking a job while the machine shuts down. In a pool whose machines register
    /// while they are idle, it also takes back that the machine is ready, and removes the runner, unless
    /// that has a job. Returns after [`PARTING`] at the latest.
    async fn part(&self, memory: &Memory, why: &str) {
        let registers = memory.tells_readiness();
        let withdrawn = async {
            if registers {
                self.withdraw(memory, why).await;
            }
        };
        let left = async {
            self.stop_listening(why).await;
            if registers && !self.runner.is_busy() {
                self.remove_idle_runner().await;
            }
        };
        drop(select(pin!(join(withdrawn, left)), self.clock.sleep(PARTING)).await);
    }

    /// Sends heartbeats and watches the deadline, concurrently with [`Agent::work`]. Returns why
    /// the machine must terminate, as soon as it must.
    ///
    /// The agent may hear of a release only after the deadline that the release has set: if the run has
    /// left no idle time, and the grace is short. It leaves the run first, because the release waits for
    /// its report.
    async fn watch(&self, memory: &Memory) -> String {
        let mut overdue_since = None;
        loop {
            // A store that never answers must not keep the machine alive.
            let left = self.time_left(memory);
            let period = heartbeat_period(memory);
            let mut beat = pin!(self.beat_and_read(memory, period).fuse());
            let sent = match select(beat.as_mut(), self.clock.sleep(left)).await {
                Either::Left((sent, _)) => sent,
                Either::Right(_) => false,
            };
            if let Some(why) = self.must_terminate(memory, beat).await {
                let now = self.clock.steady();
                let over = now.saturating_sub(*overdue_since.get_or_insert(now));
                // A report would be refused as well.
                let is_refused = memory.with_refusals(|it| it.until_next_look(now).is_some());
                if over >= LEAVES_WITHIN || is_refused || !memory.is_leaving() {
                    return why;
                }
                self.clock.sleep(LEAVING_PAUSE).await;
                continue;
            }
            overdue_since = None;

            // A few lost heartbeats make a machine unhealthy, so a lost one is retried soon. Another
            // period that is set meanwhile holds from the next heartbeat on, which announces it.
            // A refused one is not, because the next one is refused too.
            let next = if sent {
                self.rest(memory, period).await;
                continue;
            } else if memory.with_refusals(|refusals| refusals.heartbeat_is_refused()) {
                memory.period_while_refused()
            } else {
                period / HEARTBEAT_RETRY_DIVISOR
            };
            self.clock.sleep(next.min(self.time_left(memory))).await;
        }
    }

    /// Waits until the next heartbeat is due, `period` after the last; earlier if the machine is no longer
    /// idle, because others look after a machine that has a run.
    async fn rest(&self, memory: &Memory, period: Duration) {
        let mut left = period;
        while !left.is_zero() {
            let step = left.min(memory.times().heartbeat_period).min(self.time_left(memory));
            self.clock.sleep(step).await;
            left = left.saturating_sub(step);
            if !memory.is_idle() || self.time_left(memory).is_zero() {
                return;
            }
        }
    }

    /// How long the machine may go on according to the last answers of the store.
    fn time_left(&self, memory: &Memory) -> Duration {
        deadline::time_left(&memory.record(), &memory.times(), Moment::of(&*self.clock))
    }

    /// Returns why the machine must terminate now, or `None` if it need not.
    ///
    /// What the agent remembers may be out of date, because its process may have been stopped for
    /// minutes. So if the remembered deadline has passed, the agent reads its record again, and the
    /// answer decides. The call `in_flight` is polled meanwhile, because its answer may have
    /// arrived already. If the store does not answer within [`FINAL_READ`], the remembered deadline
    /// decides. A terminated record is final and is not read again.
    async fn must_terminate(
        &self,
        memory: &Memory,
        in_flight: impl Future<Output = bool> + Unpin,
    ) -> Option<String> {
        let now = || Moment::of(&*self.clock);
        let why = || deadline::termination_reason(&memory.record(), &memory.times(), now());
        why()?;
        if !memory.record().is_final() {
            let read = pin!(self.read_before_terminating(memory));
            if let Either::Right((_, read)) = select(read, in_flight).await {
                read.await;
            }
        }
        why()
    }

    /// Reads the record, with retries, for at most [`FINAL_READ`]. If the process
    /// was stopped meanwhile, the answer may be old, so the record is read again,
    /// at most [`MAX_FINAL_READS`] times.
    async fn read_before_terminating(&self, memory: &Memory) {
        let (waits, wait) = FINAL_READ;
        for _ in 0..MAX_FINAL_READS {
            let begun = self.clock.steady();
            let read =
                retry(&*self.clock, &*self.random, Retry::PATIENT, |_| self.read_record(memory));
            let mut read = pin!(read.fuse());
            for _ in 0..waits {
                if let Either::Left(_) = select(read.as_mut(), self.clock.sleep(wait)).await {
                    break;
                }
            }
            if self.clock.steady().saturating_sub(begun) <= wait * (waits + 1) {
                return;
            }
            // An answer that arrived meanwhile is remembered, in case the store
            // does not answer again.
            drop(select(read, self.clock.sleep(wait)).await);
        }
    }

    /// Sends a heartbeat that announces the next one after `period`, and reads the record if the agent's
    /// work does not. Returns whether the heartbeat was sent. If the read fails, what was known last
    /// stays in force.
    async fn beat_and_read(&self, memory: &Memory, period: Duration) -> bool {
        if let Err(error) = self.tell_readiness(memory).await
            && memory.may_be_called_ready(is_refusal(&error))
        {
            // With a fresh heartbeat, the machine would be taken for ready.
            return false;
        }
        let beat = self.beat(memory, period).await;
        memory.with_refusals(|refusals| refusals.beat(&beat));
        self.log_failure(memory, "heartbeat not sent", &beat);
        let span = memory.times().heartbeat_period * LOOKED_AT_WITHIN;
        if !memory.looks_by_itself(self.clock.steady(), span) {
            drop(self.look_at_record(memory).await);
        }
        beat.is_ok()
    }

    /// Sends a heartbeat. If the clock was corrected meanwhile, as by the store's first answer, it is sent
    /// again: by the clock of the records, the first one may be of the future.
    async fn beat(&self, memory: &Memory, period: Duration) -> PortResult<()> {
        let send = async || {
            let (at, began) = (self.clock.now(), self.clock.steady());
            let heartbeat = Heartbeat {
                registration: memory.registration(),
                ready_claim: memory.ready_claim(),
                busy: self.runner.is_busy(),
                interrupted: memory.interruption().is_some(),
                ..Heartbeat::new(at, period)
            };
            self.store.beat(&self.id, &heartbeat).await?;
            let expected = at + self.clock.steady().saturating_sub(began);
            Ok(self.clock.now().distance(expected) < CORRECTION)
        };
        let is_of_its_moment = send().await?;
        if is_of_its_moment { Ok(()) } else { send().await.map(drop) }
    }

    /// Waits for an interruption notice and remembers it, so that the machine takes no new run. Then
    /// tells the control plane at once, by a heartbeat and, if no run is being served, by a signal;
    /// and lets the runner take no further job.
    async fn watch_for_interruption(&self, memory: &Memory) {
        let notice = self.host.interruption().await;
        tracing::warn!("{notice}");
        memory.set_interruption(&notice);
        memory.is_about_to_drain(self.clock.now(), &notice);
        let tell = async {
            // If it is lost, the next one says the same.
            self.beat_and_read(memory, heartbeat_period(memory)).await;
            if memory.serving().is_none() {
                self.signal(memory, Signal::PrepareFailed, None, &notice).await;
            }
        };
        join(tell, self.runner.drain(&notice)).await;
    }

    /// Lets the runner take no job while the machine is past its threshold, interrupted or preserved. It goes
    /// by the last answer of the store, so that a store out of reach does not prolong anything.
    async fn drain_when_expired(&self, memory: &Memory) {
        loop {
            if let Some(why) = self.takes_no_job(memory) {
                memory.is_about_to_drain(self.clock.now(), &why);
                self.runner.drain(&why).await;
            }
            // The record may get another threshold meanwhile, and a runner may start to listen just
            // when it expires.
            let poll = memory.times().agent_poll_running;
            let left = deadline::until_threshold(&memory.record(), self.clock.now());
            self.clock.sleep(left.map_or(poll, |left| left.min(poll))).await;
        }
    }

    /// Why the runner must take no new job; `None` while it may.
    pub(crate) fn takes_no_job(&self, memory: &Memory) -> Option<String> {
        let expiry = || deadline::expiry(&memory.record(), self.clock.now());
        let preserved = || memory.is_preserved().then(|| PRESERVED.to_owned());
        memory.interruption().or_else(expiry).or_else(preserved)
    }

    /// Keeps the runner from taking a job while the machine shuts down. A job that runs ends with the
    /// machine.
    async fn stop_listening(&self, why: &str) {
        if !self.runner.is_busy() {
            drop(select(self.runner.drain(why), self.clock.sleep(STOP_LISTENING)).await);
        }
    }
}

/// How often the agent sends a heartbeat at present.
fn heartbeat_period(memory: &Memory) -> Duration {
    let period = memory.times().heartbeat_period;
    if memory.is_idle() { idle_period(period) } else { period }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Agent({})", self.id)
    }
}
