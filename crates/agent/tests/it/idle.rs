//! Idle machines that are registered before a run claims them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::credentials::{Token, TokenPurpose};
use ondeck_core::model::departure::Departure;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::label::LabelSuffix;
use ondeck_core::model::machine_label::{MachineLabel, RequestedLabel};
use ondeck_core::model::readiness::{Readiness, ReadinessNote};
use ondeck_core::model::record::{Counts, Record, State};
use ondeck_core::model::settings::SettingsVersion;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::ports::{AgentStore, Clock, PortResult};
use ondeck_core::testkit::{MachineDefect, OwnRegistration};

use crate::harness::{Harness, label, machine, run};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// An idle machine of a pool whose machines register while they are idle, some seconds after its boot.
pub(crate) async fn idle(defect: MachineDefect) -> (Harness, Record) {
    let mut harness = Harness::with(&[("runner-label", "machine")]).await;
    let record = harness.boot_defective(defect, State::Idle, HOUR).await;
    harness.sleep(3 * SECOND).await;
    (harness, record)
}

/// The record when a run has claimed it.
pub(crate) fn claimed(record: &Record, by: &str, requested: RequestedLabel) -> Record {
    let run = Some(run(by));
    Record { state: State::Claimed, run, requested, ..record.clone() }
}

/// The record in this generation of its idle state.
pub(crate) fn idle_in(record: &Record, generation: u32) -> Record {
    let counts = Counts { generation, ..record.counts };
    let (run, requested) = (None, RequestedLabel::OfRun);
    Record { state: State::Idle, run, requested, counts, ..record.clone() }
}

impl Harness {
    pub(crate) fn own(&self) -> Option<OwnRegistration> {
        self.labels.own(&machine())
    }

    pub(crate) async fn put(&self, record: Record) {
        self.memory.store.insert(record);
        self.sleep(2 * SECOND).await;
    }

    pub(crate) async fn readiness(&self) -> Option<Readiness> {
        self.status().await.readiness.map(|note| note.readiness)
    }

    pub(crate) async fn is_ready(&self, generation: u32) -> bool {
        let now = self.plane.now();
        self.status().await.is_ready_in(generation, now)
    }
}

#[tokio::test]
async fn an_idle_machine_registers_and_says_so() {
    let (harness, _) = idle(MachineDefect::None).await;
    let own = harness.own().expect("registered while idle");
    assert_eq!((own.number, own.owner), (1, None));
    assert!(harness.is_ready(0).await);
    assert!(!harness.is_ready(1).await, "another idle state");
    let Some(Readiness::Ready(said)) = harness.readiness().await else { panic!("not ready") };
    assert_eq!((said.generation, said.label, said.number), (0, own.label, 1));
}

#[tokio::test]
async fn a_pool_of_runs_labels_registers_no_idle_machine() {
    let mut harness = Harness::with(&[("runner-label", "run")]).await;
    harness.boot_in(State::Idle, HOUR).await;
    harness.sleep(30 * SECOND).await;
    assert_eq!(harness.own(), None);
    assert_eq!(harness.readiness().await, None, "and nothing is written about it");
}

#[tokio::test]
async fn a_claim_needs_no_registration() {
    let (harness, record) = idle(MachineDefect::None).await;
    let ready = harness.own().unwrap();
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    let own = harness.own().unwrap();
    assert_eq!(own, OwnRegistration { owner: Some(run("1")), ..ready });
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("1")), "{report:?}");
    assert_eq!(report.machine_label, Some(own.label.clone()));
    // The commit names the label that was signalled.
    let named = RequestedLabel::Named(own.label.clone());
    let running = Record { state: State::Running, ..claimed(&record, "1", named) };
    harness.put(running).await;
    assert_eq!(harness.own(), Some(own));
}

