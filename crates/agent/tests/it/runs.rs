//! Heartbeats, and a run that follows another.

use std::time::Duration;

use ondeck_core::model::label::Label;
use ondeck_core::model::record::{Counts, Record, State};
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::testkit::MachineDefect;

use crate::harness::{Harness, label, machine, run};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn a_lost_heartbeat_is_repeated_soon() {
    let mut harness = Harness::with(&[]).await;
    harness.boot_in(State::Idle, Duration::from_secs(300)).await;
    let mut oldest = Duration::ZERO;
    harness.sleep(Duration::from_secs(20)).await;
    harness.memory.store.lose_heartbeats(2);
    for _ in 0..160 {
        harness.sleep(Duration::from_millis(250)).await;
        oldest = oldest.max(harness.heartbeat_age().await);
    }
    let (period, two_lost) = (Duration::from_secs(10), Duration::from_secs(15));
    assert!(oldest > period && oldest <= two_lost, "one period and two lost beats: {oldest:?}");
}

#[tokio::test]
async fn heartbeats_go_on_while_the_machine_works() {
    let mut harness = Harness::with(&[]).await;
    harness.boot_in(State::Running, Duration::from_secs(30 * 60)).await;
    for _ in 0..20 {
        harness.sleep(Duration::from_secs(7)).await;
        assert!(harness.heartbeat_age().await <= Duration::from_secs(5));
    }
}

#[tokio::test]
async fn an_agent_leaves_its_run_and_serves_the_next_one() {
    let mut harness = Harness::with(&[]).await;
    let record = harness.boot_in(State::Running, Duration::from_secs(30 * 60)).await;
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.labels.of(&machine()), Some(label("1")));
    harness.memory.store.insert(Record { run: Some(run("2")), ..record });
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.labels.of(&machine()), Some(label("2")));
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("2")), "{report:?}");
}

/// Its jobs would wait without a word until the run's time is up.
#[tokio::test]
async fn a_runner_that_cannot_be_restarted_is_reported() {
    let mut harness = Harness::with(&[]).await;
    let minute = Duration::from_secs(60);
    let defect = MachineDefect::DiesAfter(minute, 3 * minute);
    harness.boot_defective(defect, State::Running, 30 * minute).await;
    harness.sleep(minute / 2).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("1")), "{report:?}");
    harness.sleep(minute).await;
    let report = harness.status().await.report.unwrap();
    let failure = report.failure_for(&label("1")).unwrap();
    assert!(failure.ends_with("UD_REG_FAILED: its version is refused"), "{failure}");
    harness.sleep(4 * minute).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("1")), "it works again: {report:?}");
    assert!(harness.labels.is_listening(&machine()));
}

/// The release and the claim under the other label come between two reads of the record.
#[tokio::test]
async fn an_agent_registers_anew_under_another_label_of_the_same_run() {
    let mut harness = Harness::with(&[]).await;
    let record = harness.boot_in(State::Running, Duration::from_secs(30 * 60)).await;
    harness.sleep(Duration::from_secs(3)).await;
    let large = Label::new(run("1"), "large".parse().ok());
    harness.memory.store.insert(Record { suffix: large.suffix.clone(), ..record });
    harness.sleep(Duration::from_secs(3)).await;
    assert_eq!(harness.labels.of(&machine()), Some(large.clone()));
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &large), "{report:?}");
}

/// The claim and its end come between two reads of the record.
#[tokio::test]
async fn an_agent_that_has_missed_a_claim_says_that_it_is_free() {
    let mut harness = Harness::with(&[]).await;
    let idle = harness.boot_in(State::Idle, Duration::from_secs(300)).await;
    harness.sleep(Duration::from_secs(1)).await;
    let report = harness.status().await.report.unwrap();
    assert_eq!(report.signal, Signal::Prepared, "an earlier process may have left a runner behind");
    for generation in [1, 5] {
        let counts = Counts { generation, ..idle.counts };
        harness.memory.store.insert(Record { counts, ..idle.clone() });
        harness.sleep(Duration::from_secs(1)).await;
        let report = harness.status().await.report.unwrap();
        assert!(report.is_free_in(generation, None), "{report:?}");
        assert_eq!((report.run.as_ref(), report.generation), (None, Some(generation)));
        harness.sleep(Duration::from_secs(10)).await;
        assert_eq!(harness.status().await.report.unwrap(), report, "once for each idle state");
    }
}

