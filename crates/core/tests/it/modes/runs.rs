//! What refresh does for runs: machines that died, waiting jobs, completed runs, and how many
//! requests that costs.

use std::time::Duration;

use ondeck_core::model::ids::RunId;
use ondeck_core::model::label::Label;
use ondeck_core::model::record::State;
use ondeck_core::model::signal::{Report, Signal};
use ondeck_core::modes::provision::Request;
use ondeck_core::modes::refresh;
use ondeck_core::ports::{AgentStore, Store};
use ondeck_core::runtime::stop::{Stop, StopSignal};
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, label, request, run};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A run with this many machines.
async fn served(harness: &Harness, run_id: &str, count: u32) {
    let outcome = harness.provision(&request(run_id, count)).await;
    assert_eq!(outcome.failure, None);
}

fn under(suffix: &str, run_id: &str, count: u32) -> Request {
    let mut request = request(run_id, count);
    request.options.label_suffix = Some(suffix.parse().unwrap());
    request
}

fn running(harness: &Harness, run_id: &str) -> usize {
    let of_run = |record: &ondeck_core::model::record::Record| {
        record.state == State::Running && record.run == Some(run(run_id))
    };
    harness.memory.store.select(of_run).len()
}

#[tokio::test]
async fn a_run_whose_machine_died_gets_another() {
    for (machines, dead, jobs, given) in [(1, 1, 1, 1), (3, 2, 5, 2), (3, 2, 1, 0), (3, 3, 2, 2)] {
        let case = format!("{dead} of {machines} dead, {jobs} jobs");
        let harness = Harness::new().await;
        served(&harness, "1", machines).await;
        for n in 1..=dead {
            harness.memory.compute.kill(&id(&format!("i-{n:04}")));
        }
        for _ in 0..jobs {
            harness.memory.forge.queue_job(&run("1"));
        }
        let at_once = harness.refresh().await;
        assert!(at_once.silent.is_empty() && at_once.rescued.is_empty(), "{case}: still fresh");
        harness.sleep(MINUTE).await;
        let outcome = harness.refresh().await;
        assert_eq!(outcome.silent.len(), dead, "{case}");
        let warned = |it: &&String| it.contains("of run 1 has sent no heartbeat for");
        assert_eq!(outcome.warnings.iter().filter(warned).count(), dead, "{case}");
        let rescued = if given > 0 { vec![label("1")] } else { vec![] };
        assert_eq!((outcome.rescued, outcome.stranded), (rescued, vec![]), "{case}");
        assert_eq!(harness.alive().len(), machines as usize - dead + given, "{case}");
        assert_eq!(harness.state("i-0001"), State::Running, "it may come back with its job");
        assert!(harness.refresh().await.rescued.is_empty(), "{case}: it has what it asked for");
    }
}

#[tokio::test]
async fn a_silent_machine_without_waiting_jobs_is_only_reported() {
    for rescue in ["provision", "report", "off"] {
        let harness = Harness::with(&[("rescue", rescue)]).await;
        served(&harness, "1", 2).await;
        harness.memory.compute.kill(&id("i-0002"));
        harness.memory.forge.open(run("1"));
        harness.sleep(MINUTE).await;
        let outcome = harness.refresh().await;
        assert_eq!((outcome.silent, outcome.rescued), (vec![id("i-0002")], vec![]), "{rescue}");
        assert_eq!(harness.alive(), ["i-0001"]);
    }
}

/// The agent's own words reach people who read the report of refresh.
#[tokio::test]
async fn the_reason_of_a_machine_that_cannot_serve_is_reported() {
    let reports = [
        (Signal::RegisterFailed, Some("1"), true),
        (Signal::PrepareFailed, None, true),
        (Signal::RegisterFailed, Some("2"), false),
        (Signal::DeregisterFailed, Some("1"), false),
        (Signal::Registered, Some("1"), false),
    ];
    for (signal, about, fails) in reports {
        let harness = Harness::new().await;
        served(&harness, "1", 1).await;
        harness.memory.forge.open(run("1"));
        harness.memory.compute.kill(&id("i-0001"));
        let report = Report {
            machine_label: None,
            signal,
            run: about.map(run),
            suffix: None,
            detail: "AccessDeniedException: not authorized".to_owned(),
            at: harness.plane.now() + SECOND,
            generation: None,
        };
        harness.memory.store.report(&id("i-0001"), &report).await.unwrap();
        let outcome = harness.refresh().await;
        assert_eq!(outcome.failing.len(), usize::from(fails), "{report:?}");
        let said = outcome.warnings.iter().any(|warning| {
            warning.contains("machine i-0001 cannot serve run 1") && warning.contains("Denied")
        });
        assert_eq!(said, fails, "{report:?}: {:?}", outcome.warnings);
        assert_eq!(harness.state("i-0001"), State::Running, "left to its threshold");
    }
}

