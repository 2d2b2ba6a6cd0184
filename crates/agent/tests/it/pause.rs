//! An agent whose process is stopped for a while, as by SIGSTOP or a starved machine, and then
//! finds its deadline passed. The test moves time and gives the agent its turns, so it decides what
//! has happened before the agent acts again.

use std::collections::BTreeMap;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_agent::Agent;
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::Report;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{AgentStore, Clock, Host, PortError, PortResult, Runner};
use ondeck_core::testkit::FixedRandom;

use crate::harness::{machine, run, spec};

/// Within this time an agent that is past its deadline decides, whether or not the store answers.
const BOUND: Duration = Duration::from_secs(6);

/// How the store treats a call, from the moment of the request on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    Answers,
    /// With what was true at the request, that much later.
    AnswersAfter(Duration),
    Fails,
    NeverAnswers,
}

/// Store, clock and machine of one agent.
#[derive(Debug)]
struct Ports(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    now: Timestamp,
    record: Option<Record>,
    looks: Store,
    beats: Store,
    /// How many looks fail before the store does as `looks` says.
    failures: u32,
}

impl Ports {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    async fn until(&self, at: Timestamp) {
        poll_fn(|_| if self.inner().now < at { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    async fn call<T>(&self, treats: Store, answer: T) -> PortResult<T> {
        match treats {
            Store::Answers => {}
            Store::AnswersAfter(span) => {
                let at = self.now() + span;
                self.until(at).await;
            }
            Store::Fails => {
                let reason = "throttled".to_owned();
                return Err(PortError::Unavailable { service: "store", reason });
            }
            Store::NeverAnswers => pending().await,
        }
        // An answer that has arrived is read by the connection first, and by the caller one turn
        // later.
        let mut read = false;
        poll_fn(
            |_| if std::mem::replace(&mut read, true) { Poll::Ready(()) } else { Poll::Pending },
        )
        .await;
        Ok(answer)
    }
}

#[async_trait]
impl AgentStore for Ports {
    async fn record(&self, _id: &InstanceId) -> PortResult<Option<Record>> {
        let (looks, record) = {
            let mut inner = self.inner();
            let fails = inner.failures > 0;
            inner.failures = inner.failures.saturating_sub(1);
            (if fails { Store::Fails } else { inner.looks }, inner.record.clone())
        };
        self.call(looks, record).await
    }
    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }
    async fn credentials(&self) -> PortResult<Option<Credentials>> {
        Ok(None)
    }
    async fn beat(&self, _id: &InstanceId, _at: Timestamp) -> PortResult<()> {
        let beats = self.inner().beats;
        self.call(beats, ()).await
    }
    async fn report(&self, _id: &InstanceId, _report: &Report) -> PortResult<()> {
        Ok(())
    }
}

#[async_trait]
impl Clock for Ports {
    fn now(&self) -> Timestamp {
        self.inner().now
    }
    fn steady(&self) -> Duration {
        Duration::from_millis(self.now().millis())
    }
    async fn sleep(&self, span: Duration) {
        let at = self.now() + span;
        self.until(at).await;
    }
}

#[async_trait]
impl Runner for Ports {
    async fn prepare(&self) -> Result<(), String> {
        Ok(())
    }
    async fn register(&self, _run: &RunId) -> Result<(), String> {
        Ok(())
    }
    async fn work(&self, _run: &RunId) -> String {
        pending().await
    }
    async fn stop(&self) -> Result<(), String> {
        Ok(())
    }
    async fn deregister(&self) -> Result<(), String> {
        Ok(())
    }
    async fn clean(&self) -> Result<(), String> {
        Ok(())
    }
}

#[async_trait]
impl Host for Ports {
    async fn run_script(&self, _script: &str) -> Result<(), String> {
        Ok(())
    }
    async fn interruption(&self) -> String {
        pending().await
    }
    async fn terminate(&self, _why: &str) {}
}

/// An agent that acts only when the test lets it.
struct Stoppable {
    ports: Arc<Ports>,
    life: Pin<Box<dyn Future<Output = String>>>,
    /// Why it has terminated its machine.
    ended: Option<String>,
}

impl Stoppable {
    fn new(record: Option<Record>) -> Stoppable {
        let ports = Arc::new(Ports(Mutex::new(Inner {
            now: start(),
            record,
            looks: Store::Answers,
            beats: Store::Answers,
            failures: 0,
        })));
        let agent = Agent {
            id: machine(),
            store: ports.clone(),
            runner: ports.clone(),
            host: ports.clone(),
            clock: ports.clone(),
            random: Arc::new(FixedRandom(0)),
        };
        let life = Box::pin(async move { agent.live().await });
        Stoppable { ports, life, ended: None }
    }

