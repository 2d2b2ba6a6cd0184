//! What inputs may not do: become a command of the runner, or name another run.

use super::{WorkflowStep, log};
use crate::harness::{Background, Driven, Home};

#[test]
fn no_value_of_an_input_becomes_a_command() {
    let home = Home::bare();
    let value = "large\n::add-mask::a\n##[error]b";
    let is_strange = |line: &&str| {
        let ours = line.starts_with("::error title=ondeck");
        !ours && (line.trim_start().starts_with("::") || line.contains("##["))
    };
    let command = format!("demolish\n{value}");
    let option = format!("--demolish\n{value}");
    for arguments in [
        &[command.as_str()][..],
        &["provision", &option],
        &["provision", &command],
        &["provision", "--json", &option],
        &["refresh", &format!("--backend={value}")],
        &["completions", value],
        &["man", value],
        &["status", &format!("--json={value}")],
    ] {
        let done = WorkflowStep::of(&home).run(arguments).exited(2);
        let said = format!("{}{}", done.stdout, done.stderr);
        assert_eq!(said.split(['\r', '\n']).find(is_strange), None, "{arguments:?}: {said}");
        // Outside of a workflow no line begins with one either: its output may be shown in one.
        let done = home.ondeck(arguments).exited(2);
        let said = format!("{}{}", done.stdout, done.stderr);
        let begins = |line: &str| line.trim_start().starts_with("::");
        assert!(!said.split(['\r', '\n']).any(begins), "{arguments:?}: {said}");
    }
    for input in ["run-id", "resource-class", "usage-class", "allowed-instance-types"] {
        let argument = format!("--{input}={value}");
        let done = WorkflowStep::of(&home).run(&["provision", &argument]).exited(2);
        let said = format!("{}{}", done.stdout, done.stderr);
        let strange = |line: &&str| {
            let ours = line.starts_with("::error title=ondeck%3A invalid-input::");
            !ours && (line.trim_start().starts_with("::") || line.contains("##["))
        };
        assert_eq!(said.lines().find(strange), None, "{input}: {said}");
        assert!(said.contains(input), "the input is named: {said}");
    }
}

/// A machine refuses jobs of any other run than its own, so a made-up run id would block them all.
#[test]
fn provision_refuses_another_run_than_that_of_the_workflow() {
    let home = Home::with(&[]);
    let step = WorkflowStep::of(&home);
    let run = |arguments: &[&str], own: &str| {
        Background::start(step.command(arguments).env("GITHUB_RUN_ID", own)).finish()
    };
    for foreign in ["7-large", "8", "71"] {
        let done = run(&["provision", "--run-id", foreign], "7").exited(2);
        let said = log(&done);
        assert!(said.contains(&format!("which is 7: {foreign}")), "{said}");
        assert!(said.contains("label-suffix"), "{said}");
    }
    let own = ["provision", "--run-id", "7", "--label-suffix", "large"];
    run(&own, "7").succeeded();
    run(&["provision"], "7").succeeded();
    // Another workflow may clean up, and elsewhere any id is fine.
    let released = run(&["release", "--run-id", "7", "--json"], "9").succeeded().json();
    assert_eq!(released["instances"].as_array().unwrap().len(), 2, "those of both labels");
    let mut elsewhere = step.command(&["provision", "--run-id", "8"]);
    elsewhere.env("GITHUB_RUN_ID", "7").env_remove("GITHUB_ACTIONS");
    Background::start(&mut elsewhere).finish().succeeded();
}
