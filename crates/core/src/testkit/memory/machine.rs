use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use tokio::sync::Notify;

use super::{MemoryCompute, lock};
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::Label;
use crate::model::machine_label::MachineLabel;
use crate::ports::{Host, Runner};

/// The labels that machines are registered with at the moment, and which of them listen for jobs.
/// Clones share the same map.
#[derive(Debug, Clone, Default)]
pub struct RegisteredLabels(
    Arc<Mutex<BTreeMap<InstanceId, (Label, bool)>>>,
    Arc<Mutex<BTreeMap<InstanceId, OwnRegistration>>>,
);

/// A registration with a label of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnRegistration {
    pub label: MachineLabel,
    /// Which registration of the machine it is.
    pub number: u32,
    /// The run whose jobs are let in, once the agent has named it.
    pub owner: Option<RunId>,
}

impl RegisteredLabels {
    /// The label that a machine is registered with, if any.
    pub fn of(&self, machine: &InstanceId) -> Option<Label> {
        lock(&self.0).get(machine).map(|(label, _)| label.clone())
    }

    /// The registration of a machine with a label of its own, if it has one.
    pub fn own(&self, machine: &InstanceId) -> Option<OwnRegistration> {
        lock(&self.1).get(machine).cloned()
    }

    /// Removes the runner of a machine, as an administrator does.
    pub fn remove_own(&self, machine: &InstanceId) {
        lock(&self.1).remove(machine);
    }

    /// Whether the machine's runner would take a job.
    pub fn is_listening(&self, machine: &InstanceId) -> bool {
        lock(&self.0).get(machine).is_some_and(|(_, listens)| *listens)
    }

    fn listens(&self, machine: &InstanceId, listens: bool) {
        if let Some(registered) = lock(&self.0).get_mut(machine) {
            registered.1 = listens;
        }
    }

    /// Whether no machine is registered.
    pub fn is_empty(&self) -> bool {
        lock(&self.0).is_empty() && lock(&self.1).is_empty()
    }
}

/// The defect of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MachineDefect {
    #[default]
    None,
    /// The agent never starts. The test harness has to skip this machine.
    NeverBoots,
    /// Registering never returns, while heartbeats go on.
    NeverRegisters,
    /// Registers after this time.
    RegistersAfter(Duration),
    /// Registers after this time, and has a job from then on until it is stopped.
    TakesJobAfter(Duration),
    /// Has a job at once, until it is stopped, while registering takes this long.
    TakesJobRegistering(Duration),
    /// Registers after this time, and has a job that ends at once.
    FinishesJobAfter(Duration),
    CannotRegister,
    /// Its runner dies after the first of these times, and cannot be restarted for the second.
    DiesAfter(Duration, Duration),
    /// Its runner takes this long to stop.
    StopsAfter(Duration),
    /// The pre-runner script fails.
    ScriptFails,
    /// Cleaning up after a run fails.
    CannotBeCleaned,
    /// Removing the runner never returns.
    NeverDeregisters,
    /// The machine dies while its runner registers.
    DiesRegistering,
    /// The provider announces at once that it will take the machine away.
    Interrupted,
    /// The provider announces it while the runner registers.
    InterruptedRegistering,
    /// The provider announces it this long after the machine has started.
    InterruptedAfter(Duration),
}

/// The host and the runner of one machine of a [`MemoryCompute`]. Every call returns at once, apart
/// from those that the machine's defect delays.
#[derive(Debug)]
pub struct MemoryMachine {
    id: InstanceId,
    defect: MachineDefect,
    compute: Arc<MemoryCompute>,
    labels: RegisteredLabels,
    registering: Notify,
    drained: Notify,
    busy: AtomicBool,
    worked: AtomicBool,
    /// How many times it has registered with a label of its own.
    registrations: AtomicU32,
    /// When its runner died, in steady time.
    died_at: Mutex<Option<Duration>>,
}

impl MemoryMachine {
    /// A machine that is alive in `compute` and notes in `labels` what it is registered for.
    pub fn new(
        id: InstanceId,
        defect: MachineDefect,
        compute: Arc<MemoryCompute>,
        labels: RegisteredLabels,
    ) -> MemoryMachine {
        let (registering, drained) = (Notify::new(), Notify::new());
        let (busy, worked) = (AtomicBool::new(false), AtomicBool::new(false));
        let died_at = Mutex::new(None);
        let registrations = AtomicU32::new(0);
        MemoryMachine {
            id,
            defect,
            compute,
            labels,
            registering,
            drained,
            busy,
            worked,
            registrations,
            died_at,
        }
    }

    /// Whether its runner has died and cannot be restarted yet.
    fn is_dead(&self) -> bool {
        let MachineDefect::DiesAfter(_, lasts) = self.defect else { return false };
        let died_at = *lock(&self.died_at);
        died_at.is_some_and(|at| self.compute.clock().steady() < at + lasts)
    }
}

