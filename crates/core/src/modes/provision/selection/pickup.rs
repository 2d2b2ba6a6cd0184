//! The pickup manager: receives tickets, filters them, and hands them to claim workers.
//!
//! A crash cannot lose a ticket: it stays in the queue, hidden from other receivers, and is deleted
//! only when its instance is claimed, gone, or owned by another run.
//!
//! Unsuitable tickets stay hidden until the pass is over, and are then put back together. A pass
//! therefore receives each ticket once, and an empty answer at its end proves that the pool holds
//! nothing for this run: N tickets cost N/10 receives. Other runs are not misled by the hidden
//! tickets, because they ask an empty queue again while another receiver holds tickets of it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::lock::Mutex;

use crate::inputs::times::Times;
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::requirements::{Mismatch, Requirements, UsageClass};
use crate::model::ticket::Ticket;
use crate::modes::plane::Plane;
use crate::ports::{PortResult, Receipt, ReceivedMessage};
use crate::runtime::batcher::Batcher;
use crate::runtime::poll::{PollInterval, Wait, wait_until};

use super::Attempt;
use super::duplicates::{DuplicateTickets, Encounter, IdlePeriod};
use crate::modes::provision::holdings::Holdings;
use crate::modes::provision::pool_search::PoolSearch;

/// The most messages that one receive returns.
const BATCH: usize = 10;

/// How long a ticket waits for others before they are deleted together.
const DELETE_WINDOW: Duration = Duration::from_millis(25);

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
    deletes: Batcher<Vec<Receipt>, ()>,
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
    encounters: BTreeMap<InstanceId, Encounters>,
    /// The number of the present pass.
    pass: u32,
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

