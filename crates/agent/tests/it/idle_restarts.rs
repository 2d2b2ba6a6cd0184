//! Agents that are killed and started again, in a pool whose machines register while they are idle.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::machine_label::RequestedLabel;
use ondeck_core::model::record::{Counts, Record, State};
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::signal::Signal;
use ondeck_core::ports::{Clock, Host};
use ondeck_core::testkit::{MachineDefect, MemoryMachine};

use crate::harness::{Harness, label, run};
use crate::idle::{HOUR, SECOND, claimed, idle, idle_in};
use crate::notes::WatchedStore;

/// The process that is started again draws a label of its own, and the commit names the first one.
#[tokio::test]
async fn a_restart_between_signal_and_commit_costs_no_machine() {
    for reuse in [Reuse::Always, Reuse::Never] {
        let (mut harness, record) = idle(MachineDefect::None).await;
        let claim = claimed(&record, "1", RequestedLabel::OfMachine);
        let claim = Record { reuse, ..claim };
        harness.put(claim.clone()).await;
        let reported = harness.status().await.report.unwrap().machine_label.unwrap();
        harness.kill_agents().await;
        harness.start_another(MachineDefect::None);
        harness.sleep(5 * SECOND).await;
        assert_ne!(harness.own().unwrap().label, reported, "the label is not kept");
        let (requested, counts) =
            (RequestedLabel::Named(reported.clone()), Counts { runs: 1, ..claim.counts });
        harness.put(Record { state: State::Running, requested, counts, ..claim }).await;
        let own = harness.own().expect("the run needs its machine");
        assert_eq!((&own.label, &own.owner), (&reported, &Some(run("1"))), "{reuse:?}");
        let report = harness.status().await.report.unwrap();
        assert!(report.says(Signal::Registered, &label("1")), "{reuse:?}: {report:?}");
        assert_eq!(report.machine_label, Some(reported));
        // A machine of the run's own serves no other after it.
        let left = Record { reuse, ..idle_in(&record, 1) };
        harness.put(left).await;
        let report = harness.status().await.report.unwrap();
        let free = report.is_free_in(1, Some(&run("1")));
        assert_eq!(free, reuse == Reuse::Always, "{reuse:?}: {report:?}");
    }
}

#[tokio::test]
async fn an_agent_that_is_killed_after_it_has_named_the_owner_serves_the_run() {
    let (mut harness, record) = idle(MachineDefect::None).await;
    harness.kill_agents().await;
    let store = WatchedStore::new(&harness);
    harness.start_another_on(MachineDefect::None, store.clone());
    harness.sleep(3 * SECOND).await;
    store.hangs_on_signals.store(true, Ordering::Relaxed);
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    let named = harness.own().unwrap();
    assert_eq!(named.owner, Some(run("1")));
    let report = harness.status().await.report.unwrap();
    assert_eq!(report.signal, Signal::Prepared, "it could not say so: {report:?}");
    harness.kill_agents().await;
    harness.start_another(MachineDefect::None);
    harness.sleep(5 * SECOND).await;
    let own = harness.own().unwrap();
    assert_ne!(own.label, named.label, "one process has had that registration");
    assert_eq!(own.owner, Some(run("1")));
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("1")), "{report:?}");
    assert_eq!(report.machine_label, Some(own.label));
}

#[tokio::test]
async fn an_agent_that_is_killed_between_two_registrations_registers_for_the_same_idle_state() {
    let (mut harness, record) = idle(MachineDefect::RegistersAfter(SECOND)).await;
    harness.put(claimed(&record, "1", RequestedLabel::OfMachine)).await;
    let first = harness.own().expect("registered");
    harness.kill_agents().await;
    harness.start_another(MachineDefect::RegistersAfter(10 * SECOND));
    harness.sleep(15 * SECOND).await;
    harness.put(idle_in(&record, 1)).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.is_free_in(1, Some(&run("1"))), "{report:?}");
    assert_eq!(harness.own(), None, "it has left the run, and not registered yet");
    harness.kill_agents().await;
    harness.start_another(MachineDefect::None);
    harness.sleep(5 * SECOND).await;
    let second = harness.own().expect("registered anew");
    assert_ne!(second.label, first.label);
    assert_eq!(second.owner, None);
    assert!(harness.is_ready(1).await);
    harness.put(claimed(&idle_in(&record, 1), "2", RequestedLabel::OfMachine)).await;
    let own = harness.own().unwrap();
    assert_eq!((own.label, own.owner), (second.label, Some(run("2"))));
}

/// A host whose pre-runner script takes a while.
struct SlowScript {
    machine: Arc<MemoryMachine>,
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Host for SlowScript {
    async fn run_script(&self, script: &str) -> Result<(), String> {
        self.clock.sleep(30 * SECOND).await;
        self.machine.run_script(script).await
    }

    async fn interruption(&self) -> String {
        self.machine.interruption().await
    }

    async fn terminate(&self, why: &str) {
        self.machine.terminate(why).await;
    }
}

/// Also if its agent is started again: a machine that the script has not prepared takes no job.
#[tokio::test]
async fn no_idle_machine_registers_before_the_pre_runner_script_has_succeeded() {
    let settings = [("runner-label", "machine"), ("pre-runner-script", "true")];
    let mut harness = Harness::with(&settings).await;
    harness.insert_record(State::Idle, HOUR);
    harness.add_machine();
    let mut labels = Vec::new();
    for _ in 0..2 {
        let (machine, clock) = (harness.machine(MachineDefect::None), harness.plane.clock.clone());
        harness.start_on_host(Arc::new(SlowScript { machine, clock }));
        harness.sleep(20 * SECOND).await;
        let listed = harness.own().map(|own| own.label);
        assert_eq!(listed.as_ref(), labels.last(), "nothing but what an earlier process has left");
        assert!(!harness.is_ready(0).await);
        harness.sleep(15 * SECOND).await;
        assert!(harness.is_ready(0).await);
        labels.push(harness.own().unwrap().label);
        harness.kill_agents().await;
    }
    assert_ne!(labels[0], labels[1]);

    harness.start_another(MachineDefect::ScriptFails);
    harness.sleep(Duration::from_secs(60)).await;
    assert!(!harness.is_ready(0).await);
    let report = harness.status().await.report.unwrap();
    assert_eq!(report.signal, Signal::PrepareFailed, "{report:?}");
    assert_eq!(harness.own().map(|own| own.label).as_ref(), labels.last(), "nor afterwards");
}
