//! The runner and host ports of one agent, on a simulated machine.

mod seat;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::credentials::TokenPurpose;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::{AgentStore, Clock, Host, Runner};

use crate::faults::Fault;
use crate::kernel::Micros;
use crate::plan::SECOND;
use crate::process_ports::ProcessPorts;
use crate::simulated_machines::SimulatedMachines;
use crate::world::at_once;

/// How long a failure of a machine may have consequences.
pub(crate) const TROUBLE: Micros = 60 * SECOND;

/// One machine, with the ports that its agent uses to control it.
pub(crate) struct AgentMachine {
    pub(crate) ports: Arc<ProcessPorts>,
    pub(crate) id: InstanceId,
    /// When the provider announces an interruption, if it does.
    pub(crate) notice_at: Option<Micros>,
    /// The run that it last registered for.
    pub(crate) served: Mutex<Option<RunId>>,
    /// The label of the machine that it last registered with, and the number of that registration.
    pub(crate) own: Mutex<Option<(MachineLabel, u32)>>,
}

/// What an agent says about its work for a run.
pub(crate) fn account_of(run: &Option<RunId>) -> String {
    run.as_ref().map(|run| format!("served {run}")).unwrap_or_default()
}

impl AgentMachine {
    fn served(&self) -> MutexGuard<'_, Option<RunId>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call that changes the machine. Fails if a runner fault is injected or
    /// the answer is lost.
    async fn act(
        &self,
        (service, what): (&'static str, &'static str),
        may_fail: bool,
        mut effect: impl FnMut(&mut SimulatedMachines) + Send + 'static,
    ) -> Result<(), String> {
        if may_fail && self.ports.injects(Fault::RunnerFails) {
            self.ports.world.kernel.note(&self.ports.name, || format!("{what}  ** fails"));
            self.trouble(TROUBLE);
            return Err(format!("{what} failed"));
        }
        let world = self.ports.world.clone();
        let act = move || {
            effect(&mut world.machines());
            Ok(())
        };
        self.ports.call(service, what, String::new, act).await.map_err(|error| error.to_string())
    }

    /// Fails if the stored token for this purpose is missing or has expired.
    fn check_token(&self, purpose: TokenPurpose) -> Result<(), String> {
        let world = &self.ports.world;
        let token = at_once(AgentStore::token(&world.store, purpose)).ok().flatten();
        if token.is_some_and(|token| token.expires_at > world.kernel.true_time()) {
            return Ok(());
        }
        self.trouble(TROUBLE);
        Err(format!("no valid token for {}", purpose.as_str()))
    }

    /// Notes a failure of this machine, which may have consequences for `span` from now on.
    fn trouble(&self, span: Micros) {
        let until = self.ports.world.kernel.now() + span;
        self.ports.world.machines().trouble(&self.id, until);
    }

    /// Waits as long as a registration takes: some seconds, or up to a minute or for ever if that
    /// fault is injected.
    async fn take_time_to_register(&self) {
        let slow = self.ports.injects(Fault::SlowRegistration);
        if let Some(machine) = self.ports.world.machines().machine_mut(&self.id) {
            let condition = &mut machine.condition;
            condition.slow_registrations = if slow { condition.slow_registrations + 1 } else { 0 };
        }
        let (shape, usual, long) = {
            let mut random = self.ports.random();
            (random.u8(0..8), random.u64(0..3000), random.u64(3_000..60_000))
        };
        let takes = match (slow, shape) {
            (false, _) if self.ports.has_fixed_durations() => 1000,
            (false, _) => usual,
            (true, 0) => return std::future::pending().await,
            (true, _) => long,
        };
        self.ports.sleep(Duration::from_millis(takes)).await;
    }
}

#[async_trait]
impl Runner for AgentMachine {
    /// Stops the runner of an earlier agent process.
    async fn prepare(&self) -> Result<(), String> {
        let (id, kernel) = (self.id.clone(), self.ports.world.kernel.clone());
        self.act(("machine", "prepare"), true, move |machines| {
            machines.set_online(&id, false);
            machines.end_listener(&id, kernel.now());
            machines.lose_job(&id);
            machines.set_serving(&id, None);
            if let Some(machine) = machines.machine_mut(&id) {
                machine.condition.is_prepared = true;
            }
        })
        .await
    }

    async fn register(&self, label: &Label) -> Result<(), String> {
        let (world, started) = (&self.ports.world, self.ports.steady());
        world.machines().set_serving(&self.id, Some(label));
        if let Some(machine) = world.machines().machine_mut(&self.id) {
            machine.condition.has_worked = false;
        }
        if let Some(condition) = world.machines().condition(&self.id) {
            world.audit().registers(&self.id, label, condition);
        }
        (*self.own(), *self.served()) = (None, Some(label.run.clone()));
        let (id, label) = (self.id.clone(), label.clone());
        if !world.kernel.is_by_choice() {
            self.take_time_to_register().await;
        }
        self.check_token(TokenPurpose::Registration)?;
        let kernel = world.kernel.clone();
        let registered = self.act(("forge", "register runner"), true, move |machines| {
            machines.register(&id, &label, kernel.now());
        });
        registered.await?;
        if let Some(machine) = world.machines().machine_mut(&self.id) {
            machine.condition.registration_took = Some(self.ports.steady() - started);
        }
        Ok(())
    }

