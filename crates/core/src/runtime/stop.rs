//! The signal to stop.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};
use tokio::sync::watch;

use crate::model::failure::{Failure, FailureKind};

/// How the process was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// By SIGINT: the user, or GitHub cancelling the run.
    Interrupted,
    Terminated,
    /// By a time limit of its own.
    TimeUp,
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Failure {
        match stop {
            Stop::Interrupted => Failure::new(FailureKind::Interrupted, "interrupted"),
            Stop::Terminated => Failure::new(FailureKind::Stopped, "told to terminate"),
            Stop::TimeUp => Failure::new(FailureKind::Stopped, "the time limit was reached"),
        }
    }
}

/// Tells a mode when to stop. Clones share the same switch.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<Option<Stop>>);

/// Raises the [`StopSignal`] that it was made with.
#[derive(Debug)]
pub struct StopSwitch(watch::Sender<Option<Stop>>);

impl StopSwitch {
    pub fn raise(&self, stop: Stop) {
        self.0.send_replace(Some(stop));
    }
}

impl StopSignal {
    /// Makes a switch and the signal that it raises.
    pub fn new() -> (StopSwitch, StopSignal) {
        let (sender, receiver) = watch::channel(None);
        (StopSwitch(sender), StopSignal(receiver))
    }

    /// A signal that is never raised.
    pub fn never() -> StopSignal {
        StopSignal::new().1
    }

    pub fn is_raised(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Whether a time limit has raised the signal.
    pub(crate) fn is_time_up(&self) -> bool {
        *self.0.borrow() == Some(Stop::TimeUp)
    }

    /// Waits until the signal is raised, for ever if the switch was dropped.
    pub async fn raised(&self) -> Stop {
        let mut receiver = self.0.clone();
        loop {
            if let Some(stop) = *receiver.borrow_and_update() {
                return stop;
            }
            if receiver.changed().await.is_err() {
                // The switch was dropped, so the signal will never be raised.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Runs `work` until it is done. When the signal is raised first, `work` is dropped half-way.
    pub async fn unless_raised<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        match select(pin!(work), pin!(self.raised())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right((stop, _)) => Err(stop),
        }
    }
}