#[tokio::test]
async fn an_agent_that_leaves_a_run_names_the_idle_state() {
    let mut harness = Harness::with(&[]).await;
    let running = harness.boot_in(State::Running, Duration::from_secs(30 * 60)).await;
    harness.sleep(Duration::from_secs(3)).await;
    let counts = Counts { generation: 4, ..running.counts };
    let idle = Record { state: State::Idle, run: None, counts, ..running };
    harness.memory.store.insert(idle);
    harness.sleep(Duration::from_secs(10)).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Deregistered, &label("1")), "its account is kept: {report:?}");
    assert_eq!((report.generation, report.detail.as_str()), (Some(4), "2 jobs on i-a"));
}

/// The record of a machine that its only run has claimed, or that has just got back.
fn exclusive(record: &Record, state: State, of: &str, runs: u32) -> Record {
    Record {
        state,
        run: state.is_owned().then(|| run(of)),
        reuse: Reuse::Never,
        counts: Counts { runs, generation: record.counts.generation + 1, ..record.counts },
        ..record.clone()
    }
}

async fn await_signal(harness: &Harness, signal: Signal, of: &str) -> Report {
    loop {
        let report = harness.status().await.report;
        let said = report.filter(|it| it.signal == signal && it.run == Some(run(of)));
        match said {
            Some(report) => return report,
            None => harness.sleep(Duration::from_millis(200)).await,
        }
    }
}

#[tokio::test]
async fn an_agent_that_has_served_its_only_run_offers_the_machine_to_no_other() {
    let mut harness = Harness::with(&[]).await;
    // If it were cleaned, that would fail.
    let defect = MachineDefect::CannotBeCleaned;
    let idle = harness.boot_defective(defect, State::Idle, HOUR).await;
    harness.sleep(Duration::from_secs(1)).await;
    harness.memory.store.insert(exclusive(&idle, State::Running, "1", 1));
    await_signal(&harness, Signal::Registered, "1").await;
    harness.memory.store.insert(exclusive(&idle, State::Idle, "", 1));
    let report = await_signal(&harness, Signal::DeregisterFailed, "1").await;
    assert_eq!(report.used_up_by(&run("1")), Some("2 jobs on i-a"));
    assert_eq!(harness.labels.of(&machine()), None, "it has deregistered");
    // A control plane that gives it to another run all the same.
    let other = Record { reuse: Reuse::Always, ..exclusive(&idle, State::Claimed, "2", 1) };
    harness.memory.store.insert(other);
    harness.sleep(Duration::from_secs(60)).await;
    assert_eq!(harness.labels.of(&machine()), None);
    assert_eq!(harness.status().await.report, Some(report));
}

#[tokio::test]
async fn an_agent_does_not_register_a_used_machine_for_a_run_of_its_own() {
    for (state, runs, registers) in [
        (State::Claimed, 0, true),
        (State::Claimed, 1, false),
        (State::Running, 1, true),
        (State::Running, 2, false),
    ] {
        let mut harness = Harness::with(&[]).await;
        let idle = harness.boot_in(State::Idle, HOUR).await;
        harness.sleep(Duration::from_secs(1)).await;
        harness.memory.store.insert(exclusive(&idle, state, "2", runs));
        let signal = if registers { Signal::Registered } else { Signal::RegisterFailed };
        let report = await_signal(&harness, signal, "2").await;
        let why = "it has served another run, and reuse is never";
        assert_eq!(report.detail, if registers { "" } else { why });
        assert_eq!(harness.labels.of(&machine()).is_some(), registers, "{state} {runs}");
    }
}

