//! In a workflow step: only the default branch applies, and errors mark their lines.

use std::fs;
use std::process::Command;

use super::{stored, write};
use crate::harness::{Background, Done, Driven, Home};

/// Runs the program as a step of a workflow on this ref.
fn step(home: &Home, git_ref: &str, arguments: &[&str]) -> Done {
    let file = |name: &str| home.outside().join(name);
    let event = r#"{"repository":{"default_branch":"trunk"}}"#;
    fs::write(file("event.json"), event).unwrap();
    let mut command: Command = home.command(arguments);
    command
        .current_dir(home.outside())
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_EVENT_NAME", "push")
        .env("GITHUB_EVENT_PATH", file("event.json"))
        .env("GITHUB_REF", git_ref)
        .env("GITHUB_SHA", "4f0f3a1c9d1b52f8c8b3a8d1d6c1a0a5a4a7e2b9")
        .env("GITHUB_RUN_ID", "4711")
        .env("GITHUB_OUTPUT", file("outputs"))
        .env("GITHUB_STEP_SUMMARY", file("summary"));
    Background::start(&mut command).finish()
}

fn summary(home: &Home) -> String {
    fs::read_to_string(home.outside().join("summary")).unwrap()
}

#[test]
fn only_the_default_branch_applies() {
    let home = Home::bare();
    write(&home, "[times]\nidle-time-sec = 900\n");
    for command in [&["apply"][..], &["apply", "--clear"]] {
        let done = step(&home, "refs/heads/feature", command).exited(2);
        let words = "not on the default branch, which is trunk: \"refs/heads/feature\"";
        assert!(done.stderr.contains(words), "{}", done.stderr);
        assert!(!home.dir().exists());
    }
    step(&home, "refs/pull/7/merge", &["apply", "--dry-run"]).succeeded();
    assert!(!home.dir().exists());
    step(&home, "refs/heads/trunk", &["apply"]).succeeded();
    let applied = stored(&home, "applied-config").unwrap();
    assert!(
        applied.contains(r#""commit":"4f0f3a1c9d1b52f8c8b3a8d1d6c1a0a5a4a7e2b9""#),
        "{applied}"
    );
    assert!(applied.contains(r#""run":"4711""#), "{applied}");
    assert!(
        summary(&home).contains("### ondeck apply: applied 1 setting, digest "),
        "{}",
        summary(&home)
    );
    step(&home, "refs/heads/trunk", &["refresh"]).succeeded();
    let words = ", commit 4f0f3a1c9d1b): newly enforced\n";
    assert!(summary(&home).contains(words), "{}", summary(&home));
}

#[test]
fn errors_mark_their_lines() {
    let home = Home::bare();
    write(&home, "[times]\nidle-time-sec = \"::warning::soon\"\n");
    let done = step(&home, "refs/heads/trunk", &["config", "check"]).exited(2);
    insta::assert_snapshot!(done.stderr, @r##"
    ::error file=ondeck.toml,line=2,col=17::idle-time-sec must be a number, and is a string
      2 | idle-time-sec = "::warning::soon"
        |                 ^^^^^^^^^^^^^^^^^
    ::error title=ondeck config%3A invalid-input::1 error in the file of the pool: ondeck.toml
    "##);
}