#[tokio::test]
async fn one_registration_serves_one_run() {
    let (harness, record) = idle(MachineDefect::None).await;
    let first = harness.own().unwrap();
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    harness.put(idle_in(&record, 1)).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.is_free_in(1, Some(&run("1"))), "{report:?}");
    let second = harness.own().expect("registered anew");
    assert_eq!((second.number, &second.owner), (2, &None));
    assert_ne!(second.label, first.label);
    assert!(harness.is_ready(1).await);
    harness.put(claimed(&idle_in(&record, 1), "2", RequestedLabel::OfMachine)).await;
    let report = harness.status().await.report.unwrap();
    assert_eq!(report.machine_label, Some(second.label));
}

/// The clock of the agent is ahead of that of the run's computer. A listener that has been told to stop
/// must not end while the run relies on it.
#[tokio::test]
async fn a_claim_just_before_the_threshold_waits_for_the_removal_of_the_runner() {
    let (harness, record) = idle(MachineDefect::StopsAfter(3 * SECOND)).await;
    harness.sleep(3 * SECOND).await;
    let first = harness.own().unwrap();
    let soon = Some(harness.plane.now() + SECOND);
    harness.put(Record { threshold: soon, ..record.clone() }).await;
    assert_eq!(harness.own(), Some(first.clone()), "it is being stopped");
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    harness.sleep(5 * SECOND).await;
    let own = harness.own().unwrap();
    assert_eq!((own.number, own.owner), (2, Some(run("1"))), "registered anew");
    assert!(harness.status().await.report.unwrap().says(Signal::Registered, &label("1")));
}

/// What it has said is about an idle state that is over, so nothing waits for it to be withdrawn but the
/// answer to the release.
#[tokio::test]
async fn a_runner_is_removed_while_its_note_cannot_be_withdrawn() {
    let (harness, record) = idle(MachineDefect::None).await;
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    harness.memory.store.fail("readiness of an agent");
    harness.put(idle_in(&record, 1)).await;
    assert_eq!(harness.own(), None);
    assert!(!harness.is_ready(1).await);
    let report = harness.status().await.report.unwrap();
    assert!(!report.is_free_in(1, Some(&run("1"))), "{report:?}");
    harness.memory.store.repair();
    harness.sleep(30 * SECOND).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.is_free_in(1, Some(&run("1"))), "{report:?}");
    assert!(harness.is_ready(1).await);
}

/// The agent sees neither the claim nor the owner.
#[tokio::test]
async fn a_registration_of_an_earlier_idle_state_is_left() {
    let (harness, record) = idle(MachineDefect::None).await;
    let first = harness.own().unwrap();
    harness.put(idle_in(&record, 1)).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.is_free_in(1, None), "it answers for the idle state that it finds: {report:?}");
    let second = harness.own().unwrap();
    assert_ne!(second.label, first.label);
    // Nor does it see the idle state between two claims.
    harness.put(claimed(&idle_in(&record, 2), "3", RequestedLabel::OfMachine)).await;
    let third = harness.own().unwrap();
    assert_ne!(third.label, second.label, "a run has had the idle state that it was for");
    let report = harness.status().await.report.unwrap();
    assert_eq!(report.machine_label, Some(third.label));
}

#[tokio::test]
async fn a_renewal_keeps_the_registration() {
    let (harness, record) = idle(MachineDefect::None).await;
    let ready = harness.own();
    let threshold = record.threshold.map(|at| at + HOUR);
    harness.put(Record { threshold, ..record }).await;
    assert_eq!(harness.own(), ready);
}

#[tokio::test]
async fn a_claim_lets_a_registration_finish() {
    let slow = MachineDefect::RegistersAfter(10 * SECOND);
    let (harness, record) = idle(slow).await;
    assert_eq!(harness.own(), None, "it takes its time");
    assert!(!harness.is_ready(0).await);
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    harness.sleep(7 * SECOND).await;
    let own = harness.own().expect("ten seconds after the first attempt began");
    assert_eq!((own.number, own.owner), (1, Some(run("1"))));
}

