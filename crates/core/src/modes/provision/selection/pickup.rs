//! The pickup manager: receives tickets, filters them, and hands them to claim workers.
//!
//! A crash cannot lose a ticket: it stays in the queue, hidden from other receivers, and is deleted
//! only when its instance is claimed, gone, or owned by another run.
//!
//! Unsuitable tickets stay hidden until the pass is over, and are then put back together, beside the
//! claims. A pass therefore receives each ticket once, and ends when the queue counts as empty (see
//! [`super::queue`]): N tickets cost N/10 receives, most of them made at once. Other runs are not
//! misled by the hidden tickets, because they ask an empty queue again while another receiver holds
//! tickets of it.
//!
//! Of the tickets that are there, the one that expires last is handed out first.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, join, select};
use futures_util::lock::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use crate::inputs::times::Times;
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::machine_label::{RequestedLabel, RunnerLabel};
use crate::model::requirements::{Mismatch, Requirements, UsageClass};
use crate::model::signal::Pulse;
use crate::model::summary::CandidateOutcome;
use crate::model::ticket::Ticket;
use crate::modes::plane::Plane;
use crate::ports::{Receipt, ReceivedMessage};

use super::Attempt;
use super::deletes::Deletes;
use super::duplicates::{DuplicateTickets, Encounter, IdlePeriod};
use super::queue::Queue;
use crate::modes::provision::holdings::Holdings;
use crate::modes::provision::journal::Journal;
use crate::modes::provision::pool_search::PoolSearch;

/// How many tickets a search takes before the queue has told how many there are.
const FIRST_SEARCH: usize = 40;

/// After this many encounters with the same instance, the pool counts as exhausted for this run.
/// This bounds the number of passes when claims keep failing.
const MAX_ENCOUNTERS: u32 = 5;

/// An instance that is idle according to its ticket.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) idle: Instance<Idle>,
    pub(super) found: Duration,
    announced: IdlePeriod,
    receipt: Receipt,
}

pub(super) struct Pickup<'a> {
    plane: &'a Plane,
    requirements: &'a Requirements,
    times: &'a Times,
    holdings: &'a Holdings,
    journal: &'a Journal,
    queue: Queue<'a>,
    inner: Mutex<Inner>,
    /// Tickets that workers have and have not deleted yet. They have their own lock, because `inner`
    /// may stay locked for the whole pickup patience.
    duplicates: std::sync::Mutex<DuplicateTickets>,
    /// Instances that this run has given back. It does not claim them again.
    avoided: std::sync::Mutex<BTreeSet<InstanceId>>,
    /// Whether on-demand machines will do where spot ones are asked for.
    takes_on_demand: bool,
    /// Whether the run takes only machines that were given to no other.
    takes_unused_only: bool,
    /// Whether machines that are registered already are preferred, or those that are not; `None` if
    /// machines register when they are claimed in any case.
    prefers_ready: Option<bool>,
    /// Where the tickets go whose claims are decided.
    deletes: Deletes,
    /// Where tickets go that other runs may want.
    put_backs: UnboundedSender<Vec<Receipt>>,
}

struct Inner {
    /// How many workers have no candidate yet.
    unserved: usize,
    suitable: Vec<Candidate>,
    /// Candidates that the run accepts if there is nothing better: with the capacity fallback,
    /// on-demand machines in place of spot ones.
    second_choice: Vec<Candidate>,
    /// Tickets that other runs may want. They stay hidden until the pass is over.
    set_aside: Vec<Receipt>,
    /// Which of the candidates are preferred, of those whose agents were looked at.
    preferred: BTreeMap<InstanceId, bool>,
    encounters: BTreeMap<InstanceId, Encounters>,
    /// The number of the present pass.
    pass: u32,
    /// About how many tickets the queue still shows, if the pass has asked.
    expected: Option<usize>,
    exhausted: bool,
}

/// How often an instance was met. A machine that was handed to workers counts once in each pass. One
/// that was only received, and that the run does not want or need, says nothing about the others, so
/// it does not count.
#[derive(Debug)]
struct Encounters {
    count: u32,
    /// The last pass in which it was handed to a worker.
    handed_out: Option<u32>,
    /// The last pass in which a ticket of it was received, and when, in steady time.
    received: (u32, Duration),
}

impl Inner {
    fn set_aside_the_rest(&mut self, duplicates: &mut DuplicateTickets) {
        for candidate in self.suitable.drain(..).chain(self.second_choice.drain(..)) {
            self.set_aside.extend(duplicates.forget(&candidate.announced));
            self.set_aside.push(candidate.receipt);
        }
    }

