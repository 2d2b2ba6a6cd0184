//! Being told to stop.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};
use tokio::sync::watch;

use crate::model::failure::{Failure, FailureKind};

/// How the process was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// SIGINT: a person, or GitHub cancelling the run.
    Interrupted,
    /// SIGTERM.
    Terminated,
}

impl From<Stop> for Failure {
    fn from(stop: Stop) -> Failure {
        match stop {
            Stop::Interrupted => Failure::new(FailureKind::Interrupted, "interrupted"),
            Stop::Terminated => Failure::new(FailureKind::Stopped, "told to terminate"),
        }
    }
}

/// Where a mode hears of it. Clones hear the same.
#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<Option<Stop>>);

/// Where it is said.
#[derive(Debug)]
pub struct StopSwitch(watch::Sender<Option<Stop>>);

impl StopSwitch {
    /// Tells everybody.
    pub fn raise(&self, stop: Stop) {
        self.0.send_replace(Some(stop));
    }
}

impl StopSignal {
    /// A switch, and the ear that belongs to it.
    pub fn new() -> (StopSwitch, StopSignal) {
        let (sender, receiver) = watch::channel(None);
        (StopSwitch(sender), StopSignal(receiver))
    }

    /// Never raised.
    pub fn never() -> StopSignal {
        StopSignal::new().1
    }

    /// Waits for it.
    pub async fn raised(&self) -> Stop {
        let mut receiver = self.0.clone();
        loop {
            if let Some(stop) = *receiver.borrow_and_update() {
                return stop;
            }
            if receiver.changed().await.is_err() {
                // Whoever held the switch is gone: nobody will ever say it.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Works until done or told to stop; then the work is dropped where it stands.
    pub async fn unless_raised<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        match select(pin!(work), pin!(self.raised())).await {
            Either::Left((done, _)) => Ok(done),
            Either::Right((stop, _)) => Err(stop),
        }
    }
}
