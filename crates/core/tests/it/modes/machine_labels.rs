//! A pool whose machines have labels of their own, and register while they are idle.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ondeck_core::model::demand::Demand;
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::machine_label::{MachineLabel, RequestedLabel};
use ondeck_core::model::readiness::{IdleRegistration, Readiness, ReadinessNote};
use ondeck_core::model::record::State;
use ondeck_core::model::signal::Signal;
use ondeck_core::modes::provision::{MachineSource, Outcome, SourcePolicy, provision};
use ondeck_core::ports::AgentStore;
use ondeck_core::runtime::stop::{Stop, StopSignal};
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, label, names, request, run};

/// Long enough for an agent to register its idle machine.
const SOON: Duration = Duration::from_secs(3);

/// Refreshed with these settings.
async fn pool(given: &[(&str, &str)]) -> Harness {
    let harness = Harness::with(given).await;
    harness.set_runner_label("machine").await;
    harness
}

impl Harness {
    /// The label that a machine is registered with, if it is one of its own.
    fn own_label(&self, name: &str) -> Option<String> {
        self.labels.own(&id(name)).map(|own| own.label.to_string())
    }

    fn owner(&self, name: &str) -> Option<String> {
        self.labels.own(&id(name))?.owner.map(|run| run.to_string())
    }

    async fn set_runner_label(&self, kind: &str) {
        let setting = BTreeMap::from([("runner-label".to_owned(), kind.to_owned())]);
        self.plane.store.put_settings(&setting).await.unwrap();
    }

    /// The labels that are stored with the run's only demand.
    async fn stored_labels(&self, of: &str) -> BTreeSet<String> {
        let demands = self.plane.store.demands(&[run(of)]).await.unwrap();
        let [demand] = demands.as_slice() else { panic!("{demands:?}") };
        demand.labels.iter().map(MachineLabel::to_string).collect()
    }

    async fn is_ready(&self, name: &str) -> bool {
        let generation = self.record(name).unwrap().counts.generation;
        self.status(name).await.is_ready_in(generation, self.plane.now())
    }
}

fn labels(outcome: &Outcome) -> BTreeSet<String> {
    outcome.instances.iter().map(|instance| instance.label.clone()).collect()
}

#[tokio::test]
async fn a_warm_claim_uses_the_registration_of_the_idle_machine() {
    let harness = pool(&[]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.sleep(SOON).await;
    assert!(harness.is_ready("i-a").await);
    let ready = harness.labels.own(&id("i-a")).unwrap();
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.count(MachineSource::Warm), 1);
    assert_eq!(outcome.runs_on(), Some(ready.label.to_string()), "the only label");
    let serving = harness.labels.own(&id("i-a")).unwrap();
    assert_eq!((serving.number, &serving.label), (ready.number, &ready.label));
    assert_eq!(harness.owner("i-a").as_deref(), Some("1"));
    let requested = harness.record("i-a").unwrap().requested;
    assert_eq!(requested, RequestedLabel::Named(ready.label.clone()), "an agent may restart");
    assert_eq!(harness.stored_labels("1").await, [ready.label.to_string()].into());
}

