//! Runs that ask for machines of their own.

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::reuse::Reuse;

use super::{Audit, Invariant};
use crate::simulated_machines::SimulatedMachines;

impl Audit {
    /// A job starts on a machine. If the machine has had jobs of another run, none of the runs may have
    /// asked for a machine of its own. A machine that the operator gave away by hand is not judged.
    pub(super) fn serves_one_run(&mut self, id: &InstanceId, machines: &SimulatedMachines) {
        let Some(job) = machines.view(id).and_then(|view| view.job) else { return };
        let served = self.worked_for.entry(id.clone()).or_default();
        served.insert(job.run.clone());
        if served.len() < 2 || self.touched_by_hand.contains(id) {
            return;
        }
        let served = served.clone();
        if let Some(own) = served.iter().find(|run| self.asks_for_own_machines(run)) {
            let how = format!("{id} has had jobs of {served:?}, and {own} asked for its own");
            self.violated(Invariant::OneRun, how);
        }
    }

    /// Whether a run gets machines of its own: by what it has asked for, or by the settings, which no
    /// history changes in this.
    pub(super) fn asks_for_own_machines(&self, run: &RunId) -> bool {
        let asks = self.asked_by_runs.get(run);
        self.reuses_nothing() && asks.is_some()
            || asks.is_some_and(|asks| asks.iter().any(|ask| ask.reuse == Reuse::Never))
    }

    pub(super) fn reuses_nothing(&self) -> bool {
        self.stored.iter().any(|(_, all)| all.get("reuse").is_some_and(|text| text == "never"))
    }
}
