//! What operators do: a drain takes no machine from its run, and gives it to no other.

use ondeck_core::lifecycle::Transition;
use ondeck_core::model::departure::Departure;
use ondeck_core::model::record::Record;
use ondeck_core::modes::operate::{Action, Outcome};

use super::{Audit, Invariant};
use crate::kernel::Pid;

impl Audit {
    pub(crate) fn operator_begins(&mut self, by: Pid) {
        self.operators.insert(by);
    }

    /// Whether the call is an operator's, who never says `force` here.
    pub(super) fn is_operator(&self, by: Pid) -> bool {
        self.operators.contains(&by)
    }

    /// Whether an operator wants the machine of this record to leave.
    pub(super) fn is_wanted_gone(record: &Record) -> bool {
        record.departure != Departure::None
    }

    /// A change was written. A drained machine is claimed only for the run that it had last, whose job
    /// is on it.
    pub(super) fn gives_drained(
        &mut self,
        transition: Transition,
        before: Option<&Record>,
        after: &Record,
    ) {
        let drained = before.is_some_and(|before| before.departure == Departure::Drained);
        if transition != Transition::Claim || !drained {
            return;
        }
        let last = self.owned_since.get(&after.id).map(|(run, _)| run);
        if last != after.run.as_ref() {
            let how = format!("{} was drained, and run {:?} has it now", after.id, after.run);
            self.violated(Invariant::NotDrained, how);
        }
    }

    /// What an operator was told is what the call has written.
    pub(crate) fn operator_reports(&mut self, by: Pid, outcome: &Outcome) {
        let effects = self.effects.remove(&by).unwrap_or_default();
        // If the answer to a write is lost, the same write of another process may be taken for it.
        let told = outcome.machines.iter().filter(|it| it.error.is_none() && self.is_quiet);
        let untrue = told.filter(|it| match it.action {
            Action::Terminate | Action::TakeFromRun => !effects.has(Transition::Reap, &it.id),
            Action::LeaveAfterRun => !effects.has(Transition::Drain, &it.id),
            Action::Replace => !effects.has(Transition::Retire, &it.id),
            Action::None(_) | Action::Refuse(_) => false,
        });
        let untrue: Vec<String> = untrue.map(|it| format!("{it:?}")).collect();
        if let Some(how) = untrue.into_iter().next() {
            self.violated(Invariant::TrueReport, how);
        }
    }
}
