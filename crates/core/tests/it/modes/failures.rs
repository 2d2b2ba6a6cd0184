//! Failures that are not the machines' own: what was claimed goes back and serves the next run.

use std::collections::BTreeSet;
use std::time::Duration;

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::ids::IntentId;
use ondeck_core::model::record::{Counts, Record, State};
use ondeck_core::model::settings::InvalidSetting;
use ondeck_core::modes::provision::{MachineSource, Outcome, Request, provision};
use ondeck_core::modes::release::{Disposition, release};
use ondeck_core::ports::{Machine, Pool, PortError};
use ondeck_core::runtime::stop::{Stop, StopSignal};
use ondeck_core::testkit::{MachineDefect, PartialLaunch};

use super::harness::{Harness, id, label, large, names, request, run, spec};

/// Every kind of error that a launch can fail with, and the kind of the run's failure.
fn launch_errors() -> Vec<(PortError, FailureKind)> {
    let text = |words: &str| words.to_owned();
    let setting = InvalidSetting { name: text("ami"), problem: text("is not an image") };
    vec![
        (
            PortError::Unavailable { service: "EC2", reason: text("RequestLimitExceeded") },
            FailureKind::Unavailable,
        ),
        (
            PortError::Unusable {
                service: "EC2",
                reason: text("UnauthorizedOperation"),
                hint: String::new(),
            },
            FailureKind::Unavailable,
        ),
        (PortError::Setting(setting), FailureKind::InvalidInput),
        (PortError::NotSetUp { what: text("the launch template") }, FailureKind::NotSetUp),
        (PortError::Forge { reason: text("refused"), hint: String::new() }, FailureKind::Forge),
    ]
}

/// Tickets that were received and not used are visible again after a second, and checks do not last
/// long.
async fn with_idle(machines: &[&str]) -> Harness {
    let short = [("ticket-hold-sec", "1"), ("claim-registration-timeout-sec", "3")];
    let harness = Harness::with(&short).await;
    for machine in machines {
        harness.idle(machine, "c6i.large").await;
    }
    harness
}

fn set(machines: &[&str]) -> BTreeSet<String> {
    machines.iter().map(|machine| (*machine).to_owned()).collect()
}

fn texts(ids: &[ondeck_core::model::ids::InstanceId]) -> BTreeSet<String> {
    ids.iter().map(ToString::to_string).collect()
}

/// Asserts that the machines are idle and announced, that no other machine is left, and that a run
/// gets exactly these from the pool.
async fn assert_reusable(harness: &Harness, machines: &[&str], case: &str) {
    for machine in machines {
        assert_eq!(harness.state(machine), State::Idle, "{machine}: {case}");
        assert_eq!(harness.labels.of(&id(machine)), None, "{machine}: {case}");
    }
    assert_eq!(harness.alive().into_iter().collect::<BTreeSet<_>>(), set(machines), "{case}");
    assert_eq!(harness.visible().await, machines.len(), "{case}");
    let count = u32::try_from(machines.len()).unwrap();
    let next = harness.provision(&request("next", count)).await;
    assert_eq!(next.failure, None, "{case}");
    assert_eq!(next.count(MachineSource::Warm), machines.len(), "{case}");
    assert_eq!(names(&next.instances), set(machines), "{case}");
    harness.assert_never_shared();
}

fn assert_only_new_ones_terminated(harness: &Harness, outcome: &Outcome, case: &str) {
    let is_new = |id: &String| id.starts_with("i-0");
    assert!(texts(&outcome.terminated).iter().all(is_new), "{case}: {:?}", outcome.terminated);
    let terminated = texts(&harness.memory.compute.terminated());
    assert!(terminated.iter().all(is_new), "{case}: {terminated:?}");
}

