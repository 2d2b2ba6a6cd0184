//! What explain tells about runs and machines, against what the tests know to be true.

use std::time::Duration;

use ondeck_core::model::failure::FailureKind;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::summary::{
    CallOrigin, CallResult, CandidateOutcome, ProvisionSummary, WaitCause,
};
use ondeck_core::modes::explain::{MachineStory, RunStory, Step, Story, explain};
use ondeck_core::modes::provision::{Request, SourcePolicy, provision};
use ondeck_core::modes::refresh::refresh_within;
use ondeck_core::runtime::stop::{Stop, StopSignal};
use ondeck_core::testkit::MachineDefect;

use super::harness::{Harness, id, request, run};

const MINUTE: Duration = Duration::from_secs(60);

async fn of_run(harness: &Harness, text: &str) -> RunStory {
    match explain(&harness.plane, &*harness.memory.store, text).await.unwrap() {
        Story::Run(story) => *story,
        Story::Machine(story) => panic!("a machine: {story:?}"),
    }
}

async fn of_machine(harness: &Harness, text: &str) -> MachineStory {
    match explain(&harness.plane, &*harness.memory.store, text).await.unwrap() {
        Story::Machine(story) => *story,
        Story::Run(story) => panic!("a run: {story:?}"),
    }
}

/// The transitions, and `?` for a gap.
fn words(steps: &[Step]) -> Vec<&str> {
    let word = |step: &'_ Step| step.event().map_or("?", |(row, _)| leaked(&row.transition));
    steps.iter().map(word).collect()
}

fn leaked(text: &str) -> &'static str {
    const NAMES: [&str; 10] = [
        "register",
        "activate",
        "claim",
        "commit",
        "release",
        "give-back",
        "renew",
        "preserve",
        "expire",
        "reap",
    ];
    NAMES.into_iter().find(|name| *name == text).unwrap()
}

fn only(story: &RunStory) -> &ProvisionSummary {
    let [call] = &story.calls[..] else { panic!("one call: {:#?}", story.calls) };
    call
}

#[tokio::test]
async fn a_warm_and_a_cold_run_and_the_life_of_their_machines() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    harness.release("1").await;
    harness.provision(&request("2", 2)).await;

    let cold = of_run(&harness, "1").await;
    let call = only(&cold);
    assert_eq!((call.origin, call.ending.result), (CallOrigin::Run, CallResult::HandingOver));
    assert_eq!((call.search.asked, call.search.tickets), (true, 0));
    let launch = &call.launches[0];
    assert_eq!((call.launches.len(), launch.count, launch.launched), (1, 1, Some(1)));
    assert_eq!(cold.machines.len(), 1);
    assert_eq!(words(&cold.machines[0].steps), ["register", "activate", "release"]);
    assert_eq!(cold.unfinished().count(), 0);

    let warm = of_run(&harness, "2").await;
    let call = only(&warm);
    assert_eq!((call.search.claimed, call.launches[0].count), (1, 1));
    assert_eq!(call.candidates[0].outcome, CandidateOutcome::Ready);
    let sources: Vec<&str> = call.machines.iter().map(|note| note.source.as_str()).collect();
    assert!(sources.contains(&"warm") && sources.contains(&"cold"), "{sources:?}");
    assert_eq!(warm.handed_over(call), 2);
    let phases = call.phases;
    assert!(phases.selection_ms.is_some() && phases.creation_ms.is_some(), "{phases:?}");
    assert_eq!(warm.typical.calls, 1, "the other run's call");

    let machine = of_machine(&harness, "i-0001").await;
    assert_eq!(words(&machine.life), ["register", "activate", "release", "claim", "commit"]);
    let owners: Vec<Option<&str>> =
        machine.life.iter().map(|step| step.event().unwrap().1.map(RunId::as_str)).collect();
    assert_eq!(owners, [None, Some("1"), Some("1"), None, Some("2")]);
    assert_eq!(machine.record.unwrap().run, Some(run("2")));
}

