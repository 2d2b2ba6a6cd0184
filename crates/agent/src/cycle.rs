//! The work of an agent: prepare the machine once; then wait for a run, serve it, clean up, and
//! wait for the next one.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;

use futures_util::future::{Either, join, select};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::RequestedLabel;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::{HELD, Signal, used_up};
use ondeck_core::ports::PortResult;

use crate::Agent;
use crate::idle::OwnRunner;
use crate::memory::{Memory, OwnLabel};
use crate::restarts::Restarts;

impl Agent {
    /// Serves runs as long as the machine lives. If preparing it or leaving a run fails, the
    /// machine must not be used any more: this signals the failure and waits. [`Agent::watch`],
    /// which runs concurrently, terminates the machine later.
    pub(crate) async fn work(&self, memory: &Memory) -> Infallible {
        if let Err(why) = self.prepare(memory).await {
            self.signal(memory, Signal::PrepareFailed, None, &why).await;
            return pending().await;
        }
        self.signal(memory, Signal::Prepared, None, "").await;
        loop {
            let (label, assignment, own) = self.await_claim(memory).await;
            let generation = assignment.generation;
            let own_label =
                own.as_ref().map(|own| OwnLabel { label: own.label.clone(), generation });
            memory.set_serving(Some(&label), own_label);
            memory.begin_use(assignment.is_exclusive);
            self.serve(memory, &label, &assignment, own).await;
            let left = self.leave(memory, &assignment).await;
            memory.set_serving(None, None);
            match left.and_then(|account| memory.interruption().map_or(Ok(account), Err)) {
                Ok(account) => {
                    self.signal(memory, Signal::Deregistered, Some(&label), &account).await;
                    memory.set_left();
                }
                Err(why) => {
                    self.signal(memory, Signal::DeregisterFailed, Some(&label), &why).await;
                    memory.set_left();
                    return pending().await;
                }
            }
        }
    }

    async fn prepare(&self, memory: &Memory) -> Result<(), String> {
        // It may take a while until wake-ups can be heard.
        self.store.listen(&self.id);
        self.load_settings(memory).await.map_err(|why| format!("settings: {why}"))?;
        let script = memory.pre_runner_script();
        if !script.trim().is_empty() {
            self.runner.make_user().await?;
            let failed = |why| format!("the pre-runner script failed: {why}");
            self.host.run_script(&script).await.map_err(failed)?;
        }
        self.runner.prepare().await.map_err(|why| format!("the runner is not ready: {why}"))
    }

    /// Waits until the record names a run. Returns the label to serve it under, and what else the
    /// record tells. Returns `None` if the settings say meanwhile that idle machines are to register.
    pub(crate) async fn await_run(&self, memory: &Memory) -> Option<(Label, Assignment)> {
        loop {
            let looked = self.look_at_record(memory).await;
            if let Ok(Some(record)) = &looked {
                self.follow_settings(memory, record).await;
                if let Some(label) = served_label(record) {
                    return Some((label, Assignment::of(record, memory)));
                }
                self.answer_missed_claim(memory, record).await;
                if memory.registers_idle() {
                    return None;
                }
            }
            self.await_next_look(memory, &looked, memory.times().agent_poll_waiting).await;
        }
    }

    /// Signals that the machine is free, once for each idle state that the agent has not entered by
    /// leaving a run: the claim before it came and went between two reads of the record, and the
    /// process that gave the machine back waits for an answer.
    ///
    /// The first idle state that an agent sees after its start gets no answer: an earlier process of
    /// the agent may have left a runner behind.
    async fn answer_missed_claim(&self, memory: &Memory, record: &Record) {
        let (generation, answered) = (record.counts.generation, memory.idle_generation());
        if record.state != State::Idle || answered == Some(generation) {
            return;
        }
        memory.set_idle_generation(Some(generation));
        if answered.is_some() && memory.interruption().is_none() {
            self.signal(memory, Signal::Deregistered, None, "").await;
        }
    }

    /// Reads the settings again if the record names another version than those that were read, once
    /// for each version: the stored settings may be newer than what the record's writer knew. A
    /// record that names none says nothing, so for its run they are read in any case.
    pub(crate) async fn follow_settings(&self, memory: &Memory, record: &Record) {
        let must_read = match record.settings_version.as_ref() {
            Some(named) => memory.is_news(named),
            None => served_label(record).is_some(),
        };
        if must_read && self.reload_settings(memory).await {
            memory.set_followed(record.settings_version.clone());
        }
    }