#[tokio::test]
async fn every_failed_launch_returns_what_was_claimed() {
    let warm = ["i-a", "i-b", "i-c"];
    for (error, kind) in launch_errors() {
        for (claimed, orders) in [(0, 0), (1, 0), (3, 0), (1, 1), (3, 1)] {
            let case = format!("{error:?} after {orders} orders, {claimed} claimed");
            let warm = &warm[..claimed];
            let harness = with_idle(warm).await;
            // The first order launches one machine of two, so that there is another order.
            harness.memory.compute.serve_next(vec![PartialLaunch::NoCapacity(1); orders]);
            harness.memory.compute.fail_launches_after(orders, error.clone());
            let mut request = request("1", u32::try_from(claimed + 2).unwrap());
            request.options.capacity_fallback = true;
            let outcome = harness.provision(&request).await;
            assert_eq!(outcome.failure.as_ref().unwrap().kind, kind, "{case}");
            assert_eq!(texts(&outcome.returned), set(warm), "{case}");
            assert_eq!(outcome.terminated.len(), orders, "{case}");
            assert_eq!(outcome.clean_up_failures, Vec::<String>::new(), "{case}");
            assert_only_new_ones_terminated(&harness, &outcome, &case);
            let unknown = matches!(error, PortError::Unavailable { .. });
            let open = harness.plane.store.open_intents().await.unwrap();
            assert_eq!(open.len(), usize::from(unknown), "{case}: {open:?}");
            harness.memory.compute.repair();
            if claimed > 0 {
                assert_reusable(&harness, warm, &case).await;
            }
        }
    }
}

#[tokio::test]
async fn every_answer_that_falls_short_returns_what_was_claimed() {
    use PartialLaunch::{NoCapacity, Throttled};
    for partial in [NoCapacity(0), NoCapacity(1), Throttled(0), Throttled(1)] {
        let case = format!("{partial:?}");
        let harness = with_idle(&["i-a", "i-b"]).await;
        harness.memory.compute.serve_next(vec![partial]);
        harness.memory.compute.serve_next(vec![NoCapacity(0); 50]);
        let outcome = harness.provision(&request("1", 4)).await;
        assert_eq!(outcome.failure.as_ref().unwrap().kind, FailureKind::NoCapacity, "{case}");
        assert_eq!(texts(&outcome.returned), set(&["i-a", "i-b"]), "{case}");
        assert_only_new_ones_terminated(&harness, &outcome, &case);
        harness.memory.compute.repair();
        assert_reusable(&harness, &["i-a", "i-b"], &case).await;
    }
}

#[tokio::test]
async fn a_provider_out_of_reach_costs_no_warm_machine() {
    let harness = with_idle(&["i-a", "i-b"]).await;
    harness.memory.compute.go_down();
    let outcome = harness.provision(&request("1", 3)).await;
    assert_eq!(outcome.failure.as_ref().unwrap().kind, FailureKind::Unavailable);
    assert_eq!(texts(&outcome.returned), set(&["i-a", "i-b"]));
    assert_eq!(
        outcome.clean_up_failures,
        ["machines of the last launch may run until their deadline: \
          compute is out of reach: it is down"]
    );
    assert!(outcome.timings.total < Duration::from_secs(60), "{:?}", outcome.timings);
    assert_eq!(harness.plane.store.open_intents().await.unwrap().len(), 1);
    harness.memory.compute.repair();
    assert_reusable(&harness, &["i-a", "i-b"], "the provider is back").await;
}

#[tokio::test]
async fn a_launch_whose_answer_is_lost_leaves_its_intent_open() {
    for listed in [false, true] {
        let harness = with_idle(&["i-a"]).await;
        harness.memory.compute.lose_launches();
        if listed {
            harness.memory.compute.list_all();
        }
        let outcome = harness.provision(&request("1", 3)).await;
        assert_eq!(outcome.failure.as_ref().unwrap().kind, FailureKind::Unavailable);
        assert_eq!(texts(&outcome.returned), set(&["i-a"]));
        let terminated = if listed { set(&["i-0001", "i-0002"]) } else { set(&[]) };
        assert_eq!(texts(&outcome.terminated), terminated, "what the provider lists already");
        assert_eq!(harness.plane.store.open_intents().await.unwrap().len(), 1);
        assert_eq!((harness.state("i-a"), harness.visible().await), (State::Idle, 1));
    }
}

/// Calls of the store that fail from the beginning, while the calls that the clean-up needs work.
#[tokio::test]
async fn a_store_that_fails_one_kind_of_call_costs_no_warm_machine() {
    for call in ["put_intent", "register", "commit", "activate"] {
        let harness = with_idle(&["i-a", "i-b"]).await;
        harness.memory.store.fail(call);
        let outcome = harness.provision(&request("1", 3)).await;
        assert_eq!(outcome.failure.as_ref().unwrap().kind, FailureKind::Unavailable, "{call}");
        assert!(texts(&outcome.returned).is_superset(&set(&["i-a", "i-b"])), "{call}");
        assert_only_new_ones_terminated(&harness, &outcome, call);
        harness.memory.store.repair();
        // Machines that could not get a record are left to refresh.
        harness.sleep(Duration::from_secs(200)).await;
        harness.refresh().await;
        let left = harness.alive();
        let left: Vec<&str> = left.iter().map(String::as_str).collect();
        assert!(left.contains(&"i-a") && left.contains(&"i-b"), "{call}");
        assert_reusable(&harness, &left, call).await;
    }
}

