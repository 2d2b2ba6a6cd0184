//! `ondeck explain` after each window in which the program can be killed, and after each ending of a run,
//! against what the test knows to be true.

pub(crate) mod harmless;
mod table;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{AtTerminal, Driven, Home, signal, until};
use crate::json::assert_valid;

/// What explain tells about a subject: all its sentences, one on each line.
pub(crate) fn told(pool: &impl Driven, subject: &str) -> String {
    let done = pool.ondeck(&["explain", subject, "--json"]).succeeded();
    assert_valid("explain", &done);
    let story = done.json();
    let timeline = story["timeline"].as_array().unwrap().iter();
    let lines = timeline.map(|line| line["text"].as_str().unwrap());
    let present = story["present"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    lines.chain(present).collect::<Vec<_>>().join("\n")
}

/// Asserts that these are told, in this order, each in a line of its own.
#[track_caller]
pub(crate) fn assert_tells(told: &str, expected: &[&str]) {
    let mut lines = told.lines();
    for words in expected {
        assert!(
            lines.any(|line| line.contains(words)),
            "not told, or not in order: {words}\n{told}"
        );
    }
}

/// Kills a provision before this port call, once its request is stored. That is written beside its other
/// calls, and is no part of the window.
pub(crate) fn kill_provision_before(pool: &impl Driven, call: &str, run: &str, count: u32) {
    let (run_id, count) = (format!("--run-id={run}"), format!("--instance-count={count}"));
    let held = pool.hold_before(call, &["provision", &run_id, &count]);
    until("the run's request is stored", || {
        pool.ondeck(&["explain", run]).stdout.contains("The run asked for")
    });
    held.kill();
}

pub(crate) const NO_SUMMARY: &str = "What this call did is unknown: no summary of it is stored";
const ABOUT_TO: &str = "about to be handed to the run. Whether that was done is unknown";

#[test]
fn between_reservation_and_intent() {
    let home = Home::with(&["--max-machines=5"]);
    home.refresh(&[]);
    kill_provision_before(&home, "intent", "1", 1);
    let story = told(&home, "1");
    assert_tells(&story, &["The run asked for 1 on-demand machine", NO_SUMMARY, "owns no machine"]);
    assert!(!story.contains("intent"), "none was written: {story}");
}

#[test]
fn between_intent_and_launch_and_between_launch_and_register() {
    for point in ["launch", "register"] {
        let home = Home::with(&["--boot-deadline-sec=60"]);
        kill_provision_before(&home, point, "1", 2);
        let story = told(&home, "1");
        let intended = "A launch of 2 on-demand machines was intended";
        assert_tells(
            &story,
            &["asked for 2 on-demand machines", NO_SUMMARY, intended, "no machine"],
        );
        let machines = home.agents();
        if let Some(orphan) = machines.keys().next() {
            home.ondeck(&["explain", orphan]).exited(2);
            until("refresh sweeps it", || {
                home.refresh(&["--self-termination-grace-sec=0.1"]);
                home.agents().is_empty()
            });
            let story = told(&home, orphan);
            let why = "launched, but never registered";
            assert_tells(&story, &[why, "set to terminated: launched, but never registered"]);
        }
    }
}

/// What the story of a call that was killed at its hand-over tells of its summary. That is written beside
/// the hand-over, so the kill may have lost it.
fn summarised<'a>(story: &str, summary: &'a [&'a str]) -> &'a [&'a str] {
    const LOST: [&str; 1] = [NO_SUMMARY];
    if story.contains(LOST[0]) { &LOST } else { summary }
}

#[test]
fn between_register_and_activate_and_what_closes_it() {
    let home = Home::with(&["--self-termination-grace-sec=60"]);
    kill_provision_before(&home, "activate", "1", 1);
    let [machine] = &home.records().into_keys().collect::<Vec<_>>()[..] else { panic!("one") };
    let story = told(&home, "1");
    let present = format!("{machine} is created for the run until");
    assert_tells(&story, &["asked for", "registered for the run", &present]);
    assert_tells(&story, summarised(&story, &["launched within", ABOUT_TO]));
    assert_tells(
        &told(&home, machine),
        &["launched for run 1", "It is created, of run 1", "starts up"],
    );

    home.release("1").succeeded();
    let over = "was declared over: its provision did not finish";
    assert_tells(&told(&home, "1"), &["registered for the run", over]);
    home.refresh(&[]);
    let story = told(&home, "1");
    assert_tells(&story, &[over, "set to terminated: created for too long", "owns no machine now"]);
    assert_tells(&told(&home, machine), &["set to terminated", "should be gone"]);
}

#[test]
fn between_receive_and_claim() {
    let home = Home::with(&[]);
    let idle = home.warm_up(1);
    kill_provision_before(&home, "claim", "2", 1);
    assert_tells(&told(&home, "2"), &["The run asked for", NO_SUMMARY, "owns no machine now"]);
    let story = told(&home, &idle[0]);
    assert_tells(
        &story,
        &["Run warm-up released it", "It is idle", "waits for a run", "announces it"],
    );
    assert!(!story.contains("claimed"), "{story}");
}

#[test]
fn between_claim_and_deletion_of_the_ticket_the_other_run_learns_who_won() {
    let home = Home::with(&["--ticket-hold-sec=1.5", "--pickup-patience-sec=15"]);
    let [machine] = &home.warm_up(1)[..] else { panic!("one") };
    kill_provision_before(&home, "delete,commit,put-summary", "2", 1);
    home.provision("3", 1).succeeded();
    let story = told(&home, "3");
    let lost = format!("{machine} was lost to run 2, which claimed it first");
    assert_tells(&story, &["for tickets that other calls held", &lost, "launched within"]);
    assert!(story.contains("1 lost to other runs"), "{story}");
    let present = format!("{machine} is claimed for the run until");
    assert_tells(&told(&home, "2"), &[NO_SUMMARY, "claimed", &present]);
}

#[test]
fn between_claim_and_commit_and_what_closes_it() {
    let home = Home::with(&[]);
    let [machine] = &home.warm_up(1)[..] else { panic!("one") };
    kill_provision_before(&home, "commit", "2", 1);
    let story = told(&home, "2");
    assert_tells(&story, &["The run claimed"]);
    let summary = ["1 claimed and ready", "register its runner", ABOUT_TO];
    assert_tells(&story, summarised(&story, &summary));
    let story = told(&home, machine);
    assert_tells(
        &story,
        &["Run 2 claimed it", "It is claimed, of run 2", "Its run is checking it"],
    );

    home.release("2").succeeded();
    let back = "gave it back to the pool: its provision did not finish";
    assert_tells(&told(&home, machine), &["Run 2 claimed it", back, "It is idle"]);
}

#[test]
fn between_give_back_and_ticket_and_between_release_and_ticket() {
    let home = Home::with(&["--local-launch-failure=no room"]);
    home.refresh(&["--local-launch-failure="]);
    let [machine] = &home.warm_up(1)[..] else { panic!("one") };
    home.refresh(&["--local-launch-failure=no room"]);
    kill_provision_before(&home, "send", "2", 2);
    let unannounced = "The pool does not announce it";
    let gave = "Run 2 gave it back to the pool: the run could not be served";
    assert_tells(&told(&home, machine), &["Run 2 claimed it", gave, "It is idle", unannounced]);
    assert_tells(&told(&home, "2"), &[NO_SUMMARY, "claimed", "went back to the pool"]);

    let home = Home::with(&[]);
    let [machine] = &home.provision("1", 1).succeeded().ids()[..] else { panic!("one") };
    home.kill_before("send", &["release", "--run-id=1"]);
    assert_tells(&told(&home, machine), &["Run 1 released it", "It is idle", unannounced]);
    assert_tells(&told(&home, "1"), &["handed to the run", "released into the pool"]);
    home.refresh(&[]);
    assert_tells(&told(&home, machine), &["It is idle", "The pool announces it since"]);
}

#[test]
fn between_reap_and_terminate() {
    let home = Home::with(&["--self-termination-grace-sec=60"]);
    let [machine] = &home.provision("1", 1).succeeded().ids()[..] else { panic!("one") };
    home.ondeck(&["release", "--run-id=1", "--idle-time-sec=1"]).succeeded();
    until("its idle time is over", || told(&home, machine).contains("Its time was over at"));
    home.kill_before("terminate", &["refresh"]);
    let story = told(&home, machine);
    let reaped = "Its record was set to terminated: idle for too long";
    assert_tells(&story, &["Run 1 released it", reaped, "The machine itself should be gone"]);
}

#[test]
fn between_the_last_activation_and_the_report() {
    let home = Home::with(&[]);
    let held = home.hold_before("put-summary", &["provision", "--run-id=1", "--instance-count=2"]);
    until("both are handed over", || home.standings() == ["running 1", "running 1"]);
    held.kill();
    let story = told(&home, "1");
    assert_tells(&story, &["asked for 2", NO_SUMMARY, "handed to the run", "is running for"]);
}

#[test]
fn between_the_changes_of_a_drain() {
    let home = Home::with(&["--self-termination-grace-sec=60"]);
    let [machine] = &home.warm_up(1)[..] else { panic!("one") };
    let drain = ["drain", machine, "--actor=alice", "--reason=old disks"];
    home.kill_before("reap", &drain);
    let over = "Its time as idle was declared over: drained by alice: old disks";
    let story = told(&home, machine);
    assert_tells(&story, &["Run warm-up released it", over, "Its time was over at"]);
    assert!(!story.contains("waits for a run"), "{story}");
    home.kill_before("terminate", &drain);
    let reaped = "Its record was set to terminated: drained by alice: old disks";
    assert_tells(&told(&home, machine), &[over, reaped, "The machine itself should be gone"]);

    // A busy machine is marked, and its run goes on.
    let busy = home.provision("1", 1).succeeded().ids().concat();
    home.ondeck(&["drain", &busy, "--actor=alice", "--yes"]).succeeded();
    let marked = "It is to serve no further run: drained by alice";
    let leaves = "It was drained: it serves no further run";
    assert_tells(&told(&home, &busy), &["handed to run 1", marked, "is running", leaves]);
}

#[test]
fn between_the_changes_of_a_teardown() {
    let home = Home::with(&["--self-termination-grace-sec=60"]);
    let [machine] = &home.warm_up(1)[..] else { panic!("one") };
    home.kill_before("terminate", &["teardown", "--yes"]);
    let story = told(&home, machine);
    assert_tells(&story, &["released it", "set to terminated: ", "should be gone"]);
}

/// A machine of the pool that is slow to register, beside a second one.
#[test]
fn a_second_claim_beside_a_slow_machine() {
    let slow = ["--claim-registration-timeout-sec=60", "--claim-timeout-sec=120"];
    let home = Home::with(&[&["--heartbeat-period-sec=30"], &slow[..]].concat());
    let warm = home.warm_up(2);
    signal(home.agents()[&warm[0]], Signal::STOP);
    home.provision("2", 1).succeeded();
    let story = told(&home, "2");
    let (slow, quick) = (&warm[0], &warm[1]);
    let second = format!("{slow} was slow to register, so a second machine was looked for");
    let given_back = format!("{slow} was given back, since another machine was ready first");
    let now = format!("{quick} is running for the run until");
    assert_tells(&story, &["The run asked for 1", &second, &given_back, &now]);
    assert!(story.contains("1 claimed and ready; 1 given back unused"), "{story}");
    let gave = "Run 2 gave it back to the pool";
    assert_tells(&told(&home, slow), &["Run 2 claimed it", gave, "It is idle"]);
}

/// Its machine has died, its job waits, and refresh gives it another one.
#[test]
fn a_run_that_refresh_has_rescued() {
    let home = Home::with(&["--heartbeat-period-sec=0.2"]);
    let machine = home.provision("1", 1).succeeded().ids().concat();
    signal(home.agents()[&machine], Signal::KILL);
    let job = home.start(&["run", "--run-id=1", "--", "true"]);
    until("refresh has rescued the run", || {
        home.refresh(&[]);
        told(&home, "1").contains("Refresh found jobs of the run waiting and asked again for 1")
    });
    job.finish().succeeded();
    let story = told(&home, "1");
    let again = "Refresh found jobs of the run waiting and asked again for 1 on-demand machine";
    assert_tells(&story, &["The run asked for 1", "handed to the run", again, "handed to the run"]);
    assert_tells(&told(&home, &machine), &["handed to run 1"]);
}

/// Each state that can end by its threshold, with the reason that refresh gives.
#[test]
fn machines_whose_time_is_over() {
    let home = Home::with(&["--self-termination-grace-sec=60", "--max-runtime-min=0.02"]);
    let machine = home.provision("1", 1).succeeded().ids().concat();
    until("its time is over", || told(&home, &machine).contains("Its time was over at"));
    let is_late = "It is there until the next refresh terminates it";
    assert_tells(&told(&home, &machine), &["handed to run 1", is_late]);
    home.refresh(&[]);
    let why = "set to terminated: running for too long";
    assert_tells(&told(&home, &machine), &["handed to run 1", why, "should be gone"]);
    assert_tells(&told(&home, "1"), &["handed to the run", why, "owns no machine now"]);
}

#[test]
fn a_summary_that_is_never_stored_holds_up_nothing_and_the_events_tell_the_rest() {
    let home = Home::with(&[]);
    home.warm_up(1);
    let held = home.hold_before("put-summary", &["provision", "--run-id=2"]);
    held.finish().succeeded();
    let story = told(&home, "2");
    let handed = "passed the checks and was handed to the run";
    assert_tells(&story, &["asked for", NO_SUMMARY, "The run claimed", handed, "is running for"]);
}

#[test]
fn a_run_whose_summary_refresh_has_deleted_is_not_said_to_be_killed() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    home.release("1").succeeded();
    home.refresh(&["--retention-min=0"]);
    let deleted = "It is still at work, it was killed, or its summary was lost or has been deleted";
    assert_tells(&told(&home, "1"), &["The run asked for 1", NO_SUMMARY, "owns no machine now"]);
    assert_tells(&told(&home, "1"), &[deleted]);
}

#[test]
fn a_run_without_capacity_a_cancelled_one_and_one_with_picky_types() {
    let home = Home::with(&["--local-capacity=1", "--local-boot-ms=30000"]);
    home.provision("1", 2).exited(4);
    let failed = "The call failed (no-capacity): not enough capacity";
    assert_tells(&told(&home, "1"), &["announced no idle machine", "Ordered 2", failed]);

    let provision = home.start(&["provision", "--run-id=2", "-v"]);
    provision.until_it_says("register");
    provision.signal(Signal::INT);
    provision.finish().exited(130);
    let story = told(&home, "2");
    assert_tells(
        &story,
        &["asked for 1", "it was launched within", "The call failed (interrupted)"],
    );
    assert!(story.contains("1 machine terminated"), "{story}");

    let home = Home::with(&[]);
    let idle = home.warm_up(1);
    home.ondeck(&["provision", "--run-id=3", "--allowed-instance-types=zz*"]).exited(4);
    let unsuitable = format!("{} did not fit: its type is not allowed", idle[0]);
    let counted = "1 idle machine was looked at: 1 did not fit (1: its type is not allowed)";
    assert_tells(&told(&home, "3"), &["of the types zz*", counted, &unsuitable]);
}

#[test]
fn labels_ledgers_and_subjects_that_nothing_is_known_about() {
    let home = Home::with(&[]);
    home.provision("7", 1).succeeded();
    home.ondeck(&["provision", "--run-id=7", "--label-suffix=big"]).succeeded();
    let machines = |subject: &str| -> usize {
        told(&home, subject).matches(" is running for the run until").count()
    };
    assert_eq!((machines("7"), machines("7-big")), (2, 1));
    let story = home.ondeck(&["explain", "7-big", "--json"]).succeeded().json();
    assert_eq!((&story["subject"], &story["id"]), (&Value::from("run"), &Value::from("7-big")));
    let phases: Vec<&str> = story["ledger"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["phase"].as_str().unwrap())
        .collect();
    assert_eq!(phases.first(), Some(&"preparation"));
    assert_eq!(phases.last(), Some(&"total"));
    assert!(phases.contains(&"validation"), "{phases:?}");
    for unknown in ["8", "8-big", "i-404"] {
        let done = home.ondeck(&["explain", unknown]).exited(2);
        assert!(
            done.stderr.contains("the pool knows no such run, label or machine"),
            "{}",
            done.stderr
        );
        assert!(done.stderr.contains("hint: "), "{}", done.stderr);
        assert_valid("explain", &home.ondeck(&["explain", unknown, "--json"]).exited(2));
    }
    Home::bare().ondeck(&["explain", "7"]).exited(3);
}

#[test]
fn a_file_of_an_earlier_version_has_no_summaries_and_is_read_all_the_same() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    home.file().execute_batch("DROP TABLE summaries").unwrap();
    assert_tells(&told(&home, "1"), &[NO_SUMMARY, "handed to the run", "is running for the run"]);
    home.provision("2", 1).succeeded();
    assert_tells(&told(&home, "2"), &["The run asked for", "launched within", "handed to the run"]);
}

#[test]
fn the_text_fits_the_terminal_and_has_colour_only_there() {
    let home = Home::with(&[]);
    home.provision("1", 3).succeeded();
    let at_terminal = |variable: Option<(&str, &str)>| {
        let mut command = home.command(&["explain", "1"]);
        command.env("TERM", "xterm-256color").envs(variable);
        AtTerminal::start_sized(command, 60).finish()
    };
    let shown = at_terminal(Some(("NO_COLOR", "1")));
    assert!(shown.contains("handed to the run") && !shown.contains('\x1b'), "{shown:?}");
    let widest = shown.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
    assert!(widest <= 60, "{widest} columns: {shown}");
    assert!(at_terminal(None).contains("\x1b[1m"));
    let piped = home.ondeck(&["explain", "1"]).succeeded().stdout;
    assert!(!piped.contains('\x1b'), "{piped:?}");
    assert!(piped.lines().any(|line| line.chars().count() > 80), "a pipe is not wrapped: {piped}");
}