#[async_trait]
impl Runner for MemoryMachine {
    async fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    async fn register(&self, label: &Label) -> Result<(), String> {
        self.worked.store(false, Ordering::Relaxed);
        match self.defect {
            MachineDefect::NeverRegisters => std::future::pending().await,
            MachineDefect::CannotRegister => Err("the token has expired".into()),
            MachineDefect::TakesJobRegistering(span) => {
                self.busy.store(true, Ordering::Relaxed);
                self.worked.store(true, Ordering::Relaxed);
                self.compute.clock().sleep(span).await;
                Ok(())
            }
            MachineDefect::DiesRegistering => {
                self.compute.kill(&self.id);
                std::future::pending().await
            }
            defect => {
                if let MachineDefect::RegistersAfter(span)
                | MachineDefect::TakesJobAfter(span)
                | MachineDefect::FinishesJobAfter(span) = defect
                {
                    self.compute.clock().sleep(span).await;
                }
                let takes_job = matches!(defect, MachineDefect::TakesJobAfter(_));
                let worked = takes_job || matches!(defect, MachineDefect::FinishesJobAfter(_));
                self.busy.store(takes_job, Ordering::Relaxed);
                self.worked.store(worked, Ordering::Relaxed);
                self.registering.notify_one();
                tokio::task::yield_now().await;
                lock(&self.labels.0).insert(self.id.clone(), (label.clone(), true));
                Ok(())
            }
        }
    }

    async fn listen_as(&self, label: &MachineLabel) -> Result<u32, String> {
        if self.is_dead() {
            return Err("the forge is out of reach".to_owned());
        }
        if let Some(present) = self.labels.own(&self.id).filter(|own| own.label == *label) {
            return Ok(present.number);
        }
        match self.defect {
            MachineDefect::NeverRegisters => std::future::pending().await,
            MachineDefect::CannotRegister => return Err("the token has expired".into()),
            MachineDefect::RegistersAfter(span) => self.compute.clock().sleep(span).await,
            _ => {}
        }
        let number = self.registrations.fetch_add(1, Ordering::Relaxed) + 1;
        let own = OwnRegistration { label: label.clone(), number, owner: None };
        lock(&self.labels.1).insert(self.id.clone(), own);
        Ok(number)
    }

    async fn name_owner(&self, run: &RunId) -> Result<(), String> {
        match lock(&self.labels.1).get_mut(&self.id) {
            Some(own) => own.owner = Some(run.clone()),
            None => return Err("the runner is not registered".to_owned()),
        }
        Ok(())
    }

    async fn lapse(&self) -> String {
        let begun = self.compute.clock().steady();
        while self.labels.own(&self.id).is_some() {
            let poll = self.compute.clock().sleep(Duration::from_millis(100));
            if let Either::Right(_) = select(poll, pin!(self.drained.notified())).await {
                return "it was drained".to_owned();
            }
            let now = self.compute.clock().steady();
            if let MachineDefect::DiesAfter(lives, _) = self.defect
                && lock(&self.died_at).is_none()
                && now >= begun + lives
            {
                *lock(&self.died_at) = Some(now);
                return "it died".to_owned();
            }
        }
        "the runner was removed from the list".to_owned()
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    fn has_worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    async fn revive(&self, _label: &Label) -> Result<(), String> {
        if self.is_dead() { Err("its version is refused".to_owned()) } else { Ok(()) }
    }

    async fn work(&self, _label: &Label) -> String {
        self.labels.listens(&self.id, true);
        if let MachineDefect::DiesAfter(lives, _) = self.defect
            && lock(&self.died_at).is_none()
        {
            self.compute.clock().sleep(lives).await;
            self.labels.listens(&self.id, false);
            *lock(&self.died_at) = Some(self.compute.clock().steady());
            return "it died".to_owned();
        }
        self.drained.notified().await;
        "it was drained".to_owned()
    }

    async fn drain(&self, _why: &str) {
        self.labels.listens(&self.id, false);
        while self.is_busy() {
            self.compute.clock().sleep(Duration::from_millis(100)).await;
        }
        self.drained.notify_waiters();
    }

    async fn stop(&self) -> Result<(), String> {
        self.labels.listens(&self.id, false);
        if let MachineDefect::StopsAfter(span) = self.defect {
            self.compute.clock().sleep(span).await;
        }
        self.busy.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn deregister(&self) -> Result<(), String> {
        if self.defect == MachineDefect::NeverDeregisters {
            return std::future::pending().await;
        }
        lock(&self.labels.0).remove(&self.id);
        lock(&self.labels.1).remove(&self.id);
        Ok(())
    }

    async fn account(&self) -> String {
        format!("2 jobs on {}", self.id)
    }

    async fn clean(&self) -> Result<(), String> {
        match self.defect {
            MachineDefect::CannotBeCleaned => Err("a file cannot be removed".into()),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Host for MemoryMachine {
    async fn run_script(&self, _script: &str) -> Result<(), String> {
        match self.defect {
            MachineDefect::ScriptFails => Err("exit code 3".into()),
            _ => Ok(()),
        }
    }

    async fn interruption(&self) -> String {
        match self.defect {
            MachineDefect::Interrupted => "spot interruption".into(),
            MachineDefect::InterruptedRegistering => {
                self.registering.notified().await;
                "spot interruption".into()
            }
            MachineDefect::InterruptedAfter(span) => {
                self.compute.clock().sleep(span).await;
                "spot interruption".into()
            }
            _ => std::future::pending().await,
        }
    }

    /// A runner with a label of the machine stays on the list.
    async fn terminate(&self, _why: &str) {
        lock(&self.labels.0).remove(&self.id);
        self.compute.kill(&self.id);
    }
}