/// A machine with a longer heartbeat period is silent later.
#[tokio::test]
async fn silence_is_judged_by_the_own_period_of_a_machine() {
    let harness = Harness::with(&[("heartbeat-period-sec", "30")]).await;
    served(&harness, "1", 1).await;
    harness.memory.compute.kill(&id("i-0001"));
    harness.refresh_with(&[("heartbeat-period-sec", "1")]).await;
    harness.sleep(MINUTE).await;
    assert!(harness.refresh().await.silent.is_empty());
    harness.sleep(MINUTE).await;
    assert_eq!(harness.refresh().await.silent, [id("i-0001")]);
}

#[tokio::test]
async fn a_run_gets_another_machine_for_one_that_its_provider_takes_away() {
    let harness = Harness::new().await;
    harness.make_defective("i-0001", MachineDefect::InterruptedAfter(MINUTE));
    served(&harness, "1", 1).await;
    harness.sleep(MINUTE + SECOND).await;
    harness.memory.forge.queue_job(&run("1"));
    assert_eq!(harness.refresh().await.rescued, [label("1")]);
    assert_eq!(running(&harness, "1"), 2);
}

/// It sends heartbeats all the time.
#[tokio::test]
async fn a_run_gets_another_machine_for_one_whose_runner_cannot_be_restarted() {
    for (lasts, is_rescued) in [(10 * MINUTE, true), (SECOND, false)] {
        let harness = Harness::new().await;
        harness.make_defective("i-0001", MachineDefect::DiesAfter(MINUTE, lasts));
        served(&harness, "1", 1).await;
        harness.memory.forge.queue_job(&run("1"));
        assert_eq!(harness.refresh().await.rescued, [], "it works");
        harness.sleep(2 * MINUTE).await;
        let outcome = harness.refresh().await;
        assert_eq!(outcome.rescued == [label("1")], is_rescued, "{:?}", outcome.rescued);
        assert_eq!(running(&harness, "1"), if is_rescued { 2 } else { 1 });
    }
}

#[tokio::test]
async fn each_label_is_rescued_on_its_own() {
    let harness = Harness::new().await;
    harness.provision(&under("build", "1", 1)).await;
    harness.provision(&under("tests", "1", 2)).await;
    harness.memory.compute.kill(&id("i-0001"));
    harness.sleep(MINUTE).await;
    let (build, tests) = (under("build", "1", 1).label(), under("tests", "1", 1).label());
    for label in [&build, &tests, &tests] {
        harness.memory.forge.queue_job(label);
    }
    assert_eq!(harness.refresh().await.rescued, vec![build.clone()]);
    let labels: Vec<Label> =
        harness.alive().iter().filter_map(|name| harness.labels.of(&id(name))).collect();
    assert_eq!(labels.iter().filter(|label| **label == build).count(), 1, "{labels:?}");
    assert_eq!(labels.len(), 3);
}

