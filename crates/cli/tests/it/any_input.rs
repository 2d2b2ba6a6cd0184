//! Any value for any input, given as a flag or as the variable that the action makes of it:
//! nothing panics, what is refused is named, and nothing in it passes for a command of the
//! workflow's.

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use crate::harness::{Background, Done, Driven, Home};

/// What each mode takes that not every text is.
const INPUTS: [(&str, &str); 24] = [
    ("refresh", "resource-class-config"),
    ("refresh", "min-idle"),
    ("refresh", "rescue"),
    ("refresh", "local-capacity"),
    ("refresh", "local-boot-ms"),
    ("refresh", "local-catalogue"),
    ("refresh", "local-duplicate-tickets"),
    ("refresh", "heartbeat-period-sec"),
    ("refresh", "retention-min"),
    ("refresh", "signal-poll-sec"),
    ("refresh", "forge"),
    ("refresh", "scope"),
    ("refresh", "backend"),
    ("provision", "run-id"),
    ("provision", "instance-count"),
    ("provision", "resource-class"),
    ("provision", "usage-class"),
    ("provision", "allowed-instance-types"),
    ("provision", "max-runtime-min"),
    ("provision", "claim-timeout-sec"),
    ("release", "run-id"),
    ("release", "idle-time-sec"),
    ("release", "release-timeout-sec"),
    ("release", "backend"),
];

/// The commands that ondeck gives itself.
const OURS: [&str; 6] = ["error", "warning", "notice", "group", "endgroup", "add-mask"];

/// Anything that can be given to a process, and what a smuggler would give.
fn value() -> impl Strategy<Value = String> {
    let smuggled = prop_oneof![
        Just("::set-output name=label::8"),
        Just("::stop-commands::x"),
        Just("##[set-env name=PATH]x"),
        Just("%0A::set-env name=x::y"),
        Just("::debug::x"),
    ];
    let breaks = "(\n|\r|\r\n|\n\n| |%0A|%0D|'|\"|:)";
    let smuggling = (r"[ -~]{0,5}", breaks, smuggled, breaks, r"[ -~]{0,5}").prop_map(
        |(before, first, command, last, after)| format!("{before}{first}{command}{last}{after}"),
    );
    prop_oneof![3 => smuggling, 2 => "[^\0]{0,20}", 1 => "[a-z\n]{1000,5000}"]
}

/// The command that GitHub would take a line for, in the newer form and in the older one.
fn command(line: &str) -> Option<String> {
    let newer = line.trim_start().strip_prefix("::").and_then(|rest| rest.split_once("::"));
    let older = line.split_once("##[").and_then(|(_, rest)| rest.split_once(']'));
    let (head, _) = newer.or(older)?;
    Some(head.split(' ').next().unwrap_or_default().to_owned())
}

/// No line is a command but ours. A line ends where GitHub has it end.
#[track_caller]
fn assert_harmless(done: &Done) {
    for line in [&done.stdout, &done.stderr].into_iter().flat_map(|text| text.split(['\r', '\n'])) {
        let found = command(line);
        let ours = found.as_ref().is_none_or(|command| OURS.contains(&command.as_str()));
        assert!(ours, "a command was smuggled: {line}");
    }
    assert!(!done.stderr.contains("panicked"), "{}", done.stderr);
}

/// Runs a property. What fails is printed, and becomes a test of its own; no file is kept.
fn check<S: Strategy>(cases: u32, input: &S, test: impl Fn(S::Value)) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    };
    let outcome = TestRunner::new(config).run(input, |value| {
        test(value);
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn any_value_of_any_input_is_taken_or_refused_by_name() {
    let input = (proptest::sample::select(&INPUTS[..]), value(), any::<bool>());
    check(120, &input, |((mode, name), value, as_flag)| given(mode, name, &value, as_flag));
}

/// One input, in a place where nothing is set up.
fn given(mode: &str, name: &str, value: &str, as_flag: bool) {
    let home = Home::bare();
    let flag = format!("--{name}={value}");
    let mut arguments = vec![mode];
    arguments.extend(as_flag.then_some(flag.as_str()));
    let mut command = home.command(&arguments);
    command.env("GITHUB_ACTIONS", "true").env("GITHUB_RUN_ID", "7");
    if mode == "provision" {
        // No refresh will set it up, so there is nothing to wait for.
        command.env("ONDECK_REGISTRATION_TOKEN_PATIENCE_SEC", "0");
    }
    if !as_flag {
        command.env(format!("ONDECK_{}", name.to_uppercase().replace('-', "_")), value);
    }
    let done = Background::start(&mut command).finish();
    assert_harmless(&done);
    assert!([0, 2, 3].contains(&done.code), "exit code {}: {}", done.code, done.stderr);
    if done.code == 2 {
        let errors: Vec<&str> =
            done.stderr.lines().filter(|line| line.starts_with("::error ")).collect();
        assert_eq!(errors.len(), 1, "{}", done.stderr);
        let named = errors[0].contains(name) || errors[0].contains(&name.replace('-', " "));
        assert!(named, "{name} is not named: {}", errors[0]);
        assert!(errors[0].chars().count() < 4_000, "too long to read: {}", errors[0]);
    }
}

/// Found here: what came after an empty line of the value was taken for the part about the help,
/// and the input's name with it.
#[test]
fn a_value_of_several_paragraphs_does_not_hide_the_name_of_its_input() {
    given("refresh", "heartbeat-period-sec", "a\n\nb", true);
    given("refresh", "heartbeat-period-sec", "a\n\n\u{1}", true);
    given("refresh", "forge", "\n\n\u{1}", false);
    given("refresh", "forge", "\u{1b}[31m\n\nx", true);
    given("release", "run-id", "a\n\nb", false);
    given("refresh", "backend", &"moon\n\n".repeat(500), false);
}

#[test]
fn no_message_of_a_provider_is_a_command() {
    let home = Home::with(&[]);
    check(12, &value(), |words| {
        home.refresh(&[&format!("--local-launch-failure={words}x")]);
        for arguments in [&["provision"][..], &["provision", "--json"], &["provision", "-vv"]] {
            let mut command = home.command(arguments);
            command.env("GITHUB_ACTIONS", "true").env("GITHUB_RUN_ID", "7");
            let done = Background::start(&mut command).finish();
            assert_harmless(&done);
            assert_eq!(done.code, 4, "{}", done.stderr);
        }
    });
}
