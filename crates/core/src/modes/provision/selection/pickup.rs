//! The pickup manager: takes tickets from the queue, filters them, and hands them to claim
//! workers.
//!
//! A ticket is never in a place where a crash loses it: it stays in the queue, hidden from
//! others, while we look at it, and is deleted only when its instance is claimed, gone, or known
//! to be somebody else's.
//!
//! Unsuitable tickets stay hidden until the pass is over, and are then put back together. So a
//! pass meets each ticket once, and an empty answer at its end proves that the pool holds
//! nothing for this run: N tickets cost N/10 receives. Others are not fooled by what we hide,
//! because an empty queue of which somebody holds tickets is asked again for a while.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::lock::Mutex;

use crate::inputs::times::Times;
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::requirements::Requirements;
use crate::model::ticket::Ticket;
use crate::modes::plane::Plane;
use crate::ports::{PortResult, Receipt, ReceivedMessage};
use crate::runtime::batcher::Batcher;
use crate::runtime::poll::{PollInterval, Wait, wait_until};

use super::Attempt;
use super::duplicates::{DuplicateTickets, Encounter, IdlePeriod};
use crate::modes::provision::holdings::Holdings;
use crate::modes::provision::pool_search::PoolSearch;

/// The most messages that a queue gives at once.
const BATCH: usize = 10;

/// How long a ticket that is done with waits for others, so that they are deleted together.
const LULL: Duration = Duration::from_millis(25);

/// After meeting the same instance this often, the pool counts as exhausted for this run,
/// whatever the queue says. Passes alone would do; this bounds them when claims keep failing.
const ENCOUNTERS: u32 = 5;

/// An instance that may be idle, and the ticket that says so.
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
    /// Tickets that workers have, and have not deleted yet. Not behind the lock above, which may
    /// be held for as long as patience lasts.
    duplicates: std::sync::Mutex<DuplicateTickets>,
    deletes: Batcher<Vec<Receipt>, ()>,
}

struct Inner {
    /// Workers without a candidate.
    unserved: usize,
    suitable: Vec<Candidate>,
    /// Tickets that others may want; hidden until the pass is over.
    set_aside: Vec<Receipt>,
    encounters: BTreeMap<InstanceId, u32>,
    exhausted: bool,
}

impl Inner {
    fn set_aside_the_rest(&mut self, duplicates: &mut DuplicateTickets) {
        for candidate in self.suitable.drain(..) {
            self.set_aside.extend(duplicates.forget(&candidate.announced));
            self.set_aside.push(candidate.receipt);
        }
    }

