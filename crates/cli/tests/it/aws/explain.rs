//! `ondeck explain` on AWS, with the operator's role: the harness fails a test whose calls the policies
//! deny.

use std::time::Duration;

use ondeck_standin::{AwsFault, AwsFaultRule, Capacity, Role, Service};

use super::harness::{AwsHarness, LAUNCH};
use super::teardown::{teardown, with_teardown_policy};
use crate::explain::harmless::{LOOKED_AT, assert_saw_late, kill_a_look_at_the_pool};
use crate::explain::{NO_SUMMARY, assert_tells, kill_provision_before, told};
use crate::harness::{Answer, Background, Driven, Receiver, until};

#[test]
fn the_story_of_a_warm_run_and_its_machine_takes_a_bounded_number_of_calls() {
    let harness = AwsHarness::with(&[]);
    let [machine] = &harness.warm_up(1)[..] else { panic!("one machine") };
    harness.provision("2", 1).succeeded();
    harness.control.reset();
    let story = told(&harness, "2");
    let calls = harness.control.calls();
    let handed = "passed the checks and was handed to the run";
    let found = "1 idle machine was looked at: 1 claimed and ready";
    assert_tells(&story, &["The run asked for 1", found, "The run claimed", handed]);
    assert!(story.contains(&format!("{machine} is running for the run until")), "{story}");
    assert!(calls.keys().all(|(service, _)| *service == Service::DynamoDb), "{calls:?}");
    assert!(harness.control.total() <= 20, "{calls:?}");

    harness.control.reset();
    let life = told(&harness, machine);
    let (launched, released) = ("launched for run warm-up", "Run warm-up released it");
    assert_tells(
        &life,
        &[launched, released, "Run 2 claimed it", "handed to run 2", "It is running"],
    );
    assert!(harness.control.total() <= 10, "{:?}", harness.control.calls());
    harness.ondeck(&["explain", "i-404"]).exited(2);
}

#[test]
fn the_summary_is_written_beside_the_hand_over() {
    let harness = AwsHarness::with(&[]);
    harness.warm_up(1);
    let slow = AwsFaultRule::new(AwsFault::Delay(std::time::Duration::from_millis(100)));
    harness.control.inject(slow.service(Service::DynamoDb).operation("TransactWriteItems"));
    harness.control.reset();
    harness.provision("2", 1).succeeded();
    let log = harness.control.log();
    let of = |operation: &'static str| log.iter().filter(move |it| it.operation == operation);
    // The claim, which is one as well, comes first.
    let hand_over = of("TransactWriteItems").max_by_key(|it| it.at).unwrap();
    // Either of the two may be sent first.
    let beside = of("BatchWriteItem").filter(|it| it.ended() > hand_over.at).collect::<Vec<_>>();
    assert_eq!(beside.len(), 1, "the summary: {log:?}");
    assert!(beside[0].ended() < hand_over.ended(), "neither waits for the other: {log:?}");
}

#[test]
fn events_that_were_lost_are_a_gap() {
    let harness = AwsHarness::with(&[]);
    let [machine] = &harness.provision("1", 1).succeeded().ids()[..] else { panic!("one") };
    let lost = AwsFaultRule::new(AwsFault::Refusal(400, "ValidationException"));
    harness.control.inject(lost.service(Service::DynamoDb).operation("BatchWriteItem"));
    harness.release("1").succeeded();
    harness.control.clear_faults();
    let gap = format!("Unknown: no event tells how {machine}, running at");
    let life = told(&harness, machine);
    assert_tells(&life, &["handed to run 1", &gap, "It is idle"]);
    assert!(!life.contains("released it"), "{life}");
    let next = format!("What happened next is unknown: {machine} was running at");
    let story = told(&harness, "1");
    assert!(story.contains(&gap) || story.contains(&next), "{story}");
}

#[test]
fn after_the_windows_of_a_launch() {
    let patient = ["--max-machines=9", "--boot-deadline-sec=60"];
    let harness = AwsHarness::with(&patient);
    kill_provision_before(&harness, "intent", "1", 1);
    let story = told(&harness, "1");
    assert_tells(&story, &["The run asked for 1", NO_SUMMARY, "owns no machine now"]);
    assert!(!story.contains("intended"), "{story}");

    kill_provision_before(&harness, "register", "2", 1);
    let intended = "A launch of 1 on-demand machine was intended";
    assert_tells(&told(&harness, "2"), &["The run asked for 1", NO_SUMMARY, intended]);
    let machines = harness.machines();
    let orphan = machines.first().unwrap();
    harness.ondeck(&["explain", orphan]).exited(2);
    until("refresh sweeps it", || {
        harness.refresh(&["--self-termination-grace-sec=0.1"]);
        harness.machines().is_empty()
    });
    let why = "set to terminated: launched, but never registered";
    assert_tells(&told(&harness, orphan), &[why]);
}