    /// Registers the runner for the run and keeps it working until the run is over. If the
    /// run is over before the runner has registered, the registration is cancelled: a late
    /// runner would take jobs of the run on a machine that is about to terminate, or that
    /// another run has claimed.
    ///
    /// A machine that has served another run does not register for one that asks for a machine of its
    /// own: no control plane that keeps the rules gives it to such a run.
    async fn serve(
        &self,
        memory: &Memory,
        label: &Label,
        assignment: &Assignment,
        mut own: Option<OwnRunner<'_>>,
    ) {
        let mut over = pin!(self.await_end_of(memory, label));
        let begun = self.clock.steady();
        let refusal = || assignment.refusal().or_else(|| self.takes_no_job(memory));
        let takes_jobs = || refusal().map_or(Ok(()), Err);
        // Checked twice, because a notice may arrive during the registration, or the threshold pass.
        let was_ready = own.as_ref().is_some_and(|own| own.was_ready);
        let is_to_register = own.as_ref().is_none_or(OwnRunner::is_to_register);
        let registration = async {
            match &mut own {
                None => self.runner.register(label).await,
                Some(own) => self.listen_for(label, own).await,
            }
        };
        let registered = match takes_jobs() {
            Ok(()) => match select(over.as_mut(), pin!(registration)).await {
                Either::Left(((), _)) => {
                    // The runner listens before its registration has ended.
                    if self.runner.is_busy() {
                        let ended = self.finish_job(memory, label, assignment.runs_before);
                        select(pin!(ended), pin!(self.keep_working(memory, label))).await;
                    }
                    return;
                }
                Either::Right((registered, _)) => registered.and_then(|()| takes_jobs()),
            },
            takes_none => takes_none,
        };
        match registered {
            Ok(()) => {
                let took = self.clock.steady().saturating_sub(begun);
                if was_ready {
                    memory.set_ready_claim(took);
                } else if is_to_register {
                    memory.set_registration(took);
                }
                // A store that does not take the signal must not hide the end of the run.
                let working = async {
                    self.signal(memory, Signal::Registered, Some(label), "").await;
                    self.keep_working(memory, label).await
                };
                let lifetime = async {
                    over.await;
                    self.finish_job(memory, label, assignment.runs_before).await;
                };
                match select(pin!(lifetime), pin!(working)).await {
                    Either::Left(((), _)) => {}
                    Either::Right((never, _)) => match never {},
                }
            }
            Err(why) => {
                let drained = async {
                    self.signal(memory, Signal::RegisterFailed, Some(label), &why).await;
                    // The runner may listen already.
                    self.runner.drain(&why).await;
                    pending::<()>().await;
                };
                select(over, pin!(drained)).await;
            }
        }
    }

    /// Waits for the end of a job that the runner took before the agent saw that the machine was
    /// given back. The control plane is told that the machine is still needed, and may take it back
    /// for the run: then this waits for the end of the run again. Any other run that is over ends
    /// its jobs.
    async fn finish_job(&self, memory: &Memory, label: &Label, runs: Option<u32>) {
        let mut told = false;
        while self.runner.is_busy() {
            let record = match self.look_at_record(memory).await {
                Ok(Some(record)) => record,
                // Without a record the deadline decides, and while it cannot be read, the job goes on.
                Ok(None) => return,
                Err(_) => {
                    self.clock.sleep(memory.times().agent_poll_running).await;
                    continue;
                }
            };
            if serves(memory, &record, label) {
                self.signal(memory, Signal::Registered, Some(label), "").await;
                self.await_end_of(memory, label).await;
                return;
            }
            if record.state != State::Idle || Some(record.counts.runs) != runs {
                // The run may have had the machine again meanwhile, and may be over.
                memory.end_use(Some(&record));
                return;
            }
            if !told {
                tracing::warn!(%label, "given back, but its runner has a job");
                self.signal(memory, Signal::Registered, Some(label), HELD).await;
                told = true;
            }
            // The end of the job is no news of the store.
            let poll = memory.times().agent_poll_running;
            self.await_news(memory, poll, poll).await;
        }
    }

    /// Waits until the record no longer names this run under this label, which it did when it was just
    /// read. A deleted or terminated record names no run. While the record cannot be read, the run goes
    /// on.
    async fn await_end_of(&self, memory: &Memory, label: &Label) {
        let mut looked: PortResult<Option<Record>> = Ok(None);
        loop {
            self.await_next_look(memory, &looked, memory.times().agent_poll_running).await;
            looked = self.look_at_record(memory).await;
            if let Ok(record) = &looked
                && !record.as_ref().is_some_and(|record| serves(memory, record, label))
            {
                memory.end_use(record.as_ref());
                memory.set_idle_generation(record.as_ref().map(|record| record.counts.generation));
                return;
            }
        }
    }

