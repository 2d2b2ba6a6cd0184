//! An idle machine in a pool whose machines register before a run claims them.
//!
//! While the record names no run, the agent registers the runner under a label of the machine's own and
//! keeps it listening. A registration belongs to one generation of the idle state, and serves the run that
//! claims this generation, at most. What the agent says about it is never better than the truth: a
//! heartbeat waits until a registration that is lost has been withdrawn.

use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{BoxFuture, Either, FutureExt, join, select};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::{MachineLabel, RequestedLabel};
use ondeck_core::model::readiness::{IdleRegistration, Readiness};
use ondeck_core::model::record::State;
use ondeck_core::model::signal::Signal;
use ondeck_core::ports::PortResult;
use ondeck_core::runtime::retry::{Retry, retry};

use crate::Agent;
use crate::cycle::{Assignment, served_label};
use crate::memory::Memory;
use crate::refusals::is_refusal;
use crate::restarts::Restarts;

/// The runner of a machine that a run has claimed, if it is to be registered under a label of the machine.
pub(crate) struct OwnRunner<'a> {
    pub(crate) label: MachineLabel,
    /// The registration that was under way when the machine was claimed.
    under_way: Option<BoxFuture<'a, Result<u32, String>>>,
    /// Whether the machine was ready.
    pub(crate) was_ready: bool,
}

impl OwnRunner<'_> {
    /// Whether the machine registers for its run from the beginning.
    pub(crate) fn is_to_register(&self) -> bool {
        !self.was_ready && self.under_way.is_none()
    }
}

/// What an agent of an idle machine sees.
enum Seen {
    /// A run owns the machine. With the generation that it has claimed.
    Owner(Label, Assignment, u32),
    /// The machine is idle in a generation that the agent has not answered.
    Idle(u32),
    /// It is idle, and machines of its pool register for their run only.
    OfRun,
}

