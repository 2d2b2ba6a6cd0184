//! Told to stop in the middle: cleared up, and the exit code says by which signal.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Background, Done, Driven, Home, signal, until, within};

fn stopped_while_machines_boot(which: Signal, code: i32, words: &str) {
    let home = Home::with(&["--local-boot-ms=60000"]);
    let provision = home.start(&["provision", "-vv", "--run-id", "1", "--instance-count", "3"]);
    provision.until_it_says("waiting for new machines to become ready");
    assert_eq!(home.standings(), ["created 1"; 3]);
    provision.signal(which);
    let done = provision.finish().exited(code);
    assert!(done.stderr.contains(&format!("error: {words}")), "{}", done.stderr);
    assert_eq!(done.stdout, "");
    home.assert_empty();
    assert_eq!(home.texts("SELECT DISTINCT state FROM instances"), ["terminated"]);
    assert_eq!(home.texts("SELECT outcome FROM intents"), ["launched 3 of 3"]);

    home.refresh(&["--local-boot-ms=0"]);
    assert_eq!(home.provision("1", 3).succeeded().sources(), ["cold"; 3]);
}

#[test]
fn an_interrupt_during_validation_ends_every_new_machine() {
    stopped_while_machines_boot(Signal::INT, 130, "interrupted");
}

#[test]
fn a_terminate_during_validation_ends_every_new_machine() {
    stopped_while_machines_boot(Signal::TERM, 143, "told to terminate");
}

#[test]
fn a_terminal_that_closes_counts_as_a_terminate() {
    stopped_while_machines_boot(Signal::HUP, 143, "told to terminate");
}

#[test]
fn a_quit_counts_as_a_terminate() {
    stopped_while_machines_boot(Signal::QUIT, 143, "told to terminate");
}

#[test]
fn a_terminate_after_an_interrupt_does_not_cut_the_clear_up_short() {
    let home = Home::with(&["--local-boot-ms=60000"]);
    let provision = home.start(&["provision", "-vv", "--run-id", "1", "--instance-count", "3"]);
    provision.until_it_says("waiting for new machines to become ready");
    provision.signal(Signal::INT);
    provision.until_it_says("cleaning up");
    provision.signal(Signal::TERM);
    provision.finish().exited(130);
    home.assert_empty();
}

/// How long GitHub waits between SIGINT and SIGTERM.
const TO_TERMINATE: Duration = Duration::from_millis(7_500);

/// Interrupts a provision and waits until it has ended, which it does long before GitHub's SIGTERM.
#[track_caller]
fn interrupted(mut provision: Background) -> Done {
    let since = Instant::now();
    provision.signal(Signal::INT);
    assert!(within(TO_TERMINATE, || provision.has_ended()), "it goes on for {TO_TERMINATE:?}");
    let done = provision.finish().exited(130);
    assert!(since.elapsed() < TO_TERMINATE, "{done:?}");
    done
}

#[test]
fn an_interrupt_during_validation_returns_what_was_claimed() {
    let home = Home::with(&[]);
    let mut warm = home.warm_up(2);
    warm.sort();
    home.refresh(&["--local-boot-ms=60000"]);
    let ask = ["provision", "--json", "-vv", "--run-id", "2", "--instance-count", "4"];
    let provision = home.start(&ask);
    provision.until_it_says("waiting for new machines to become ready");
    assert_eq!(home.standings(), ["claimed 2", "claimed 2", "created 2", "created 2"]);
    let done = interrupted(provision).json();
    assert_eq!(done["terminated"].as_array().unwrap().len(), 2, "{done}");
    assert_eq!(done["returned"].as_array().unwrap().len(), 2, "{done}");
    assert_eq!((home.standings(), home.tickets()), (vec!["idle".to_owned(); 2], 2));
    assert_eq!(home.agents().into_keys().collect::<Vec<_>>(), warm);
    let next = home.provision("3", 2).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned(); 2], warm));
}

/// The agent polls every 50 ms and often has not seen the claim yet when the machine is idle again.
#[test]
fn an_interrupt_right_after_the_claim_returns_the_machine() {
    let home = Home::with(&["--ticket-hold-sec=1", "--pickup-patience-sec=5"]);
    let warm = home.warm_up(1);
    for run in 2..12 {
        let provision = home.start(&["provision", "--run-id", &run.to_string()]);
        until("the machine is claimed", || home.standings() != ["idle"]);
        provision.signal(Signal::INT);
        let done = provision.finish();
        if done.code == 0 {
            home.release(&run.to_string()).succeeded();
        }
        assert_eq!((home.standings(), home.tickets()), (vec!["idle".to_owned()], 1), "{done:?}");
    }
    let next = home.provision("next", 1).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], warm));
}

