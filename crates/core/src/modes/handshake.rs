//! The way back into the pool: an idle instance is announced only after its agent has said that
//! the runner is gone and the machine clean. Release and rollback take the same way.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::select;
use tokio::sync::Notify;

use crate::inputs::times::Times;
use crate::lifecycle::{Idle, Instance};
use crate::model::ids::{InstanceId, RunId};
use crate::model::signal::{AgentStatus, Pulse, Report, Signal};
use crate::model::ticket::Ticket;
use crate::model::timestamp::Timestamp;
use crate::modes::agent_watch::{AgentWatch, Watched};
use crate::modes::plane::{NotCommitted, Plane};
use crate::ports::PortResult;
use crate::runtime::batcher::Batcher;
use crate::runtime::poll::PollInterval;

/// How long a machine that is free may wait for others before it is announced.
const COMPANY: Duration = Duration::from_secs(1);

/// What became of an instance on its way back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Returned {
    /// It waits in the pool.
    Pooled {
        /// What it did for the run, in its agent's words.
        account: String,
    },
    /// It did not answer, or said that it failed; it will never be handed out again.
    Expired(String),
    /// It answered, but its idle time is up already: it was ended.
    Terminated {
        /// What it did for the run, in its agent's words.
        account: String,
    },
    /// Somebody else has decided about it meanwhile.
    Superseded(String),
}

/// Takes instances back, several at once.
#[derive(Debug)]
pub(crate) struct Handshake<'a> {
    plane: &'a Plane,
    times: &'a Times,
    watch: AgentWatch<'a>,
    tickets: Batcher<Ticket, ()>,
    /// How many have not answered yet, and the moment when all have.
    away: AtomicUsize,
    all_back: Notify,
}

impl<'a> Handshake<'a> {
    pub(crate) fn new(plane: &'a Plane, times: &'a Times) -> Handshake<'a> {
        // Nobody waits for a release, so looks may cost less and find out later.
        let watch = AgentWatch::new(plane, PollInterval::backing_off(times.signal_poll * 3, 1));
        let (tickets, away, all_back) =
            (Batcher::default(), AtomicUsize::new(0), Notify::default());
        Handshake { plane, times, watch, tickets, away, all_back }
    }

    /// Waits until the agent of `idle`, which has just left `run`, says that it is free; then
    /// announces it.
    pub(crate) async fn take_back(
        &self,
        idle: &Instance<Idle>,
        run: &RunId,
    ) -> PortResult<Returned> {
        let at_most = self.times.release_timeout;
        let judge = |status: &AgentStatus, now: Timestamp| self.judge(status, run, now);
        self.away.fetch_add(1, Ordering::Relaxed);
        let seen = self.watch.wait(idle.id(), at_most, judge).await;
        if self.away.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.all_back.notify_waiters();
        }
        let why = match seen? {
            Watched::Judged(Ok(account)) => return self.pool(idle, account).await,
            Watched::Judged(Err(why)) => why,
            Watched::TimedOut(status) => no_answer(self.times.release_timeout, &status),
        };
        match self.plane.commit(idle.expire(self.plane.now()).because(&*why)).await {
            Ok(_) => Ok(Returned::Expired(why)),
            Err(NotCommitted::Refused(refused)) => Ok(Returned::Superseded(refused.to_string())),
            Err(NotCommitted::Unreachable(error)) => Err(error),
        }
    }

    /// A machine whose heart has stopped will not answer either.
    fn judge(
        &self,
        status: &AgentStatus,
        run: &RunId,
        now: Timestamp,
    ) -> Option<Result<String, String>> {
        if let Some(said) = status.report.as_ref().and_then(|report| deregistered(report, run)) {
            return Some(said);
        }
        match status.pulse(now, self.times.healthy_within()) {
            Pulse::Stale(age) => {
                Some(Err(format!("its last heartbeat is {:.1} s old", age.as_secs_f64())))
            }
            Pulse::Never | Pulse::Healthy => None,
        }
    }

    async fn pool(&self, idle: &Instance<Idle>, account: String) -> PortResult<Returned> {
        let ticket = idle.ticket();
        self.wait_for_company(&ticket).await;
        if ticket.threshold <= self.plane.now() {
            self.plane.retire(idle, "its idle time is up").await?;
            return Ok(Returned::Terminated { account });
        }
        let announce = |tickets: Vec<Ticket>| async move {
            announce(self.plane, &tickets).await?;
            Ok(vec![(); tickets.len()])
        };
        self.tickets.ask(ticket, announce).await?;
        Ok(Returned::Pooled { account })
    }
}

impl Handshake<'_> {
    /// Agents answer one by one within a second or so, and tickets travel ten at a time. So who is
    /// early waits a little for the others, and no longer than that for one that hangs.
    async fn wait_for_company(&self, ticket: &Ticket) {
        let mut all_back = pin!(self.all_back.notified());
        all_back.as_mut().enable();
        if self.away.load(Ordering::Relaxed) == 0 {
            return;
        }
        let left = ticket.threshold.since(self.plane.now());
        let a_little = COMPANY.min(left / 4);
        select(all_back, self.plane.clock.sleep(a_little)).await;
    }
}

/// Sends tickets, then notes on the records that they were sent. In this order, because a
/// ticket too many is harmless and a missing one is a machine that nobody finds.
pub(crate) async fn announce(plane: &Plane, tickets: &[Ticket]) -> PortResult<()> {
    if tickets.is_empty() {
        return Ok(());
    }
    plane.retried(|| plane.pool.send(tickets, Duration::ZERO)).await?;
    let ids: Vec<InstanceId> = tickets.iter().map(|ticket| ticket.instance_id.clone()).collect();
    tracing::info!(count = ids.len(), "in the pool: {}", crate::modes::plane::listed(&ids));
    let now = plane.now();
    if let Err(error) = plane.retried(|| plane.store.mark_ticketed(tickets, now)).await {
        tracing::warn!("tickets sent but not noted, refresh will send them again: {error}");
    }
    Ok(())
}

/// What a report says about having left `run`, if it says anything about it: the account of what
/// was done, or why it failed.
fn deregistered(report: &Report, run: &RunId) -> Option<Result<String, String>> {
    if report.says(Signal::Deregistered, run) {
        return Some(Ok(report.detail.clone()));
    }
    match report.signal {
        Signal::PrepareFailed | Signal::DeregisterFailed => report.failure_for(run).map(Err),
        _ => None,
    }
}

fn no_answer(waited: Duration, status: &AgentStatus) -> String {
    format!("no answer within {} s: {status}", waited.as_secs_f64())
}