/// A run waits for its labels to be stored, so what is known of its demand is not read for that.
#[tokio::test]
async fn the_labels_of_a_run_are_stored_by_one_write() {
    let harness = pool(&[]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.sleep(SOON).await;
    let calls = |call| harness.memory.store.calls().get(call).copied().unwrap_or_default();
    let before = (calls("demands"), calls("replace_demand"));
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!((outcome.failure.as_ref(), outcome.count(MachineSource::Warm)), (None, 1));
    assert_eq!(calls("demands") - before.0, 0, "the run has asked for nothing before");
    assert_eq!(calls("replace_demand") - before.1, 2, "what it asks for, and its labels");
    assert_eq!(harness.stored_labels("1").await, labels(&outcome));
}

#[tokio::test]
async fn new_machines_have_a_label_each() {
    let harness = pool(&[]).await;
    let outcome = harness.provision(&request("1", 3)).await;
    assert_eq!(outcome.failure, None);
    assert_eq!(outcome.count(MachineSource::Cold), 3);
    assert_eq!(labels(&outcome).len(), 3);
    assert_eq!(outcome.runs_on(), None, "no label is that of all");
    for instance in &outcome.instances {
        assert_eq!(harness.own_label(instance.id.as_str()).as_ref(), Some(&instance.label));
        assert!(MachineLabel::new(instance.label.as_str()).is_ok());
    }
    assert_eq!(harness.stored_labels("1").await, labels(&outcome));
}

#[tokio::test]
async fn each_run_gets_a_registration_of_its_own() {
    let harness = pool(&[]).await;
    let first = harness.provision(&request("1", 2)).await;
    let released = harness.release("1").await;
    assert_eq!((released.instances.len(), released.failure()), (2, None));
    harness.sleep(SOON).await;
    for name in names(&first.instances) {
        assert!(harness.is_ready(&name).await, "{name} has registered anew");
        assert_eq!(harness.owner(&name), None);
    }
    let second = harness.provision(&request("2", 2)).await;
    assert_eq!((second.failure.as_ref(), second.count(MachineSource::Warm)), (None, 2));
    assert_eq!(names(&second.instances), names(&first.instances));
    assert!(labels(&second).is_disjoint(&labels(&first)));
    harness.assert_never_shared();
}

#[tokio::test]
async fn a_repeated_provision_returns_the_labels_of_the_first() {
    let harness = pool(&[]).await;
    harness.idle("i-a", "c6i.large").await;
    let first = harness.provision(&request("1", 2)).await;
    let again = harness.provision(&request("1", 2)).await;
    assert_eq!((again.failure.as_ref(), again.count(MachineSource::Adopted)), (None, 2));
    assert_eq!(labels(&again), labels(&first));
    // The demand of a further call keeps the labels of the earlier ones.
    let more = harness.provision(&request("1", 3)).await;
    assert!(labels(&more).is_superset(&labels(&first)));
    assert_eq!(harness.stored_labels("1").await, labels(&more));
}

/// A run must not get labels that refresh does not know.
#[tokio::test]
async fn labels_that_cannot_be_stored_are_not_handed_over() {
    let harness = pool(&[]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.sleep(SOON).await;
    let before = harness.own_label("i-a");
    harness.memory.store.fail("replace_demand");
    let outcome = harness.provision(&request("1", 1)).await;
    let failure = outcome.failure.expect("the labels are lost");
    assert_eq!(failure.kind, FailureKind::Unavailable, "{failure}");
    assert_eq!(harness.state("i-a"), State::Idle, "it was rolled back");
    harness.memory.store.repair();
    harness.sleep(SOON).await;
    assert!(harness.is_ready("i-a").await);
    assert_ne!(harness.own_label("i-a"), before, "the registration counts as used");
}

#[tokio::test]
async fn a_machine_that_is_given_back_registers_anew() {
    let harness = pool(&[]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.sleep(SOON).await;
    let before = harness.own_label("i-a");
    harness.memory.compute.set_capacity(0);
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::NoCapacity);
    assert_eq!(outcome.returned, [id("i-a")]);
    harness.sleep(SOON).await;
    assert!(harness.is_ready("i-a").await);
    assert_ne!(harness.own_label("i-a"), before);
}

/// Its registration may have been finished for a run that did not get it.
#[tokio::test]
async fn a_machine_that_loses_to_a_hedge_registers_anew() {
    let harness = pool(&[]).await;
    let (large, minute) = (super::harness::spec("c6i.large"), Duration::from_secs(60));
    harness.make_defective("i-slow", MachineDefect::RegistersAfter(Duration::from_secs(30)));
    harness.put_idle("i-slow", large.clone(), 60 * minute).await;
    harness.put_idle("i-quick", large, 60 * minute).await;
    let mut request = request("1", 1);
    request.options.machine_source = SourcePolicy::Pool;
    let outcome = harness.provision(&request).await;
    assert_eq!(names(&outcome.instances), ["i-quick".to_owned()].into());
    assert_eq!((outcome.search.hedges, outcome.search.given_back), (1, 1));
    let given_back = harness.record("i-slow").unwrap();
    assert_eq!((given_back.state, given_back.requested), (State::Idle, RequestedLabel::OfRun));
    harness.sleep(2 * minute).await;
    assert!(harness.is_ready("i-slow").await, "{:?}", harness.status("i-slow").await);
    assert_eq!(harness.owner("i-slow"), None);
    let mut next = request.clone();
    next.run = run("2");
    let next = harness.provision(&next).await;
    assert_eq!(names(&next.instances), ["i-slow".to_owned()].into());
    assert!(labels(&next).is_disjoint(&labels(&outcome)));
    harness.assert_never_shared();
}

/// The job that called provision is cancelled while another machine of the run starts.
#[tokio::test]
async fn a_machine_that_a_cancelled_run_had_claimed_registers_anew() {
    let harness = pool(&[]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.sleep(SOON).await;
    let before = harness.own_label("i-a");
    harness.make_defective("i-0001", MachineDefect::NeverRegisters);
    let (switch, stop) = StopSignal::new();
    let request = request("1", 2);
    let (outcome, ()) = tokio::join!(provision(&harness.plane, &request, &stop), async {
        while harness.owner("i-a").is_none() {
            tokio::task::yield_now().await;
        }
        harness.sleep(SOON).await;
        switch.raise(Stop::Terminated);
    });
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Stopped);
    assert_eq!((outcome.returned, outcome.terminated), (vec![id("i-a")], vec![id("i-0001")]));
    harness.sleep(SOON).await;
    assert!(harness.is_ready("i-a").await);
    assert_eq!(harness.owner("i-a"), None);
    assert_ne!(harness.own_label("i-a"), before, "the run's jobs may know the label");
}

/// A claim does not wait until the machine has tried by itself.
#[tokio::test]
async fn a_machine_that_is_not_ready_registers_when_it_is_claimed() {
    let harness = pool(&[]).await;
    harness.make_defective("i-a", MachineDefect::RegistersAfter(Duration::from_secs(4)));
    harness.idle("i-a", "c6i.large").await;
    assert!(!harness.is_ready("i-a").await);
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!((outcome.failure.as_ref(), outcome.count(MachineSource::Warm)), (None, 1));
    assert_eq!(labels(&outcome), harness.own_label("i-a").into_iter().collect());
}

#[tokio::test]
async fn a_ready_machine_is_preferred_to_one_that_is_not() {
    let harness = pool(&[]).await;
    // With an unsuitable ticket before them, both are received together.
    harness.idle("i-unsuitable", "m7i.large").await;
    harness.make_defective("i-slow", MachineDefect::RegistersAfter(Duration::from_secs(6)));
    harness.idle("i-ready", "c6i.large").await;
    harness.sleep(SOON).await;
    harness.idle("i-slow", "c6i.large").await;
    let mut request = request("1", 1);
    request.options.types = Some("c6i.*".parse().unwrap());
    let outcome = harness.provision(&request).await;
    assert_eq!(names(&outcome.instances), ["i-ready".to_owned()].into(), "though it expires first");
}

/// Its jobs would wait for a label that no runner has.
#[tokio::test]
async fn an_agent_that_knows_no_labels_of_machines_fails_the_checks() {
    let harness = pool(&[("claim-registration-timeout-sec", "5")]).await;
    harness.make_defective("i-old", MachineDefect::NeverBoots);
    harness.idle("i-old", "c6i.large").await;
    harness.signal_as_agent("i-old", Signal::Registered, "1").await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.failure, None);
    assert!(!names(&outcome.instances).contains("i-old"), "{outcome:?}");
    assert!(!harness.alive().contains(&"i-old".to_owned()), "it would fail the next run as well");
}

#[tokio::test]
async fn machines_that_are_kept_warm_become_ready() {
    let harness = pool(&[]).await;
    harness.refresh_with(&[("min-idle", "large=1")]).await;
    harness.sleep(SOON).await;
    let idle = harness.idle_machines();
    let [name] = Vec::from_iter(idle).try_into().expect("one idle machine");
    assert!(harness.is_ready(&name).await);
    assert_eq!(harness.owner(&name), None);
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(outcome.count(MachineSource::Warm), 1);
    assert_eq!(labels(&outcome), harness.own_label(&name).into_iter().collect());
}

/// The settings may change while a run has machines.
#[tokio::test]
async fn a_pool_can_change_the_kind_of_label() {
    let harness = pool(&[]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.sleep(SOON).await;
    harness.set_runner_label("run").await;
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!((outcome.failure.as_ref(), outcome.count(MachineSource::Warm)), (None, 1));
    assert_eq!(labels(&outcome), ["1".to_owned()].into());
    assert_eq!(harness.own_label("i-a"), None, "the registration of the idle machine is left");
    assert_eq!(harness.labels.of(&id("i-a")).map(|label| label.to_string()).as_deref(), Some("1"));
}

/// Their agents learn of the setting by the same refresh.
#[tokio::test]
async fn machines_that_are_told_to_register_are_not_called_unready() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let harness = Harness::with(&[("idle-time-sec", "7200")]).await;
    harness.put_idle("i-a", super::harness::spec("c6i.large"), minutes(120)).await;
    harness.refresh().await;
    harness.sleep(minutes(5)).await;
    let told = harness.refresh_with(&[("runner-label", "machine")]).await;
    assert_eq!(told.warnings, [] as [String; 0]);
    harness.sleep(minutes(1)).await;
    assert!(harness.is_ready("i-a").await);
    assert_eq!(harness.refresh().await.warnings, [] as [String; 0]);
}

/// Jobs of a run that are run again use the outputs of the job that called provision.
#[tokio::test]
async fn jobs_that_wait_for_an_old_label_get_a_machine_with_it() {
    let harness = pool(&[]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.sleep(SOON).await;
    let first = harness.provision(&request("1", 2)).await;
    let old: Vec<MachineLabel> =
        labels(&first).into_iter().map(|label| MachineLabel::new(label).unwrap()).collect();
    harness.release("1").await;
    harness.sleep(SOON).await;
    harness.memory.forge.queue_job_for_machine(run("1"), old[1].clone());
    let refreshed = harness.refresh().await;
    assert_eq!(refreshed.rescued.len(), 1, "{:?}", refreshed.warnings);
    let machines = harness.memory.store.select(|record| record.run == Some(run("1")));
    let [machine] = machines.as_slice() else { panic!("one job, one machine: {machines:?}") };
    assert_eq!(machine.state, State::Running);
    assert_eq!(machine.requested, RequestedLabel::Named(old[1].clone()));
    let own = harness.labels.own(&machine.id).unwrap();
    assert_eq!((own.label, own.owner), (old[1].clone(), Some(run("1"))));
    // It has a machine now, and a label that the run was never given gets none.
    let foreign = MachineLabel::new(format!("m{}", "f".repeat(32))).unwrap();
    harness.memory.forge.queue_job_for_machine(run("1"), foreign);
    let again = harness.refresh().await;
    assert_eq!(again.rescued, []);
    assert_eq!(harness.memory.store.select(|record| record.run == Some(run("1"))).len(), 1);
    // A second job of the run waits for the other label.
    harness.memory.forge.queue_job_for_machine(run("1"), old[0].clone());
    assert_eq!(harness.refresh().await.rescued.len(), 1);
    let machines = harness.memory.store.select(|record| record.run == Some(run("1")));
    let named: BTreeSet<String> = machines
        .iter()
        .filter_map(|record| record.requested.named().map(MachineLabel::to_string))
        .collect();
    assert_eq!(named, labels(&first));
    assert_eq!(harness.stored_labels("1").await, labels(&first), "the demand keeps them");
}

/// The run provisions again while refresh rescues it.
#[tokio::test]
async fn a_rescue_gives_its_lease_back_also_if_the_run_stores_labels_meanwhile() {
    let harness = pool(&[]).await;
    let first = harness.provision(&request("1", 1)).await;
    let old = MachineLabel::new(first.runs_on().unwrap()).unwrap();
    harness.memory.compute.kill(&first.instances[0].id);
    harness.sleep(Duration::from_secs(60)).await;
    harness.memory.forge.queue_job_for_machine(run("1"), old.clone());
    let (store, runs) = (&harness.plane.store, [run("1")]);
    let new = MachineLabel::new(format!("m{}", "9".repeat(32))).unwrap();
    let store_label = async {
        loop {
            let leased = store.demands(&runs).await.unwrap().remove(0);
            if leased.lease.is_some() {
                let next = Demand { labels: vec![old.clone(), new.clone()], ..leased.clone() };
                return store.replace_demand(Some(&leased), &next).await.unwrap();
            }
            tokio::task::yield_now().await;
        }
    };
    let (refreshed, stored) = tokio::join!(harness.refresh(), store_label);
    assert!(stored);
    assert_eq!(refreshed.rescued, [super::harness::label("1")]);
    let demand = store.demands(&runs).await.unwrap().remove(0);
    assert_eq!((demand.lease, demand.failed_rescues), (None, None));
    assert_eq!(demand.labels, [old, new]);
}

/// The machine dies while its run has jobs for it.
#[tokio::test]
async fn a_dead_machine_is_replaced_under_its_label() {
    let harness = pool(&[]).await;
    let first = harness.provision(&request("1", 1)).await;
    let label = MachineLabel::new(first.runs_on().unwrap()).unwrap();
    let dead = first.instances[0].id.clone();
    harness.memory.compute.kill(&dead);
    harness.sleep(Duration::from_secs(60)).await;
    harness.memory.forge.queue_job_for_machine(run("1"), label.clone());
    assert_eq!(harness.refresh().await.rescued.len(), 1);
    let machines =
        harness.memory.store.select(|record| record.run == Some(run("1")) && record.id != dead);
    let [machine] = machines.as_slice() else { panic!("{machines:?}") };
    assert_eq!(machine.requested, RequestedLabel::Named(label));
}

/// Another machine would fare no better if GitHub is the reason.
#[tokio::test]
async fn a_machine_that_alone_cannot_register_is_replaced() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let harness = pool(&[("idle-time-sec", "7200")]).await;
    for (name, defect) in [
        ("i-bad", MachineDefect::CannotRegister),
        ("i-worse", MachineDefect::CannotRegister),
        ("i-good", MachineDefect::None),
    ] {
        harness.make_defective(name, defect);
        harness.put_idle(name, super::harness::spec("c6i.large"), minutes(120)).await;
    }
    harness.sleep(minutes(2)).await;
    let early = harness.refresh().await;
    let told = "2 of 3 idle machines are not registered, i-";
    let warned = |warnings: &[String]| warnings.iter().any(|warning| warning.starts_with(told));
    assert!(warned(&early.warnings), "{:?}", early.warnings);
    harness.sleep(minutes(9)).await;
    let refreshed = harness.refresh().await;
    assert!(warned(&refreshed.warnings), "{:?}", refreshed.warnings);
    assert_eq!(refreshed.rotated, [], "most of the class cannot register");
    harness.put_idle("i-better", super::harness::spec("c6i.large"), minutes(60)).await;
    harness.put_idle("i-best", super::harness::spec("c6i.large"), minutes(60)).await;
    harness.sleep(SOON).await;
    let refreshed = harness.refresh().await;
    let rotated: BTreeSet<String> = refreshed.rotated.iter().map(ToString::to_string).collect();
    assert_eq!(rotated, ["i-bad".to_owned(), "i-worse".to_owned()].into());
    assert!(harness.is_ready("i-good").await);
}

/// All others have a run, as in a pool that is in use.
#[tokio::test]
async fn a_machine_that_cannot_register_is_replaced_also_if_the_others_are_busy() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let harness = pool(&[("idle-time-sec", "7200")]).await;
    harness.make_defective("i-bad", MachineDefect::CannotRegister);
    harness.put_idle("i-bad", super::harness::spec("c6i.large"), minutes(120)).await;
    harness.sleep(minutes(11)).await;
    assert_eq!(harness.refresh().await.rotated, [], "none of its class has tried");
    let mut request = request("1", 1);
    request.options.machine_source = SourcePolicy::New;
    assert_eq!(harness.provision(&request).await.failure, None);
    assert_eq!(harness.refresh().await.rotated, [id("i-bad")]);
}