/// The wake-up of the claim is refused, as if the process had been killed before it was sent.
#[test]
fn between_a_change_and_its_wake_up() {
    let seldom = ["--heartbeat-period-sec=7", "--claim-registration-timeout-sec=24"];
    let harness = AwsHarness::with(&[&seldom[..], &["--claim-timeout-sec=120"]].concat());
    let [machine] = &harness.warm_up(1)[..] else { panic!("one machine") };
    let lost = AwsFaultRule::new(AwsFault::Refusal(400, "InvalidAddress"));
    harness.control.inject(lost.service(Service::Sqs).operation("SendMessage"));
    // The agent has just looked, and looks again 12 s later: half of what a claim waits.
    harness.ondeck(&["provision", "--run-id=2", "--machine-source=pool"]).succeeded();
    harness.control.clear_faults();
    assert_saw_late(&harness, machine, "2", 2.0..14.0);
    harness.release("2").succeeded();
}

#[test]
fn a_machine_that_its_provider_takes_away() {
    let harness = AwsHarness::with(&[]);
    let [machine] = &harness.provision("1", 1).succeeded().ids()[..] else { panic!("one machine") };
    harness.gateway.ec2().interrupt(machine, Duration::from_secs(120));
    let announced = "Its provider has announced that it takes the machine away.";
    until("the agent says so", || told(&harness, machine).contains(announced));
    let now = format!("{machine} is running for the run until");
    let story = told(&harness, "1");
    let line = story.lines().find(|line| line.starts_with(&now)).unwrap();
    assert!(line.ends_with(announced), "{story}");
}

#[test]
fn between_receive_and_put_back_of_pool() {
    let harness = AwsHarness::with(&LOOKED_AT);
    let [machine] = &harness.warm_up(1)[..] else { panic!("one machine") };
    kill_a_look_at_the_pool(&harness, machine);
}

#[test]
fn between_the_calls_of_a_set_up() {
    let harness = AwsHarness::bare();
    let refresh = [&["refresh"], &LAUNCH[..]].concat();
    harness.kill_before("put-settings", &refresh);
    harness.ondeck(&["explain", "1"]).exited(3);
    let patient = ["provision", "--run-id=1", "--registration-token-patience-sec=60"];
    let run = harness.start(&patient);
    run.until_it_says("waiting for the first refresh to set up the pool");
    harness.set_up(&[]);
    run.finish().succeeded();
    let waited = " for the first refresh to set up the pool";
    assert_tells(&told(&harness, "1"), &["The run asked for 1", waited, "handed to the run"]);
}

#[test]
fn between_the_last_activation_and_the_report() {
    let harness = AwsHarness::with(&[]);
    let provision = ["provision", "--run-id=1", "--instance-count=2"];
    let held = harness.hold_before("put-summary", &provision);
    until("both are handed over", || harness.standings() == ["running 1", "running 1"]);
    held.kill();
    let story = told(&harness, "1");
    assert_tells(&story, &["asked for 2", NO_SUMMARY, "is running for"]);
    // The events of the hand-over are written beside it, so the kill may have lost them.
    let is_told = story.contains("handed to the run");
    assert!(is_told || story.contains("Unknown: no event tells how"), "{story}");
}

#[test]
fn between_the_changes_of_a_drain() {
    let harness = AwsHarness::with(&["--self-termination-grace-sec=60"]);
    let [machine] = &harness.warm_up(1)[..] else { panic!("one machine") };
    harness.kill_before("reap", &["drain", machine, "--reason=old disks", "--yes"]);
    // The event of the first change waits for others for a moment, and the kill may have lost it.
    let life = told(&harness, machine);
    let over = "Its time as idle was declared over: drained by";
    let unknown = "Unknown: after";
    assert!(life.contains(over) || life.contains(unknown), "{life}");
    assert_tells(&life, &["Run warm-up released it", "Its time was over at"]);
    assert!(!life.contains("waits for a run"), "{life}");
    harness.ondeck(&["drain", machine, "--reason=old disks", "--yes"]).succeeded();
    assert_tells(&told(&harness, machine), &["Its record was set to terminated", "should be gone"]);
}

#[test]
fn between_the_calls_of_a_teardown() {
    let folder = tempfile::tempdir().unwrap();
    let harness = with_teardown_policy(folder.path());
    let [machine] = &harness.warm_up(1)[..] else { panic!("one machine") };
    let mut command = harness.command(&["teardown", "--yes"]);
    command.env("AWS_ACCESS_KEY_ID", Role::Refresh.name()).env("ONDECK_HOLD_BEFORE", "terminate");
    let held = Background::start(&mut command);
    held.until_it_says("held before terminate");
    held.kill();
    let life = told(&harness, machine);
    let reaped = match life.contains("Unknown: no event tells how") {
        true => "became terminated",
        false => "Its record was set to terminated: ",
    };
    assert_tells(&life, &["Run warm-up released it", reaped, "should be gone"]);
    // The table is deleted last, and the story with it.
    teardown(&harness, &[]).succeeded();
    harness.ondeck(&["explain", machine]).exited(3);
}

