//! Waiting for agents.
//!
//! Claim checks, validation and the release handshake wait for the status of several agents at
//! once. The first look at an agent comes as soon as it was given something to do. Looks that come
//! within a moment of each other, and all later ones, share a batched read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::model::ids::InstanceId;
use crate::model::signal::AgentStatus;
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::ports::PortResult;
use crate::runtime::batcher::Batcher;
use crate::runtime::poll::{PollInterval, Wait, wait_until};

/// How long a read waits for others to join it, if not all that are waited for have. Timers that are due
/// together fire within this, and so do the answers to writes that were made together.
const JOIN_WINDOW: Duration = Duration::from_millis(3);

/// Polls agent status. All waits on one watch share their reads.
#[derive(Debug)]
pub(crate) struct AgentWatch<'a> {
    plane: &'a Plane,
    interval: PollInterval,
    reads: Batcher<InstanceId, AgentStatus>,
    waits: Waits,
}

/// The waits of one watch.
#[derive(Debug)]
struct Waits {
    /// How many there will be at least.
    expected: usize,
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Waits {
    fn begin(&self) -> Waiting<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// How many have not ended: those that have begun, and those that are expected.
    fn left(&self) -> usize {
        let all = self.expected.max(self.begun.load(Ordering::Relaxed));
        all.saturating_sub(self.ended.load(Ordering::Relaxed))
    }
}

/// A wait that has begun. It ends when this is dropped.
struct Waiting<'a>(&'a Waits);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum Watched<T> {
    /// `judge` returned a value.
    Judged(T),
    /// `judge` returned nothing until the deadline. Carries the last status.
    TimedOut(Box<AgentStatus>),
}

impl<'a> AgentWatch<'a> {
    /// A watch of about `expected` agents. If that is one, its reads wait for no others.
    pub(crate) fn new(plane: &'a Plane, interval: PollInterval, expected: usize) -> AgentWatch<'a> {
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let waits = Waits { expected, begun, ended };
        AgentWatch { plane, interval: interval.prompt(), reads: Batcher::default(), waits }
    }

    /// Polls the status of one agent, at once and then by the interval, until `judge` returns a value
    /// or `at_most` has passed. Fails if the store stays unavailable.
    pub(crate) async fn wait<T>(
        &self,
        id: &InstanceId,
        at_most: Duration,
        judge: impl Fn(&AgentStatus, Timestamp) -> Option<T>,
    ) -> PortResult<Watched<T>> {
        let clock = &*self.plane.clock;
        let _waiting = self.waits.begin();
        let wait = Wait::begin(clock, at_most, self.interval);
        let last = std::sync::Mutex::new(AgentStatus::default());
        let look = || async {
            let asked = self.plane.now();
            let status = self.look(id).await?;
            let judgement = judge(&status, as_of(&status, asked, self.plane.now()));
            *last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = status;
            Ok(judgement)
        };
        let judged = wait_until(clock, wait, look).await?;
        Ok(match judged {
            Some(judgement) => Watched::Judged(judgement),
            None => {
                let last = last.into_inner();
                let last = last.unwrap_or_else(std::sync::PoisonError::into_inner);
                Watched::TimedOut(Box::new(last))
            }
        })
    }

    /// Reads the status of one agent, together with all reads that are due now.
    async fn look(&self, id: &InstanceId) -> PortResult<AgentStatus> {
        let read = |ids: Vec<InstanceId>| async move {
            self.plane.retried(|| self.plane.store.agent_status(&ids)).await
        };
        let join_window = || self.plane.clock.sleep(JOIN_WINDOW);
        self.reads.ask_while_joining(join_window, self.waits.left(), id.clone(), read).await
    }
}

/// The moment to judge a status by that was asked for at `asked` and is there at `now`. The store read
/// it at some time between the two. If that may have been when the agent had just sent its heartbeat,
/// it counts as that: a slow answer must not make a heartbeat look old.
fn as_of(status: &AgentStatus, asked: Timestamp, now: Timestamp) -> Timestamp {
    let beat = status.heartbeat.as_ref().map(|heartbeat| heartbeat.at);
    beat.map_or(now, |beat| beat.max(asked).min(now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::heartbeat::{Heartbeat, PROTOCOL};
    use futures_util::future::join_all;

    /// The looks at agents that have answered would otherwise be waited for.
    #[tokio::test]
    async fn a_look_waits_for_those_only_whose_wait_has_not_ended() {
        let (plane, memory) = crate::testkit::plane();
        let interval = PollInterval::fixed(Duration::from_millis(50));
        let watch = AgentWatch::new(&plane, interval, 3);
        let ids = ["i-1", "i-2", "i-3"].map(|id| InstanceId::new(id).unwrap());
        let looks = [AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0)];
        let begun = plane.clock.steady();
        let waits = ids.iter().zip(&looks).zip([1, 1, 4]).map(|((id, looks), answers_at)| {
            let judge = move |_: &AgentStatus, _| {
                (looks.fetch_add(1, Ordering::Relaxed) + 1 == answers_at).then_some(())
            };
            watch.wait(id, Duration::from_secs(5), judge)
        });
        for waited in join_all(waits).await {
            assert!(matches!(waited, Ok(Watched::Judged(()))), "{waited:?}");
        }
        // At once, and at three multiples of 5 ms.
        let latest = begun + Duration::from_millis(15);
        assert!(plane.clock.steady() <= latest, "{:?}", plane.clock.steady() - begun);
        assert_eq!(memory.store.calls()["agent_status"], 4, "they shared the first look");
        assert_eq!(watch.waits.left(), 0);
        let another = watch.waits.begin();
        assert_eq!(watch.waits.left(), 1, "more than were expected");
        drop(another);
    }

    #[test]
    fn the_time_of_an_answer_does_not_count_against_the_agent() {
        let at = |seconds: u64| Timestamp::from_millis(seconds * 1000);
        let status = |beat| AgentStatus {
            readiness: None,
            heartbeat: Some(Heartbeat {
                at: at(beat),
                period: Duration::from_secs(5),
                protocol: PROTOCOL,
                registration: None,
                ready_claim: None,
                busy: false,
                interrupted: false,
            }),
            report: None,
        };
        for (beat, as_of) in [(90, 100), (100, 100), (120, 120), (140, 130)] {
            assert_eq!(super::as_of(&status(beat), at(100), at(130)), at(as_of), "{beat}");
        }
        assert_eq!(super::as_of(&AgentStatus::default(), at(100), at(130)), at(130));
        assert_eq!(super::as_of(&status(90), at(100), at(95)), at(95), "the clock was set back");
    }
}