    /// The candidate that expires last, of those that suit, or else of the second choice. One that is
    /// known to be preferred goes before the others.
    fn best(&mut self) -> Option<Candidate> {
        let from = match self.suitable.is_empty() {
            false => &mut self.suitable,
            true => &mut self.second_choice,
        };
        let is_preferred = |id: &InstanceId| self.preferred.get(id).copied().unwrap_or_default();
        let rank = |n: &usize| (is_preferred(from[*n].idle.id()), from[*n].idle.threshold());
        let best = (0..from.len()).max_by_key(rank)?;
        Some(from.swap_remove(best))
    }

    fn has_come_round_too_often(&self) -> bool {
        self.encounters.values().any(|met| met.count >= MAX_ENCOUNTERS)
    }

    /// Notes that a ticket of the instance was received at `now`. Returns whether it is the first of
    /// this attempt. A pass that lasts longer than `hold` receives tickets again. That counts, since
    /// such a pass might never end.
    fn meet(&mut self, id: &InstanceId, now: Duration, hold: Duration) -> bool {
        let received = (self.pass, now);
        let Some(met) = self.encounters.get_mut(id) else {
            let first = Encounters { count: 0, handed_out: None, received };
            self.encounters.insert(id.clone(), first);
            return true;
        };
        let (pass, at) = met.received;
        if pass != self.pass {
            met.received = received;
        } else if at + hold <= now {
            met.received = received;
            met.count += 1;
        }
        false
    }

    /// Notes that the instance is handed to a worker.
    fn hand_out(&mut self, id: &InstanceId) {
        if let Some(met) = self.encounters.get_mut(id)
            && met.handed_out.replace(self.pass) != Some(self.pass)
        {
            met.count += 1;
        }
    }
}

/// A machine that is to register with another label than its own has to remove its registration first,
/// which is lost then, and costs the machine if the forge is out of reach.
fn prefers_ready(attempt: &Attempt<'_>) -> Option<bool> {
    match (attempt.settings.runner_label, attempt.requested_label()) {
        (RunnerLabel::Run, _) => None,
        (RunnerLabel::Machine, RequestedLabel::OfMachine) => Some(true),
        (RunnerLabel::Machine, RequestedLabel::OfRun | RequestedLabel::Named(_)) => Some(false),
    }
}