#[test]
fn between_a_notice_and_its_record() {
    let harness = AwsHarness::with(&["--heartbeat-period-sec=1"]);
    let webhook = Receiver::start();
    webhook.answers(Answer::Silence);
    let machine = harness.provision("1", 1).succeeded().ids().concat();
    assert!(harness.gateway.ec2().kill_agent(&machine));
    let silent = "Its agent may be dead";
    until("the machine is silent", || told(&harness, &machine).contains(silent));
    let mut command = harness.command(&["refresh"]);
    let refresh = Background::start(command.env("ONDECK_NOTICE_WEBHOOK", webhook.url("/x")));
    until("it tells", || webhook.count() == 1);
    refresh.kill();
    let story = told(&harness, &machine);
    assert_tells(&story, &["handed to run 1", "It is running, of run 1", silent]);
}

#[test]
fn after_the_windows_of_a_claim_and_a_give_back() {
    let harness = AwsHarness::with(&["--ticket-hold-sec=2", "--pickup-patience-sec=15"]);
    let [machine] = &harness.warm_up(1)[..] else { panic!("one machine") };
    kill_provision_before(&harness, "delete,commit,put-summary", "2", 1);
    harness.provision("3", 1).succeeded();
    let lost = format!("{machine} was lost to run 2, which claimed it first");
    assert_tells(&told(&harness, "3"), &["The run asked for 1", &lost, "launched within"]);
    let claimed = format!("{machine} is claimed for the run until");
    assert_tells(&told(&harness, "2"), &[NO_SUMMARY, "claimed", &claimed]);
    harness.release("2").succeeded();

    harness.gateway.ec2().set_capacity(Capacity { total: Some(2), ..Capacity::default() });
    kill_provision_before(&harness, "send", "4", 2);
    let gave = "Run 4 gave it back to the pool: the run could not be served";
    let unannounced = "The pool does not announce it";
    assert_tells(&told(&harness, machine), &["Run 4 claimed it", gave, "It is idle", unannounced]);
    assert_tells(&told(&harness, "4"), &[NO_SUMMARY, "claimed", "went back to the pool"]);
    harness.refresh(&[]);
    assert_tells(&told(&harness, machine), &[gave, "The pool announces it since"]);
}

#[test]
fn after_the_window_of_a_reap() {
    let harness = AwsHarness::with(&["--self-termination-grace-sec=60"]);
    let machines = harness.provision("3", 1).succeeded().ids();
    harness.ondeck(&["release", "--run-id=3", "--idle-time-sec=3"]).succeeded();
    harness.until_expired(&machines);
    harness.kill_before("terminate", &["refresh"]);
    // The event of the reap waits for others for a moment, and the kill may have lost it.
    let life = told(&harness, &machines[0]);
    let reaped = match life.contains("Unknown: no event tells how") {
        true => "became terminated",
        false => "Its record was set to terminated: idle for too long",
    };
    assert_tells(&life, &["Run 3 released it", reaped, "It is terminated", "should be gone"]);
}

#[test]
fn after_each_window_in_which_a_provision_or_a_release_can_be_killed() {
    let harness = AwsHarness::with(&["--self-termination-grace-sec=60", "--boot-deadline-sec=60"]);
    let no_summary = NO_SUMMARY;
    let about_to = "about to be handed to the run. Whether that was done is unknown";

    kill_provision_before(&harness, "launch", "1", 1);
    let intended = "A launch of 1 on-demand machine was intended";
    assert_tells(&told(&harness, "1"), &["The run asked for 1", no_summary, intended]);

    kill_provision_before(&harness, "activate", "2", 1);
    // The summary is written beside the hand-over, so the kill may have lost it.
    let story = told(&harness, "2");
    let told_by: &[&str] = match story.contains(no_summary) {
        true => &[no_summary, "registered for the run", "is created for"],
        false => &["launched within", "registered for the run", about_to, "is created for"],
    };
    assert_tells(&story, told_by);
    harness.release("2").succeeded();
    let over = "was declared over: its provision did not finish";
    assert_tells(&told(&harness, "2"), &["registered for the run", over]);

    let [machine] = &harness.warm_up(1)[..] else { panic!("one machine") };
    kill_provision_before(&harness, "claim", "3", 1);
    assert_tells(&told(&harness, "3"), &["The run asked for 1", no_summary, "owns no machine now"]);
    harness.refresh(&["--ticket-hold-sec=2", "--pickup-patience-sec=15"]);
    kill_provision_before(&harness, "commit", "4", 1);
    let story = told(&harness, "4");
    let told_by: &[&str] = match story.contains(no_summary) {
        true => &[no_summary, "The run claimed", "is claimed for the run"],
        false => &["The run claimed", about_to, "is claimed for the run"],
    };
    assert_tells(&story, told_by);
    let back = "Run 4 gave it back to the pool: its provision did not finish";
    harness.release("4").succeeded();
    assert_tells(&told(&harness, machine), &["Run 4 claimed it", back, "announces it since"]);

    harness.provision("5", 1).succeeded();
    harness.kill_before("send", &["release", "--run-id=5"]);
    let life = told(&harness, machine);
    assert_tells(&life, &["handed to run 5", "It is idle", "The pool does not announce it"]);
}