impl<'a> Pickup<'a> {
    pub(super) fn new(attempt: &'a Attempt<'_>, wanted: u32) -> Pickup<'a> {
        Pickup {
            plane: attempt.plane,
            requirements: &attempt.requirements,
            times: &attempt.times,
            holdings: &attempt.holdings,
            inner: Mutex::new(Inner {
                unserved: wanted as usize,
                suitable: Vec::new(),
                second_choice: Vec::new(),
                set_aside: Vec::new(),
                encounters: BTreeMap::new(),
                pass: 0,
                exhausted: false,
            }),
            duplicates: std::sync::Mutex::default(),
            avoided: std::sync::Mutex::default(),
            takes_on_demand: attempt.request.options.capacity_fallback,
            takes_unused_only: attempt.reuse.is_never(),
            deletes: Batcher::default(),
        }
    }

    /// Returns the next candidate, or `None` when the pool is exhausted for this run. Fails if the
    /// pool does not answer.
    pub(super) async fn next(&self) -> Result<Option<Candidate>, Failure> {
        let mut inner = self.inner.lock().await;
        while inner.suitable.is_empty() && !inner.exhausted {
            self.take_more(&mut inner).await?;
        }
        let candidate = inner.suitable.pop().or_else(|| inner.second_choice.pop());
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
            self.end_pass(&mut inner).await;
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

    /// Deletes the candidate's ticket and its duplicates. The instance must be claimed, gone, or
    /// owned by another run. A failure is only logged.
    pub(super) async fn delete(&self, candidate: &Candidate) {
        let mut receipts = self.duplicates().settle(&candidate.announced);
        receipts.push(candidate.receipt.clone());
        self.holdings.about_to_delete(&receipts);
        let class = &self.requirements.class;
        let delete = |asked: Vec<Vec<Receipt>>| async move {
            let receipts = asked.concat();
            self.plane.retried(|| self.plane.pool.delete(class, &receipts)).await?;
            Ok(vec![(); asked.len()])
        };
        let window = || self.plane.clock.sleep(DELETE_WINDOW);
        let deleted = self.deletes.ask_after(window, receipts.clone(), delete).await;
        self.holdings.deleted(&receipts);
        if let Err(error) = deleted {
            // It becomes visible again, and the next claim by it is refused.
            tracing::warn!(instance = %candidate.idle.id(), "ticket not deleted: {error}");
        }
    }

    /// Puts back all tickets that are still held.
    pub(super) async fn close(&self) {
        let mut inner = self.inner.lock().await;
        let mut duplicates = std::mem::take(&mut *self.duplicates());
        inner.set_aside_the_rest(&mut duplicates);
        inner.set_aside.extend(duplicates.into_receipts());
        self.end_pass(&mut inner).await;
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
        // While no ticket was unsuitable, receive no more than the workers need.
        let max = if inner.set_aside.is_empty() { inner.unserved.clamp(1, BATCH) } else { BATCH };
        let kept = inner.suitable.len() + inner.second_choice.len() + inner.set_aside.len();
        let messages = self.receive(max, kept).await?;
        if messages.is_empty() {
            inner.exhausted = true;
            return Ok(());
        }
        let mut dropped = Vec::new();
        for message in messages {
            self.sort(inner, message, &mut dropped);
        }
        if !dropped.is_empty() {
            let class = &self.requirements.class;
            if let Err(error) = self.plane.retried(|| self.plane.pool.delete(class, &dropped)).await
            {
                // The next provision that receives them deletes them.
                tracing::warn!("void tickets not deleted: {error}");
            }
        }
        Ok(())
    }

    /// Receives messages. An empty queue is asked again for the pickup patience while other
    /// receivers hold tickets of it that may be put back.
    async fn receive(&self, max: usize, kept: usize) -> PortResult<Vec<ReceivedMessage>> {
        let (plane, class) = (self.plane, &self.requirements.class);
        let (patience, interval) =
            (self.times.pickup_patience, PollInterval::fixed(self.times.signal_poll));
        let wait = Wait::begin(&*plane.clock, patience, interval);
        let ask = || async {
            let messages = self.receive_once(class, max).await?;
            if !messages.is_empty() || !self.others_hold(class, kept).await? {
                return Ok(Some(messages));
            }
            Ok(None)
        };
        let answer = wait_until(&*plane.clock, wait, ask).await?;
        Ok(answer.unwrap_or_default())
    }

    async fn receive_once(
        &self,
        class: &ResourceClass,
        max: usize,
    ) -> PortResult<Vec<ReceivedMessage>> {
        let hold = self.times.ticket_hold;
        self.plane.retried(|| self.plane.pool.receive(class, max, hold)).await
    }

    /// Whether a later receive may return tickets: some are visible, or other receivers hold some.
    async fn others_hold(&self, class: &ResourceClass, kept: usize) -> PortResult<bool> {
        let depth = self.plane.retried(|| self.plane.pool.depth(class)).await?;
        let hidden_by_us = kept + self.duplicates().in_hand();
        Ok(depth.visible > 0 || depth.held > hidden_by_us)
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

    /// Puts back unsuitable tickets, so that other runs find them at once.
    async fn end_pass(&self, inner: &mut Inner) {
        inner.pass += 1;
        let receipts = std::mem::take(&mut inner.set_aside);
        if receipts.is_empty() {
            return;
        }
        let class = &self.requirements.class;
        if let Err(error) = self.plane.retried(|| self.plane.pool.put_back(class, &receipts)).await
        {
            // They become visible again when their hold is over.
            tracing::warn!("tickets not put back: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::RunId;
    use crate::model::record::MachineSpec;
    use crate::model::requirements::TypePatterns;
    use crate::model::settings::Settings;
    use crate::modes::provision::Request;
    use crate::testkit;

    fn request() -> Request {
        let mut request = Request::of_run(RunId::new("1").unwrap());
        request.options.usage = UsageClass::Spot;
        request
    }

    fn ticket(plane: &Plane, request: &Request) -> Ticket {
        let spec = MachineSpec {
            resource_class: request.options.class.clone(),
            instance_type: "c6i.large".to_owned(),
            usage_class: request.options.usage,
            cpu: 2,
            mem: 4096,
        };
        let threshold = plane.now() + Duration::from_secs(600);
        let (instance_id, generation, runs) = (InstanceId::new("i-1").unwrap(), 1, Some(1));
        Ticket { instance_id, spec, threshold, generation, runs }
    }

    fn attempt<'a>(plane: &'a Plane, request: &'a Request) -> Attempt<'a> {
        let settings = Settings::default();
        let requirements = request.requirements(&settings, TypePatterns::any()).unwrap();
        let (times, holdings) = (Times::default(), Holdings::new(plane.clock.steady()));
        let (label, reuse) = (request.label(), request.reuse(&settings));
        Attempt { plane, request, label, settings, requirements, times, reuse, holdings }
    }

    #[tokio::test]
    async fn an_empty_answer_is_final_unless_a_ticket_is_visible_or_held_by_another_receiver() {
        let (plane, _) = testkit::plane();
        let (request, hold) = (request(), Duration::from_secs(30));
        let attempt = attempt(&plane, &request);
        let pickup = Pickup::new(&attempt, 1);
        let class = &request.options.class;
        assert_eq!(pickup.others_hold(class, 0).await, Ok(false));
        plane.pool.send(&[ticket(&plane, &request)], Duration::ZERO).await.unwrap();
        assert_eq!(pickup.others_hold(class, 0).await, Ok(true), "it is there to be had");
        pickup.next().await.unwrap().expect("there is a ticket");
        assert_eq!(pickup.others_hold(class, 0).await, Ok(false), "a worker of ours has it");
        plane.pool.send(&[ticket(&plane, &request)], Duration::ZERO).await.unwrap();
        plane.pool.receive(class, 1, hold).await.unwrap();
        assert_eq!(pickup.others_hold(class, 0).await, Ok(true), "another receiver has the second");
        assert_eq!(
            pickup.others_hold(class, 1).await,
            Ok(false),
            "unless this pickup has set it aside"
        );
    }

    #[tokio::test]
    async fn a_worker_that_got_no_candidate_no_longer_counts() {
        let (plane, _) = testkit::plane();
        let request = request();
        let class = &request.options.class;
        plane.pool.send(&[ticket(&plane, &request)], Duration::ZERO).await.unwrap();
        let attempt = attempt(&plane, &request);
        let pickup = Pickup::new(&attempt, 3);
        let first = pickup.next().await.unwrap().expect("there is a ticket");
        for _ in 0..2 {
            assert!(pickup.next().await.unwrap().is_none(), "there is only one");
        }
        let another = |id| Ticket { instance_id: id, ..ticket(&plane, &request) };
        let more = ["i-2", "i-3", "i-4"].map(|id| another(InstanceId::new(id).unwrap()));
        plane.pool.send(&more, Duration::ZERO).await.unwrap();
        pickup.delete(&first).await;
        pickup.ask_again().await;
        pickup.next().await.unwrap().expect("there are three now");
        let depth = plane.pool.depth(class).await.unwrap();
        assert_eq!((depth.visible, depth.held), (2, 1), "one worker is left, and needs one");
    }

    #[tokio::test]
    async fn a_ticket_stays_hidden_while_its_instance_is_being_claimed() {
        let (plane, memory) = testkit::plane();
        let request = request();
        plane.pool.send(&[ticket(&plane, &request)], Duration::ZERO).await.unwrap();
        let attempt = attempt(&plane, &request);
        let hold = attempt.times.ticket_hold;
        let pickup = Pickup::new(&attempt, 1);
        let candidate = pickup.next().await.unwrap().expect("there is a ticket");
        let slow_claim = async {
            plane.clock.sleep(hold * 3).await;
            plane.pool.depth(&request.options.class).await.unwrap()
        };
        let depth = pickup.holding(&candidate, slow_claim).await;
        assert_eq!((depth.visible, depth.held), (0, 1), "three holds later");
        assert!((5..=6).contains(&memory.pool.calls()["extend"]), "{:?}", memory.pool.calls());
        pickup.delete(&candidate).await;
        assert_eq!(plane.pool.depth(&request.options.class).await.unwrap().total(), 0);
    }
}
