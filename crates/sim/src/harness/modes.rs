//! Processes of the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::provision::{Request, provision};
use ondeck_core::modes::refresh::refresh;
use ondeck_core::modes::release::release;
use ondeck_core::runtime::stop::StopSignal;
use ondeck_core::testkit::{SeededRandom, SilentProgress};

use super::{Harness, run_id};
use crate::faults::{Crash, Fault};
use crate::kernel::{Pid, digest};
use crate::process::{Exit, Process, Task};
use crate::wire::{Traits, Wire};

impl Harness {
    pub(super) fn doom(&mut self, fault: Fault, calls: u32) -> Option<(u32, Crash)> {
        let befallen = self.policy.befalls(fault, self.kernel.now(), &mut self.random);
        let (at, before) = (self.random.u32(1..calls), self.random.bool());
        befallen.then_some((at, if before { Crash::Before } else { Crash::After }))
    }

    pub(super) fn wire(
        &mut self,
        name: &str,
        clock: &str,
        doom: Option<(u32, Crash)>,
    ) -> Arc<Wire> {
        let skew = match self.plan.skew {
            0 => 0,
            most => self.policy.chance(clock).u64(0..=most),
        };
        if skew > 0 {
            self.kernel.count(Fault::Skew);
        }
        let traits = Traits { skew: Duration::from_millis(skew), doom };
        Arc::new(Wire::new(&self.world, &self.policy, name, traits))
    }

    /// A process of the control plane, and all it works with.
    pub(super) fn mode(&mut self, what: &str) -> (Arc<Wire>, Plane) {
        self.born += 1;
        let name = format!("{what}#{}", self.born);
        let doom = self.doom(Fault::Crash, 50);
        let wire = self.wire(&name, &name, doom);
        let seed = digest(&[&self.plan.seed, &name]);
        let plane = Plane {
            store: wire.clone(),
            pool: wire.clone(),
            compute: wire.clone(),
            forge: wire.clone(),
            clock: wire.clone(),
            random: Arc::new(SeededRandom::new(seed)),
            progress: Arc::new(SilentProgress),
        };
        (wire, plane)
    }

    pub(super) fn start(&mut self, pid: Pid, process: Process) {
        self.processes.insert(pid, process);
        self.let_act(pid);
    }

    pub(crate) fn provision(&mut self, run: &str, count: u32) {
        let (wire, plane) = self.mode(&format!("provision {run}"));
        let (switch, stop) = StopSignal::new();
        let known = self.runs.entry(run.to_owned()).or_default();
        known.provisions += 1;
        known.began = Some(self.kernel.true_time());
        known.stop = Some(switch);
        let mut request = Request::of_run(run_id(run));
        (request.options.count, request.options.usage) = (count, self.usage_of(run));
        let work =
            async move { Exit::Provisioned(Box::new(provision(&plane, &request, &stop).await)) };
        self.start(wire.pid, Process::new(Task::Provision(run.to_owned()), work));
    }

    /// The usage class that a run wants: the same for every process that asks, however often.
    pub(super) fn usage_of(&self, run: &str) -> UsageClass {
        match self.plan.picky && digest(&[&self.plan.seed, &run]).is_multiple_of(3) {
            true => UsageClass::Spot,
            false => UsageClass::OnDemand,
        }
    }

    pub(crate) fn release(&mut self, run: &str) {
        let (wire, plane) = self.mode(&format!("release {run}"));
        self.runs.entry(run.to_owned()).or_default().releases += 1;
        self.world.yard().cancel(Some(&run_id(run)));
        let id = run_id(run);
        let work = async move {
            Exit::Released(Box::new(release(&plane, &id, &TimeOverrides::default()).await))
        };
        self.start(wire.pid, Process::new(Task::Release(run.to_owned()), work));
    }

    pub(crate) fn refresh(&mut self, given: BTreeMap<String, String>) {
        if self.processes.values().any(|process| process.task == Task::Refresh) {
            self.kernel.count(Fault::RefreshTwice);
        }
        let (wire, plane) = self.mode("refresh");
        let began = self.kernel.true_time();
        let work = async move {
            let outcome = refresh(&plane, &given, &StopSignal::never()).await;
            Exit::Refreshed(Box::new(outcome), began)
        };
        self.start(wire.pid, Process::new(Task::Refresh, work));
    }
}