#[tokio::test]
async fn an_owner_that_names_a_label_gets_it() {
    let (harness, record) = idle(MachineDefect::None).await;
    let old = MachineLabel::new(format!("m{}", "7".repeat(32))).unwrap();
    harness.put(claimed(&record, "1", RequestedLabel::Named(old.clone()))).await;
    let own = harness.own().unwrap();
    assert_eq!((own.label, own.owner, own.number), (old.clone(), Some(run("1")), 2));
    // Another label of the same run.
    let other = MachineLabel::new(format!("m{}", "8".repeat(32))).unwrap();
    harness.put(claimed(&record, "1", RequestedLabel::Named(other.clone()))).await;
    assert_eq!(harness.own().unwrap().label, other);
}

/// Provision goes by what it has read in the settings, which the agent may not have read yet.
#[tokio::test]
async fn an_owner_that_wants_its_own_label_gets_it() {
    let (harness, record) = idle(MachineDefect::None).await;
    assert!(harness.own().is_some());
    harness.put(claimed(&record, "1", RequestedLabel::OfRun)).await;
    assert_eq!(harness.own(), None);
    assert_eq!(harness.labels.of(&machine()), Some(label("1")));
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("1")));
    assert_eq!(report.machine_label, None);
}

#[tokio::test]
async fn a_cold_machine_registers_for_its_run() {
    let mut harness = Harness::with(&[("runner-label", "machine")]).await;
    let record = harness.insert_record(State::Created, HOUR);
    harness.memory.store.insert(Record { requested: RequestedLabel::OfMachine, ..record });
    harness.boot(harness.plane.clock.clone());
    harness.sleep(3 * SECOND).await;
    let own = harness.own().expect("registered");
    assert_eq!(own.owner, Some(run("1")));
    assert!(!harness.is_ready(0).await, "it is not idle");
}

/// Provision waits for another machine by the time that each way usually takes.
#[tokio::test]
async fn the_time_of_each_way_is_told() {
    let slow = MachineDefect::RegistersAfter(10 * SECOND);
    let (harness, record) = idle(slow).await;
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    harness.sleep(30 * SECOND).await;
    let beat = harness.status().await.heartbeat.unwrap();
    assert_eq!(
        (beat.registration, beat.ready_claim),
        (None, None),
        "half of it came before the claim"
    );
    harness.put(idle_in(&record, 1)).await;
    harness.sleep(30 * SECOND).await;
    let beat = harness.status().await.heartbeat.unwrap();
    let span = beat.registration.expect("it has registered while it was idle");
    assert!((10 * SECOND..11 * SECOND).contains(&span), "{span:?}");
    assert_eq!(beat.ready_claim, None);
    harness.put(claimed(&idle_in(&record, 1), "2", RequestedLabel::OfMachine)).await;
    harness.sleep(30 * SECOND).await;
    let beat = harness.status().await.heartbeat.unwrap();
    assert!(beat.ready_claim.expect("it was ready") < SECOND);
    assert_eq!(beat.registration, Some(span), "it did not register for this run");
}

/// The runner is removed by hand while no run owns the machine.
#[tokio::test]
async fn a_lost_registration_is_withdrawn_and_repaired() {
    let (harness, record) = idle(MachineDefect::None).await;
    let first = harness.own().unwrap();
    harness.labels.remove_own(&machine());
    harness.sleep(Duration::from_millis(150)).await;
    assert!(!harness.is_ready(0).await, "the next heartbeat is not the first to tell");
    harness.sleep(5 * SECOND).await;
    let second = harness.own().unwrap();
    assert_eq!((second.number, second.label), (2, first.label));
    assert!(harness.is_ready(0).await);
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    assert_eq!(harness.own().unwrap().owner, Some(run("1")));
}