impl<'a> Pickup<'a> {
    /// Serves `wanted` workers. What it sends to `deletes` must be deleted, and what it sends to
    /// `put_backs` put back, see [`put_back_all`].
    pub(super) fn new(
        attempt: &'a Attempt<'_>,
        wanted: u32,
        deletes: Deletes,
        put_backs: UnboundedSender<Vec<Receipt>>,
    ) -> Pickup<'a> {
        Pickup {
            queue: Queue::new(attempt),
            deletes,
            put_backs,
            plane: attempt.plane,
            requirements: &attempt.requirements,
            times: &attempt.times,
            holdings: &attempt.holdings,
            journal: &attempt.journal,
            inner: Mutex::new(Inner {
                unserved: wanted as usize,
                suitable: Vec::new(),
                second_choice: Vec::new(),
                set_aside: Vec::new(),
                preferred: BTreeMap::new(),
                encounters: BTreeMap::new(),
                pass: 0,
                expected: None,
                exhausted: false,
            }),
            duplicates: std::sync::Mutex::default(),
            avoided: std::sync::Mutex::default(),
            takes_on_demand: attempt.request.options.capacity_fallback,
            takes_unused_only: attempt.reuse.is_never(),
            prefers_ready: prefers_ready(attempt),
        }
    }

    /// Returns the next candidate, or `None` when the pool is exhausted for this run or the worker needs
    /// none any more. Fails if the pool does not answer.
    pub(super) async fn next(&self, is_needed: &AtomicBool) -> Result<Option<Candidate>, Failure> {
        let mut inner = self.inner.lock().await;
        let is_needed = || is_needed.load(Ordering::Relaxed);
        while inner.suitable.is_empty() && !inner.exhausted && is_needed() {
            self.take_more(&mut inner).await?;
        }
        let candidate = if is_needed() { inner.best() } else { None };
        // A worker that gets no candidate stops, so it no longer counts either.
        inner.unserved = inner.unserved.saturating_sub(1);
        if let Some(candidate) = &candidate {
            inner.hand_out(candidate.idle.id());
            self.duplicates().hand_out(&candidate.announced);
        }
        if inner.unserved == 0 {
            inner.set_aside_the_rest(&mut self.duplicates());
        }
        if inner.unserved == 0 || inner.exhausted {
            self.end_pass(&mut inner);
        }
        Ok(candidate)
    }

    /// Must be called by a worker whose candidate failed, before it calls [`Pickup::next`] again.
    pub(super) async fn ask_again(&self) {
        let mut inner = self.inner.lock().await;
        inner.unserved += 1;
        inner.exhausted = inner.has_come_round_too_often();
    }

    /// Runs `work` and keeps the candidate's ticket hidden until it is done. If the ticket became
    /// visible half-way, other runs would try to claim the machine in vain.
    pub(super) async fn holding<T>(
        &self,
        candidate: &Candidate,
        work: impl Future<Output = T>,
    ) -> T {
        let (class, hold) = (&self.requirements.class, self.times.ticket_hold);
        let receipts = std::slice::from_ref(&candidate.receipt);
        let hold_on = async {
            loop {
                self.plane.clock.sleep(hold / 2).await;
                if let Err(error) = self.plane.pool.extend(class, receipts, hold).await {
                    tracing::debug!(instance = %candidate.idle.id(), "hold not extended: {error}");
                }
            }
        };
        match select(pin!(work), pin!(hold_on)).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }

    /// Hands the candidate's ticket and its duplicates to be deleted. The instance must be claimed, gone,
    /// or owned by another run.
    pub(super) fn delete(&self, candidate: &Candidate) {
        let mut receipts = self.duplicates().settle(&candidate.announced);
        receipts.push(candidate.receipt.clone());
        self.holdings.about_to_delete(&receipts);
        // The receiver lives as long as the attempt is served. Without it, the clean-up deletes them.
        drop(self.deletes.send(receipts));
    }

    /// Hands all tickets that are still held to be put back.
    pub(super) async fn close(&self) {
        let mut inner = self.inner.lock().await;
        let mut duplicates = std::mem::take(&mut *self.duplicates());
        inner.set_aside_the_rest(&mut duplicates);
        inner.set_aside.extend(duplicates.into_receipts());
        self.end_pass(&mut inner);
    }

    /// Leaves tickets of this instance to other runs from now on.
    pub(super) fn avoid(&self, id: &InstanceId) {
        self.avoided().insert(id.clone());
    }

    fn avoided(&self) -> MutexGuard<'_, BTreeSet<InstanceId>> {
        self.avoided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn duplicates(&self) -> MutexGuard<'_, DuplicateTickets> {
        self.duplicates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_more(&self, inner: &mut Inner) -> Result<(), Failure> {
        let kept = inner.suitable.len() + inner.second_choice.len() + inner.set_aside.len();
        // A ticket that is being deleted is hidden by this run until it is gone.
        let hidden_by_us = || kept + self.duplicates().in_hand() + self.holdings.spent().len();
        // While no ticket was unsuitable, receive no more than the workers need.
        let messages = if inner.set_aside.is_empty() {
            self.queue.receive(inner.unserved, hidden_by_us).await?
        } else if let Some(expected) = inner.expected {
            let messages = self.queue.receive(expected.max(inner.unserved), hidden_by_us).await?;
            inner.expected = Some(expected.saturating_sub(messages.len()));
            messages
        } else {
            let wanted = FIRST_SEARCH.max(inner.unserved);
            let receive = self.queue.receive(wanted, hidden_by_us);
            let (messages, depth) = join(receive, self.queue.depth()).await;
            inner.expected = depth.map(|depth| depth.visible).ok();
            messages?
        };
        if messages.is_empty() {
            inner.exhausted = true;
            let Inner { second_choice, preferred, unserved, .. } = inner;
            self.look_for_ready(second_choice, preferred, *unserved).await;
            return Ok(());
        }
        let mut dropped = Vec::new();
        for message in messages {
            self.sort(inner, message, &mut dropped);
        }
        let Inner { suitable, preferred, unserved, .. } = inner;
        join(self.look_for_ready(suitable, preferred, *unserved), self.drop_void(&dropped)).await;
        Ok(())
    }

    async fn drop_void(&self, dropped: &[Receipt]) {
        if dropped.is_empty() {
            return;
        }
        let class = &self.requirements.class;
        if let Err(error) = self.plane.retried(|| self.plane.pool.delete(class, dropped)).await {
            // The next provision that receives them deletes them.
            tracing::warn!("void tickets not deleted: {error}");
        }
    }

    /// Looks which of the candidates are registered already, if machines of this pool register while they
    /// are idle and there are more candidates than workers. Costs one read; without its answer, none is
    /// preferred.
    async fn look_for_ready(
        &self,
        candidates: &[Candidate],
        preferred: &mut BTreeMap<InstanceId, bool>,
        unserved: usize,
    ) {
        let Some(prefers_ready) = self.prefers_ready else { return };
        if candidates.len() <= unserved.max(1) {
            return;
        }
        let unknown = candidates.iter().map(|it| &it.idle);
        let unknown: Vec<&Instance<Idle>> =
            unknown.filter(|idle| !preferred.contains_key(idle.id())).collect();
        let ids: Vec<InstanceId> = unknown.iter().map(|idle| idle.id().clone()).collect();
        if ids.is_empty() {
            return;
        }
        let found = self.plane.store.agent_status(&ids).await.unwrap_or_default();
        let now = self.plane.now();
        for (idle, status) in unknown.iter().zip(&found) {
            let is_ready = status.is_ready_in(idle.counts().generation, now);
            let is_preferred = is_ready == prefers_ready && status.pulse(now) == Pulse::Healthy;
            preferred.insert(idle.id().clone(), is_preferred);
        }
    }

    fn sort(&self, inner: &mut Inner, message: ReceivedMessage, dropped: &mut Vec<Receipt>) {
        let ticket = match Ticket::from_json(&message.body) {
            Ok(ticket) => ticket,
            Err(error) => {
                tracing::warn!("{error}; dropped");
                self.holdings.searching(PoolSearch::void_ticket);
                dropped.push(message.receipt);
                return;
            }
        };
        let id = &ticket.instance_id;
        let now = self.plane.now();
        if ticket.threshold <= now {
            tracing::info!(instance = %id, "its ticket has expired; dropped");
            self.holdings.searching(PoolSearch::void_ticket);
            let steady = self.plane.clock.steady();
            self.journal.candidate(steady, id, CandidateOutcome::Expired, "");
            dropped.push(message.receipt);
            return;
        }
        if self.avoided().contains(id) {
            inner.set_aside.push(message.receipt);
            return;
        }
        let used = self.is_used(&ticket).then_some(Mismatch::Used);
        let (mismatch, is_second_choice) = match self.requirements.mismatch(&ticket.spec).or(used) {
            Some(_) if self.is_second_choice(&ticket) => (None, true),
            mismatch => (mismatch, false),
        };
        if inner.meet(id, self.plane.clock.steady(), self.times.ticket_hold) {
            self.holdings.searching(|search| search.met(mismatch));
            if let Some(why) = mismatch {
                let (now, why) = (self.plane.clock.steady(), why.to_string());
                self.journal.candidate(now, id, CandidateOutcome::Unsuitable, &why);
            }
        }
        inner.exhausted = inner.has_come_round_too_often();
        match mismatch {
            None => match self.duplicates().meet(&ticket, message.receipt) {
                Encounter::First(receipt) => {
                    let found = self.plane.clock.steady();
                    let (idle, announced) = (Instance::announced(&ticket), IdlePeriod::of(&ticket));
                    let candidate = Candidate { idle, found, announced, receipt };
                    match is_second_choice {
                        true => inner.second_choice.push(candidate),
                        false => inner.suitable.push(candidate),
                    }
                }
                Encounter::Duplicate => tracing::debug!(instance = %id, "a second ticket for it"),
                Encounter::OtherPeriod(receipt) => inner.set_aside.push(receipt),
                Encounter::Stale(receipt) => dropped.push(receipt),
            },
            Some(mismatch) => {
                tracing::debug!(instance = %id, "not suitable: {mismatch}");
                inner.set_aside.push(message.receipt);
            }
        }
    }

    /// Whether the run takes this machine, which does not match its requirements, rather than
    /// launch one.
    fn is_second_choice(&self, ticket: &Ticket) -> bool {
        let on_demand = Requirements { usage: UsageClass::OnDemand, ..self.requirements.clone() };
        self.takes_on_demand && !self.is_used(ticket) && on_demand.mismatch(&ticket.spec).is_none()
    }

    /// Whether the run must not have this machine, because it may have served another run. A ticket
    /// that does not tell is one of an older version.
    fn is_used(&self, ticket: &Ticket) -> bool {
        self.takes_unused_only && ticket.runs != Some(0)
    }

    /// Hands unsuitable tickets to be put back, so that other runs find them at once.
    fn end_pass(&self, inner: &mut Inner) {
        inner.pass += 1;
        inner.expected = None;
        let receipts = std::mem::take(&mut inner.set_aside);
        if !receipts.is_empty() {
            // The receiver lives as long as the workers. Without it, their hold ends.
            drop(self.put_backs.send(receipts));
        }
    }
}

/// Puts back what arrives, until the senders are gone. A failure is only logged: the tickets become
/// visible again when their hold is over.
pub(super) async fn put_back_all(
    attempt: &Attempt<'_>,
    mut set_aside: UnboundedReceiver<Vec<Receipt>>,
) {
    let (plane, class) = (attempt.plane, &attempt.requirements.class);
    while let Some(receipts) = set_aside.recv().await {
        if let Err(error) = plane.retried(|| plane.pool.put_back(class, &receipts)).await {
            tracing::warn!("tickets not put back: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