#[tokio::test]
async fn an_agent_returns_a_machine_that_its_run_gave_back_without_a_job() {
    for (defect, is_returned) in [
        (MachineDefect::None, true),
        (MachineDefect::FinishesJobAfter(Duration::from_secs(1)), false),
    ] {
        let mut harness = Harness::with(&[]).await;
        let idle = harness.boot_defective(defect, State::Idle, HOUR).await;
        harness.sleep(Duration::from_secs(1)).await;
        harness.memory.store.insert(exclusive(&idle, State::Claimed, "1", 0));
        await_signal(&harness, Signal::Registered, "1").await;
        let given_back = exclusive(&idle, State::Idle, "", 0);
        harness.memory.store.insert(Record { reuse: Reuse::Always, ..given_back });
        let signal = if is_returned { Signal::Deregistered } else { Signal::DeregisterFailed };
        await_signal(&harness, signal, "1").await;
    }
}

/// An agent that was restarted while the run had the machine does not know of the jobs before.
#[tokio::test]
async fn an_agent_that_starts_on_a_claimed_machine_takes_it_for_used() {
    let mut harness = Harness::with(&[]).await;
    let record = harness.insert_record(State::Claimed, HOUR);
    harness.memory.store.insert(Record { reuse: Reuse::Never, ..record.clone() });
    harness.boot(harness.plane.clock.clone());
    await_signal(&harness, Signal::Registered, "1").await;
    let given_back = exclusive(&record, State::Idle, "", 0);
    harness.memory.store.insert(Record { reuse: Reuse::Always, ..given_back });
    let report = await_signal(&harness, Signal::DeregisterFailed, "1").await;
    assert!(report.used_up_by(&run("1")).is_some(), "{report:?}");
}

/// A run that asks for a machine of its own takes those that the record counts as unused.
#[tokio::test]
async fn a_machine_that_counts_as_unused_does_not_return_after_a_job() {
    let had_job = MachineDefect::FinishesJobAfter(Duration::from_secs(1));
    for (defect, runs, is_returned) in
        [(MachineDefect::None, 0, true), (had_job, 0, false), (had_job, 1, true)]
    {
        let mut harness = Harness::with(&[]).await;
        let idle = harness.boot_defective(defect, State::Idle, HOUR).await;
        harness.sleep(Duration::from_secs(1)).await;
        let always = |record| Record { reuse: Reuse::Always, ..record };
        harness.memory.store.insert(always(exclusive(&idle, State::Claimed, "1", runs)));
        await_signal(&harness, Signal::Registered, "1").await;
        harness.memory.store.insert(always(exclusive(&idle, State::Idle, "", runs)));
        let signal = if is_returned { Signal::Deregistered } else { Signal::DeregisterFailed };
        let report = await_signal(&harness, signal, "1").await;
        let why = "it had a job of a run that gave it back as unused; 2 jobs on i-a";
        assert_eq!(report.detail, if is_returned { "2 jobs on i-a" } else { why }, "{defect:?}");
    }
}

/// The machine is given back when its runner listens already, and has taken a job of the run.
#[tokio::test]
async fn a_job_that_came_before_the_end_of_the_registration_is_finished() {
    let mut harness = Harness::with(&[]).await;
    let defect = MachineDefect::TakesJobRegistering(Duration::from_secs(60));
    let idle = harness.boot_defective(defect, State::Idle, HOUR).await;
    harness.sleep(Duration::from_secs(1)).await;
    let always = |record| Record { reuse: Reuse::Always, ..record };
    harness.memory.store.insert(always(exclusive(&idle, State::Claimed, "1", 0)));
    harness.sleep(Duration::from_secs(5)).await;
    let given_back = always(exclusive(&idle, State::Idle, "", 0));
    harness.memory.store.insert(given_back.clone());
    let report = await_signal(&harness, Signal::Registered, "1").await;
    assert!(report.is_held_for(&run("1")), "{report:?}");
    harness.memory.store.insert(Record {
        state: State::Running,
        run: Some(run("1")),
        counts: Counts { runs: 1, ..given_back.counts },
        ..given_back
    });
    harness.sleep(Duration::from_secs(5)).await;
    let report = harness.status().await.report.unwrap();
    assert!(report.says(Signal::Registered, &label("1")), "{report:?}");
    assert_eq!(report.detail, "", "it serves the run again");
    harness.memory.store.insert(always(exclusive(&idle, State::Idle, "", 1)));
    await_signal(&harness, Signal::Deregistered, "1").await;
}