#[tokio::test]
async fn a_machine_that_cannot_register_says_since_when_and_why() {
    let (harness, _) = idle(MachineDefect::CannotRegister).await;
    let since = match harness.readiness().await {
        Some(Readiness::NotReady { since, why }) => {
            assert_eq!(why, "the token has expired");
            since
        }
        other => panic!("{other:?}"),
    };
    harness.sleep(Duration::from_secs(300)).await;
    let Some(Readiness::NotReady { since: later, .. }) = harness.readiness().await else {
        panic!("it cannot register");
    };
    assert_eq!(later, since, "it was never ready in between");
    assert!(harness.is_alive(), "it can still be claimed");
}

#[tokio::test]
async fn a_machine_that_expires_leaves_no_runner() {
    let (harness, record) = idle(MachineDefect::None).await;
    harness.put(Record { threshold: Some(harness.plane.now()), ..record }).await;
    harness.sleep(5 * SECOND).await;
    assert_eq!(harness.own(), None);
    assert!(!harness.is_ready(0).await);
    assert!(harness.is_alive(), "it waits for its grace");
    harness.sleep(Duration::from_secs(70)).await;
    assert!(!harness.is_alive());
}

#[tokio::test]
async fn an_interrupted_machine_leaves_no_runner() {
    let (harness, _) = idle(MachineDefect::InterruptedAfter(20 * SECOND)).await;
    assert!(harness.own().is_some());
    harness.sleep(20 * SECOND).await;
    assert_eq!(harness.own(), None);
    assert!(!harness.is_ready(0).await);
}

/// What its earlier process has said does not hold for a new one.
#[tokio::test]
async fn an_agent_that_starts_withdraws_what_was_said() {
    let (mut harness, _) = idle(MachineDefect::None).await;
    assert!(harness.is_ready(0).await);
    harness.kill_agents().await;
    harness.start_another(MachineDefect::NeverRegisters);
    harness.sleep(SECOND).await;
    let Some(Readiness::NotReady { .. }) = harness.readiness().await else {
        panic!("its listener has died with the earlier process");
    };
}

/// A store that takes its time to note what agents say of their registrations, and keeps how old each
/// heartbeat was when it was sent.
struct SlowToNote {
    store: Arc<dyn AgentStore>,
    clock: Arc<dyn Clock>,
    ages: Mutex<Vec<Duration>>,
}

#[async_trait]
impl AgentStore for SlowToNote {
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        self.store.record(id).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        self.store.settings().await
    }

    async fn token(&self, purpose: TokenPurpose) -> PortResult<Option<Token>> {
        self.store.token(purpose).await
    }

    async fn beat(&self, id: &InstanceId, heartbeat: &Heartbeat) -> PortResult<()> {
        self.ages.lock().unwrap().push(self.clock.now().since(heartbeat.at));
        self.store.beat(id, heartbeat).await
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        self.store.report(id, report).await
    }

    async fn note_readiness(&self, id: &InstanceId, note: &ReadinessNote) -> PortResult<bool> {
        self.clock.sleep(2 * SECOND).await;
        self.store.note_readiness(id, note).await
    }
}

/// It waits for what is to be said about the registration, and tells of the moment after that.
#[tokio::test]
async fn a_heartbeat_is_of_the_moment_at_which_it_is_sent() {
    let mut harness = Harness::with(&[("runner-label", "machine")]).await;
    let (store, clock) = (harness.memory.store.clone(), harness.plane.clock.clone());
    let store = Arc::new(SlowToNote { store, clock, ages: Mutex::default() });
    harness.insert_record(State::Idle, HOUR);
    harness.boot_on(store.clone());
    harness.sleep(60 * SECOND).await;
    let ages = store.ages.lock().unwrap();
    assert!(ages.len() > 3 && ages.iter().all(Duration::is_zero), "{ages:?}");
}