#[test]
fn further_signals_during_the_clean_up_cost_no_machine() {
    let home = Home::with(&["--agent-poll-running-sec=2"]);
    let warm = home.warm_up(1);
    home.refresh(&["--local-boot-ms=60000"]);
    let provision = home.start(&["provision", "-vv", "--run-id", "2", "--instance-count", "2"]);
    provision.until_it_says("waiting for new machines to become ready");
    provision.signal(Signal::INT);
    provision.until_it_says("cleaning up");
    for which in [Signal::INT, Signal::TERM, Signal::INT] {
        provision.signal(which);
    }
    provision.finish().exited(130);
    assert_eq!((home.standings(), home.tickets()), (vec!["idle".to_owned()], 1));
    assert_eq!(home.provision("3", 1).succeeded().ids(), warm);
}

#[test]
fn an_interrupt_does_not_wait_for_an_agent_that_does_not_answer() {
    let home = Home::with(&["--claim-registration-timeout-sec=30", "--heartbeat-period-sec=20"]);
    let warm = home.warm_up(1);
    let agent = home.agents()[&warm[0]];
    signal(agent, Signal::STOP);
    let provision = home.start(&["provision", "--json", "--run-id", "2"]);
    until("the machine is claimed", || home.standings() == ["claimed 2"]);
    let done = interrupted(provision).json();
    assert_eq!((&done["terminated"], &done["returned"]), (&json!([]), &json!([])), "{done}");
    assert_eq!(done["cleanUpFailures"].as_array().unwrap().len(), 2, "{done}");
    assert_eq!((home.standings(), home.tickets()), (vec!["idle".to_owned()], 0));

    signal(agent, Signal::CONT);
    until("refresh announces it", || home.refresh(&[])["requeued"] == json!(warm));
    let next = home.provision("3", 1).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], warm));
}

#[test]
fn an_interrupt_leaves_what_the_run_had_before() {
    let home = Home::with(&[]);
    let before = home.provision("1", 1).succeeded().ids();
    home.refresh(&["--local-boot-ms=60000"]);
    let more = home.start(&["provision", "-vv", "--run-id", "1", "--instance-count", "2"]);
    more.until_it_says("waiting for new machines to become ready");
    more.signal(Signal::INT);
    more.finish().exited(130);
    assert_eq!(home.standings(), ["running 1"]);
    assert_eq!(home.agents().into_keys().collect::<Vec<_>>(), before);
}

#[test]
fn a_release_that_is_stopped_is_finished_by_refresh() {
    for which in [Signal::TERM, Signal::QUIT] {
        release_stopped_by(which);
    }
}

fn release_stopped_by(which: Signal) {
    let home = Home::with(&[]);
    let ids = home.provision("1", 1).succeeded().ids();
    let agent = home.agents()[&ids[0]];
    signal(agent, Signal::STOP);
    let release = home.start(&["release", "--run-id", "1"]);
    until("the machine is let go", || home.standings() == ["idle"]);
    release.signal(which);
    release.finish().exited(143);
    assert_eq!(home.tickets(), 0);
    signal(agent, Signal::CONT);
    until("refresh announces it", || home.refresh(&[])["requeued"] == serde_json::json!(ids));
    assert_eq!(home.provision("2", 1).succeeded().ids(), ids);
}

#[test]
fn a_run_that_is_stopped_cancels_its_job() {
    for (which, code) in [(Signal::INT, 130), (Signal::QUIT, 143)] {
        job_stopped_by(which, code);
    }
}

fn job_stopped_by(which: Signal, code: i32) {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let job = home.start(&["run", "--run-id", "1", "--", "sh", "-c", "echo begun; sleep 1000"]);
    job.until_it_says("begun");
    job.signal(which);
    job.finish().exited(code);
    until("the job is cancelled", || home.texts("SELECT state FROM jobs") == ["cancelled"]);
    until("only the agent is left", || home.processes().len() == 1);
    // The machine is none the worse for it.
    home.ondeck(&["run", "--run-id", "1", "--", "true"]).succeeded();
}

#[test]
fn a_job_that_is_withdrawn_while_it_waits_is_never_run() {
    let home = Home::with(&[]);
    let job = home.start(&["run", "--run-id", "1", "--", "true"]);
    until("the job is queued", || home.texts("SELECT state FROM jobs") == ["queued"]);
    job.signal(Signal::TERM);
    job.finish().exited(143);
    assert_eq!(home.texts("SELECT state FROM jobs"), ["cancelled"]);
    home.provision("1", 1).succeeded();
    home.ondeck(&["run", "--run-id", "1", "--", "true"]).succeeded();
    assert_eq!(home.texts("SELECT state FROM jobs ORDER BY id"), ["cancelled", "done"]);
}

#[test]
fn a_refresh_that_is_stopped_ends_what_it_was_warming_up() {
    for (which, code) in [(Signal::INT, 130), (Signal::QUIT, 143)] {
        refresh_stopped_by(which, code);
    }
}

fn refresh_stopped_by(which: Signal, code: i32) {
    let home = Home::with(&["--local-boot-ms=60000"]);
    let refresh = home.start(&["refresh", "--min-idle=large=2"]);
    until("two machines are being warmed up", || home.standings().len() == 2);
    refresh.signal(which);
    refresh.finish().exited(code);
    home.assert_empty();
    assert_eq!(home.refresh(&["--local-boot-ms=0"])["warmed"], 2);
}
