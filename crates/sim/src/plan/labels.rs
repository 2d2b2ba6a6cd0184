//! Pools whose machines register while they are idle. The numbers are not drawn, so that the rest of each
//! history stays as it is, and the histories of pools with the label of the run stay whole.

use super::{Action, Plan, SECOND};
use crate::faults::Fault;
use crate::kernel::digest;

const RUNNER_LABEL: &str = "runner-label";

/// How many listeners are killed, or machines, at the same moment.
const AT_ONCE: usize = 4;

impl Plan {
    /// Lets the machines of a third of the histories register under labels of their own, and changes the
    /// setting in the middle of some others.
    pub(super) fn add_machine_labels(&mut self) {
        let seed = self.seed;
        let chance = |what: &str| digest(&[&seed, &what]);
        let (label, change) = (chance("runner label"), chance("runner label changes"));
        let is_machine = label.is_multiple_of(3);
        if is_machine {
            self.settings.insert(RUNNER_LABEL.to_owned(), "machine".to_owned());
        }
        let changes = change.is_multiple_of(if is_machine { 6 } else { 16 });
        if changes {
            let last = self.faults_end_at / SECOND;
            let value = if is_machine { "run" } else { "machine" };
            let at = (30 + change / 16 % (last - 30)) * SECOND;
            self.actions.push((at, Action::RefreshWith(vec![(RUNNER_LABEL, value)])));
        }
        if (is_machine || changes) && !self.is_clear() && !self.has_one_kind() {
            self.disturb_listeners();
            if chance("left runners").is_multiple_of(2) {
                self.leave_runners(chance("runners are left"));
            }
        }
    }

    /// Kills listeners or machines, so that the forge lists runners in vain, and lets refreshes follow before
    /// the machines of the listeners are no longer idle.
    fn leave_runners(&mut self, drawn: u64) {
        if self.no_refresh_for_hours {
            return;
        }
        self.settings.insert("idle-time-sec".to_owned(), "200".to_owned());
        let last = self.faults_end_at / SECOND;
        let at = (60 + drawn / 4 % (last - 200)) * SECOND;
        let of_machines = drawn.is_multiple_of(4);
        if !of_machines {
            // Idle machines that stay so.
            self.settings.entry("min-idle".to_owned()).or_insert_with(|| "large=2".to_owned());
        }
        let killed = if of_machines { 0..AT_ONCE / 2 } else { 0..AT_ONCE };
        self.actions.extend(killed.map(|nth| match of_machines {
            true => (at, Action::Kill(nth)),
            false => (at, Action::KillListener(nth)),
        }));
        let refreshes = [20, 75, 130, 185];
        self.actions.extend(refreshes.map(|after| (at + after * SECOND, Action::Refresh)));
    }

    /// Whether the plan has faults of one kind only, by which it is judged.
    fn has_one_kind(&self) -> bool {
        self.other_faults.len() <= 2 && self.rates.calls.is_empty() || self.only_deaths()
    }

    /// Lets runners be deleted and refused, machines be cut off from the forge, and jobs of other runs name
    /// their labels.
    fn disturb_listeners(&mut self) {
        let seed = self.seed;
        let kinds = [
            Fault::RunnerDeleted,
            Fault::NotesStop,
            Fault::ForgeUnreachable,
            Fault::VersionRefused,
            Fault::ForeignJob,
        ];
        let last = self.faults_end_at / SECOND;
        for nth in 0..8_u64 {
            let drawn = digest(&[&seed, &"listeners", &nth]);
            let at = (20 + drawn % (last - 20)) * SECOND + drawn / 3 % SECOND;
            let machine = usize::try_from(drawn / 7 % 11).unwrap_or_default();
            // Nothing fails when faults have ended.
            let span = ((1 + drawn / 11 % 120) * SECOND).min(self.faults_end_at.saturating_sub(at));
            let action = match drawn / 5 % 8 {
                0 | 1 => Action::DeleteRunner(machine),
                2 => Action::CutOff(machine, span),
                3 => Action::RefuseVersion(span / 4),
                4 | 5 => Action::ForeignJob(machine),
                _ if at + SECOND >= self.faults_end_at => continue,
                lapse => {
                    // The machine loses its registration, or only its listener, and cannot say so.
                    let lapses = match lapse {
                        6 => Action::KillListener(machine),
                        _ => Action::DeleteRunner(machine),
                    };
                    self.actions.push((at + SECOND, lapses));
                    Action::StopNotes(machine, span / 2)
                }
            };
            self.actions.push((at, action));
        }
        self.other_faults
            .extend(kinds.map(|kind| (kind, if kind == Fault::VersionRefused { 30 } else { 0 })));
    }
}