    async fn listen_as(&self, label: &MachineLabel) -> Result<u32, String> {
        self.listen_under(label).await
    }

    async fn name_owner(&self, run: &RunId) -> Result<(), String> {
        self.name(run)
    }

    async fn lapse(&self) -> String {
        self.lapsed().await
    }

    async fn revive(&self, _label: &Label) -> Result<(), String> {
        let own = self.own().clone();
        let Some((label, number)) = own else { return Ok(()) };
        self.listen(&label, number).await.map(drop)
    }

    /// Its runner is offline at once. Once it has no job, it stays so.
    async fn drain(&self, _why: &str) {
        self.end_listener();
        self.ports.world.machines().set_online(&self.id, false);
        while self.ports.world.machines().is_busy(&self.id) {
            self.ports.sleep(Duration::from_millis(100)).await;
        }
    }

    fn is_busy(&self) -> bool {
        self.ports.world.machines().is_busy(&self.id)
    }

    fn has_worked(&self) -> bool {
        self.ports.world.machines().condition(&self.id).is_some_and(|it| it.has_worked)
    }

    async fn account(&self) -> String {
        let served = self.served().clone();
        account_of(&served)
    }

    async fn work(&self, label: &Label) -> String {
        if self.own().is_some() {
            return match self.revive(label).await {
                Ok(()) => self.lapsed().await,
                Err(why) => why,
            };
        }
        self.ports.world.machines().set_online(&self.id, true);
        if self.ports.injects(Fault::RunnerDies) {
            let lives = self.ports.random().u64(0..60);
            self.ports.sleep(Duration::from_secs(lives)).await;
            self.trouble(TROUBLE);
            let mut machines = self.ports.world.machines();
            machines.set_online(&self.id, false);
            machines.lose_job(&self.id);
            return "it was killed".to_owned();
        }
        while self.ports.world.machines().is_online(&self.id) {
            self.ports.sleep(Duration::from_secs(5)).await;
        }
        "it was drained".to_owned()
    }

    async fn stop(&self) -> Result<(), String> {
        let (id, kernel) = (self.id.clone(), self.ports.world.kernel.clone());
        self.act(("machine", "stop runner"), true, move |machines| {
            machines.set_online(&id, false);
            machines.withdraw_owner(&id);
            machines.end_listener(&id, kernel.now());
            machines.lose_job(&id);
        })
        .await
    }

    async fn deregister(&self) -> Result<(), String> {
        self.check_token(TokenPurpose::Removal)?;
        let id = self.id.clone();
        if !self.ports.world.machines().reaches_forge(&id, self.ports.world.kernel.now()) {
            self.trouble(TROUBLE);
            return Err("the forge cannot be reached".to_owned());
        }
        *self.own() = None;
        self.act(("forge", "deregister runner"), true, move |machines| {
            machines.deregister(&id);
            machines.set_serving(&id, None);
        })
        .await
    }

    async fn clean(&self) -> Result<(), String> {
        let id = self.id.clone();
        self.act(("machine", "clean"), true, move |machines| {
            if let Some(machine) = machines.machine_mut(&id) {
                machine.condition.is_dirty = false;
            }
        })
        .await
    }
}

#[async_trait]
impl Host for AgentMachine {
    async fn run_script(&self, script: &str) -> Result<(), String> {
        let (id, script) = (self.id.clone(), script.to_owned());
        self.act(("machine", "script"), true, move |machines| {
            if let Some(machine) = machines.machine_mut(&id) {
                machine.condition.script.clone_from(&script);
            }
        })
        .await
    }

    async fn interruption(&self) -> String {
        let Some(at) = self.notice_at else { return std::future::pending().await };
        let left = at.saturating_sub(self.ports.world.kernel.now());
        self.ports.sleep(Duration::from_micros(left)).await;
        self.trouble(Micros::MAX / 2);
        self.ports.world.machines().interrupt(&self.id, self.ports.world.kernel.now());
        "spot interruption".to_owned()
    }

    /// Asks the provider to terminate the machine. If that fails, shuts the machine
    /// down, which always works.
    async fn terminate(&self, why: &str) {
        let world = self.ports.world.clone();
        world.audit().terminated_itself(
            self.ports.pid,
            &self.id,
            (world.kernel.now(), self.ports.now()),
        );
        world.kernel.note(&self.ports.name, || format!("terminates its machine: {why}"));
        let (id, of) = (self.id.clone(), world.clone());
        let terminate = move || {
            of.machines().mark_terminating(std::slice::from_ref(&id));
            at_once(ondeck_core::ports::Compute::terminate(&of.compute, std::slice::from_ref(&id)))
        };
        if self.ports.call("compute", "terminate itself", String::new, terminate).await.is_err() {
            world.compute.kill(&self.id);
            world.machines().mark_terminating(std::slice::from_ref(&self.id));
        }
    }
}