#[tokio::test]
async fn a_pool_that_fails_during_the_search_costs_no_warm_machine() {
    let harness = with_idle(&["i-a", "i-b", "i-c"]).await;
    // Another run holds a ticket, which the search waits for.
    let hold = Duration::from_secs(30);
    let held = harness.memory.pool.receive(&large(), 1, hold).await.unwrap();
    assert!(held[0].body.contains("i-a"), "the first");
    let request = request("1", 5);
    let (outcome, ()) = tokio::join!(harness.provision(&request), async {
        while harness.state("i-b") != State::Claimed {
            tokio::task::yield_now().await;
        }
        harness.memory.pool.fail("receive");
    });
    assert_eq!(outcome.failure.as_ref().unwrap().kind, FailureKind::Unavailable);
    assert_eq!(texts(&outcome.returned), set(&["i-b", "i-c"]));
    harness.memory.pool.repair();
    harness.sleep(hold).await;
    assert_reusable(&harness, &["i-a", "i-b", "i-c"], "the pool is back").await;
}

/// Neither the checks nor the handshake can read what agents say.
#[tokio::test]
async fn claims_that_could_not_be_checked_are_announced_by_refresh() {
    let harness = with_idle(&["i-a", "i-b"]).await;
    harness.memory.store.fail("agent_status");
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.as_ref().unwrap().kind, FailureKind::Unavailable);
    assert_eq!(outcome.clean_up_failures.len(), 2, "{:?}", outcome.clean_up_failures);
    assert_eq!((harness.state("i-a"), harness.state("i-b")), (State::Idle, State::Idle));
    harness.memory.store.repair();
    let refreshed = harness.refresh().await;
    assert_eq!(texts(&refreshed.requeued), set(&["i-a", "i-b"]));
    assert_reusable(&harness, &["i-a", "i-b"], "after the refresh").await;
}

#[tokio::test]
async fn a_store_out_of_reach_is_reported_and_release_finishes_the_rollback() {
    let harness = with_idle(&["i-a", "i-b"]).await;
    let request = request("1", 2);
    let (outcome, ()) = tokio::join!(harness.provision(&request), async {
        while harness.state("i-a") != State::Claimed || harness.state("i-b") != State::Claimed {
            tokio::task::yield_now().await;
        }
        for call in ["write", "of_run", "agent_status"] {
            harness.memory.store.fail(call);
        }
    });
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Unavailable);
    assert_eq!(
        outcome.clean_up_failures,
        ["claimed machines were not returned, the run's release does that: \
          store is out of reach: it is down"]
    );
    assert!(outcome.timings.total < Duration::from_secs(30), "{:?}", outcome.timings);
    harness.memory.store.repair();
    let released = harness.release("1").await;
    assert!(released.instances.iter().all(|one| one.disposition == Disposition::GivenBack));
    assert_reusable(&harness, &["i-a", "i-b"], "after the release").await;
}

/// Raises the signal after so many turns of the other tasks.
async fn stopped_after(harness: &Harness, request: &Request, turns: u32) -> Outcome {
    let (switch, stop) = StopSignal::new();
    let (outcome, ()) = tokio::join!(provision(&harness.plane, request, &stop), async {
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
        switch.raise(Stop::Interrupted);
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        switch.raise(Stop::Terminated);
    });
    outcome
}

#[tokio::test]
async fn a_cancelled_run_returns_what_was_claimed_at_any_moment() {
    for turns in (0..60).chain([80, 100, 150, 200, 400, 800]) {
        let case = format!("after {turns} turns");
        let harness = with_idle(&["i-a", "i-b"]).await;
        harness.make_defective("i-0001", MachineDefect::NeverRegisters);
        let outcome = stopped_after(&harness, &request("1", 3), turns).await;
        assert_eq!(outcome.failure.as_ref().unwrap().kind, FailureKind::Interrupted, "{case}");
        assert_eq!(outcome.clean_up_failures, Vec::<String>::new(), "{case}");
        assert!(outcome.timings.post_provision < Duration::from_secs(5), "{case}");
        assert_only_new_ones_terminated(&harness, &outcome, &case);
        assert!(harness.memory.store.select(|r| r.run == Some(run("1"))).is_empty(), "{case}");
        harness.sleep(Duration::from_secs(1)).await;
        assert_reusable(&harness, &["i-a", "i-b"], &case).await;
    }
}