/// Refresh retires a machine that has not been ready for long.
#[tokio::test]
async fn the_time_of_a_run_does_not_count_as_not_ready() {
    let mut harness = Harness::with(&[("runner-label", "machine")]).await;
    let created = harness.insert_record(State::Created, HOUR);
    harness.memory.store.insert(Record { requested: RequestedLabel::OfMachine, ..created.clone() });
    harness.boot_with(MachineDefect::CannotRegister, harness.plane.clock.clone());
    harness.sleep(Duration::from_secs(1_200)).await;
    let returned = harness.plane.now();
    harness.put(idle_in(&created, 1)).await;
    harness.sleep(10 * SECOND).await;
    let Some(Readiness::NotReady { since, .. }) = harness.readiness().await else {
        panic!("it cannot register");
    };
    assert!(since >= returned, "not since {since}, before it returned at {returned}");
}

/// Refresh has terminated its record: nothing announces that.
#[tokio::test]
async fn a_machine_that_ends_at_once_leaves_no_runner() {
    let (harness, record) = idle(MachineDefect::None).await;
    assert!(harness.own().is_some());
    harness.memory.store.insert(Record { state: State::Terminated, threshold: None, ..record });
    harness.sleep(20 * SECOND).await;
    assert!(!harness.is_alive());
    assert_eq!(harness.own(), None, "it was removed before the machine was gone");
    assert!(!harness.is_ready(0).await);
}

#[tokio::test]
async fn a_runner_that_cannot_be_removed_does_not_keep_its_machine() {
    let mut harness = Harness::with(&[("runner-label", "machine")]).await;
    // The first look of an agent at an idle machine removes what an earlier process has left.
    let record = harness.boot_defective(MachineDefect::None, State::Idle, HOUR).await;
    harness.sleep(3 * SECOND).await;
    harness.kill_agents().await;
    harness.start_another(MachineDefect::NeverDeregisters);
    harness.sleep(3 * SECOND).await;
    harness.memory.store.insert(Record { state: State::Terminated, threshold: None, ..record });
    harness.sleep(40 * SECOND).await;
    assert!(!harness.is_alive(), "twenty seconds are the most");
    assert!(harness.own().is_some(), "refresh removes it");
}

/// A listener that has died is started again under the same registration.
#[tokio::test]
async fn a_forge_out_of_reach_costs_no_registration() {
    let dies = MachineDefect::DiesAfter(10 * SECOND, 120 * SECOND);
    let (harness, _) = idle(dies).await;
    let first = harness.own().expect("registered");
    assert!(harness.is_ready(0).await);
    harness.sleep(30 * SECOND).await;
    let Some(Readiness::NotReady { why, .. }) = harness.readiness().await else {
        panic!("its listener has died");
    };
    assert_eq!(why, "the forge is out of reach");
    assert_eq!(harness.own().as_ref(), Some(&first), "it is still registered");
    harness.sleep(240 * SECOND).await;
    assert!(harness.is_ready(0).await, "it repairs itself");
    assert_eq!(harness.own(), Some(first));
}

/// A control plane of a version that does not know labels of machines leaves none in a record that it
/// writes, nor the suffix before it.
#[tokio::test]
async fn a_record_that_has_lost_its_label_ends_no_run() {
    let (harness, record) = idle(MachineDefect::None).await;
    let suffix: Option<LabelSuffix> = Some("large".parse().unwrap());
    let claim = claimed(&record, "1", RequestedLabel::OfMachine);
    harness.put(Record { suffix: suffix.clone(), ..claim }).await;
    let own = harness.own().unwrap();
    let named = RequestedLabel::Named(own.label.clone());
    let running = Record { state: State::Running, suffix, ..claimed(&record, "1", named) };
    harness.put(running.clone()).await;
    let lost = Record { suffix: None, requested: RequestedLabel::OfRun, ..running };
    harness.put(lost.clone()).await;
    harness.sleep(30 * SECOND).await;
    assert_eq!(harness.own().as_ref(), Some(&own), "it still serves the run");
    let report = harness.status().await.report.unwrap();
    assert_eq!(report.signal, Signal::Registered, "{report:?}");
    // A claim of the next idle state gets what it asks for, also if it is of the same run.
    harness.put(claimed(&idle_in(&record, 1), "1", RequestedLabel::OfRun)).await;
    assert_eq!(harness.own(), None);
    assert_eq!(harness.labels.of(&machine()), Some(label("1")));
}

