//! A process: one call of a mode, or an agent. It lives as a future, and dies by being dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::{provision, refresh, release};

/// What a process is there for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Task {
    Provision(String),
    Release(String),
    Refresh,
    Agent(InstanceId),
}

/// What came of it.
#[derive(Debug)]
pub(crate) enum Exit {
    Provisioned(Box<provision::Outcome>),
    Released(Box<Result<release::Outcome, Failure>>),
    /// With the moment at which it began.
    Refreshed(Box<Result<refresh::Outcome, Failure>>, Timestamp),
    Ended,
}

/// How a process came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// It did what it was asked for.
    Succeeded,
    /// It failed in a way that is part of life, and tidied up: a provision rolled back, a release
    /// gave up machines that did not answer, a refresh left something for the next, and an agent's
    /// machine was ended by others.
    GaveUp,
    /// It failed otherwise: a provision dumped all it had touched, others left it to refresh.
    Failed,
    /// It was killed before it came to an end.
    Died,
}

impl Ending {
    /// All endings, each of them once.
    pub const ALL: [Ending; 4] = [Ending::Succeeded, Ending::GaveUp, Ending::Failed, Ending::Died];
}

impl Exit {
    pub(crate) fn ending(&self) -> Ending {
        let by = |failure: Option<&Failure>| match failure.map(|failure| failure.kind) {
            None => Ending::Succeeded,
            Some(FailureKind::NoCapacity | FailureKind::NotReady | FailureKind::Busy) => {
                Ending::GaveUp
            }
            Some(_) => Ending::Failed,
        };
        let partly = |failed: bool| if failed { Ending::GaveUp } else { Ending::Succeeded };
        match self {
            Exit::Provisioned(outcome) => by(outcome.failure.as_ref()),
            Exit::Released(result) => match &**result {
                Ok(outcome) => partly(outcome.failure().is_some()),
                Err(failure) => by(Some(failure)),
            },
            Exit::Refreshed(result, _) => match &**result {
                Ok(outcome) => partly(outcome.failure.is_some() || !outcome.warnings.is_empty()),
                Err(failure) => by(Some(failure)),
            },
            Exit::Ended => Ending::Succeeded,
        }
    }
}

pub(crate) struct Process {
    pub(crate) task: Task,
    future: Pin<Box<dyn Future<Output = Exit> + Send>>,
    woken: Arc<Flag>,
    waker: Waker,
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Process {
    pub(crate) fn new(task: Task, future: impl Future<Output = Exit> + Send + 'static) -> Process {
        let woken = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(woken.clone());
        Process { task, future: Box::pin(future), woken, waker }
    }

    /// Lets it act until it waits for something.
    pub(crate) fn act(&mut self) -> Option<Exit> {
        while self.woken.0.swap(false, Ordering::Relaxed) {
            let mut context = Context::from_waker(&self.waker);
            if let Poll::Ready(exit) = self.future.as_mut().poll(&mut context) {
                return Some(exit);
            }
        }
        None
    }
}