#[tokio::test]
async fn a_hedge_and_the_machine_that_lost_to_it() {
    let harness = Harness::new().await;
    harness.make_defective("i-slow", MachineDefect::RegistersAfter(Duration::from_secs(30)));
    harness.idle("i-slow", "c6i.large").await;
    harness.idle("i-quick", "c6i.large").await;
    harness.provision(&request("1", 1)).await;
    let story = of_run(&harness, "1").await;
    let call = only(&story);
    let hedged: Vec<&str> = call.hedges.iter().map(|note| note.machine.as_str()).collect();
    assert_eq!(hedged, ["i-slow"]);
    assert!((3_000..6_000).contains(&call.hedges[0].after_ms), "{:?}", call.hedges);
    let outcomes: Vec<(&str, CandidateOutcome)> =
        call.candidates.iter().map(|note| (note.machine.as_str(), note.outcome)).collect();
    let expected =
        [("i-quick", CandidateOutcome::Ready), ("i-slow", CandidateOutcome::LostToHedge)];
    assert_eq!(outcomes, expected);
    let slow = story.machines.iter().find(|machine| machine.id == id("i-slow")).unwrap();
    assert_eq!(words(&slow.steps), ["claim", "give-back"]);
}

#[tokio::test]
async fn a_race_that_was_lost_names_the_winner() {
    let harness = Harness::new().await;
    let record = harness.idle("i-1", "c6i.large").await;
    // Another run has claimed it, and its ticket is still there.
    let taken = Record { state: State::Claimed, run: Some(run("winner")), ..record };
    harness.memory.store.insert(taken);
    harness.provision(&request("1", 1)).await;
    let story = of_run(&harness, "1").await;
    let note = &only(&story).candidates[0];
    assert_eq!((note.machine.as_str(), note.outcome), ("i-1", CandidateOutcome::Lost));
    assert_eq!(note.winner, Some(run("winner")));
}

#[tokio::test]
async fn unsuitable_machines_have_their_reasons_and_many_of_them_do_not_swell_the_summary() {
    let harness = Harness::new().await;
    for n in 0..40 {
        harness.idle(&format!("i-{n:02}"), "c6i.large").await;
    }
    let mut picky = request("1", 1);
    picky.options.types = Some("m7i.*".parse().unwrap());
    picky.options.machine_source = SourcePolicy::Pool;
    let outcome = harness.provision(&picky).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::NoCapacity);
    let story = of_run(&harness, "1").await;
    let call = only(&story);
    assert_eq!(call.search.unsuitable, [("its type is not allowed".to_owned(), 40)].into());
    assert_eq!((call.candidates.len(), call.omitted), (3, 37));
    assert_eq!(call.candidates[0].why, "its type is not allowed");
    assert_eq!(
        (call.ending.result, call.ending.kind.as_str()),
        (CallResult::Failed, "no-capacity")
    );
    assert!(call.stored().len() < 2_000, "{}", call.stored());
}

#[tokio::test]
async fn no_capacity_says_what_the_provider_said_and_what_was_returned() {
    let harness = Harness::new().await;
    harness.idle("i-warm", "c6i.large").await;
    harness.memory.compute.set_capacity(1);
    harness.provision(&request("1", 3)).await;
    let story = of_run(&harness, "1").await;
    let call = only(&story);
    let launch = &call.launches[0];
    assert!(launch.launched < Some(2) && !launch.why.is_empty(), "{launch:?}");
    assert_eq!(call.ending.returned, 1, "{:?}", call.ending);
    assert!(call.phases.clean_up_ms.is_some());
    let warm = story.machines.iter().find(|machine| machine.id == id("i-warm")).unwrap();
    assert_eq!(words(&warm.steps), ["claim", "give-back"]);
}