/// Its jobs are run again with the outputs of before, also after it has asked once more.
#[tokio::test]
async fn a_run_keeps_its_labels_when_the_setting_changes() {
    let harness = pool(&[]).await;
    let old = harness.provision(&request("1", 1)).await.runs_on().unwrap();
    harness.release("1").await;
    harness.set_runner_label("run").await;
    let again = harness.provision(&request("1", 1)).await;
    assert_eq!(labels(&again), ["1".to_owned()].into());
    assert_eq!(harness.stored_labels("1").await, [old.clone()].into());
    let label = MachineLabel::new(old).unwrap();
    harness.memory.forge.queue_job_for_machine(run("1"), label.clone());
    assert_eq!(harness.refresh().await.rescued.len(), 1);
    let named = RequestedLabel::Named(label);
    assert_eq!(harness.memory.store.select(|record| record.requested == named).len(), 1);
}

#[tokio::test]
async fn jobs_that_wait_for_the_label_of_their_run_get_it_in_a_pool_of_machine_labels() {
    let harness = Harness::with(&[]).await;
    assert_eq!(harness.provision(&request("1", 1)).await.failure, None);
    harness.release("1").await;
    harness.set_runner_label("machine").await;
    harness.memory.forge.queue_job(&run("1"));
    assert_eq!(harness.refresh().await.rescued.len(), 1);
    let machines = harness.memory.store.select(|record| record.run == Some(run("1")));
    let [machine] = machines.as_slice() else { panic!("{machines:?}") };
    assert_eq!(machine.requested, RequestedLabel::OfRun);
    let registered = harness.labels.of(&machine.id).map(|label| label.to_string());
    assert_eq!(registered.as_deref(), Some("1"));
}

