//! What the runner is registered with, and whose jobs it lets in.

use ondeck_core::model::ids::RunId;
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use std::sync::atomic::Ordering;

use super::connection::Stage;
use super::{GitHubRunner, hooks};

/// The label of a registration, and the run whose jobs it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) label: String,
    /// `None` as long as no run owns the machine.
    pub(super) run: Option<RunId>,
    /// Whether the label is one of the machine.
    is_own: bool,
}

impl Seat {
    pub(super) fn of_run(label: &Label) -> Seat {
        Seat { label: label.to_string(), run: Some(label.run.clone()), is_own: false }
    }

    fn of_machine(label: &MachineLabel) -> Seat {
        Seat { label: label.to_string(), run: None, is_own: true }
    }
}

impl GitHubRunner {
    /// What a runner that serves this run is registered with.
    pub(super) fn seat_for(&self, label: &Label) -> Seat {
        let own = self.state().seat.clone().filter(|seat| seat.is_own);
        own.unwrap_or_else(|| Seat::of_run(label))
    }

    /// Registers the runner and starts its listener.
    pub(super) async fn take_seat(&self, seat: &Seat) -> Result<(), String> {
        let prepared = self.prepared()?;
        {
            let mut state = self.state();
            (state.listener, state.need, state.drained) = (None, None, false);
            state.seat = None;
            state.remarks.clear();
        }
        self.has_worked.store(false, Ordering::Relaxed);
        self.enlist(&prepared, seat, Stage::BeginningOfRun).await?;
        self.state().seat = Some(seat.clone());
        self.connect(seat).await.map(drop)
    }

    /// As [`Runner::listen_as`](ondeck_core::ports::Runner::listen_as).
    pub(super) async fn listen_under(&self, label: &MachineLabel) -> Result<u32, String> {
        let wanted = Seat::of_machine(label);
        let present = self.state().seat.clone().filter(|it| it.is_own && it.label == wanted.label);
        match present {
            None => self.take_seat(&wanted).await?,
            Some(seat) => {
                self.state().drained = false;
                self.listener(&seat).await.map(drop)?;
            }
        }
        Ok(self.state().number)
    }

    /// As [`Runner::name_owner`](ondeck_core::ports::Runner::name_owner).
    pub(super) fn seat_owner(&self, run: &RunId) -> Result<(), String> {
        let mut state = self.state();
        let seat = state.seat.as_mut().filter(|seat| seat.is_own);
        let seat = seat.ok_or("the runner is not registered with a label of its machine")?;
        hooks::name_owner(&self.layout, run)?;
        seat.run = Some(run.clone());
        Ok(())
    }

    /// As [`Runner::lapse`](ondeck_core::ports::Runner::lapse).
    pub(super) async fn lapsed(&self) -> String {
        let Some(listener) = self.state().listener.clone() else {
            return "the runner does not listen for jobs".to_owned();
        };
        let exit = listener.exited().await;
        let noted = self.prepared().and_then(|prepared| self.note_exit(&prepared, &exit));
        noted.unwrap_or_else(|why| why)
    }

    /// Lets in no further job on a runner with a label of its machine.
    pub(super) fn close_seat(&self) -> Result<(), String> {
        let is_own = self.state().seat.as_ref().is_some_and(|seat| seat.is_own);
        if is_own { hooks::withdraw_owner(&self.layout) } else { Ok(()) }
    }
}
