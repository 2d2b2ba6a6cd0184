//! An agent that the store refuses: without credentials, or denied by a policy.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::credentials::{Token, TokenPurpose};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::machine_label::RequestedLabel;
use ondeck_core::model::readiness::ReadinessNote;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::ports::{AgentStore, PortError, PortResult};

use crate::harness::{Harness, label, machine, run};
use crate::idle::{claimed, idle_in};

/// A store that refuses some calls, and counts all of them.
struct RefusingStore {
    store: Arc<dyn AgentStore>,
    refuses_reads: AtomicBool,
    refuses_writes: AtomicBool,
    refuses_notes: AtomicBool,
    reads: AtomicU32,
    beats: AtomicU32,
    reports: AtomicU32,
}

impl RefusingStore {
    fn new(store: Arc<dyn AgentStore>, reads: bool, writes: bool) -> Arc<RefusingStore> {
        Arc::new(RefusingStore {
            store,
            refuses_reads: AtomicBool::new(reads),
            refuses_writes: AtomicBool::new(writes),
            refuses_notes: AtomicBool::new(writes),
            reads: AtomicU32::default(),
            beats: AtomicU32::default(),
            reports: AtomicU32::default(),
        })
    }

    fn set(&self, reads: bool, writes: bool) {
        self.refuses_reads.store(reads, Ordering::Relaxed);
        self.refuses_writes.store(writes, Ordering::Relaxed);
        self.refuses_notes.store(writes, Ordering::Relaxed);
    }

    /// Reads, heartbeats and reports since the last call.
    fn counts(&self) -> [u32; 3] {
        [&self.reads, &self.beats, &self.reports].map(|count| count.swap(0, Ordering::Relaxed))
    }

    fn read(&self) -> PortResult<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        answer(&self.refuses_reads)
    }
}

fn answer(refuses: &AtomicBool) -> PortResult<()> {
    if !refuses.load(Ordering::Relaxed) {
        return Ok(());
    }
    let reason = "AccessDeniedException: not authorized".to_owned();
    Err(PortError::Unusable { service: "DynamoDB", reason, hint: "check the policy".to_owned() })
}

#[async_trait]
impl AgentStore for RefusingStore {
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        self.read()?;
        self.store.record(id).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.read()?;
        self.store.settings().await
    }

    async fn token(&self, purpose: TokenPurpose) -> PortResult<Option<Token>> {
        self.store.token(purpose).await
    }

    async fn beat(&self, id: &InstanceId, heartbeat: &Heartbeat) -> PortResult<()> {
        self.beats.fetch_add(1, Ordering::Relaxed);
        answer(&self.refuses_writes)?;
        // A policy of a version without notes does not list this either.
        if heartbeat.ready_claim.is_some() {
            answer(&self.refuses_notes)?;
        }
        self.store.beat(id, heartbeat).await
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        self.reports.fetch_add(1, Ordering::Relaxed);
        answer(&self.refuses_writes)?;
        self.store.report(id, report).await
    }

    async fn note_readiness(&self, id: &InstanceId, note: &ReadinessNote) -> PortResult<bool> {
        answer(&self.refuses_notes)?;
        self.store.note_readiness(id, note).await
    }
}

/// A machine that boots with a record, whose store refuses these calls.
async fn booted(reads: bool, writes: bool) -> (Harness, Arc<RefusingStore>) {
    let mut harness = Harness::with(&[("boot-deadline-sec", "3600")]).await;
    let store = RefusingStore::new(harness.memory.store.clone(), reads, writes);
    harness.insert_record(State::Created, Duration::from_secs(3_600));
    harness.boot_on(store.clone());
    (harness, store)
}

#[tokio::test]
async fn a_refused_agent_asks_seldom() {
    let (harness, store) = booted(true, true).await;
    harness.sleep(Duration::from_secs(60)).await;
    let [reads, beats, reports] = store.counts();
    assert!((8..=16).contains(&reads), "looks back off: {reads}");
    assert!((11..=14).contains(&beats), "one heartbeat in the default period: {beats}");
    assert!(reports <= 15, "the failure is reported at a patient pace: {reports}");
    harness.sleep(Duration::from_secs(60)).await;
    let [reads, beats, _] = store.counts();
    assert!((1..=6).contains(&reads), "every 15 to 30 s: {reads}");
    assert!((11..=13).contains(&beats), "{beats}");
}

