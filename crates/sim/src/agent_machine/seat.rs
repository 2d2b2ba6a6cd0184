//! Registrations with labels of the machine.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use ondeck_core::model::credentials::TokenPurpose;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::Clock;

use super::{AgentMachine, TROUBLE};
use crate::faults::Fault;
use crate::kernel::{Micros, Trigger};
use crate::plan::SECOND;

/// How often a listener is started until it listens.
const ATTEMPTS: u32 = 3;

/// When a registration takes place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is left of the one before.
    Anew,
    /// It takes the place of one that is lost, for the same owner.
    Repair,
}

impl AgentMachine {
    /// What this process of the agent has registered the runner with, and the number of the registration.
    pub(super) fn own(&self) -> MutexGuard<'_, Option<(MachineLabel, u32)>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn listen_under(&self, label: &MachineLabel) -> Result<u32, String> {
        let present = self.own().clone().filter(|(own, _)| own == label);
        let number = match present {
            Some((_, number)) => number,
            None => self.enlist(label, Stage::Anew).await?,
        };
        self.listen(label, number).await
    }

    /// Starts the listener of the registration with this number, unless it lives. Registers anew if that is
    /// lost, or if the forge keeps an old session. Returns the number of the present registration.
    pub(super) async fn listen(&self, label: &MachineLabel, number: u32) -> Result<u32, String> {
        let (world, mut number) = (&self.ports.world, number);
        for _ in 0..ATTEMPTS {
            if !world.kernel.is_by_choice() {
                let starts = self.ports.random().u64(0..600);
                self.ports.sleep(Duration::from_millis(starts)).await;
            }
            world.end_dead_listeners();
            let now = world.kernel.now();
            let listener = world.machines().listener(&self.id, now);
            if listener.is_some_and(|(listening, _)| listening == number) {
                return Ok(number);
            }
            if !world.machines().reaches_forge(&self.id, now) {
                self.trouble(TROUBLE);
                return Err("the forge cannot be reached".to_owned());
            }
            if world.machines().refuses_version(now) || self.ports.injects(Fault::VersionRefused) {
                self.trouble(TROUBLE);
                return Err("the version of the runner is refused".to_owned());
            }
            let is_lost = !world.machines().is_registered_own(&self.id, number);
            let conflicts = world.machines().keeps_session(&self.id, now) == Some(number);
            if is_lost || conflicts {
                if conflicts {
                    world.kernel.count(Fault::SessionConflict);
                }
                number = self.enlist(label, Stage::Repair).await?;
                continue;
            }
            let dies = self.ports.injects(Fault::RunnerDies).then(|| {
                let mut random = self.ports.random();
                let keeps_session = if random.bool() { random.u64(0..240 * SECOND) } else { 0 };
                (now + random.u64(0..60 * SECOND), keeps_session)
            });
            world.machines().listen(&self.id, number, dies);
            world.kernel.note(&self.ports.name, || format!("listens as {label}, number {number}"));
            return Ok(number);
        }
        Err("the runner does not listen for jobs".to_owned())
    }

    async fn enlist(&self, label: &MachineLabel, stage: Stage) -> Result<u32, String> {
        let world = &self.ports.world;
        *self.own() = None;
        world.machines().end_listener(&self.id, world.kernel.now());
        if stage == Stage::Anew {
            world.machines().withdraw_owner(&self.id);
            if let Some(machine) = world.machines().machine_mut(&self.id) {
                machine.condition.has_worked = false;
            }
            *self.served() = None;
        }
        if let Some(condition) = world.machines().condition(&self.id) {
            world.audit().registers_own(&self.id, label, condition);
        }
        if !world.kernel.is_by_choice() {
            self.take_time_to_register().await;
        }
        self.check_token(TokenPurpose::Registration)?;
        if !world.machines().reaches_forge(&self.id, world.kernel.now()) {
            self.trouble(TROUBLE);
            return Err("the forge cannot be reached".to_owned());
        }
        let number = world.machines().next_registration(&self.id);
        let (id, asked) = (self.id.clone(), label.clone());
        let registered = self.act(("forge", "register runner"), true, move |machines| {
            machines.forget_earlier(&id, number);
            machines.register_own(&id, &asked, number);
        });
        registered.await?;
        world.machines().has_registered_own(&self.id, label, number);
        *self.own() = Some((label.clone(), number));
        Ok(number)
    }

    pub(super) fn name(&self, run: &RunId) -> Result<(), String> {
        let own = self.own().clone();
        let (label, number) = own.ok_or("the runner has no label of its machine")?;
        let world = &self.ports.world;
        world.machines().name_owner(&self.id, run, world.kernel.now());
        world.audit().names_owner(&self.id, (&label, number), run);
        world.kernel.note(&self.ports.name, || format!("lets in jobs of {run}"));
        *self.served() = Some(run.clone());
        Ok(())
    }

    /// Waits until no listener lives.
    pub(super) async fn lapsed(&self) -> String {
        let world = &self.ports.world;
        loop {
            let now = world.kernel.now();
            world.end_dead_listeners();
            let listener = world.machines().listener(&self.id, now);
            let Some((_, dies_at)) = listener else { break };
            let left = dies_at.map_or(3600 * SECOND, |at: Micros| at.saturating_sub(now));
            let lapses = Some(Trigger::Lapsed(self.id.clone()));
            world.kernel.sleep(self.ports.pid, Duration::from_micros(left), lapses).await;
        }
        if world.machines().keeps_session(&self.id, world.kernel.now()).is_some() {
            self.trouble(TROUBLE);
        }
        "the listener has ended".to_owned()
    }

    /// Ends the listener, for whom it concerns.
    pub(super) fn end_listener(&self) {
        let world = &self.ports.world;
        world.machines().end_listener(&self.id, world.kernel.now());
        world.kernel.lapses(&self.id);
    }
}