/// One of two labels gets a machine: there is no room for another.
#[tokio::test]
async fn a_rescue_that_serves_one_label_of_two_says_so() {
    let harness = pool(&[("max-machines", "2")]).await;
    let first = harness.provision(&request("1", 2)).await;
    let old: Vec<MachineLabel> =
        labels(&first).into_iter().map(|label| MachineLabel::new(label).unwrap()).collect();
    harness.release("1").await;
    harness.memory.compute.kill(&first.instances[0].id);
    harness.memory.compute.kill(&first.instances[1].id);
    harness.sleep(Duration::from_secs(60)).await;
    harness.refresh_with(&[("max-machines", "1")]).await;
    for label in old {
        harness.memory.forge.queue_job_for_machine(run("1"), label);
    }
    let refreshed = harness.refresh().await;
    assert_eq!(refreshed.rescued.len(), 1, "{:?}", refreshed.warnings);
    assert_eq!(refreshed.stranded, []);
    let told = "run 1 was given 1 of 2 machines: ";
    assert!(refreshed.warnings.iter().any(|it| it.starts_with(told)), "{:?}", refreshed.warnings);
}

/// There is no room for the machine of one label, and that of the other never registers. Each attempt costs a
/// machine, so the next one waits.
#[tokio::test]
async fn a_rescue_backs_off_if_one_part_has_reached_machines() {
    let harness = pool(&[("max-machines", "2")]).await;
    let first = harness.provision(&request("1", 2)).await;
    let old: Vec<MachineLabel> =
        labels(&first).into_iter().map(|label| MachineLabel::new(label).unwrap()).collect();
    harness.release("1").await;
    for given in &first.instances {
        harness.memory.compute.kill(&given.id);
    }
    harness.sleep(Duration::from_secs(60)).await;
    harness.refresh_with(&[("max-machines", "1")]).await;
    for n in 0..20 {
        harness.make_defective(&format!("i-{n:04}"), MachineDefect::CannotRegister);
    }
    for label in old {
        harness.memory.forge.queue_job_for_machine(run("1"), label);
    }
    let before = harness.memory.compute.terminated().len();
    let refreshed = harness.refresh().await;
    assert_eq!((refreshed.stranded, refreshed.rescued), (vec![label("1")], vec![]));
    assert_eq!(harness.memory.compute.terminated().len(), before + 1);
    let refreshed = harness.refresh().await;
    assert_eq!(harness.memory.compute.terminated().len(), before + 1, "{:?}", refreshed.warnings);
    let told = "run 1 was not rescued in 1 attempts";
    assert!(refreshed.warnings.iter().any(|it| it.starts_with(told)), "{:?}", refreshed.warnings);
}