#[tokio::test]
async fn credentials_that_arrive_late_are_used_at_once() {
    let (harness, store) = booted(true, true).await;
    harness.sleep(Duration::from_secs(20)).await;
    assert!(harness.status().await.report.is_none());
    store.set(false, false);
    // The next heartbeat, and the pause of the call that reads the settings.
    harness.sleep(Duration::from_secs(11)).await;
    assert_eq!(harness.labels.of(&machine()), Some(label("1")), "it serves the run of its record");
}

#[tokio::test]
async fn the_control_plane_learns_why_an_agent_is_refused() {
    let (harness, store) = booted(true, false).await;
    harness.sleep(Duration::from_secs(25)).await;
    assert!(harness.status().await.report.is_none(), "a new policy may not be in force yet");
    harness.sleep(Duration::from_secs(15)).await;
    let report = harness.status().await.report.unwrap();
    assert_eq!(report.signal, Signal::PrepareFailed);
    assert!(report.detail.contains("AccessDeniedException: not authorized"), "{report:?}");
    let [_, beats, reports] = store.counts();
    assert!(beats > 100, "heartbeats are taken, and are as frequent as any setting: {beats}");
    assert_eq!(reports, 1);
}

#[tokio::test]
async fn a_run_goes_on_while_its_agent_is_refused() {
    let mut harness = Harness::with(&[]).await;
    let store = RefusingStore::new(harness.memory.store.clone(), false, false);
    harness.insert_record(State::Running, Duration::from_secs(30 * 60));
    harness.boot_on(store.clone());
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.labels.of(&machine()), Some(label("1")));
    store.set(true, true);
    store.counts();
    harness.sleep(Duration::from_secs(60)).await;
    let [reads, beats, _] = store.counts();
    assert!(reads <= 9, "{reads}");
    assert!((11..=13).contains(&beats), "heartbeats keep their period: {beats}");
    assert_eq!(harness.labels.of(&machine()), Some(label("1")), "the job may still run");
    assert!(harness.is_alive());
    store.set(false, false);
    harness.sleep(Duration::from_secs(10)).await;
    assert!(harness.heartbeat_age().await <= Duration::from_secs(5));
    store.counts();
    harness.sleep(Duration::from_secs(10)).await;
    let [reads, ..] = store.counts();
    assert!(reads >= 9, "looks are as frequent as before: {reads}");
}

/// It could not report that it has left its run.
#[tokio::test]
async fn a_refused_agent_whose_time_is_up_terminates_its_machine_at_once() {
    let mut harness = Harness::with(&[("self-termination-grace-sec", "1")]).await;
    let store = RefusingStore::new(harness.memory.store.clone(), false, false);
    let record = harness.insert_record(State::Running, Duration::from_secs(30 * 60));
    harness.boot_on(store.clone());
    harness.sleep(Duration::from_secs(3)).await;
    store.set(false, true);
    let threshold = Some(harness.plane.now() + Duration::from_secs(4));
    harness.memory.store.insert(Record { state: State::Idle, run: None, threshold, ..record });
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.labels.of(&machine()), None, "it has left its run");
    store.set(true, true);
    store.counts();
    harness.sleep(Duration::from_secs(12)).await;
    assert!(!harness.is_alive());
    let [reads, ..] = store.counts();
    assert!(reads <= 9, "looks back off: {reads}");
}

/// The policy of its role is of a version that knows no such notes.
#[tokio::test]
async fn an_agent_that_may_not_say_that_it_is_ready_is_healthy() {
    let mut harness = Harness::with(&[("runner-label", "machine")]).await;
    let store = RefusingStore::new(harness.memory.store.clone(), false, false);
    store.refuses_notes.store(true, Ordering::Relaxed);
    let record = harness.insert_record(State::Idle, Duration::from_secs(3_600));
    harness.boot_on(store.clone());
    harness.sleep(Duration::from_secs(60)).await;
    assert!(harness.labels.own(&machine()).is_some(), "it registers");
    assert!(harness.status().await.readiness.is_none());
    assert!(harness.heartbeat_age().await < Duration::from_secs(20));
    // Its registration serves a run that claims it.
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    harness.sleep(Duration::from_secs(60)).await;
    let owner = harness.labels.own(&machine()).and_then(|own| own.owner);
    assert_eq!(owner, Some(run("1")));
    assert!(harness.heartbeat_age().await <= Duration::from_secs(5));
    // With the policy of this version, it tells how long that took from its next note on.
    store.refuses_notes.store(false, Ordering::Relaxed);
    harness.put(idle_in(&record, 1)).await;
    harness.sleep(Duration::from_secs(30)).await;
    assert!(harness.is_ready(1).await);
    assert!(harness.status().await.heartbeat.unwrap().ready_claim.is_some());
}