    fn is(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.ports.inner());
    }

    /// Time passes, and the agent runs as usual.
    fn acts_for(&mut self, span: Duration) {
        const STEP: Duration = Duration::from_millis(50);
        let until = self.ports.now() + span;
        while self.ended.is_none() && self.ports.now() < until {
            self.is_paused_for(STEP);
            self.acts();
        }
    }

    /// The agent acts until it has nothing to do at this moment.
    fn acts(&mut self) {
        for _ in 0..20 {
            let mut context = Context::from_waker(Waker::noop());
            if self.ended.is_none()
                && let Poll::Ready(why) = self.life.as_mut().poll(&mut context)
            {
                self.ended = Some(why);
            }
        }
    }

    /// Time passes, and the agent does nothing.
    fn is_paused_for(&mut self, span: Duration) {
        self.is(|inner| inner.now = inner.now + span);
    }

    fn is_paused_until(&mut self, at: Timestamp) {
        self.is_paused_for(at.since(self.ports.now()));
    }
}

fn start() -> Timestamp {
    Timestamp::from_millis(1_750_000_000_000)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Running for run 1 until 100 s from the start; its grace is over at 160 s.
fn running() -> Record {
    Record {
        id: machine(),
        state: State::Running,
        run: Some(run("1")),
        threshold: Some(start() + secs(100)),
        spec: spec(),
        created_at: start(),
        updated_at: start(),
        ticketed_at: None,
    }
}

/// Released, and idle until 300 s from the start.
fn idle() -> Record {
    Record { state: State::Idle, run: None, threshold: Some(start() + secs(300)), ..running() }
}

/// After 90 s of work the machine is released, the agent looks, and its process is stopped before
/// the answer is there. It goes on at 170 s, when by what it remembers its grace is over.
fn paused_over_an_answer() -> Stoppable {
    let mut agent = Stoppable::new(Some(running()));
    agent.acts_for(secs(90));
    agent.is(|inner| {
        inner.record = Some(idle());
        inner.looks = Store::AnswersAfter(secs(20));
    });
    agent.acts_for(secs(6));
    agent.is_paused_until(start() + secs(170));
    agent
}

#[test]
fn an_agent_that_wakes_past_its_deadline_goes_by_the_answer_that_came_meanwhile() {
    for since in [Store::Answers, Store::Fails, Store::NeverAnswers] {
        let mut agent = paused_over_an_answer();
        agent.is(|inner| inner.looks = since);
        agent.acts_for(secs(60));
        assert_eq!(agent.ended, None, "looks since then: {since:?}");
        // That answer's deadline applies to it, too.
        agent.acts_for(secs(140));
        assert_eq!(agent.ended.as_deref().map(|why| why.starts_with("idle past")), Some(true));
    }
}

#[test]
fn an_answer_that_came_meanwhile_counts_less_than_a_newer_one() {
    let mut agent = paused_over_an_answer();
    let expired = Record { threshold: Some(start() + secs(99)), ..idle() };
    agent.is(|inner| (inner.record, inner.looks) = (Some(expired), Store::Answers));
    agent.acts_for(BOUND);
    assert_eq!(agent.ended.as_deref().map(|why| why.starts_with("idle past")), Some(true));
}

#[test]
fn a_heartbeat_that_hangs_does_not_keep_an_agent_from_looking() {
    let mut agent = Stoppable::new(Some(running()));
    agent.acts_for(secs(90));
    agent.is(|inner| {
        inner.beats = Store::NeverAnswers;
        inner.looks = Store::NeverAnswers;
    });
    agent.acts_for(secs(6));
    agent.is_paused_until(start() + secs(170));
    agent.is(|inner| (inner.record, inner.looks) = (Some(idle()), Store::Answers));
    agent.acts_for(secs(20));
    assert_eq!(agent.ended, None);
}

#[test]
fn a_look_that_fails_is_repeated_before_the_machine_terminates() {
    let mut agent = Stoppable::new(Some(running()));
    agent.acts_for(secs(90));
    agent.is_paused_until(start() + secs(170));
    agent.is(|inner| (inner.record, inner.failures) = (Some(idle()), 3));
    agent.acts_for(secs(20));
    assert_eq!(agent.ended, None);
}

#[test]
fn a_record_that_was_written_during_a_pause_saves_a_machine_from_its_boot_deadline() {
    let mut agent = Stoppable::new(None);
    agent.acts_for(secs(170));
    agent.is(|inner| inner.looks = Store::AnswersAfter(secs(5)));
    agent.acts_for(secs(6));
    agent.is_paused_until(start() + secs(200));
    let created =
        Record { state: State::Created, threshold: Some(start() + secs(400)), ..running() };
    agent.is(|inner| (inner.record, inner.looks) = (Some(created), Store::AnswersAfter(secs(2))));
    agent.acts_for(secs(60));
    assert_eq!(agent.ended, None);
}

/// Paused until 170 s, past its deadline, the agent asks the store. That takes `answers` to answer,
/// and `asks` later the agent is paused again, for a minute.
fn paused_again(found: Record, answers: Duration, asks: Duration) -> Stoppable {
    let mut agent = Stoppable::new(Some(running()));
    agent.acts_for(secs(90));
    agent.is_paused_until(start() + secs(170));
    agent.is(|inner| {
        inner.record = Some(found);
        inner.looks = Store::AnswersAfter(answers);
    });
    agent.acts();
    agent.acts_for(asks);
    agent.is_paused_for(secs(60));
    agent
}

#[test]
fn an_agent_that_is_paused_during_its_last_look_takes_in_the_answer() {
    for tenths in (0..50).step_by(7) {
        let asks = Duration::from_millis(tenths * 100);
        let mut agent = paused_again(idle(), asks + secs(1), asks);
        agent.is(|inner| inner.looks = Store::NeverAnswers);
        agent.acts_for(secs(40));
        assert_eq!(agent.ended, None, "paused {asks:?} after it has asked");
    }
}

#[test]
fn an_agent_that_is_paused_during_its_last_look_asks_anew() {
    for tenths in (0..50).step_by(7) {
        let asks = Duration::from_millis(tenths * 100);
        let mut agent = paused_again(running(), asks + secs(1), asks);
        agent.is(|inner| (inner.record, inner.looks) = (Some(idle()), Store::Answers));
        agent.acts_for(secs(40));
        assert_eq!(agent.ended, None, "paused {asks:?} after it has asked");
    }
}

#[test]
fn pauses_do_not_keep_a_machine_alive_for_ever() {
    let mut agent = Stoppable::new(Some(running()));
    agent.acts_for(secs(90));
    agent.is(|inner| inner.looks = Store::NeverAnswers);
    agent.is_paused_until(start() + secs(170));
    for _ in 0..18 {
        agent.acts_for(Duration::from_millis(100));
        agent.is_paused_for(secs(10));
    }
    agent.acts();
    assert!(agent.ended.is_some_and(|why| why.starts_with("running past its threshold")));
}

#[test]
fn a_store_out_of_reach_keeps_no_machine_past_its_deadline() {
    for out in [Store::Fails, Store::NeverAnswers, Store::AnswersAfter(secs(30))] {
        let mut working = Stoppable::new(Some(running()));
        working.acts_for(secs(90));
        working.is(|inner| (inner.beats, inner.looks) = (out, out));
        working.acts_for(secs(69));
        assert_eq!(working.ended, None, "within the grace: {out:?}");
        working.acts_for(secs(2) + BOUND);
        let why = working.ended.unwrap_or_default();
        assert!(why.starts_with("running past its threshold"), "{out:?}: {why}");

        let mut unrecorded = Stoppable::new(None);
        unrecorded.is(|inner| (inner.beats, inner.looks) = (out, out));
        unrecorded.acts_for(secs(179));
        assert_eq!(unrecorded.ended, None, "within the boot deadline: {out:?}");
        unrecorded.acts_for(secs(2) + BOUND);
        let why = unrecorded.ended.unwrap_or_default();
        assert!(why.starts_with("no record of it"), "{out:?}: {why}");
    }
}

#[test]
fn an_agent_whose_record_says_terminated_needs_no_second_look() {
    let mut agent = Stoppable::new(Some(running()));
    agent.acts_for(secs(20));
    let terminated = Record { state: State::Terminated, run: None, threshold: None, ..running() };
    agent.is(|inner| inner.record = Some(terminated));
    agent.acts_for(secs(2));
    agent.is(|inner| (inner.beats, inner.looks) = (Store::NeverAnswers, Store::NeverAnswers));
    agent.acts_for(secs(5));
    assert_eq!(agent.ended.as_deref(), Some("it was terminated"));
}