#[tokio::test]
async fn a_cancelled_run_says_that_it_was_and_what_became_of_its_machines() {
    let harness = Harness::new().await;
    harness.make_defective("i-slow", MachineDefect::RegistersAfter(MINUTE));
    harness.idle("i-slow", "c6i.large").await;
    let (switch, stop) = StopSignal::new();
    let one = request("1", 1);
    let ((), outcome) = tokio::join!(
        async {
            while harness.state("i-slow") != State::Claimed {
                tokio::task::yield_now().await;
            }
            switch.raise(Stop::Interrupted);
        },
        provision(&harness.plane, &one, &stop)
    );
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::Interrupted);
    let story = of_run(&harness, "1").await;
    let ending = &only(&story).ending;
    assert_eq!((ending.kind.as_str(), ending.returned), ("interrupted", 1), "{ending:?}");
    assert_eq!(words(&story.machines[0].steps), ["claim", "give-back"]);
}

#[tokio::test]
async fn a_rescue_is_told_from_a_call_of_the_run() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    harness.memory.compute.kill(&id("i-0001"));
    harness.memory.forge.queue_job(&run("1"));
    harness.sleep(MINUTE).await;
    harness.refresh().await;
    let story = of_run(&harness, "1").await;
    let origins: Vec<CallOrigin> = story.calls.iter().map(|call| call.origin).collect();
    assert_eq!(origins, [CallOrigin::Run, CallOrigin::Rescue]);
    assert_eq!(story.machines.len(), 2);
}

#[tokio::test]
async fn a_run_that_was_never_released_and_a_machine_that_expired() {
    let harness = Harness::patient(&[]).await;
    harness.provision(&request("1", 1)).await;
    harness.sleep(31 * MINUTE).await;
    harness.refresh().await;
    let story = of_run(&harness, "1").await;
    assert_eq!(words(&story.machines[0].steps), ["register", "activate", "reap"]);
    let (reap, _) = story.machines[0].steps[2].event().unwrap();
    assert_eq!(reap.why, "running for too long");
    let machine = of_machine(&harness, "i-0001").await;
    assert_eq!(machine.record.unwrap().state, State::Terminated);

    harness.idle("i-idle", "c6i.large").await;
    harness.sleep(6 * MINUTE).await;
    harness.refresh().await;
    let machine = of_machine(&harness, "i-idle").await;
    assert_eq!(words(&machine.life), ["?", "reap"], "the harness wrote its record by itself");
}

#[tokio::test]
async fn a_wait_for_room_has_its_cause() {
    let given = [("max-machines", "1"), ("ceiling-patience-sec", "60")];
    let harness = Harness::with(&given).await;
    harness.refresh().await;
    harness.provision(&request("1", 1)).await;
    let second = request("2", 1);
    let (outcome, ()) = tokio::join!(harness.provision(&second), async {
        harness.sleep(Duration::from_secs(10)).await;
        harness.release("1").await;
    });
    assert_eq!(outcome.failure, None);
    let story = of_run(&harness, "2").await;
    let wait = only(&story).waits.iter().find(|wait| wait.cause == WaitCause::Room).unwrap();
    assert!(wait.took_ms >= 9_000 && wait.why.contains("the pool has 1 of 1 machines"), "{wait:?}");
}

#[tokio::test]
async fn tickets_that_the_run_itself_holds_are_no_wait_for_other_runs() {
    let harness = Harness::with(&[("pickup-patience-sec", "5")]).await;
    for name in ["i-a", "i-b"] {
        harness.idle(name, "c6i.large").await;
    }
    let outcome = harness.provision(&request("1", 3)).await;
    assert_eq!(outcome.failure, None);
    let story = of_run(&harness, "1").await;
    let call = only(&story);
    assert_eq!((call.search.claimed, call.launches.len()), (2, 1));
    assert_eq!(call.waits, [], "no other run was there");
}

