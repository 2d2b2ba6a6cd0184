//! What an idle machine says about its registration, while the store answers late, not at all, or has a
//! later note.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::credentials::{Token, TokenPurpose};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::{MachineLabel, RequestedLabel};
use ondeck_core::model::readiness::{Readiness, ReadinessNote};
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::ports::{AgentStore, Clock, News, PortResult, Runner};
use ondeck_core::testkit::MachineDefect;

use crate::harness::{Harness, label, run};
use crate::idle::{HOUR, SECOND, claimed, idle};

/// A store that keeps the order of what an agent writes, and may leave writes without an answer.
pub(crate) struct WatchedStore {
    store: Arc<dyn AgentStore>,
    /// Each heartbeat, signal, and note.
    pub(crate) written: Mutex<Vec<&'static str>>,
    pub(crate) hangs_on_notes: AtomicBool,
    /// How many of the next notes that the machine is ready are written and not answered.
    unanswered_notes: AtomicU32,
    pub(crate) hangs_on_signals: AtomicBool,
}

impl WatchedStore {
    pub(crate) fn new(harness: &Harness) -> Arc<WatchedStore> {
        Arc::new(WatchedStore {
            store: harness.memory.store.clone(),
            written: Mutex::default(),
            hangs_on_notes: AtomicBool::new(false),
            unanswered_notes: AtomicU32::default(),
            hangs_on_signals: AtomicBool::new(false),
        })
    }

    fn note(&self, what: &'static str) {
        self.written.lock().unwrap().push(what);
    }
}

async fn hang_if(hangs: &AtomicBool) {
    if hangs.load(Ordering::Relaxed) {
        pending::<()>().await;
    }
}

#[async_trait]
impl AgentStore for WatchedStore {
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        self.store.record(id).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.store.settings().await
    }

    async fn token(&self, purpose: TokenPurpose) -> PortResult<Option<Token>> {
        self.store.token(purpose).await
    }

    fn listen(&self, id: &InstanceId) {
        self.store.listen(id);
    }

    async fn news(&self, clock: &dyn Clock, poll: Duration, patience: Duration) -> News {
        self.store.news(clock, poll, patience).await
    }

    async fn beat(&self, id: &InstanceId, heartbeat: &Heartbeat) -> PortResult<()> {
        self.note("heartbeat");
        self.store.beat(id, heartbeat).await
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        hang_if(&self.hangs_on_signals).await;
        self.note(report.signal.as_str());
        self.store.report(id, report).await
    }

    async fn note_readiness(&self, id: &InstanceId, note: &ReadinessNote) -> PortResult<bool> {
        hang_if(&self.hangs_on_notes).await;
        self.note(match note.readiness {
            Readiness::Ready(_) => "ready",
            Readiness::NotReady { .. } => "not ready",
        });
        let written = self.store.note_readiness(id, note).await;
        let less = |left: u32| left.checked_sub(1);
        if matches!(note.readiness, Readiness::Ready(_))
            && self
                .unanswered_notes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok()
        {
            pending::<()>().await;
        }
        written
    }
}

/// A run must not wait until the store has been told that its machine was ready.
#[tokio::test]
async fn a_claim_is_seen_while_a_note_is_not_answered() {
    let mut harness = Harness::with(&[("runner-label", "machine")]).await;
    let store = WatchedStore::new(&harness);
    let record = harness.insert_record(State::Idle, HOUR);
    harness.add_machine();
    harness.start_another_on(MachineDefect::RegistersAfter(5 * SECOND), store.clone());
    harness.sleep(3 * SECOND).await;
    store.hangs_on_notes.store(true, Ordering::Relaxed);
    harness.sleep(4 * SECOND).await;
    let own = harness.own().expect("it has registered");
    assert!(!harness.is_ready(0).await, "it could not say so");
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    assert_eq!(harness.own().unwrap().owner, Some(run("1")));
    let report = harness.status().await.report.unwrap();
    assert_eq!(report.machine_label, Some(own.label), "{report:?}");
}

/// Heartbeats would call the machine ready for as long as the store does not answer.
#[tokio::test]
async fn the_end_of_a_listener_is_seen_while_a_note_is_not_answered() {
    let mut harness = Harness::with(&[("runner-label", "machine")]).await;
    let store = WatchedStore::new(&harness);
    harness.insert_record(State::Idle, HOUR);
    harness.add_machine();
    let dies = MachineDefect::DiesAfter(10 * SECOND, Duration::ZERO);
    harness.start_another_on(dies, store.clone());
    store.unanswered_notes.store(1, Ordering::Relaxed);
    harness.sleep(8 * SECOND).await;
    assert_eq!(store.unanswered_notes.load(Ordering::Relaxed), 0);
    assert!(harness.is_ready(0).await, "the note is written");
    let so_far = store.written.lock().unwrap().len();
    harness.sleep(10 * SECOND).await;
    let written = store.written.lock().unwrap()[so_far..].to_vec();
    assert_eq!(written.iter().find(|it| **it != "heartbeat"), Some(&"not ready"), "{written:?}");
}

/// The machine would not be ready for as long as it is idle.
#[tokio::test]
async fn a_machine_says_that_it_is_ready_again_if_the_answer_to_its_withdrawal_was_lost() {
    let (harness, _) = idle(MachineDefect::DiesAfter(10 * SECOND, Duration::ZERO)).await;
    assert!(harness.is_ready(0).await);
    let own = harness.own();
    harness.memory.store.lose_answers("readiness of an agent", 1);
    harness.sleep(30 * SECOND).await;
    assert_eq!(harness.own(), own, "its listener was started under the same registration");
    assert!(harness.is_ready(0).await);
}