/// What its agent has said last is about the time before its run: it has not noticed the release yet.
#[tokio::test]
async fn a_machine_that_was_just_given_back_is_not_called_unready() {
    let minutes = |count: u64| Duration::from_secs(60 * count);
    let harness = pool(&[("idle-time-sec", "7200"), ("max-runtime-min", "60")]).await;
    let served = harness.provision(&request("1", 1)).await;
    let id = served.instances[0].id.clone();
    assert_eq!(served.failure, None);
    harness.sleep(minutes(20)).await;
    harness.idle("i-ready", "c6i.large").await;
    harness.sleep(SOON).await;
    // As a release that dies leaves it, before the agent has looked.
    let mut record = harness.record(id.as_str()).unwrap();
    (record.state, record.run, record.ticketed_at) = (State::Idle, None, None);
    record.updated_at = harness.plane.now();
    record.counts.generation += 1;
    record.requested = RequestedLabel::OfRun;
    harness.memory.store.insert(record);
    let refreshed = harness.refresh().await;
    assert_eq!((refreshed.rotated, refreshed.warnings), (Vec::new(), Vec::new()));
}

/// What is listed of a live machine, by the numbers of its registrations.
impl Harness {
    async fn removed_runners(&self, machine: &str, numbers: [u32; 3]) -> Vec<String> {
        for number in numbers {
            let name = format!("{machine}-{number}");
            self.memory.forge.list(super::harness::listed(&name, machine, number == 9));
        }
        self.refresh().await.offline_runners
    }
}

