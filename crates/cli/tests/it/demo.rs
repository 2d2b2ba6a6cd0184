//! `ondeck demo` holds what it claims, and leaves nothing behind.

use std::fs;

use rustix::process::Signal;

use crate::dashboard::requests::{Events, got};
use crate::harness::{Background, Driven, Home};

/// The demo, with its temporary home inside the test's own.
fn start(home: &Home) -> Background {
    fs::create_dir(home.dir()).unwrap();
    let mut command = home.command(&["demo"]);
    Background::start(command.env_remove("ONDECK_HOME").env("TMPDIR", home.dir()))
}

fn assert_nothing_is_left(home: &Home) {
    assert_eq!(home.processes(), Vec::<i32>::new());
    assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 0);
}

#[test]
fn the_story_holds_and_leaves_nothing() {
    let home = Home::bare();
    let done = start(&home).finish().succeeded();
    assert!(done.stdout.contains("nothing is left"), "{}", done.stdout);
    assert_eq!(done.stderr, "");
    assert_nothing_is_left(&home);
}

/// `cargo demo -- --dashboard` calls it with both pairs of dashes.
#[test]
fn the_page_shows_the_pool_of_the_story() {
    for arguments in [&["demo", "--dashboard"][..], &["demo", "--", "--dashboard"]] {
        let home = Home::bare();
        fs::create_dir(home.dir()).unwrap();
        let mut command = home.command(arguments);
        let demo = Background::start(command.env_remove("ONDECK_HOME").env("TMPDIR", home.dir()));
        demo.until_it_says("$ ondeck refresh");
        let said = demo.said();
        let address = said.split("dashboard: http://").nth(1).unwrap().split('/').next().unwrap();
        assert!(got(address, "/").body.contains("<title>ondeck</title>"));
        Events::of(address).until("change", |change| change["summary"]["states"]["running"] == 2);
        demo.signal(Signal::INT);
        demo.finish().exited(130);
        assert_nothing_is_left(&home);
    }
}

#[test]
fn variables_of_the_user_and_of_a_workflow_are_no_part_of_it() {
    let home = Home::bare();
    fs::create_dir(home.dir()).unwrap();
    let mut command = home.command(&["demo"]);
    let elsewhere = home.outside().join("elsewhere");
    command.env("TMPDIR", home.dir()).env("ONDECK_HOME", &elsewhere).envs([
        ("ONDECK_BACKEND", "moon"),
        ("ONDECK_RECORDS", "aws"),
        ("ONDECK_COMPUTE", "aws"),
        ("ONDECK_FORGE", "github"),
        ("ONDECK_POOL", "not a pool"),
        ("ONDECK_RUN_ID", "a b"),
        ("ONDECK_INSTANCE_COUNT", "many"),
        ("ONDECK_RESOURCE_CLASS", "huge"),
        ("ONDECK_MAX_MACHINES", "1"),
        ("ONDECK_MIN_IDLE", "large=9"),
        ("ONDECK_IDLE_TIME_SEC", "0"),
        ("ONDECK_LOCAL_LAUNCH_FAILURE", "no"),
        ("ONDECK_PRE_RUNNER_SCRIPT", "exit 1"),
        ("ONDECK_ACTION", "true"),
        ("INPUT_MODE", "release"),
        ("GITHUB_ACTIONS", "true"),
        ("GITHUB_RUN_ID", "no id"),
        ("GITHUB_OUTPUT", "/nonexistent/output"),
        ("GITHUB_STEP_SUMMARY", "/nonexistent/summary"),
    ]);
    let done = Background::start(&mut command).finish().succeeded();
    assert!(done.stdout.contains("nothing is left"), "{}", done.stdout);
    assert_nothing_is_left(&home);
    assert!(!elsewhere.exists());
}

#[test]
fn interrupted_in_the_middle_it_leaves_nothing_either() {
    let home = Home::bare();
    let demo = start(&home);
    demo.until_it_says("$ ondeck provision --run-id 101");
    demo.signal(Signal::INT);
    let done = demo.finish().exited(130);
    assert_eq!(done.stderr, "error: interrupted\n");
    assert_nothing_is_left(&home);
}

#[test]
fn stopped_in_a_race_it_leaves_nothing_either() {
    for which in [Signal::TERM, Signal::QUIT] {
        stopped_in_a_race_by(which);
    }
}

fn stopped_in_a_race_by(which: Signal) {
    let home = Home::bare();
    let demo = start(&home);
    demo.until_it_says("$ ondeck provision --run-id 106");
    demo.signal(which);
    demo.finish().exited(143);
    assert_nothing_is_left(&home);
}
