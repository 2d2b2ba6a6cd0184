//! Starts the processes of the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::modes::operate::{Command, Order, Selection, carry_out};
use ondeck_core::modes::plane::{KnownSettings, Plane};
use ondeck_core::modes::provision::{Request, SourcePolicy, provision};
use ondeck_core::modes::refresh::{refresh, refresh_within};
use ondeck_core::modes::release::{release, release_failed};
use ondeck_core::runtime::stop::StopSignal;
use ondeck_core::testkit::{SeededRandom, SilentProgress};

use super::{Harness, ProvisionCall, run_id};
use crate::faults::{CrashPoint, Fault};
use crate::kernel::{Pid, digest};
use crate::plan::Ask;
use crate::process::{Exit, Process, ProcessKind};
use crate::process_ports::{ProcessFaults, ProcessPorts};

impl Harness {
    /// Draws whether a new process crashes, and at which of its calls.
    pub(super) fn random_crash(&mut self, fault: Fault, calls: u32) -> Option<(u32, CrashPoint)> {
        let injected = self.policy.injects(fault, self.kernel.now(), &mut self.random);
        let (at, before) = (self.random.u32(1..calls), self.random.bool());
        injected.then_some((at, if before { CrashPoint::Before } else { CrashPoint::After }))
    }

    /// Creates the ports of a new process. `clock` selects the skew of its clock.
    pub(super) fn process_ports(
        &mut self,
        name: &str,
        clock: &str,
        crash_at: Option<(u32, CrashPoint)>,
    ) -> Arc<ProcessPorts> {
        let skew = match self.plan.skew {
            0 => 0,
            most => self.policy.random_for(clock).u64(0..=most),
        };
        if skew > 0 {
            self.kernel.count(Fault::Skew);
        }
        let faults = ProcessFaults { skew: Duration::from_millis(skew), crash_at };
        Arc::new(ProcessPorts::new(&self.world, &self.policy, name, faults))
    }

    /// Creates the ports of a new process of the control plane.
    pub(super) fn mode(&mut self, what: &str) -> (Arc<ProcessPorts>, Plane) {
        self.processes_started += 1;
        let name = format!("{what}#{}", self.processes_started);
        let crash_at = self.random_crash(Fault::Crash, 50);
        let ports = self.process_ports(&name, &name, crash_at);
        let seed = digest(&[&self.plan.seed, &name]);
        let plane = Plane {
            store: ports.clone(),
            pool: ports.clone(),
            compute: ports.clone(),
            forge: ports.clone(),
            clock: ports.clone(),
            random: Arc::new(SeededRandom::new(seed)),
            progress: Arc::new(SilentProgress),
            known_settings: KnownSettings::default(),
        };
        (ports, plane)
    }

    pub(super) fn start(&mut self, pid: Pid, process: Process) {
        self.processes.insert(pid, process);
        self.poll_process(pid);
    }

    pub(crate) fn provision(&mut self, run: &str, ask: &Ask) {
        let (ports, plane) = self.mode(&format!("provision {run}"));
        let (switch, stop) = StopSignal::new();
        let began = self.kernel.true_time();
        let is_contradictory = self.world.audit().is_contradictory(ask, began);
        let known = self.runs.entry(run.to_owned()).or_default();
        let is_first = known.disturbances == 0;
        known.disturbances += 1;
        known.provisions += 1;
        known.stop = Some(switch);
        known.last_provision = Some(ports.pid);
        known.may_launch = ask.source != SourcePolicy::Pool && !is_contradictory;
        known.suffix = ask.suffix;
        let call = ProvisionCall {
            ask: ask.clone(),
            began,
            is_first,
            // Another process of the run may still be at work.
            is_alone: known.at_work == 0,
            disturbances: known.disturbances,
            told_to_stop_at: None,
        };
        known.at_work += 1;
        self.calls.insert(ports.pid, call);
        self.open(run);
        self.world.audit().provision_begins(ports.pid, &run_id(run), ask, began);
        let mut request = Request::of_run(run_id(run));
        (request.options, request.times) = (ask.options(), ask.times());
        let work =
            async move { Exit::Provisioned(Box::new(provision(&plane, &request, &stop).await)) };
        self.start(ports.pid, Process::new(ProcessKind::Provision(run.to_owned()), work));
    }

    /// The workflow of a run begins, or begins again.
    pub(super) fn open(&self, run: &str) {
        self.world.machines().open(&run_id(run));
        self.world.audit().run_opens(&run_id(run));
    }

    /// The workflow of a run is over, unless a process of it is at work.
    pub(super) fn complete(&self, run: &str) {
        if self.runs.get(run).is_some_and(|known| known.at_work > 0) {
            return;
        }
        self.world.machines().complete(&run_id(run));
        if self.world.machines().has_completed(&run_id(run)) {
            self.world.audit().run_completes(&run_id(run), self.kernel.true_time());
        }
    }

    pub(crate) fn release(&mut self, run: &str) {
        let (ports, plane) = self.mode(&format!("release {run}"));
        let known = self.runs.entry(run.to_owned()).or_default();
        known.releases += 1;
        known.disturbances += 1;
        // A provision that is at work may give the run a machine after the release has looked.
        let is_alone = known.at_work == 0;
        known.at_work += 1;
        let disturbances = if is_alone { known.disturbances } else { 0 };
        self.world.machines().cancel(Some(&run_id(run)));
        let id = run_id(run);
        let began = self.kernel.true_time();
        self.world.audit().release_begins(ports.pid, began);
        let work = async move {
            let times = TimeOverrides::default();
            let result = match has_failed(&id) {
                true => release_failed(&plane, &id, &times).await,
                false => release(&plane, &id, &times).await,
            };
            Exit::Released(Box::new(result), began, disturbances)
        };
        self.start(ports.pid, Process::new(ProcessKind::Release(run.to_owned()), work));
    }

    /// An operator drains these machines, or all, retires them, or terminates those that no run has.
    pub(super) fn operate(&mut self, command: Command, ids: Vec<InstanceId>) {
        let (ports, plane) = self.mode("operator");
        self.world.audit().operator_begins(ports.pid);
        let order = Order {
            command,
            selection: Selection { ids, ..Selection::default() },
            force: false,
            wait: Duration::ZERO,
            actor: "operator".to_owned(),
            reason: String::new(),
        };
        let work = async move {
            Exit::Operated(Box::new(carry_out(&plane, &order, &StopSignal::never()).await))
        };
        self.start(ports.pid, Process::new(ProcessKind::Operator, work));
    }

    pub(crate) fn refresh(&mut self, given: BTreeMap<String, String>) {
        if self.processes.values().any(|process| process.kind == ProcessKind::Refresh) {
            self.kernel.count(Fault::RefreshTwice);
        }
        let (ports, plane) = self.mode("refresh");
        let began = self.kernel.true_time();
        self.world.audit().refresh_begins(ports.pid, &given, began);
        let (switch, stop) = StopSignal::new();
        self.refresh_stops.insert(ports.pid, (switch, None));
        let limit = self.plan.time_limit;
        let work = async move {
            let outcome = match limit {
                None => refresh(&plane, &given, &stop).await,
                Some(limit) => refresh_within(&plane, None, Ok(&given), limit, &stop).await,
            };
            Exit::Refreshed(Box::new(outcome), began)
        };
        self.start(ports.pid, Process::new(ProcessKind::Refresh, work));
    }
}

/// Whether a run has failed, by its name: one in three.
fn has_failed(run: &RunId) -> bool {
    run.as_str().bytes().map(u32::from).sum::<u32>() % 3 == 0
}
