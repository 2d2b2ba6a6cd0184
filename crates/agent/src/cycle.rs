//! The cycle: prepare once; then wait for a run, serve it, leave it clean, and wait again.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;

use futures_util::future::{Either, select};
use ondeck_core::model::ids::RunId;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::Signal;
use ondeck_core::runtime::retry::Retry;

use crate::Agent;
use crate::memory::Memory;

impl Agent {
    /// Works as long as the machine lives. A machine that cannot be used any more says so and
    /// waits for its end; the watch beside this goes on.
    pub(crate) async fn work(&self, memory: &Memory) -> Infallible {
        if let Err(why) = self.prepare(memory).await {
            self.say(memory, Signal::PrepareFailed, None, &why).await;
            return pending().await;
        }
        self.say(memory, Signal::Prepared, None, "").await;
        loop {
            let run = self.await_run(memory).await;
            memory.serve(Some(&run));
            self.serve(memory, &run).await;
            let left = self.leave().await;
            memory.serve(None);
            match left.and_then(|account| memory.interruption().map_or(Ok(account), Err)) {
                Ok(account) => self.say(memory, Signal::Deregistered, Some(&run), &account).await,
                Err(why) => {
                    self.say(memory, Signal::DeregisterFailed, Some(&run), &why).await;
                    return pending().await;
                }
            }
        }
    }

    async fn prepare(&self, memory: &Memory) -> Result<(), String> {
        self.learn_at_first(memory).await.map_err(|why| format!("settings: {why}"))?;
        let script = memory.script();
        if !script.trim().is_empty() {
            let failed = |why| format!("the pre-runner script failed: {why}");
            self.host.run_script(&script).await.map_err(failed)?;
        }
        self.runner.prepare().await.map_err(|why| format!("the runner is not ready: {why}"))
    }

    /// Waits until the record carries a run.
    async fn await_run(&self, memory: &Memory) -> RunId {
        loop {
            if let Ok(Some(record)) = self.look(memory).await
                && let Some(run) = owner(&record)
            {
                self.learn(memory).await;
                return run.clone();
            }
            self.store.news(&*self.clock, memory.times().agent_poll_waiting).await;
        }
    }

    /// Registers for the run and works for it until it is over. That may be before it has
    /// registered, and then it does not: a runner that comes too late would take jobs of the run
    /// on a machine that is about to end, or already claimed by another run.
    async fn serve(&self, memory: &Memory, run: &RunId) {
        let mut over = pin!(self.await_end_of(memory, run));
        let not_interrupted = || memory.interruption().map_or(Ok(()), Err);
        // Asked twice, since the notice may come while it registers.
        let registered = match not_interrupted() {
            Ok(()) => match select(over.as_mut(), self.runner.register(run)).await {
                Either::Left(((), _)) => return,
                Either::Right((registered, _)) => registered.and_then(|()| not_interrupted()),
            },
            interrupted => interrupted,
        };
        match registered {
            Ok(()) => {
                self.say(memory, Signal::Registered, Some(run), "").await;
                match select(over, pin!(self.keep_working(run))).await {
                    Either::Left(((), _)) => {}
                    Either::Right((never, _)) => match never {},
                }
            }
            Err(why) => {
                self.say(memory, Signal::RegisterFailed, Some(run), &why).await;
                over.await;
            }
        }
    }

    /// Waits until the run is cleared or another one stands in its place. A record that cannot
    /// be read changes nothing; one that is gone, or terminated, belongs to no run either.
    async fn await_end_of(&self, memory: &Memory, run: &RunId) {
        loop {
            if let Ok(record) = self.look(memory).await
                && record.as_ref().and_then(owner) != Some(run)
            {
                return;
            }
            self.store.news(&*self.clock, memory.times().agent_poll_running).await;
        }
    }

    /// Starts the runner again whenever it dies, since the run still counts on it.
    async fn keep_working(&self, run: &RunId) -> Infallible {
        let mut deaths = 0;
        loop {
            let why = self.runner.work(run).await;
            tracing::warn!(%run, "the runner died and is started again: {why}");
            self.clock.sleep(Retry::PATIENT.pause(deaths, &*self.random)).await;
            deaths = deaths.saturating_add(1);
        }
    }

    /// Stops, deregisters and cleans, and gives an account of the run. Where any of it fails, the
    /// machine must not be used again.
    async fn leave(&self) -> Result<String, String> {
        let failed = |doing: &'static str| move |why: String| format!("{doing}: {why}");
        self.runner.stop().await.map_err(failed("the runner does not stop"))?;
        self.runner.deregister().await.map_err(failed("the runner is still listed"))?;
        let account = self.runner.account().await;
        self.runner.clean().await.map_err(failed("the machine is not clean"))?;
        Ok(account)
    }
}

fn owner(record: &Record) -> Option<&RunId> {
    let owned = matches!(record.state, State::Created | State::Claimed | State::Running);
    record.run.as_ref().filter(|_| owned)
}