/// The write that makes a new machine running was on its way when the run was cancelled, and arrives
/// after the clean-up has read the records.
#[tokio::test]
async fn a_machine_whose_activation_arrives_during_the_clean_up_goes_to_the_pool() {
    let harness = Harness::new().await;
    harness.make_defective("i-0002", MachineDefect::NeverRegisters);
    let (switch, stop) = StopSignal::new();
    let request = request("1", 2);
    let reads = || harness.memory.store.calls().get("of_run").copied().unwrap_or_default();
    let (outcome, ()) = tokio::join!(provision(&harness.plane, &request, &stop), async {
        harness.sleep(Duration::from_secs(60)).await;
        let before = reads();
        switch.raise(Stop::Interrupted);
        while reads() == before {
            tokio::task::yield_now().await;
        }
        let created = harness.record("i-0001").unwrap();
        let counts = Counts { runs: 1, ..created.counts };
        harness.memory.store.insert(Record { state: State::Running, counts, ..created });
    });
    assert_eq!(outcome.failure.as_ref().unwrap().kind, FailureKind::Interrupted);
    assert_eq!((outcome.terminated, outcome.returned), (vec![id("i-0002")], vec![id("i-0001")]));
    assert_eq!(harness.alive(), ["i-0001"]);
    assert_reusable(&harness, &["i-0001"], "after the clean-up").await;
}

/// A refresh with a time limit hands a machine to its run after the clean-up has given it a record, and
/// before it is terminated.
#[tokio::test]
async fn a_machine_that_a_refresh_hands_over_during_the_clean_up_goes_to_the_pool() {
    for slow in ["register", "expire"] {
        let harness = Harness::new().await;
        harness.memory.compute.lose_launches();
        harness.memory.compute.list_all();
        match slow {
            "register" => harness.memory.store.lose_answers("register", 10),
            write => harness.memory.store.fail(write),
        }
        let request = request("1", 2);
        let (outcome, ()) = tokio::join!(harness.provision(&request), async {
            while harness.labels.of(&id("i-0001")).is_none() {
                tokio::task::yield_now().await;
            }
            let created = harness.record("i-0001").unwrap();
            let counts = Counts { runs: 1, ..created.counts };
            harness.memory.store.insert(Record { state: State::Running, counts, ..created });
            harness.memory.store.repair();
        });
        assert_eq!(outcome.failure.as_ref().unwrap().kind, FailureKind::Unavailable, "{slow}");
        let ended = (outcome.terminated, outcome.returned);
        assert_eq!(ended, (vec![id("i-0002")], vec![id("i-0001")]), "{slow}");
        assert_eq!(harness.alive(), ["i-0001"], "{slow}");
        assert_reusable(&harness, &["i-0001"], slow).await;
    }
}

/// The answers to the write of a machine's record are lost until a refresh with a time limit has handed the
/// machine to its run.
#[tokio::test]
async fn a_machine_that_a_refresh_hands_over_during_its_registration_is_adopted() {
    let harness = Harness::new().await;
    harness.memory.store.lose_answers("register", 10);
    let request = request("1", 1);
    let (outcome, ()) = tokio::join!(harness.provision(&request), async {
        while harness.labels.of(&id("i-0001")).is_none() {
            tokio::task::yield_now().await;
        }
        let created = harness.record("i-0001").unwrap();
        let counts = Counts { runs: 1, ..created.counts };
        harness.memory.store.insert(Record { state: State::Running, counts, ..created });
        harness.memory.store.repair();
    });
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let given: Vec<_> = outcome.instances.iter().map(|it| (it.id.as_str(), it.source)).collect();
    assert_eq!(given, [("i-0001", MachineSource::Adopted)]);
    assert_eq!(harness.record("i-0001").unwrap().state, State::Running);
}