/// Of the machines that a rescue adds, those with jobs stay when another one fails, and the rest goes.
#[tokio::test]
async fn a_rescue_that_fails_keeps_the_machines_that_have_jobs() {
    for warm in [false, true] {
        let harness = Harness::new().await;
        served(&harness, "1", 3).await;
        harness.memory.compute.kill(&id("i-0001"));
        harness.memory.compute.kill(&id("i-0002"));
        harness.memory.compute.kill(&id("i-0003"));
        harness.sleep(MINUTE).await;
        let takes_job = MachineDefect::TakesJobAfter(Duration::ZERO);
        let (busy, fails) = match warm {
            true => ("i-warm", "i-0004"),
            false => ("i-0004", "i-0005"),
        };
        harness.make_defective(busy, takes_job);
        harness.make_defective(fails, MachineDefect::CannotRegister);
        if warm {
            harness.idle("i-warm", "c6i.large").await;
            harness.idle("i-free", "c6i.large").await;
        }
        harness.memory.compute.set_capacity(if warm { 4 } else { 2 });
        for _ in 0..(if warm { 3 } else { 2 }) {
            harness.memory.forge.queue_job(&run("1"));
        }
        let outcome = harness.refresh().await;
        if warm {
            // Its agent does not leave; the next refresh gives the machine to the run again.
            assert_eq!(outcome.stranded, [label("1")], "{outcome:?}");
            assert_eq!(harness.labels.of(&id(busy)), Some(label("1")), "it did not leave its job");
            harness.refresh().await;
        } else {
            assert_eq!(outcome.rescued, [label("1")], "{outcome:?}");
            let partly = |it: &String| it.starts_with("run 1 was given 1 of ");
            assert!(outcome.warnings.iter().any(partly), "{:?}", outcome.warnings);
        }
        assert_eq!(harness.state(busy), State::Running, "{busy}");
        assert_eq!(harness.record(busy).unwrap().run, Some(run("1")));
        assert_eq!(harness.labels.of(&id(busy)), Some(label("1")));
        assert!(harness.alive().contains(&busy.to_owned()));
        assert!(!harness.alive().contains(&fails.to_owned()));
        if warm {
            assert_eq!(harness.state("i-free"), State::Idle, "it had no job");
        }
        harness.assert_never_shared();
    }
}

/// A run whose three machines are dead, and a job waits for each.
async fn bereft() -> Harness {
    let harness = Harness::new().await;
    served(&harness, "1", 3).await;
    for name in ["i-0001", "i-0002", "i-0003"] {
        harness.memory.compute.kill(&id(name));
        harness.memory.forge.queue_job(&run("1"));
    }
    harness.sleep(MINUTE).await;
    harness
}

/// A refresh whose failure, if any, does not matter.
async fn refresh_anyhow(harness: &Harness) -> refresh::Outcome {
    refresh::refresh(&harness.plane, &Default::default(), &StopSignal::never()).await.unwrap()
}

/// If the store does not say which machines have jobs, a rescue that fails undoes nothing.
#[tokio::test]
async fn a_rescue_that_cannot_see_jobs_leaves_its_machines_alone() {
    let harness = bereft().await;
    harness.make_defective("i-0004", MachineDefect::TakesJobAfter(Duration::ZERO));
    harness.make_defective("i-0005", MachineDefect::NeverRegisters);
    let store_fails = async {
        while harness.labels.of(&id("i-0004")).is_none() {
            tokio::task::yield_now().await;
        }
        harness.memory.store.fail("agent_status");
    };
    let (outcome, ()) = tokio::join!(refresh_anyhow(&harness), store_fails);
    assert_eq!(outcome.stranded, [label("1")], "{outcome:?}");
    for name in ["i-0004", "i-0005", "i-0006"] {
        assert_eq!(harness.state(name), State::Created, "{name}");
        assert_eq!(harness.record(name).unwrap().run, Some(run("1")), "{name}");
    }
    assert_eq!(harness.alive(), ["i-0004", "i-0005", "i-0006"]);
    assert_eq!(harness.labels.of(&id("i-0004")), Some(label("1")), "it has its job");
}

/// The write that keeps a machine is made, and its answer lost: the machine stays with its job.
#[tokio::test]
async fn a_machine_is_kept_although_the_answer_is_lost() {
    for (transition, busy) in [("activate", "i-0004"), ("commit", "i-warm")] {
        let harness = bereft().await;
        harness.make_defective(busy, MachineDefect::TakesJobAfter(Duration::ZERO));
        if transition == "commit" {
            harness.make_defective("i-0004", MachineDefect::NeverRegisters);
            harness.make_defective("i-0005", MachineDefect::NeverRegisters);
            harness.idle("i-warm", "c6i.large").await;
        } else {
            harness.make_defective("i-0005", MachineDefect::CannotRegister);
            harness.make_defective("i-0006", MachineDefect::CannotRegister);
        }
        harness.memory.store.lose_answers(transition, 1_000);
        let outcome = refresh_anyhow(&harness).await;
        assert!(outcome.failure.is_none(), "{transition}: {outcome:?}");
        assert_eq!(harness.state(busy), State::Running, "{transition}");
        assert_eq!(harness.record(busy).unwrap().run, Some(run("1")), "{transition}");
        assert_eq!(harness.labels.of(&id(busy)), Some(label("1")), "{transition}: it has its job");
        assert!(harness.alive().contains(&busy.to_owned()), "{transition}");
    }
}

