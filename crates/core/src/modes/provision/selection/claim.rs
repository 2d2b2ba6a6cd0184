//! A claim worker: takes a candidate, claims it, checks it, and starts over if either fails. If the
//! machine is slow to register, the worker may claim a second one; the first that is ready wins.

use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, join, select};

use super::checks::{self, Checked};
use super::hedging::Hedging;
use super::pickup::{Candidate, Pickup};
use super::returns::{Reason, Returns, Unused};
use crate::lifecycle::{Claimed, Instance};
use crate::model::failure::Failure;
use crate::model::readiness::ClaimWay;
use crate::model::summary::CandidateOutcome;
use crate::modes::agent_watch::AgentWatch;
use crate::modes::plane::{NotCommitted, Reaped};
use crate::modes::provision::Attempt;
use crate::modes::provision::holdings::Moments;

/// How many registrations in a row a machine may miss before it is retired.
const MAX_MISSED: u32 = 2;

/// What the claim workers of one selection share.
pub(super) struct Workers<'a> {
    pub(super) attempt: &'a Attempt<'a>,
    pub(super) pickup: Pickup<'a>,
    pub(super) watch: AgentWatch<'a>,
    pub(super) hedging: Hedging,
    pub(super) returns: Returns,
}

/// A machine that this run has claimed and not checked yet.
#[derive(Debug)]
struct Taken {
    candidate: Candidate,
    claimed: Instance<Claimed>,
    /// When it was claimed, in steady time.
    owned: Duration,
    /// Whether it was registered when it was claimed, once that is known.
    way: OnceLock<ClaimWay>,
}

