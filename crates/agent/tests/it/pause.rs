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
use ondeck_core::model::credentials::{Token, TokenPurpose};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::label::Label;
use ondeck_core::model::readiness::ReadinessNote;
use ondeck_core::model::record::Counts;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::Report;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{AgentStore, Clock, Host, PortError, PortResult, Runner};
use ondeck_core::testkit::FixedRandom;

use crate::harness::{machine, run, spec};

/// Within this time an agent that is past its deadline decides, whether or not the store answers.
const BOUND: Duration = Duration::from_secs(6);

/// How the store treats a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreBehaviour {
    Answers,
    /// Answers this much later, with what was true at the request.
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
    reads: StoreBehaviour,
    beats: StoreBehaviour,
    /// How many reads fail before the store behaves as `reads` says.
    failures: u32,
}

impl Ports {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    async fn until(&self, at: Timestamp) {
        poll_fn(|_| if self.inner().now < at { Poll::Pending } else { Poll::Ready(()) }).await;
    }

    async fn call<T>(&self, treats: StoreBehaviour, answer: T) -> PortResult<T> {
        match treats {
            StoreBehaviour::Answers => {}
            StoreBehaviour::AnswersAfter(span) => {
                let at = self.now() + span;
                self.until(at).await;
            }
            StoreBehaviour::Fails => {
                let reason = "throttled".to_owned();
                return Err(PortError::Unavailable { service: "store", reason });
            }
            StoreBehaviour::NeverAnswers => pending().await,
        }
        // The connection receives an answer one turn before the caller does.
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
        let (reads, record) = {
            let mut inner = self.inner();
            let fails = inner.failures > 0;
            inner.failures = inner.failures.saturating_sub(1);
            (if fails { StoreBehaviour::Fails } else { inner.reads }, inner.record.clone())
        };
        self.call(reads, record).await
    }
    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        Ok(BTreeMap::new())
    }
    async fn token(&self, _purpose: TokenPurpose) -> PortResult<Option<Token>> {
        Ok(None)
    }
    async fn beat(&self, _id: &InstanceId, _beat: &Heartbeat) -> PortResult<()> {
        let beats = self.inner().beats;
        self.call(beats, ()).await
    }
    async fn report(&self, _id: &InstanceId, _report: &Report) -> PortResult<()> {
        Ok(())
    }
    async fn note_readiness(&self, _id: &InstanceId, _note: &ReadinessNote) -> PortResult<bool> {
        Ok(true)
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
    async fn register(&self, _label: &Label) -> Result<(), String> {
        Ok(())
    }
    async fn drain(&self, _why: &str) {}

    fn is_busy(&self) -> bool {
        false
    }

    fn has_worked(&self) -> bool {
        false
    }

    async fn work(&self, _label: &Label) -> String {
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

/// An agent that runs only when the test polls it.
struct PausableAgent {
    ports: Arc<Ports>,
    life: Pin<Box<dyn Future<Output = String>>>,
    /// The reason, once the agent has terminated its machine.
    terminated: Option<String>,
}

impl PausableAgent {
    fn new(record: Option<Record>) -> PausableAgent {
        let ports = Arc::new(Ports(Mutex::new(Inner {
            now: start(),
            record,
            reads: StoreBehaviour::Answers,
            beats: StoreBehaviour::Answers,
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
        PausableAgent { ports, life, terminated: None }
    }

    fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.ports.inner());
    }

    /// Time passes, and the agent runs as usual.
    fn run_for(&mut self, span: Duration) {
        const STEP: Duration = Duration::from_millis(50);
        let until = self.ports.now() + span;
        while self.terminated.is_none() && self.ports.now() < until {
            self.pause_for(STEP);
            self.poll();
        }
    }

    /// Polls the agent until it has nothing to do at this moment.
    fn poll(&mut self) {
        for _ in 0..20 {
            let mut context = Context::from_waker(Waker::noop());
            if self.terminated.is_none()
                && let Poll::Ready(why) = self.life.as_mut().poll(&mut context)
            {
                self.terminated = Some(why);
            }
        }
    }

    /// Time passes, and the agent does not run.
    fn pause_for(&mut self, span: Duration) {
        self.change(|inner| inner.now = inner.now + span);
    }

    fn pause_until(&mut self, at: Timestamp) {
        self.pause_for(at.since(self.ports.now()));
    }
}

fn start() -> Timestamp {
    Timestamp::from_millis(1_750_000_000_000)
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Runs for run 1 until 100 s after the start. Its grace ends at 160 s.
fn running() -> Record {
    Record {
        requested: ondeck_core::model::machine_label::RequestedLabel::OfRun,
        id: machine(),
        state: State::Running,
        run: Some(run("1")),
        threshold: Some(start() + secs(100)),
        spec: spec(),
        created_at: start(),
        updated_at: start(),
        ticketed_at: None,
        settings_version: None,
        reuse: ondeck_core::model::reuse::Reuse::Always,
        departure: ondeck_core::model::departure::Departure::None,
        suffix: None,
        counts: Counts::default(),
    }
}

/// Released, and idle until 300 s after the start.
fn idle() -> Record {
    Record { state: State::Idle, run: None, threshold: Some(start() + secs(300)), ..running() }
}

/// After 90 s of work the machine is released. The agent reads its record, and its
/// process is stopped before the answer arrives. It continues at 170 s, when the grace
/// that it remembers is over.
fn paused_over_an_answer() -> PausableAgent {
    let mut agent = PausableAgent::new(Some(running()));
    agent.run_for(secs(90));
    agent.change(|inner| {
        inner.record = Some(idle());
        inner.reads = StoreBehaviour::AnswersAfter(secs(20));
    });
    agent.run_for(secs(6));
    agent.pause_until(start() + secs(170));
    agent
}

#[test]
fn an_agent_that_wakes_past_its_deadline_follows_the_answer_that_arrived_meanwhile() {
    for since in [StoreBehaviour::Answers, StoreBehaviour::Fails, StoreBehaviour::NeverAnswers] {
        let mut agent = paused_over_an_answer();
        agent.change(|inner| inner.reads = since);
        agent.run_for(secs(60));
        assert_eq!(agent.terminated, None, "reads since then: {since:?}");
        // The deadline of that answer applies.
        agent.run_for(secs(140));
        assert_eq!(agent.terminated.as_deref().map(|why| why.starts_with("idle past")), Some(true));
    }
}

#[test]
fn a_newer_answer_replaces_the_one_that_arrived_meanwhile() {
    let mut agent = paused_over_an_answer();
    let expired = Record { threshold: Some(start() + secs(99)), ..idle() };
    agent.change(|inner| (inner.record, inner.reads) = (Some(expired), StoreBehaviour::Answers));
    agent.run_for(BOUND);
    assert_eq!(agent.terminated.as_deref().map(|why| why.starts_with("idle past")), Some(true));
}

#[test]
fn a_heartbeat_that_hangs_does_not_keep_an_agent_from_reading_its_record() {
    let mut agent = PausableAgent::new(Some(running()));
    agent.run_for(secs(90));
    agent.change(|inner| {
        inner.beats = StoreBehaviour::NeverAnswers;
        inner.reads = StoreBehaviour::NeverAnswers;
    });
    agent.run_for(secs(6));
    agent.pause_until(start() + secs(170));
    agent.change(|inner| (inner.record, inner.reads) = (Some(idle()), StoreBehaviour::Answers));
    agent.run_for(secs(20));
    assert_eq!(agent.terminated, None);
}

#[test]
fn a_failed_read_is_repeated_before_the_machine_terminates() {
    let mut agent = PausableAgent::new(Some(running()));
    agent.run_for(secs(90));
    agent.pause_until(start() + secs(170));
    agent.change(|inner| (inner.record, inner.failures) = (Some(idle()), 3));
    agent.run_for(secs(20));
    assert_eq!(agent.terminated, None);
}

#[test]
fn a_record_that_was_written_during_a_pause_saves_a_machine_from_its_boot_deadline() {
    let mut agent = PausableAgent::new(None);
    agent.run_for(secs(170));
    agent.change(|inner| inner.reads = StoreBehaviour::AnswersAfter(secs(5)));
    agent.run_for(secs(6));
    agent.pause_until(start() + secs(200));
    let created =
        Record { state: State::Created, threshold: Some(start() + secs(400)), ..running() };
    agent.change(|inner| {
        (inner.record, inner.reads) = (Some(created), StoreBehaviour::AnswersAfter(secs(2)));
    });
    agent.run_for(secs(60));
    assert_eq!(agent.terminated, None);
}

/// The agent is paused until 170 s, past its deadline, and then reads its record.
/// The store answers after
/// `answers`. `reads_for` after the request the agent is paused again, for a minute.
fn paused_again(found: Record, answers: Duration, reads_for: Duration) -> PausableAgent {
    let mut agent = PausableAgent::new(Some(running()));
    agent.run_for(secs(90));
    agent.pause_until(start() + secs(170));
    agent.change(|inner| {
        inner.record = Some(found);
        inner.reads = StoreBehaviour::AnswersAfter(answers);
    });
    agent.poll();
    agent.run_for(reads_for);
    agent.pause_for(secs(60));
    agent
}

#[test]
fn an_agent_that_is_paused_during_its_final_read_follows_the_answer() {
    for tenths in (0..50).step_by(7) {
        let reads_for = Duration::from_millis(tenths * 100);
        let mut agent = paused_again(idle(), reads_for + secs(1), reads_for);
        agent.change(|inner| inner.reads = StoreBehaviour::NeverAnswers);
        agent.run_for(secs(40));
        assert_eq!(agent.terminated, None, "paused {reads_for:?} after the request");
    }
}

#[test]
fn an_agent_that_is_paused_during_its_final_read_reads_again() {
    for tenths in (0..50).step_by(7) {
        let reads_for = Duration::from_millis(tenths * 100);
        let mut agent = paused_again(running(), reads_for + secs(1), reads_for);
        agent.change(|inner| (inner.record, inner.reads) = (Some(idle()), StoreBehaviour::Answers));
        agent.run_for(secs(40));
        assert_eq!(agent.terminated, None, "paused {reads_for:?} after the request");
    }
}

#[test]
fn pauses_do_not_keep_a_machine_alive_for_ever() {
    let mut agent = PausableAgent::new(Some(running()));
    agent.run_for(secs(90));
    agent.change(|inner| inner.reads = StoreBehaviour::NeverAnswers);
    agent.pause_until(start() + secs(170));
    for _ in 0..18 {
        agent.run_for(Duration::from_millis(100));
        agent.pause_for(secs(10));
    }
    agent.poll();
    assert!(agent.terminated.is_some_and(|why| why.starts_with("running past its threshold")));
}

#[test]
fn an_unavailable_store_keeps_no_machine_past_its_deadline() {
    for out in [
        StoreBehaviour::Fails,
        StoreBehaviour::NeverAnswers,
        StoreBehaviour::AnswersAfter(secs(30)),
    ] {
        let mut working = PausableAgent::new(Some(running()));
        working.run_for(secs(90));
        working.change(|inner| (inner.beats, inner.reads) = (out, out));
        working.run_for(secs(69));
        assert_eq!(working.terminated, None, "within the grace: {out:?}");
        working.run_for(secs(2) + BOUND);
        let why = working.terminated.unwrap_or_default();
        assert!(why.starts_with("running past its threshold"), "{out:?}: {why}");

        let mut unrecorded = PausableAgent::new(None);
        unrecorded.change(|inner| (inner.beats, inner.reads) = (out, out));
        unrecorded.run_for(secs(179));
        assert_eq!(unrecorded.terminated, None, "within the boot deadline: {out:?}");
        unrecorded.run_for(secs(2) + BOUND);
        let why = unrecorded.terminated.unwrap_or_default();
        assert!(why.starts_with("no record of it"), "{out:?}: {why}");
    }
}

#[test]
fn a_terminated_record_is_not_read_again() {
    let mut agent = PausableAgent::new(Some(running()));
    agent.run_for(secs(20));
    let terminated = Record { state: State::Terminated, run: None, threshold: None, ..running() };
    agent.change(|inner| inner.record = Some(terminated));
    agent.run_for(secs(2));
    agent.change(|inner| {
        (inner.beats, inner.reads) = (StoreBehaviour::NeverAnswers, StoreBehaviour::NeverAnswers);
    });
    agent.run_for(secs(5));
    assert_eq!(agent.terminated.as_deref(), Some("it was terminated"));
}