#[tokio::test]
async fn a_lease_lasts_as_long_as_the_times_of_the_run() {
    let harness = Harness::new().await;
    let mut long = request("1", 1);
    let hour = Duration::from_secs(3600);
    long.times.0.push(("created-timeout-sec", hour));
    assert_eq!(harness.provision(&long).await.failure, None);
    harness.memory.compute.kill(&id("i-0001"));
    harness.sleep(MINUTE).await;
    harness.memory.forge.queue_job(&run("1"));
    let lease = async {
        loop {
            let demand = harness.memory.store.demands(&[run("1")]).await.unwrap().remove(0);
            if let Some(lease) = demand.lease {
                return lease.until.since(harness.plane.now());
            }
        }
    };
    let (outcome, lease) = tokio::join!(harness.refresh(), lease);
    assert_eq!(outcome.rescued, [label("1")]);
    assert!(lease > hour, "{lease:?}");
}

#[tokio::test]
async fn two_refreshes_at_once_rescue_a_run_once() {
    let harness = Harness::new().await;
    served(&harness, "1", 2).await;
    harness.memory.compute.kill(&id("i-0001"));
    harness.memory.compute.kill(&id("i-0002"));
    harness.sleep(MINUTE).await;
    for _ in 0..4 {
        harness.memory.forge.queue_job(&run("1"));
    }
    let (one, other) = tokio::join!(harness.refresh(), harness.refresh());
    assert_eq!(one.rescued.len() + other.rescued.len(), 1, "{one:?} {other:?}");
    assert_eq!(harness.alive().len(), 2);
    let demand = harness.memory.store.demands(&[run("1")]).await.unwrap().remove(0);
    assert_eq!((demand.lease, demand.failed_rescues), (None, None), "the lease was given back");
}

#[tokio::test]
async fn the_lease_of_a_killed_refresh_ends() {
    let harness = Harness::new().await;
    served(&harness, "1", 1).await;
    harness.memory.compute.kill(&id("i-0001"));
    harness.sleep(MINUTE).await;
    harness.memory.forge.queue_job(&run("1"));
    let demand = harness.memory.store.demands(&[run("1")]).await.unwrap().remove(0);
    let leased = demand.clone().leased(7, harness.plane.now() + 2 * MINUTE);
    assert!(harness.memory.store.replace_demand(Some(&demand), &leased).await.unwrap());
    assert!(harness.refresh().await.rescued.is_empty(), "another refresh is at it");
    harness.sleep(2 * MINUTE).await;
    assert_eq!(harness.refresh().await.rescued, [label("1")]);
}

#[tokio::test]
async fn only_runs_that_lack_machines_are_asked_about() {
    let harness = Harness::new().await;
    let forge = &harness.memory.forge;
    forge.ask_by_run();
    served(&harness, "1", 1).await;
    served(&harness, "2", 1).await;
    for other in ["1", "2", "3", "4"] {
        forge.queue_job(&run(other));
    }
    forge.take_requests();
    harness.refresh().await;
    assert_eq!(forge.take_requests(), ["open runs"], "two have machines, two never asked");
    harness.memory.compute.kill(&id("i-0002"));
    harness.sleep(MINUTE).await;
    harness.refresh().await;
    assert_eq!(forge.take_requests(), ["open runs", "2"]);
}

