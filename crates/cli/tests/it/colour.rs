//! Colour is for terminals, and `NO_COLOR` turns it off: in log lines, errors, tables, the demo
//! and the progress line. A pseudo-terminal stands for the terminal.

use std::process::Command;

use regex_lite::Regex;

use crate::harness::{AtTerminal, Driven, Home};

/// With a terminal that shows colours.
fn plain(mut command: Command) -> Command {
    command.env("TERM", "xterm-256color");
    command
}

fn with(mut command: Command, variable: &str, value: &str) -> Command {
    command.env(variable, value);
    command
}

fn is_coloured(text: &str) -> bool {
    Regex::new("\x1b\\[[0-9;]*m").unwrap().is_match(text)
}

/// A provision that logs a warning, shows progress, and fails.
fn provision(home: &Home) -> Command {
    plain(home.command(&["provision", "--run-id", "1", "--instance-count", "2"]))
}

#[test]
fn log_lines_and_errors_are_coloured_on_terminals_unless_told_otherwise() {
    let home = Home::with(&["--local-capacity=1"]);
    let shown = AtTerminal::start(provision(&home)).finish();
    let log = shown.lines().find(|line| line.contains("WARN")).unwrap();
    assert!(is_coloured(log), "{shown:?}");
    let error = shown.lines().find(|line| line.contains("error")).unwrap();
    assert!(is_coloured(error), "{shown:?}");
    for (variable, value) in [("NO_COLOR", "1"), ("CLICOLOR", "0"), ("TERM", "dumb")] {
        let shown = AtTerminal::start(with(provision(&home), variable, value)).finish();
        assert!(shown.contains("WARN") && shown.contains("error"), "{shown:?}");
        assert!(!is_coloured(&shown), "{variable}={value}: {shown:?}");
    }
}

#[test]
fn pipes_get_no_escape_codes_unless_they_are_forced() {
    let home = Home::with(&["--local-capacity=1"]);
    let piped = |mut command: Command| {
        let output = command.output().unwrap();
        String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap()
    };
    let shown = piped(provision(&home));
    assert!(shown.contains("WARN") && !shown.contains('\x1b'), "{shown:?}");
    let shown = piped(with(provision(&home), "CLICOLOR_FORCE", "1"));
    assert!(is_coloured(shown.lines().find(|line| line.contains("WARN")).unwrap()), "{shown:?}");
    let both = with(with(provision(&home), "CLICOLOR_FORCE", "1"), "NO_COLOR", "1");
    assert!(!piped(both).contains('\x1b'));
}

#[test]
fn tables_and_progress_have_no_colour_with_no_color() {
    let home = Home::with(&["--local-boot-ms=2500"]);
    let provision = || plain(home.command(&["provision", "--run-id", "7"]));
    let shown = AtTerminal::start(with(provision(), "NO_COLOR", "1")).finish();
    assert!(shown.contains("provision: waiting for new machines"), "{shown:?}");
    assert!(shown.contains("c6i.large") && !is_coloured(&shown), "{shown:?}");
    let status = plain(home.command(&["status"]));
    let shown = AtTerminal::start(with(status, "NO_COLOR", "1")).finish();
    assert!(shown.contains("running") && !shown.contains('\x1b'), "{shown:?}");
}

/// Every frame of `status --watch` begins on an empty screen. That is no colour, so `NO_COLOR` does
/// not turn it off.
#[test]
fn watched_status_clears_the_screen_with_and_without_colour() {
    const CLEAR: &str = "\x1b[2J\x1b[H";
    let home = Home::with(&[]);
    let watch = || plain(home.command(&["status", "--watch"]));
    for command in [watch(), with(watch(), "NO_COLOR", "1"), with(watch(), "CLICOLOR", "0")] {
        let mut watched = AtTerminal::start(command);
        watched.until_it_prints("pool: empty", 2);
        watched.interrupt();
        let shown = watched.finish();
        let frames = shown.matches("pool: empty").count();
        assert!(shown.starts_with(CLEAR) && !is_coloured(&shown), "{shown:?}");
        assert_eq!(shown.matches(CLEAR).count(), frames, "{shown:?}");
    }
    let mut dumb = AtTerminal::start(with(watch(), "TERM", "dumb"));
    dumb.until_it_prints("pool: empty", 2);
    dumb.interrupt();
    let shown = dumb.finish();
    assert!(!shown.contains('\x1b'), "{shown:?}");
}

#[test]
fn the_demo_is_coloured_on_terminals_and_plain_with_no_color() {
    for no_color in [false, true] {
        let home = Home::bare();
        std::fs::create_dir(home.dir()).unwrap();
        let mut command = plain(home.command(&["demo"]));
        command.env_remove("ONDECK_HOME").env("TMPDIR", home.dir());
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let mut demo = AtTerminal::start(command);
        demo.until_it_prints("$ ondeck provision --run-id 101", 1);
        demo.interrupt();
        let shown = demo.finish();
        assert_eq!(is_coloured(&shown), !no_color, "{shown:?}");
        assert_eq!(shown.contains('\x1b'), !no_color, "{shown:?}");
    }
}