/// Agents that poll too seldom to answer within the five seconds.
#[tokio::test]
async fn a_cancelled_run_does_not_wait_for_slow_agents() {
    let harness =
        Harness::with(&[("agent-poll-running-sec", "20"), ("agent-poll-waiting-sec", "0.1")]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.make_defective("i-0001", MachineDefect::NeverRegisters);
    let (switch, stop) = StopSignal::new();
    let request = request("1", 2);
    let (outcome, ()) = tokio::join!(provision(&harness.plane, &request, &stop), async {
        harness.sleep(Duration::from_secs(30)).await;
        switch.raise(Stop::Terminated);
    });
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Stopped);
    let took = outcome.timings.post_provision;
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(6), "{took:?}");
    assert_eq!(outcome.terminated, [id("i-0001")]);
    assert_eq!(outcome.clean_up_failures.len(), 2, "{:?}", outcome.clean_up_failures);
    assert!(outcome.clean_up_failures[1].ends_with(" answered: i-a"));
    assert_eq!((harness.state("i-a"), harness.depth().await), (State::Idle, 0));
    assert_eq!(harness.refresh().await.requeued, [], "its agent has not answered yet");
    harness.sleep(Duration::from_secs(20)).await;
    assert_eq!(harness.refresh().await.requeued, [id("i-a")]);
    assert_reusable(&harness, &["i-a"], "after the refresh").await;
}

#[tokio::test]
async fn a_signal_during_a_rollback_does_not_terminate_what_was_claimed() {
    let harness = with_idle(&["i-a"]).await;
    harness.memory.compute.set_capacity(1);
    let (switch, stop) = StopSignal::new();
    let request = request("1", 2);
    let (outcome, ()) = tokio::join!(provision(&harness.plane, &request, &stop), async {
        while harness.state("i-a") != State::Claimed {
            tokio::task::yield_now().await;
        }
        while harness.state("i-a") != State::Idle {
            tokio::task::yield_now().await;
        }
        switch.raise(Stop::Interrupted);
    });
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::NoCapacity);
    assert_eq!((outcome.returned, outcome.terminated), (vec![id("i-a")], vec![]));
    assert_reusable(&harness, &["i-a"], "after the rollback").await;
}

#[tokio::test]
async fn a_store_that_does_not_answer_does_not_keep_a_cancelled_run() {
    let harness = with_idle(&["i-a"]).await;
    let (switch, stop) = StopSignal::new();
    let request = request("1", 1);
    let (outcome, ()) = tokio::join!(provision(&harness.plane, &request, &stop), async {
        while harness.state("i-a") != State::Claimed {
            tokio::task::yield_now().await;
        }
        for call in ["write", "of_run", "agent_status"] {
            harness.memory.store.fail(call);
        }
        switch.raise(Stop::Interrupted);
    });
    assert!(!outcome.clean_up_failures.is_empty());
    assert!(outcome.timings.total < Duration::from_secs(6), "{:?}", outcome.timings);
    harness.memory.store.repair();
    let released = harness.release("1").await;
    assert_eq!(released.instances[0].disposition, Disposition::GivenBack);
    assert_reusable(&harness, &["i-a"], "after the release").await;
}

/// A release and a provision of the same run at the same time, at every moment of the provision.
#[tokio::test]
async fn a_release_beside_its_provision_leaves_no_machine_unaccounted_for() {
    for turns in (0..40).chain((40..160).step_by(10)) {
        let case = format!("after {turns} turns");
        let harness = with_idle(&["i-a", "i-b"]).await;
        let (one, times) = (run("1"), TimeOverrides::default());
        let request = request("1", 2);
        let (outcome, released) = tokio::join!(harness.provision(&request), async {
            for _ in 0..turns {
                tokio::task::yield_now().await;
            }
            release(&harness.plane, &one, &times).await.unwrap()
        });
        assert_eq!(released.failure(), None, "{case}: {released:?}");
        assert_only_new_ones_terminated(&harness, &outcome, &case);
        // What the provision still got, it may have launched. It is the run's until its next release.
        harness.release("1").await;
        harness.refresh().await;
        harness.sleep(Duration::from_secs(1)).await;
        assert_only_new_ones_terminated(&harness, &outcome, &case);
        let left = harness.alive();
        let left: Vec<&str> = left.iter().map(String::as_str).collect();
        assert!(left.contains(&"i-a") && left.contains(&"i-b"), "{case}: {left:?}");
        assert_reusable(&harness, &left, &case).await;
    }
}