#[tokio::test]
async fn requests_are_bounded_and_each_run_has_its_turn() {
    let harness = Harness::patient(&[("max-runtime-min", "600")]).await;
    let forge = &harness.memory.forge;
    forge.ask_by_run();
    let runs: Vec<String> = (10..35).map(|n| n.to_string()).collect();
    for run_id in &runs {
        served(&harness, run_id, 1).await;
    }
    for name in harness.alive() {
        harness.memory.compute.kill(&id(&name));
    }
    harness.sleep(10 * MINUTE).await;
    for run_id in &runs {
        forge.queue_job(&RunId::new(run_id.as_str()).unwrap());
    }
    forge.take_requests();
    let mut rescued = Vec::new();
    for _ in 0..3 {
        rescued.extend(harness.refresh().await.rescued);
        let requests = forge.take_requests();
        assert!(requests.len() <= 10, "{requests:?}");
    }
    rescued.sort();
    let all: Vec<Label> = runs.iter().map(|run_id| label(run_id)).collect();
    assert_eq!(rescued, all, "25 runs, nine in each refresh");
}

#[tokio::test]
async fn a_rate_limit_is_a_warning_and_the_next_refresh_goes_on() {
    for after in [0, 1, 3] {
        let harness = Harness::patient(&[]).await;
        let forge = &harness.memory.forge;
        forge.ask_by_run();
        for run_id in ["1", "2", "3", "4"] {
            served(&harness, run_id, 1).await;
        }
        for name in harness.alive() {
            harness.memory.compute.kill(&id(&name));
        }
        harness.sleep(5 * MINUTE).await;
        for run_id in ["1", "2", "3", "4"] {
            forge.queue_job(&run(run_id));
        }
        forge.limit_after(Some(after));
        let outcome = harness.refresh().await;
        let limited = |it: &&String| it.starts_with("not all runs were examined: ");
        assert_eq!(outcome.warnings.iter().filter(limited).count(), 1, "{:?}", outcome.warnings);
        assert_eq!(outcome.rescued.len(), after.saturating_sub(1) as usize, "after {after}");
        forge.limit_after(None);
        let rest = harness.refresh().await.rescued;
        assert_eq!(rest.len(), 4 - after.saturating_sub(1) as usize, "after {after}");
    }
}

#[tokio::test]
async fn the_machines_of_a_completed_run_are_released() {
    for rescue in ["provision", "off"] {
        let harness = Harness::with(&[("rescue", rescue)]).await;
        served(&harness, "1", 2).await;
        served(&harness, "2", 1).await;
        harness.memory.forge.open(run("2"));
        let open = harness.refresh().await;
        assert!(open.completed.is_empty(), "the forge does not know run 1");
        harness.memory.forge.complete(run("1"));
        let outcome = harness.refresh().await;
        assert_eq!(outcome.completed, [run("1")], "{rescue}");
        assert_eq!((running(&harness, "1"), running(&harness, "2")), (0, 1));
        assert_eq!(harness.idle_machines().len(), 2, "by the handshake, back into the pool");
        assert_eq!(harness.depth().await, 2);
        assert!(harness.refresh().await.completed.is_empty());
    }
}