impl Workers<'_> {
    /// Works until one machine is claimed and checked, or the pool is exhausted for this run. Fails
    /// if the store or the pool does not answer.
    pub(super) async fn work(&self) -> Result<(), Failure> {
        let is_needed = AtomicBool::new(true);
        while let Some(taken) = self.take(&is_needed).await? {
            if self.race(taken).await? {
                return Ok(());
            }
            self.pickup.ask_again().await;
        }
        Ok(())
    }

    /// Claims the next candidate that can be claimed. `None` if the pool is exhausted for this run, or
    /// if none is needed any more.
    async fn take(&self, is_needed: &AtomicBool) -> Result<Option<Taken>, Failure> {
        while let Some(candidate) = self.pickup.next(is_needed).await? {
            if let Some(claimed) = self.claim(&candidate).await? {
                let owned = self.attempt.plane.clock.steady();
                let way = checks::known_way(self.attempt);
                return Ok(Some(Taken { candidate, claimed, owned, way }));
            }
            // The refusal has shown that the machine is gone, expired, or owned by another run, so
            // its ticket is of no use.
            self.pickup.delete(&candidate);
            if !is_needed.load(Ordering::Relaxed) {
                return Ok(None);
            }
            self.pickup.ask_again().await;
        }
        Ok(None)
    }

    /// Checks a machine, and claims and checks a second one if the first is late. Returns whether
    /// one of them was ready.
    async fn race(&self, first: Taken) -> Result<bool, Failure> {
        let mut checks = pin!(self.check(&first));
        if let Some(checked) = self.unless_late(&first.way, checks.as_mut()).await {
            return self.settle(&first, checked?).await;
        }
        self.attempt.holdings.searching(|search| search.hedges += 1);
        let (now, id) = (self.attempt.plane.clock.steady(), first.claimed.id());
        self.attempt.journal.hedged(now, id, self.told_way(&first));
        let is_needed = AtomicBool::new(true);
        let take_another = async {
            self.pickup.ask_again().await;
            self.take(&is_needed).await
        };
        // The second claim is never dropped half-way: the machine would stay claimed.
        match select(checks.as_mut(), pin!(take_another)).await {
            Either::Left((checked, take)) => {
                let checked = checked?;
                is_needed.store(!matches!(checked, Checked::Ready(_)), Ordering::Relaxed);
                let (settled, second) = join(self.settle(&first, checked), take).await;
                match (settled?, second?) {
                    (is_ready, None) => Ok(is_ready),
                    (true, Some(second)) => Ok(self.lost(&second)),
                    (false, Some(second)) => self.settle(&second, self.check(&second).await?).await,
                }
            }
            Either::Right((second, checks)) => match second? {
                None => self.settle(&first, checks.await?).await,
                Some(second) => self.race_both(&first, checks, &second).await,
            },
        }
    }

    /// The result of the checks; `None` if it is late and a second machine may be claimed.
    async fn unless_late<T>(
        &self,
        way: &OnceLock<ClaimWay>,
        checks: impl Future<Output = T> + Unpin,
    ) -> Option<T> {
        let allowed = pin!(self.hedging.allowed(&*self.attempt.plane.clock, way));
        match select(checks, allowed).await {
            Either::Left((checked, _)) => Some(checked),
            Either::Right(_) => None,
        }
    }

    /// Waits for the first of two machines that is ready, and gives the other one back.
    async fn race_both(
        &self,
        first: &Taken,
        first_checks: impl Future<Output = Result<Checked, Failure>> + Unpin,
        second: &Taken,
    ) -> Result<bool, Failure> {
        let second_checks = pin!(self.check(second));
        match select(first_checks, second_checks).await {
            Either::Left((checked, rest)) => self.then((first, checked?), (second, rest)).await,
            Either::Right((checked, rest)) => self.then((second, checked?), (first, rest)).await,
        }
    }

    /// Acts on the result of one machine while the checks of the other go on.
    async fn then(
        &self,
        (decided, checked): (&Taken, Checked),
        (other, checks): (&Taken, impl Future<Output = Result<Checked, Failure>>),
    ) -> Result<bool, Failure> {
        if let Checked::Ready(_) = checked {
            self.settle(decided, checked).await?;
            return Ok(self.lost(other));
        }
        let (settled, checked) = join(self.settle(decided, checked), checks).await;
        settled?;
        self.settle(other, checked?).await
    }

    /// Waits for the result of the checks. The machine's ticket is deleted beside them.
    async fn check(&self, taken: &Taken) -> Result<Checked, Failure> {
        self.pickup.delete(&taken.candidate);
        checks::pass(self.attempt, &self.watch, &taken.claimed, &taken.way).await
    }

    /// Acts on the result of the checks. Returns whether the machine is ready.
    async fn settle(&self, taken: &Taken, checked: Checked) -> Result<bool, Failure> {
        let Taken { candidate, claimed, owned, .. } = taken;
        let plane = self.attempt.plane;
        match checked {
            Checked::Ready(registered) => {
                let moments = Moments {
                    found: Some(candidate.found),
                    owned: *owned,
                    registered: Some(plane.steady_at(registered.at)),
                    ready: Some(plane.clock.steady()),
                };
                let way = self.told_way(taken);
                self.attempt.holdings.claim(claimed.clone(), moments, (registered.label, way));
                self.note(claimed, CandidateOutcome::Ready, "");
                return Ok(true);
            }
            Checked::Failed(why) => {
                self.note(claimed, CandidateOutcome::Unhealthy, &why);
                self.discard(claimed, &why).await?;
            }
            Checked::Unregistered(why) => {
                let missed = claimed.counts().missed_registrations.saturating_add(1);
                match missed >= MAX_MISSED {
                    true => {
                        let why = format!("{why}; {missed} times in a row");
                        self.note(claimed, CandidateOutcome::Unhealthy, &why);
                        self.discard(claimed, &why).await?;
                    }
                    false => {
                        self.note(claimed, CandidateOutcome::Unregistered, &why);
                        self.send_back(claimed, Reason::Unregistered);
                    }
                }
            }
            Checked::TooNew => {
                self.note(claimed, CandidateOutcome::TooNew, "");
                self.send_back(claimed, Reason::UnknownProtocol);
            }
        }
        Ok(false)
    }

    /// Gives back a machine because the other one was ready first. Returns that one was ready.
    fn lost(&self, taken: &Taken) -> bool {
        self.note(&taken.claimed, CandidateOutcome::LostToHedge, "");
        self.send_back(&taken.claimed, Reason::LostToHedge);
        true
    }

    /// The way of a machine, for people; `None` where all machines register.
    fn told_way(&self, taken: &Taken) -> Option<ClaimWay> {
        let differs = checks::known_way(self.attempt).get().is_none();
        taken.way.get().copied().filter(|_| differs)
    }

    fn note(&self, claimed: &Instance<Claimed>, outcome: CandidateOutcome, why: &str) {
        let now = self.attempt.plane.clock.steady();
        self.attempt.journal.candidate(now, claimed.id(), outcome, why);
    }

    fn send_back(&self, claimed: &Instance<Claimed>, reason: Reason) {
        self.pickup.avoid(claimed.id());
        self.attempt.holdings.searching(|search| search.given_back += 1);
        // The receiver lives as long as the workers. Without it, the run's release gives it back.
        drop(self.returns.send(Unused { claimed: claimed.clone(), reason }));
    }

    /// Makes the claim, the one write that decides which run gets the machine. Returns `None` if
    /// the store refuses it.
    async fn claim(&self, candidate: &Candidate) -> Result<Option<Instance<Claimed>>, Failure> {
        let (plane, attempt) = (self.attempt.plane, self.attempt);
        attempt.holdings.about_to_touch(candidate.idle.id());
        let change = candidate.idle.claim(&attempt.label, plane.now(), attempt.times.claim_timeout);
        let change = change.reusing(attempt.reuse).requesting(attempt.requested_label());
        match self.pickup.holding(candidate, plane.apply(change)).await {
            Ok(claimed) => Ok(Some(claimed)),
            Err(NotCommitted::Refused(refused)) => {
                if let Some(row) = &refused.unreadable {
                    tracing::warn!("{row}; its ticket is dropped");
                }
                attempt.holdings.not_touched(candidate.idle.id());
                let winner = refused.found.as_ref().and_then(|found| found.run.as_ref());
                let (taken, now) = (winner.is_some(), plane.clock.steady());
                let id = candidate.idle.id();
                match winner {
                    Some(winner) => attempt.journal.lost(now, id, Some(winner)),
                    None => attempt.journal.candidate(now, id, CandidateOutcome::Gone, ""),
                }
                attempt.holdings.searching(
                    |search| {
                        if taken { search.lost += 1 } else { search.void += 1 }
                    },
                );
                Ok(None)
            }
            Err(NotCommitted::Unreachable(error)) => Err(error.into()),
        }
    }

    /// Terminates a machine that failed its checks, because it would fail the next run as well.
    async fn discard(&self, claimed: &Instance<Claimed>, why: &str) -> Result<(), Failure> {
        let (plane, id) = (self.attempt.plane, claimed.id());
        self.attempt.holdings.searching(|search| search.unhealthy += 1);
        tracing::warn!(instance = %id, "discarded: {why}");
        if let Reaped::Here = plane.expire_and_reap(claimed, why).await?
            && let Err(error) = plane.terminate(std::slice::from_ref(id)).await
        {
            // Its record is terminated, so no run can claim it. Refresh or its deadline terminates
            // it.
            tracing::warn!(instance = %id, "not terminated yet: {error}");
        }
        Ok(())
    }
}
