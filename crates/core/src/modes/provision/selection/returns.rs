//! Machines that this run claimed and does not use after all: those that lost to a hedge, and those
//! that did not register in time. They go back to the pool by the handshake while the other claims
//! go on.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::inputs::times::Times;
use crate::lifecycle::{Claimed, Instance};
use crate::modes::handshake::{self, Handshake, idle_time_given_back, keep_for_job};
use crate::modes::provision::Attempt;

/// How long a provision that has all its claims waits for agents that still leave.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many agents leave at about the same time is not known here. Their reads wait for each other.
const SEVERAL: usize = 2;

/// A machine to be given back, and why.
#[derive(Debug)]
pub(super) struct Unused {
    pub(super) claimed: Instance<Claimed>,
    pub(super) reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Another machine was ready first.
    LostToHedge,
    /// It did not register in time.
    Unregistered,
    /// Its agent speaks a protocol that this program does not know.
    UnknownProtocol,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Reason::LostToHedge => "another machine was ready first",
            Reason::Unregistered => "it did not register in time",
            Reason::UnknownProtocol => "its agent is of a newer version",
        }
    }
}

/// Where claim workers send the machines that they do not use.
pub(super) type Returns = UnboundedSender<Unused>;

/// Gives back what arrives, until the senders are gone and [`PATIENCE`] is over. What is not in the
/// pool by then is announced by refresh. A machine whose runner has taken a job of the run meanwhile
/// is kept for the run.
pub(super) async fn give_back_all(attempt: &Attempt<'_>, mut unused: UnboundedReceiver<Unused>) {
    let idle_time = idle_time_given_back(&attempt.times);
    let times = Times { idle_time, ..attempt.times.clone() };
    let handshake = Handshake::new(attempt.plane, &times, SEVERAL);
    let mut leaving = FuturesUnordered::new();
    loop {
        let next = pin!(unused.recv());
        if leaving.is_empty() {
            match next.await {
                Some(unused) => leaving.push(give_back(attempt, &handshake, &times, unused)),
                None => return,
            }
            continue;
        }
        match select(next, leaving.next()).await {
            Either::Left((Some(unused), _)) => {
                leaving.push(give_back(attempt, &handshake, &times, unused));
            }
            Either::Left((None, _)) => break,
            Either::Right(_) => {}
        }
    }
    let rest = pin!(async { while leaving.next().await.is_some() {} });
    select(rest, attempt.plane.clock.sleep(PATIENCE)).await;
}

/// Gives back one machine. Failures are logged: refresh or the machine's threshold finish it.
async fn give_back(
    attempt: &Attempt<'_>,
    handshake: &Handshake<'_>,
    times: &Times,
    Unused { claimed, reason }: Unused,
) {
    let plane = attempt.plane;
    let change = match reason {
        Reason::Unregistered => claimed.give_back_unregistered(plane.now(), times.idle_time),
        Reason::LostToHedge | Reason::UnknownProtocol => {
            handshake::give_back(plane, &claimed, times.idle_time).await
        }
    };
    let idle = match plane.apply(change.because(reason.as_str())).await {
        Ok(idle) => idle,
        Err(error) => {
            tracing::warn!(instance = %claimed.id(), "not given back: {error}");
            return;
        }
    };
    match handshake.take_back_unless_busy(&idle, &attempt.request.run).await {
        // The run then has one machine more than it asked for.
        Ok(Err(held)) => {
            attempt.holdings.about_to_touch(idle.id());
            let label = (&attempt.label, held.with);
            if let Err(error) = keep_for_job(plane, times, &idle, label, attempt.reuse).await {
                tracing::warn!(instance = %idle.id(), "has a job and was not kept: {error}");
            }
        }
        Ok(Ok(returned)) => tracing::info!(instance = %idle.id(), "given back: {returned:?}"),
        Err(error) => tracing::warn!(instance = %idle.id(), "not in the pool yet: {error}"),
    }
}