/// A rescue takes minutes, in which a completed run may be re-run and use its machines again.
#[tokio::test]
async fn completed_runs_are_released_before_others_are_rescued() {
    // The rescue launches a machine, because the released one is terminated.
    let harness = Harness::with(&[("idle-time-sec", "0")]).await;
    served(&harness, "1", 1).await;
    served(&harness, "2", 1).await;
    harness.memory.compute.kill(&id("i-0001"));
    harness.sleep(MINUTE).await;
    harness.memory.forge.queue_job(&run("1"));
    harness.memory.forge.complete(run("2"));
    let launched = async {
        while harness.record("i-0003").is_none() {
            tokio::task::yield_now().await;
        }
        running(&harness, "2")
    };
    let (outcome, left) = tokio::join!(harness.refresh(), launched);
    assert_eq!((outcome.completed, outcome.rescued), (vec![run("2")], vec![label("1")]));
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_run_that_provisions_again_meanwhile_keeps_its_machines() {
    let harness = Harness::new().await;
    served(&harness, "1", 2).await;
    let forge = &harness.memory.forge;
    forge.complete(run("1"));
    forge.take_requests();
    forge.hold_answers(true);
    let again = async {
        while !forge.take_requests().contains(&"1".to_owned()) {
            tokio::task::yield_now().await;
        }
        forge.open(run("1"));
        let adopted = harness.provision(&request("1", 2)).await;
        forge.hold_answers(false);
        adopted
    };
    let (outcome, adopted) = tokio::join!(harness.refresh(), again);
    assert_eq!((adopted.failure, adopted.instances.len()), (None, 2));
    assert_eq!((outcome.completed, running(&harness, "1")), (vec![], 2));
    assert_eq!(harness.labels.of(&id("i-0001")), Some(label("1")));
    forge.complete(run("1"));
    assert_eq!(harness.refresh().await.completed, [run("1")], "the next one releases it");
}

/// It adopts its machines at any moment of their release, or gets them back from the pool.
#[tokio::test]
async fn a_run_that_provisions_again_while_it_is_released_loses_no_machine() {
    for turns in 0..24 {
        let harness = Harness::new().await;
        served(&harness, "1", 2).await;
        // They have less time left than the run asks for again, so it has to renew them.
        harness.sleep(Duration::from_secs(1)).await;
        let forge = &harness.memory.forge;
        forge.complete(run("1"));
        forge.take_requests();
        let again = async {
            while !forge.take_requests().contains(&"1".to_owned()) {
                tokio::task::yield_now().await;
            }
            forge.open(run("1"));
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            harness.provision(&request("1", 2)).await
        };
        let (_, again) = tokio::join!(harness.refresh(), again);
        assert_eq!((again.failure, again.instances.len()), (None, 2), "after {turns} turns");
        assert_eq!(running(&harness, "1"), 2, "after {turns} turns");
    }
}

/// Neither the others nor their turn are lost because the forge fails about one run.
#[tokio::test]
async fn a_run_that_the_forge_fails_about_stands_in_no_ones_way() {
    let harness = Harness::new().await;
    served(&harness, "1", 1).await;
    served(&harness, "2", 1).await;
    harness.memory.forge.complete(run("2"));
    harness.memory.forge.fail_requests_of(run("1"));
    let outcome = harness.refresh().await;
    assert_eq!(outcome.completed, [run("2")]);
    let warned = |it: &String| it.starts_with("run 1 was not examined: ");
    assert!(outcome.warnings.iter().any(warned), "{:?}", outcome.warnings);

    let harness = Harness::patient(&[("max-runtime-min", "600")]).await;
    let forge = &harness.memory.forge;
    forge.ask_by_run();
    let runs: Vec<String> = (10..25).map(|n| n.to_string()).collect();
    for run_id in &runs {
        served(&harness, run_id, 1).await;
    }
    for name in harness.alive() {
        harness.memory.compute.kill(&id(&name));
    }
    harness.sleep(10 * MINUTE).await;
    for run_id in &runs {
        forge.queue_job(&RunId::new(run_id.as_str()).unwrap());
    }
    forge.fail_requests_of(run("10"));
    let mut rescued = Vec::new();
    for _ in 0..2 {
        forge.take_requests();
        rescued.extend(harness.refresh().await.rescued);
        assert!(forge.take_requests().len() <= 10);
    }
    rescued.sort();
    let others: Vec<Label> = runs[1..].iter().map(|run_id| label(run_id)).collect();
    assert_eq!(rescued, others);
}

#[tokio::test]
async fn machines_that_refresh_warms_up_belong_to_no_completed_run() {
    let harness = Harness::with(&[("min-idle", "large=1")]).await;
    harness.memory.forge.take_requests();
    harness.refresh().await;
    assert!(harness.memory.forge.take_requests().iter().all(|request| request == "open runs"));
}

#[tokio::test]
async fn a_stopped_refresh_gives_its_lease_back() {
    let harness = Harness::new().await;
    served(&harness, "1", 1).await;
    harness.memory.compute.kill(&id("i-0001"));
    harness.sleep(MINUTE).await;
    harness.memory.forge.queue_job(&run("1"));
    harness.make_defective("i-0002", MachineDefect::NeverRegisters);
    let (stopper, stop) = StopSignal::new();
    let given = Default::default();
    let refreshing = refresh::refresh(&harness.plane, &given, &stop);
    let interrupt = async {
        while harness.record("i-0002").is_none() {
            tokio::task::yield_now().await;
        }
        stopper.raise(Stop::Interrupted);
    };
    let (outcome, ()) = tokio::join!(refreshing, interrupt);
    assert!(outcome.is_err() || outcome.unwrap().failure.is_some());
    let demand = harness.memory.store.demands(&[run("1")]).await.unwrap().remove(0);
    assert_eq!(demand.lease, None);
}