#[tokio::test]
async fn earlier_registrations_of_a_live_machine_are_removed() {
    let harness = pool(&[]).await;
    harness.idle("i-idle", "c6i.large").await;
    harness.sleep(SOON).await;
    let number = harness.labels.own(&id("i-idle")).unwrap().number;
    let numbers = [number - 1, number, number + 1];
    let removed = harness.removed_runners("i-idle", numbers).await;
    assert_eq!(removed, [format!("i-idle-{}", number - 1)], "a later one may be its next");
    // The machine of a run has the registration that it had while it was idle.
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!(names(&outcome.instances), ["i-idle".to_owned()].into());
    let removed = harness.removed_runners("i-idle", numbers).await;
    assert_eq!(removed, [format!("i-idle-{}", number - 1)]);
}

#[tokio::test]
async fn a_machine_that_names_no_registration_keeps_its_runners() {
    let harness = pool(&[]).await;
    harness.make_defective("i-bad", MachineDefect::CannotRegister);
    harness.idle("i-bad", "c6i.large").await;
    harness.sleep(SOON).await;
    assert!(harness.removed_runners("i-bad", [1, 2, 3]).await.is_empty());
}

/// The next refresh asks again.
#[tokio::test]
async fn an_earlier_registration_with_a_job_is_left() {
    let harness = pool(&[]).await;
    harness.idle("i-idle", "c6i.large").await;
    harness.sleep(SOON).await;
    let forge = &harness.memory.forge;
    forge.keep_busy("i-idle-0");
    forge.list(super::harness::listed("i-idle-0", "i-idle", true));
    let refreshed = harness.refresh().await;
    assert_eq!(refreshed.offline_runners, [] as [String; 0]);
    assert_eq!(refreshed.warnings, ["the runner is busy and stays on the list: i-idle-0"]);
}