#[tokio::test]
async fn a_contradiction_is_dumped() {
    let harness = with_idle(&["i-a"]).await;
    // The provider launches a machine that has a record already, which another run owns.
    let owned = Record {
        id: id("i-0001"),
        state: State::Running,
        run: Some(run("other")),
        ..harness.record("i-a").unwrap()
    };
    harness.memory.store.insert(owned.clone());
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Unexpected);
    assert_eq!((outcome.terminated, outcome.returned), (vec![id("i-a")], vec![]));
    assert_eq!(outcome.clean_up_failures, Vec::<String>::new());
    assert!(harness.record("i-a").is_none(), "its record is deleted");
    assert_eq!(harness.record("i-0001"), Some(owned), "and that of the other run is left alone");
}

/// Refresh has taken the new machine for an orphan, because the provision was held up for longer than
/// the grace.
#[tokio::test]
async fn a_machine_that_refresh_has_given_up_is_not_registered_and_costs_no_warm_machine() {
    let harness = Harness::new().await;
    let machine = Machine {
        id: id("i-0001"),
        spec: spec("c6i.large"),
        intent: IntentId::new("x").unwrap(),
        launched_at: harness.plane.now(),
        image: None,
    };
    harness.memory.compute.insert(machine);
    harness.sleep(Duration::from_secs(61)).await;
    assert_eq!(harness.refresh().await.orphans, [id("i-0001")]);
    let given_up = harness.record("i-0001").unwrap();
    assert_eq!((given_up.state, given_up.run), (State::Terminated, None));
    harness.idle("i-b", "c6i.large").await;
    let outcome = harness.provision(&request("1", 2)).await;
    let failure = outcome.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::NotReady);
    assert!(failure.hint.starts_with("retry: "), "{failure:?}");
    assert_eq!((outcome.terminated, outcome.returned), (vec![], vec![id("i-b")]));
    assert_reusable(&harness, &["i-b"], "after the failure").await;
}

/// Two hours of refreshes while the launches of a rescue fail. Idle machines are claimed and returned
/// each time, so there must not be many times.
#[tokio::test]
async fn a_rescue_that_fails_backs_off_and_costs_no_idle_machine() {
    for (error, _) in launch_errors() {
        let case = format!("{error:?}");
        // Agents that poll seldom make the test faster.
        let seldom = [("agent-poll-waiting-sec", "2"), ("heartbeat-period-sec", "20")];
        let harness = Harness::with(&[&seldom[..], &[("idle-time-sec", "100000")]].concat()).await;
        for machine in ["i-a", "i-b"] {
            let week = Duration::from_secs(7 * 24 * 3600);
            harness.put_idle(machine, spec("c6i.large"), week).await;
        }
        harness.memory.compute.fail_launches_after(0, error);
        assert!(harness.provision(&request("1", 3)).await.failure.is_some(), "{case}");
        for _ in 0..3 {
            harness.memory.forge.queue_job(&run("1"));
        }
        let mut reported = 0;
        for _ in 0..24 {
            harness.sleep(Duration::from_secs(300)).await;
            let outcome = harness.refresh().await;
            reported += usize::from(outcome.stranded == [label("1")]);
        }
        assert_eq!(reported, 24, "{case}");
        let events = harness.memory.store.events();
        let claims = events.iter().filter(|event| event.transition == "claim").count();
        // After 5 minutes, then after pauses of 5, 10, 20, 35 and 60 minutes at the most.
        assert!((8..=14).contains(&claims), "{claims} claims of two machines: {case}");
        assert_eq!(harness.memory.compute.terminated(), [], "{case}");
        harness.memory.compute.repair();
        assert_reusable(&harness, &["i-a", "i-b"], &case).await;
    }
}

/// With an idle time of zero only refresh's minimum keeps machines warm.
#[tokio::test]
async fn an_idle_time_of_zero_does_not_end_what_another_machines_failure_gives_back() {
    let harness = Harness::with(&[("idle-time-sec", "0")]).await;
    harness.idle("i-a", "c6i.large").await;
    harness.memory.compute.set_capacity(1);
    let outcome = harness.provision(&request("1", 2)).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::NoCapacity);
    assert_eq!((outcome.returned, outcome.terminated), (vec![id("i-a")], vec![]));
    assert_reusable(&harness, &["i-a"], "an idle time of zero").await;
}