#[tokio::test]
async fn what_was_lost_is_a_gap_and_never_guessed() {
    let harness = Harness::new().await;
    harness.provision(&request("1", 1)).await;
    harness.release("1").await;
    harness.memory.store.lose_events(|event| event.transition == "activate");
    let machine = of_machine(&harness, "i-0001").await;
    assert_eq!(words(&machine.life), ["register", "?", "release"]);
    let gap = machine.life[1].gap().unwrap();
    assert_eq!((gap.from.unwrap().0, gap.to), (State::Created, Some(State::Running)));
    let (_, lost_by) = machine.life[2].event().unwrap();
    assert_eq!(lost_by, None, "which run released it is not known");
    harness.memory.store.lose_events(|event| event.transition == "release");
    let machine = of_machine(&harness, "i-0001").await;
    assert_eq!(words(&machine.life), ["register", "?"]);
    assert_eq!(machine.life[1].gap().unwrap().to, Some(State::Idle), "as its record says");
}

#[tokio::test]
async fn a_label_shows_its_own_calls_and_machines_and_the_run_shows_all() {
    let harness = Harness::new().await;
    harness.provision(&request("7", 1)).await;
    let under = |suffix: &str| {
        let mut request: Request = request("7", 1);
        request.options.label_suffix = Some(suffix.parse().unwrap());
        request
    };
    harness.provision(&under("big")).await;
    let ids = |story: &RunStory| -> Vec<String> {
        story.machines.iter().map(|machine| machine.id.to_string()).collect()
    };
    let label = of_run(&harness, "7-big").await;
    assert_eq!((label.label.to_string().as_str(), label.calls.len()), ("7-big", 1));
    assert_eq!(ids(&label), ["i-0002"]);
    let whole = of_run(&harness, "7").await;
    assert_eq!((whole.calls.len(), ids(&whole).len()), (2, 2));
}

#[tokio::test]
async fn what_nothing_is_known_about_is_an_error_with_a_hint() {
    let harness = Harness::new().await;
    for text in ["8", "8-big", "i-404", "", "no such", &"x".repeat(200)] {
        let failure = explain(&harness.plane, &*harness.memory.store, text).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::InvalidInput, "{text}");
        assert!(!failure.hint.is_empty(), "{failure}");
    }
}

#[tokio::test]
async fn the_run_of_a_refresh_with_a_time_limit_has_asked_for_nothing() {
    let harness = Harness::new().await;
    let minimum = [("min-idle".to_owned(), "large=1".to_owned())].into();
    harness.plane.store.put_settings(&minimum).await.unwrap();
    let (given, never) = (std::collections::BTreeMap::new(), StopSignal::never());
    let refreshed = refresh_within(&harness.plane, None, Ok(&given), MINUTE, &never).await;
    refreshed.unwrap();
    let story = of_run(&harness, "keep-warm-later").await;
    assert_eq!((story.demands.len(), story.unfinished().count()), (0, 0), "it is a lease");
    assert_eq!(words(&story.machines[0].steps), ["register"]);
}

#[tokio::test]
async fn a_summary_that_cannot_be_stored_harms_nothing() {
    let harness = Harness::new().await;
    harness.memory.store.fail("put_summary");
    let outcome = harness.provision(&request("1", 1)).await;
    assert_eq!((outcome.failure, outcome.instances.len()), (None, 1));
    assert_eq!(harness.memory.store.calls()["put_summary"], 1, "it is tried once");
    let story = of_run(&harness, "1").await;
    assert_eq!((story.calls.len(), story.unfinished().count()), (0, 1), "what it did is unknown");
    assert_eq!(words(&story.machines[0].steps), ["register", "activate"]);
}

#[tokio::test]
async fn a_request_that_is_refused_before_it_begins_is_told_too() {
    let harness = Harness::new().await;
    let mut unknown = request("1", 1);
    unknown.options.class = "huge".parse().unwrap();
    let outcome = harness.provision(&unknown).await;
    assert_eq!(outcome.failure.unwrap().kind, FailureKind::InvalidInput);
    let story = of_run(&harness, "1").await;
    assert!(only(&story).ending.message.contains("huge"), "{:?}", story.calls);
}
