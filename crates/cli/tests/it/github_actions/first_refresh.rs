//! A provision that comes before the first refresh.

use insta::assert_snapshot;
use rustix::process::Signal;

use super::WorkflowStep;
use crate::harness::{Background, Driven, Home, TIMES};

#[test]
fn the_first_provision_waits_for_the_first_refresh() {
    let home = Home::bare();
    let step = WorkflowStep::of(&home);
    let provision = Background::start(&mut step.command(&["provision", "--run-id=7"]));
    provision.until_it_says("waiting for the first refresh to set up the pool");
    home.ondeck(&[&["refresh"], &TIMES[..]].concat()).succeeded();
    provision.finish().succeeded();
    assert_eq!(home.standings(), ["running 7"]);
}

#[test]
fn a_provision_that_waited_for_refresh_in_vain_says_what_to_do() {
    let home = Home::bare();
    let step = WorkflowStep::of(&home);
    let patience = "--registration-token-patience-sec=1.5";
    let done = step.run(&["provision", "--run-id=7", patience]).exited(3);
    let dir = home.dir().display().to_string();
    let error = done.stderr.lines().last().unwrap().replace(&dir, "HOME");
    assert_snapshot!(error, @"::error title=ondeck provision%3A not-set-up::not set up: there is no store at HOME/ondeck.db, and no refresh has run within 1.5 s%0Ahint: run ondeck refresh, or start the workflow that does, then re-run this job");
    assert!(step.outputs().ends_with("result.status=failed"));

    // A wait can be cancelled.
    let step = WorkflowStep::of(&home);
    let provision = Background::start(&mut step.command(&["provision", "--run-id=7"]));
    provision.until_it_says("waiting for the first refresh");
    provision.signal(Signal::INT);
    provision.finish().exited(130);
    assert!(!home.dir().exists(), "asking makes nothing");
}

#[test]
fn a_provision_of_a_person_does_not_wait_for_refresh_unless_told_to() {
    let home = Home::bare();
    let done = home.provision("7", 1).exited(3);
    assert!(!done.stderr.contains("waiting"), "{}", done.stderr);
    let told = ["provision", "-vv", "--run-id=7", "--registration-token-patience-sec=40"];
    let provision = home.start(&told);
    provision.until_it_says("waiting for the first refresh");
    home.ondeck(&[&["refresh"], &TIMES[..]].concat()).succeeded();
    provision.finish().succeeded();
}