/// What an agent does about the registration of an idle machine.
enum Phase<'a> {
    /// It waits before it looks again whether to register.
    Resting(BoxFuture<'a, ()>),
    Registering(BoxFuture<'a, Result<u32, String>>),
    Ready(BoxFuture<'a, String>),
    /// It removes the runner, because the machine must take no job.
    Removing(BoxFuture<'a, ()>),
}

/// What came of a phase.
enum Event {
    Rested,
    Registered(Result<u32, String>),
    Lapsed(String),
    Removed,
}

impl Phase<'_> {
    async fn event(&mut self) -> Event {
        match self {
            Phase::Resting(rest) => {
                rest.await;
                Event::Rested
            }
            Phase::Registering(attempt) => Event::Registered(attempt.await),
            Phase::Ready(lapse) => Event::Lapsed(lapse.await),
            Phase::Removing(removal) => {
                removal.await;
                Event::Removed
            }
        }
    }
}

/// The registration of an idle machine, from the first attempt on.
struct Idle<'a> {
    label: MachineLabel,
    generation: u32,
    phase: Phase<'a>,
    restarts: Restarts,
    /// When the present attempt to register began, in steady time.
    began: Duration,
    /// Whether the runner may be registered.
    may_be_listed: bool,
}

impl Agent {
    /// Waits until the record names a run. Returns the label to serve it under, what else the record tells,
    /// and the runner to serve it with, unless that is to register with the run's label.
    pub(crate) async fn await_claim<'a>(
        &'a self,
        memory: &'a Memory,
    ) -> (Label, Assignment, Option<OwnRunner<'a>>) {
        loop {
            if memory.registers_idle() {
                if let Some(claimed) = self.await_owner(memory).await {
                    return claimed;
                }
            } else if let Some((label, assignment)) = self.await_run(memory).await {
                let own = self.own_runner(memory, &assignment, 0, None).await;
                return (label, assignment, own);
            }
        }
    }

    /// Waits until the record names a run, as [`Agent::await_run`], and keeps the runner of the idle
    /// machine registered meanwhile. Returns that runner if it may serve the run. Returns `None` if the
    /// settings say meanwhile that idle machines do not register; the runner is removed then.
    async fn await_owner<'a>(
        &'a self,
        memory: &'a Memory,
    ) -> Option<(Label, Assignment, Option<OwnRunner<'a>>)> {
        let mut idle: Option<Idle<'a>> = None;
        loop {
            let seen = match &mut idle {
                None => self.see(memory, None).await,
                Some(kept) => self.keep_ready(memory, kept).await,
            };
            match seen {
                Seen::Owner(label, assignment, claimed) => {
                    let own = self.own_runner(memory, &assignment, claimed, idle.take()).await;
                    return Some((label, assignment, own));
                }
                Seen::OfRun => {
                    self.leave_idle(memory, idle.take(), false).await;
                    return None;
                }
                Seen::Idle(generation) => {
                    let answered = memory.idle_generation();
                    // An earlier process of the agent may have left a runner behind.
                    self.leave_idle(memory, idle.take(), answered.is_none()).await;
                    memory.set_idle_generation(Some(generation));
                    if answered.is_some_and(|answered| answered != generation)
                        && memory.interruption().is_none()
                    {
                        self.signal(memory, Signal::Deregistered, None, "").await;
                    }
                    idle = Some(self.begin_idle(memory, generation));
                }
            }
        }
    }

    /// Waits until the record says something that the agent does not know: an owner, or an idle state
    /// other than `known`.
    async fn see(&self, memory: &Memory, known: Option<u32>) -> Seen {
        loop {
            let looked = self.look_at_record(memory).await;
            if let Ok(Some(record)) = &looked {
                self.follow_settings(memory, record).await;
                let generation = record.counts.generation;
                if let Some(label) = served_label(record) {
                    return Seen::Owner(label, Assignment::of(record, memory), generation);
                }
                if record.state == State::Idle && known != Some(generation) {
                    return Seen::Idle(generation);
                }
                if !memory.registers_idle() {
                    return Seen::OfRun;
                }
            }
            self.await_next_look(memory, &looked, memory.times().agent_poll_waiting).await;
        }
    }

    fn begin_idle<'a>(&'a self, memory: &Memory, generation: u32) -> Idle<'a> {
        memory.no_longer_ready(self.clock.now(), "it has not registered yet");
        Idle {
            label: MachineLabel::random(&*self.random),
            generation,
            phase: Phase::Resting(Box::pin(async {})),
            restarts: Restarts::default(),
            began: Duration::ZERO,
            may_be_listed: false,
        }
    }

    /// Keeps the runner registered and listening until the record says something new.
    ///
    /// The record is looked at also while a note is written: a store that answers late must not keep a run
    /// waiting. A note that is under way then is dropped, and counts as not written.
    async fn keep_ready<'a>(&'a self, memory: &Memory, idle: &mut Idle<'a>) -> Seen {
        let mut see = pin!(self.see(memory, Some(idle.generation)));
        loop {
            let step = async {
                let event = idle.phase.event().await;
                self.follow(memory, idle, event).await;
            };
            if let Either::Left((seen, _)) = select(see.as_mut(), pin!(step)).await {
                return seen;
            }
        }
    }

    /// Begins the next phase and says what has changed. It may be dropped at any point.
    async fn follow<'a>(&'a self, memory: &Memory, idle: &mut Idle<'a>, event: Event) {
        if matches!(event, Event::Removed) {
            idle.may_be_listed = false;
        }
        if let Some(why) = self.takes_no_job(memory) {
            idle.phase = match idle.may_be_listed {
                true => Phase::Removing(Box::pin(self.remove_idle_runner())),
                false => self.resting(memory.times().agent_poll_running),
            };
            self.withdraw(memory, &why).await;
            return;
        }
        let random = &*self.random;
        match event {
            Event::Rested | Event::Removed => {
                idle.may_be_listed = true;
                idle.began = self.clock.steady();
                let label = idle.label.clone();
                let attempt = async move { self.runner.listen_as(&label).await };
                idle.phase = Phase::Registering(Box::pin(attempt));
            }
            Event::Registered(Ok(number)) => {
                memory.set_registration(self.clock.steady().saturating_sub(idle.began));
                let (generation, label) = (idle.generation, idle.label.clone());
                tracing::info!(%label, number, "registered while idle");
                memory.set_readiness(Readiness::Ready(IdleRegistration {
                    generation,
                    label,
                    number,
                }));
                idle.phase = Phase::Ready(Box::pin(self.runner.lapse()));
                // A store that answers late must not hide the end of the listener from the next heartbeat.
                let lapsed = {
                    let (told, event) = (self.tell_readiness(memory), idle.phase.event());
                    match select(pin!(told), pin!(event)).await {
                        Either::Right((Event::Lapsed(why), _)) => Some(why),
                        _ => None,
                    }
                };
                if let Some(why) = lapsed {
                    self.lapsed(memory, idle, &why).await;
                }
            }
            Event::Registered(Err(why)) => {
                idle.phase = self.resting(idle.restarts.failed(random));
                self.log_lapse(&mut idle.restarts, &why);
                self.withdraw(memory, &why).await;
            }
            Event::Lapsed(why) => self.lapsed(memory, idle, &why).await,
        }
    }

    /// Begins to rest after the listener has ended, and takes back that the machine is ready.
    async fn lapsed<'a>(&'a self, memory: &Memory, idle: &mut Idle<'a>, why: &str) {
        idle.phase = self.resting(idle.restarts.died(&*self.random));
        self.log_lapse(&mut idle.restarts, why);
        self.withdraw(memory, why).await;
    }

    fn resting(&self, span: Duration) -> Phase<'_> {
        Phase::Resting(Box::pin(self.clock.sleep(span)))
    }

    fn log_lapse(&self, restarts: &mut Restarts, why: &str) {
        if restarts.is_to_be_logged(why, self.clock.steady()) {
            tracing::warn!("the idle machine is not ready: {why}");
        }
    }

    /// The runner that is to serve the owner, or `None` if the owner wants its own label. One that is for
    /// another generation, or has another label than the owner names, is removed first. A removal that is
    /// under way is finished.
    async fn own_runner<'a>(
        &'a self,
        memory: &Memory,
        assignment: &Assignment,
        claimed: u32,
        idle: Option<Idle<'a>>,
    ) -> Option<OwnRunner<'a>> {
        let fits = idle.as_ref().is_some_and(|idle| match &assignment.requested {
            RequestedLabel::OfRun => false,
            RequestedLabel::OfMachine => idle.generation == claimed,
            RequestedLabel::Named(label) => idle.generation == claimed && idle.label == *label,
        });
        let fresh = |label| OwnRunner { label, under_way: None, was_ready: false };
        if let Some(idle) = idle {
            if fits {
                let was_ready = matches!(idle.phase, Phase::Ready(_));
                let under_way = match idle.phase {
                    Phase::Registering(attempt) => Some(attempt),
                    Phase::Resting(_) | Phase::Ready(_) => None,
                    // The claim came just before the threshold. A removal that is cut off could still end
                    // the listener that the run is given.
                    Phase::Removing(removal) => {
                        removal.await;
                        None
                    }
                };
                return Some(OwnRunner { label: idle.label, under_way, was_ready });
            }
            self.leave_idle(memory, Some(idle), false).await;
        }
        match &assignment.requested {
            RequestedLabel::OfRun => None,
            RequestedLabel::OfMachine => Some(fresh(MachineLabel::random(&*self.random))),
            RequestedLabel::Named(label) => Some(fresh(label.clone())),
        }
    }

    /// Makes the runner take jobs of the run. A registration that is under way is finished first.
    pub(crate) async fn listen_for(
        &self,
        label: &Label,
        own: &mut OwnRunner<'_>,
    ) -> Result<(), String> {
        if let Some(attempt) = own.under_way.take()
            && let Err(why) = attempt.await
        {
            tracing::warn!(%label, "registering once more: {why}");
        }
        self.runner.listen_as(&own.label).await?;
        self.runner.name_owner(&label.run).await
    }

    /// Removes the runner of an idle machine and cleans the machine, if there may be a runner, or
    /// `in_any_case`. A machine that cannot be cleaned serves no run any more, and this does not return.
    async fn leave_idle(&self, memory: &Memory, idle: Option<Idle<'_>>, in_any_case: bool) {
        let may_be_listed = idle.as_ref().is_some_and(|idle| idle.may_be_listed);
        match idle {
            Some(Idle { phase: Phase::Removing(removal), .. }) => removal.await,
            others => drop(others),
        }
        if !may_be_listed && !in_any_case {
            return;
        }
        let left = async {
            self.runner.stop().await?;
            self.runner.deregister().await?;
            self.runner.clean().await
        };
        let withdrawn = self.withdraw_for_sure(memory, "it leaves its registration");
        if let (_, Err(why)) = join(withdrawn, left).await {
            self.signal(memory, Signal::DeregisterFailed, None, &why).await;
            pending::<()>().await;
        }
    }

    /// Stops the idle runner and removes it, for a machine that takes no run any more. Errors are logged.
    pub(crate) async fn remove_idle_runner(&self) {
        let removed = async {
            self.runner.stop().await?;
            self.runner.deregister().await
        };
        if let Err(why) = removed.await {
            tracing::warn!("the idle runner is not removed: {why}");
        }
    }

    /// Takes back what was said about the registration. If that cannot be written now, the next heartbeat
    /// waits for it.
    pub(crate) async fn withdraw(&self, memory: &Memory, why: &str) {
        memory.not_ready(self.clock.now(), why);
        self.tell_readiness(memory).await.ok();
    }

    /// As [`Agent::withdraw`], for a machine that begins anew, and retries until the store has it. Does
    /// nothing if nothing was ever said, and gives up if the store refuses it and has never had anything
    /// else from this agent.
    pub(crate) async fn withdraw_for_sure(&self, memory: &Memory, why: &str) {
        if memory.readiness().is_none() {
            return;
        }
        memory.no_longer_ready(self.clock.now(), why);
        let told = retry(&*self.clock, &*self.random, Retry::PATIENT, |_| async move {
            match self.tell_readiness(memory).await {
                Err(error) if is_refusal(&error) && !memory.may_be_called_ready(true) => Ok(()),
                told => told,
            }
        });
        drop(told.await);
    }

    /// Writes what is to be said about the registration, if the store does not have it.
    pub(crate) async fn tell_readiness(&self, memory: &Memory) -> PortResult<()> {
        while let Some(note) = memory.note_to_write(self.clock.now()) {
            let told = self.store.note_readiness(&self.id, &note).boxed().await;
            self.log_failure(memory, "readiness not written", &told);
            if !memory.note_answered(&note, &told) {
                return told.map(drop);
            }
        }
        Ok(())
    }
}