#[tokio::test]
async fn a_drained_machine_leaves_no_runner() {
    let (harness, record) = idle(MachineDefect::None).await;
    assert!(harness.own().is_some());
    // A drain expires a machine that is idle, and terminates it.
    let threshold = Some(harness.plane.now());
    let drained = Record { departure: Departure::Drained, threshold, ..record };
    harness.put(drained.clone()).await;
    assert_eq!(harness.own(), None);
    assert!(!harness.is_ready(0).await);
    let ended = Record { state: State::Terminated, threshold: None, ..drained };
    harness.put(ended).await;
    harness.sleep(20 * SECOND).await;
    assert!(!harness.is_alive());
}

/// What the record says reaches an idle agent with the version of the settings.
#[tokio::test]
async fn a_change_of_the_setting_reaches_an_idle_machine() {
    let mut harness = Harness::with(&[("runner-label", "run")]).await;
    let record = harness.boot_in(State::Idle, HOUR).await;
    harness.sleep(5 * SECOND).await;
    assert_eq!(harness.own(), None);
    for (count, kind) in ["machine", "run", "machine"].into_iter().enumerate() {
        let version = format!("{:016x}", count + 1);
        let change = [("runner-label", kind), ("settings-version", version.as_str())]
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        harness.plane.store.put_settings(&change.into()).await.unwrap();
        let settings_version = SettingsVersion::parse(&version);
        harness.put(Record { settings_version, ..record.clone() }).await;
        harness.sleep(3 * SECOND).await;
        assert_eq!(harness.own().is_some(), kind == "machine", "{kind}");
        assert_eq!(harness.is_ready(0).await, kind == "machine", "{kind}");
    }
}

/// With a fresh heartbeat, provision would take the machine for ready.
#[tokio::test]
async fn a_heartbeat_waits_until_a_lost_registration_is_withdrawn() {
    let (harness, _) = idle(MachineDefect::DiesAfter(20 * SECOND, 120 * SECOND)).await;
    assert!(harness.is_ready(0).await);
    harness.memory.store.fail("readiness of an agent");
    harness.sleep(60 * SECOND).await;
    assert!(harness.heartbeat_age().await > 30 * SECOND, "none since");
    assert!(!harness.is_ready(0).await);
    harness.memory.store.repair();
    harness.sleep(20 * SECOND).await;
    assert!(harness.heartbeat_age().await < 20 * SECOND);
    let Some(Readiness::NotReady { .. }) = harness.readiness().await else {
        panic!("its listener is dead");
    };
}

/// A listener that is deleted takes its registration with it, and the machine registers again at once.
#[tokio::test]
async fn a_heartbeat_waits_until_the_store_names_the_present_registration() {
    let (harness, record) = idle(MachineDefect::None).await;
    let first = harness.own().unwrap().number;
    harness.memory.store.fail("readiness of an agent");
    harness.labels.remove_own(&machine());
    harness.sleep(40 * SECOND).await;
    let second = harness.own().expect("it has registered again");
    assert!(second.number > first);
    assert!(harness.heartbeat_age().await > 30 * SECOND, "none since");
    // A run that claims it goes by the machine's signal.
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    harness.sleep(10 * SECOND).await;
    assert_eq!(harness.own().unwrap().owner, Some(run("1")));
    assert!(harness.heartbeat_age().await <= 5 * SECOND);
    harness.memory.store.repair();
    harness.put(idle_in(&record, 1)).await;
    harness.sleep(20 * SECOND).await;
    assert!(harness.is_ready(1).await && harness.heartbeat_age().await < 20 * SECOND);
}