    /// Restarts the runner whenever it dies, because the run still relies on it; but not as long as it
    /// must take no job. Signals that it takes none if it cannot be restarted, so that refresh gives
    /// the run another machine, and again when it does.
    async fn keep_working(&self, memory: &Memory, label: &Label) -> Infallible {
        let (mut restarts, mut reported) = (Restarts::default(), None);
        loop {
            if self.takes_no_job(memory).is_some() {
                self.clock.sleep(memory.times().agent_poll_running).await;
                continue;
            }
            let revived = self.runner.revive(label).await;
            if revived.is_ok() && reported.take().is_some() {
                self.signal(memory, Signal::Registered, Some(label), "").await;
            }
            let is_revived = revived.is_ok();
            let why = match revived {
                Ok(()) => self.runner.work(label).await,
                Err(why) => why,
            };
            if self.takes_no_job(memory).is_some() {
                continue;
            }
            if !is_revived && reported.as_ref() != Some(&why) {
                self.signal(memory, Signal::RegisterFailed, Some(label), &why).await;
                reported = Some(why.clone());
            }
            if restarts.is_to_be_logged(&why, self.clock.steady()) {
                tracing::warn!(%label, "the runner died and is started again: {why}");
            }
            let random = &*self.random;
            let pause = if is_revived { restarts.died(random) } else { restarts.failed(random) };
            self.clock.sleep(pause).await;
        }
    }

    /// Stops and deregisters the runner and cleans the machine. Returns the runner's account of the
    /// run. If this fails, the machine must not be used again. It also fails, before it cleans, if the
    /// run has used the machine and asked for one of its own, or if the record counts no run although
    /// the runner has had a job: a run that asks for a machine of its own would take it for unused.
    async fn leave(&self, memory: &Memory, assignment: &Assignment) -> Result<String, String> {
        // Together: a store out of reach does not keep the runner listening.
        let withdrawn = self.withdraw_for_sure(memory, "it leaves its run");
        join(withdrawn, self.leave_run(memory, assignment)).await.1
    }

    async fn leave_run(&self, memory: &Memory, assignment: &Assignment) -> Result<String, String> {
        let failed = |doing: &'static str| move |why: String| format!("{doing}: {why}");
        self.runner.stop().await.map_err(failed("the runner does not stop"))?;
        self.runner.deregister().await.map_err(failed("the runner is still listed"))?;
        let account = self.runner.account().await;
        // Asked after the runner has stopped: until then it may take a job.
        let has_worked = self.runner.has_worked();
        if memory.is_used_up(has_worked || assignment.may_have_worked) {
            return Err(used_up(&account));
        }
        if has_worked && memory.counts_as_unused() {
            return Err(format!("it had a job of a run that gave it back as unused; {account}"));
        }
        self.runner.clean().await.map_err(failed("the machine is not clean"))?;
        Ok(account)
    }
}

/// What the record says about a run when the agent begins to serve it.
pub(crate) struct Assignment {
    /// The generation that the run has claimed.
    pub(crate) generation: u32,
    /// What the run wants the runner to be registered with.
    pub(crate) requested: RequestedLabel,
    /// How many runs the record counted when the run claimed the machine; `None` if it is not claimed.
    /// If it still does when the run is over, the machine was given back without having been handed
    /// over.
    runs_before: Option<u32>,
    /// Whether the run asked for a machine of its own.
    is_exclusive: bool,
    /// Whether the machine has served another run, as far as the record tells.
    served_another: bool,
    /// Whether an earlier process of this agent may have let the run's jobs in.
    may_have_worked: bool,
}

impl Assignment {
    pub(crate) fn of(record: &Record, memory: &Memory) -> Assignment {
        let runs_before = (record.state == State::Claimed).then_some(record.counts.runs);
        let own_use = u32::from(record.state == State::Running);
        Assignment {
            generation: record.counts.generation,
            requested: record.requested.clone(),
            runs_before,
            is_exclusive: record.reuse.is_never(),
            served_another: record.counts.runs > own_use,
            may_have_worked: runs_before.is_some() && memory.idle_generation().is_none(),
        }
    }

    /// Why the machine must not serve the run; `None` if it may.
    fn refusal(&self) -> Option<String> {
        let why = "it has served another run, and reuse is never";
        (self.is_exclusive && self.served_another).then(|| why.to_owned())
    }
}

/// The label to serve a run under; `None` if the record names none.
pub(crate) fn served_label(record: &Record) -> Option<Label> {
    record.state.is_owned().then(|| record.label()).flatten()
}

/// Whether the record names this run under this label, and wants its runner to be registered as the
/// present one is.
///
/// A control plane of a version that does not know labels of machines takes them out of each record that
/// it writes, together with the suffix of the run's label. That ends no use: no other change of a
/// generation makes its owner want the label of the run.
fn serves(memory: &Memory, record: &Record, label: &Label) -> bool {
    let Some(named) = served_label(record) else { return false };
    match (&record.requested, memory.own()) {
        (RequestedLabel::OfRun, Some(own)) => {
            named.run == label.run && record.counts.generation == own.generation
        }
        (RequestedLabel::OfRun, None) => named == *label,
        (RequestedLabel::OfMachine, own) => named == *label && own.is_some(),
        (RequestedLabel::Named(wanted), own) => {
            named == *label && own.is_some_and(|own| own.label == *wanted)
        }
    }
}