/// The times of the two ways differ by a hundred times or more.
#[tokio::test]
async fn a_ready_machine_is_late_sooner_than_one_that_registers() {
    for (ready_before, at_most, at_least) in [(true, 4, 1), (false, 8, 4)] {
        let harness = pool(&[]).await;
        harness.make_defective("i-stuck", MachineDefect::NeverBoots);
        let (large, minute) = (super::harness::spec("c6i.large"), Duration::from_secs(60));
        harness.put_idle("i-stuck", large.clone(), 20 * minute).await;
        if ready_before {
            let generation = harness.record("i-stuck").unwrap().counts.generation;
            let label = MachineLabel::new(format!("m{}", "5".repeat(32))).unwrap();
            let ready = Readiness::Ready(IdleRegistration { generation, label, number: 1 });
            let note = ReadinessNote { readiness: ready, at: harness.plane.now() };
            harness.memory.store.note_readiness(&id("i-stuck"), &note).await.unwrap();
        }
        let beat = Heartbeat::new(harness.plane.now(), Duration::from_secs(60));
        harness.memory.store.beat(&id("i-stuck"), &beat).await.unwrap();
        harness.put_idle("i-quick", large, 10 * minute).await;
        let begun = harness.plane.clock.steady();
        let mut request = request("1", 1);
        request.options.machine_source = SourcePolicy::Pool;
        let outcome = harness.provision(&request).await;
        let took = (harness.plane.clock.steady() - begun).as_secs_f64();
        assert_eq!(names(&outcome.instances), ["i-quick".to_owned()].into(), "{outcome:?}");
        assert_eq!(outcome.search.hedges, 1);
        // The loser has 2 s to leave.
        assert!(took > f64::from(at_least) && took < f64::from(at_most), "{ready_before}: {took}");
    }
}
