//! A simulated process: one call of a mode, or an agent. It is a future; a crash drops it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::{operate, provision, refresh, release};

/// What a process runs, and for which run or instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProcessKind {
    Provision(String),
    Release(String),
    Refresh,
    Operator,
    Agent(InstanceId),
}

/// The result of a process that has ended.
#[derive(Debug)]
pub(crate) enum Exit {
    Provisioned(Box<provision::Outcome>),
    /// The result, when the release began, and the disturbances of its run up to then.
    Released(Box<Result<release::Outcome, Failure>>, Timestamp, u32),
    /// The result, and when the refresh began.
    Refreshed(Box<Result<refresh::Outcome, Failure>>, Timestamp),
    /// What an operator has done.
    Operated(Box<Result<operate::Outcome, Failure>>),
    /// An agent has terminated its machine.
    Terminated,
}

/// How a process ended, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessOutcome {
    /// The process did what it was asked to do.
    Succeeded,
    /// An expected failure after which the process cleaned up: a provision rolled back, a release
    /// expired machines that did not respond, a refresh left work for the next one, or an agent's
    /// machine was terminated by another process.
    GaveUp,
    /// Any other failure, after which the process cleaned up as far as it could.
    Failed,
    /// The process was killed.
    Died,
}

impl ProcessOutcome {
    /// All outcomes, each of them once.
    pub const ALL: [ProcessOutcome; 4] = [
        ProcessOutcome::Succeeded,
        ProcessOutcome::GaveUp,
        ProcessOutcome::Failed,
        ProcessOutcome::Died,
    ];
}

impl Exit {
    pub(crate) fn outcome(&self) -> ProcessOutcome {
        let by = |failure: Option<&Failure>| match failure.map(|failure| failure.kind) {
            None => ProcessOutcome::Succeeded,
            Some(
                FailureKind::NoCapacity
                | FailureKind::AtCeiling
                | FailureKind::AtSpendCap
                | FailureKind::NotReady
                | FailureKind::Busy,
            ) => ProcessOutcome::GaveUp,
            Some(_) => ProcessOutcome::Failed,
        };
        let partly =
            |failed: bool| if failed { ProcessOutcome::GaveUp } else { ProcessOutcome::Succeeded };
        match self {
            Exit::Provisioned(outcome) => by(outcome.failure.as_ref()),
            Exit::Released(result, ..) => match &**result {
                Ok(outcome) => partly(outcome.failure().is_some()),
                Err(failure) => by(Some(failure)),
            },
            Exit::Refreshed(result, _) => match &**result {
                Ok(outcome) => partly(outcome.failure.is_some() || !outcome.warnings.is_empty()),
                Err(failure) => by(Some(failure)),
            },
            Exit::Operated(result) => match &**result {
                Ok(outcome) => partly(outcome.failure.is_some()),
                Err(failure) => by(Some(failure)),
            },
            Exit::Terminated => ProcessOutcome::Succeeded,
        }
    }
}

pub(crate) struct Process {
    pub(crate) kind: ProcessKind,
    future: Pin<Box<dyn Future<Output = Exit> + Send>>,
    woken: Arc<WakeFlag>,
    waker: Waker,
}

struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Process {
    pub(crate) fn new(
        kind: ProcessKind,
        future: impl Future<Output = Exit> + Send + 'static,
    ) -> Process {
        let woken = Arc::new(WakeFlag(AtomicBool::new(true)));
        let waker = Waker::from(woken.clone());
        Process { kind, future: Box::pin(future), woken, waker }
    }

    /// Polls the process until it waits for something. Returns its result if it has ended.
    pub(crate) fn poll(&mut self) -> Option<Exit> {
        while self.woken.0.swap(false, Ordering::Relaxed) {
            let mut context = Context::from_waker(&self.waker);
            if let Poll::Ready(exit) = self.future.as_mut().poll(&mut context) {
                return Some(exit);
            }
        }
        None
    }
}