    fn has_come_round_too_often(&self) -> bool {
        self.encounters.values().any(|count| *count >= ENCOUNTERS)
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
                set_aside: Vec::new(),
                encounters: BTreeMap::new(),
                exhausted: false,
            }),
            duplicates: std::sync::Mutex::default(),
            deletes: Batcher::default(),
        }
    }

    /// The next candidate, or `None` when the pool is exhausted for this run.
    pub(super) async fn next(&self) -> Result<Option<Candidate>, Failure> {
        let mut inner = self.inner.lock().await;
        while inner.suitable.is_empty() && !inner.exhausted {
            self.take_more(&mut inner).await?;
        }
        let candidate = inner.suitable.pop();
        // Who leaves with nothing does not come back, and is to be served no longer either.
        inner.unserved = inner.unserved.saturating_sub(1);
        if let Some(candidate) = &candidate {
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

    /// A worker that was served needs another candidate after all: a new pass may find one.
    pub(super) async fn ask_again(&self) {
        let mut inner = self.inner.lock().await;
        inner.unserved += 1;
        inner.exhausted = inner.has_come_round_too_often();
    }

    /// Does something about the candidate while its ticket stays hidden, however long it takes:
    /// shown to others half-way through, it would only make them ask in vain.
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
                    tracing::debug!(instance = %candidate.idle.id(), "ticket not held on to: {error}");
                }
            }
        };
        match select(pin!(work), pin!(hold_on)).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => never,
        }
    }

    /// The ticket has served its purpose: its instance is claimed, gone, or somebody else's.
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
        let lull = || self.plane.clock.sleep(LULL);
        let deleted = self.deletes.ask_after(lull, receipts.clone(), delete).await;
        self.holdings.deleted(&receipts);
        if let Err(error) = deleted {
            // It will come round again, and whoever takes it finds the claim refused.
            tracing::warn!(instance = %candidate.idle.id(), "ticket not deleted: {error}");
        }
    }

    /// Gives back whatever is still held.
    pub(super) async fn close(&self) {
        let mut inner = self.inner.lock().await;
        let mut duplicates = std::mem::take(&mut *self.duplicates());
        inner.set_aside_the_rest(&mut duplicates);
        inner.set_aside.extend(duplicates.into_receipts());
        self.end_pass(&mut inner).await;
    }

    fn duplicates(&self) -> MutexGuard<'_, DuplicateTickets> {
        self.duplicates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take_more(&self, inner: &mut Inner) -> Result<(), Failure> {
        // Without unsuitable ones around, take no more than can be used at once.
        let max = if inner.set_aside.is_empty() { inner.unserved.clamp(1, BATCH) } else { BATCH };
        let messages = self.receive(max, inner.suitable.len() + inner.set_aside.len()).await?;
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
                // Others will meet them, and drop them as well.
                tracing::warn!("void tickets not deleted: {error}");
            }
        }
        Ok(())
    }

    /// Messages, or none if the queue is really empty. While others hold tickets that may come
    /// back, an empty answer is asked again, for as long as patience lasts.
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

    /// Whether there are tickets that a receive may yet bring: some that it missed, or some that
    /// others hide.
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
        let mismatch = self.requirements.mismatch(&ticket.spec);
        let encounters = inner.encounters.entry(id.clone()).or_default();
        *encounters += 1;
        if *encounters == 1 {
            self.holdings.searching(|search| search.met(mismatch));
        }
        inner.exhausted = inner.has_come_round_too_often();
        match mismatch {
            None => match self.duplicates().meet(&ticket, message.receipt) {
                Encounter::First(receipt) => {
                    let found = self.plane.clock.steady();
                    let (idle, announced) = (Instance::announced(&ticket), IdlePeriod::of(&ticket));
                    inner.suitable.push(Candidate { idle, found, announced, receipt });
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

    /// Puts back what this run has no use for, so that others find it at once.
    async fn end_pass(&self, inner: &mut Inner) {
        let receipts = std::mem::take(&mut inner.set_aside);
        if receipts.is_empty() {
            return;
        }
        let class = &self.requirements.class;
        if let Err(error) = self.plane.retried(|| self.plane.pool.put_back(class, &receipts)).await
        {
            // They come back by themselves when the time of hiding is over.
            tracing::warn!("tickets not put back: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::RunId;
    use crate::model::record::MachineSpec;
    use crate::model::requirements::{TypePatterns, UsageClass};
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
        Ticket { instance_id: InstanceId::new("i-1").unwrap(), spec, threshold }
    }

    fn attempt<'a>(plane: &'a Plane, request: &'a Request) -> Attempt<'a> {
        let settings = Settings::default();
        let requirements = request.requirements(&settings, TypePatterns::any()).unwrap();
        let (times, holdings) = (Times::default(), Holdings::new(plane.clock.steady()));
        Attempt { plane, request, settings, requirements, times, holdings }
    }

    #[tokio::test]
    async fn an_empty_answer_is_believed_unless_a_ticket_was_missed_or_others_hold_one() {
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
        assert_eq!(pickup.others_hold(class, 0).await, Ok(true), "somebody else has the second");
        assert_eq!(pickup.others_hold(class, 1).await, Ok(false), "or we have, set aside");
    }

    #[tokio::test]
    async fn whoever_leaves_empty_handed_is_looked_for_no_longer() {
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
