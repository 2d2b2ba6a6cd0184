//! `ondeck demo` holds what it claims, and leaves nothing behind.

use std::fs;

use rustix::process::Signal;

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
fn interrupted_in_a_race_it_leaves_nothing_either() {
    let home = Home::bare();
    let demo = start(&home);
    demo.until_it_says("$ ondeck provision --run-id 106");
    demo.signal(Signal::TERM);
    demo.finish().exited(143);
    assert_nothing_is_left(&home);
}