/// A store keeps the later of two notes.
#[tokio::test]
async fn a_clock_that_was_set_back_keeps_no_note() {
    let (mut harness, _) = idle(MachineDefect::None).await;
    harness.kill_agents().await;
    harness.memory.clock.step(-1_800_000);
    harness.start_another(MachineDefect::RegistersAfter(10 * SECOND));
    harness.sleep(SECOND).await;
    let Some(Readiness::NotReady { .. }) = harness.readiness().await else {
        panic!("its listener has died with the earlier process");
    };
    harness.sleep(15 * SECOND).await;
    assert!(harness.is_ready(0).await);
    harness.labels.remove_own(&crate::harness::machine());
    harness.sleep(SECOND).await;
    assert!(!harness.is_ready(0).await, "and what follows is written as well");
}

/// With a heartbeat before that, provision would take the machine for ready.
#[tokio::test]
async fn an_agent_that_starts_withdraws_before_anything_else() {
    let (mut harness, _) = idle(MachineDefect::None).await;
    harness.kill_agents().await;
    let store = WatchedStore::new(&harness);
    harness.start_another_on(MachineDefect::NeverRegisters, store.clone());
    harness.sleep(3 * SECOND).await;
    let written = store.written.lock().unwrap().clone();
    assert_eq!(written[0], "not ready", "{written:?}");
    assert!(written.contains(&"heartbeat"), "{written:?}");
}

/// A runner that fails when it is told to.
struct FailingRunner {
    clock: Arc<dyn Clock>,
    /// Why its listener ends, and cannot be started.
    fails: Mutex<Option<&'static str>>,
    attempts: AtomicU32,
    owner: Mutex<Option<RunId>>,
}

impl FailingRunner {
    fn new(harness: &Harness) -> Arc<FailingRunner> {
        Arc::new(FailingRunner {
            clock: harness.plane.clock.clone(),
            fails: Mutex::default(),
            attempts: AtomicU32::default(),
            owner: Mutex::default(),
        })
    }

    fn set(&self, fails: Option<&'static str>) {
        *self.fails.lock().unwrap() = fails;
    }

    fn attempts(&self) -> u32 {
        self.attempts.load(Ordering::Relaxed)
    }

    fn failure(&self) -> Option<String> {
        self.fails.lock().unwrap().map(str::to_owned)
    }
}

#[async_trait]
impl Runner for FailingRunner {
    async fn prepare(&self) -> Result<(), String> {
        Ok(())
    }

    async fn register(&self, _label: &Label) -> Result<(), String> {
        Ok(())
    }

    async fn listen_as(&self, _label: &MachineLabel) -> Result<u32, String> {
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed) + 1;
        self.failure().map_or(Ok(attempt), Err)
    }

    async fn name_owner(&self, run: &RunId) -> Result<(), String> {
        *self.owner.lock().unwrap() = Some(run.clone());
        Ok(())
    }

    async fn lapse(&self) -> String {
        loop {
            match self.failure() {
                Some(why) => return why,
                None => self.clock.sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn work(&self, _label: &Label) -> String {
        pending().await
    }

    async fn drain(&self, _why: &str) {}

    fn is_busy(&self) -> bool {
        false
    }

    fn has_worked(&self) -> bool {
        false
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

#[tokio::test]
async fn a_version_that_is_refused_is_told_before_the_next_heartbeat() {
    let mut harness = Harness::with(&[("runner-label", "machine")]).await;
    let (store, runner) = (WatchedStore::new(&harness), FailingRunner::new(&harness));
    harness.insert_record(State::Idle, HOUR);
    harness.boot_runner_on(runner.clone(), store.clone());
    harness.sleep(5 * SECOND).await;
    assert!(harness.is_ready(0).await);
    store.written.lock().unwrap().clear();
    runner.set(Some("this version of actions/runner is deprecated: 2.336.0"));
    harness.sleep(30 * SECOND).await;
    let written = store.written.lock().unwrap().clone();
    assert_eq!(written[0], "not ready", "{written:?}");
    assert!(written.contains(&"heartbeat"), "{written:?}");
    match harness.readiness().await {
        Some(Readiness::NotReady { why, .. }) => assert!(why.contains("is deprecated"), "{why}"),
        other => panic!("{other:?}"),
    }
    // Refresh has stored a newer version.
    runner.set(None);
    harness.sleep(60 * SECOND).await;
    assert!(harness.is_ready(0).await);
}

/// A machine that is not ready does not wait for the end of a pause, which may last a minute.
#[tokio::test]
async fn a_claim_ends_the_pause_before_the_next_attempt() {
    let mut harness = Harness::with(&[("runner-label", "machine")]).await;
    let runner = FailingRunner::new(&harness);
    runner.set(Some("the token has expired"));
    let record = harness.insert_record(State::Idle, HOUR);
    harness.boot_runner(runner.clone());
    harness.sleep(Duration::from_secs(300)).await;
    let before = runner.attempts();
    while runner.attempts() == before {
        harness.sleep(SECOND).await;
    }
    runner.set(None);
    harness.sleep(20 * SECOND).await;
    assert_eq!(runner.attempts(), before + 1, "it rests for half a minute at least");
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    assert_eq!(*runner.owner.lock().unwrap(), Some(run("1")));
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("1")), "{report:?}");
}
