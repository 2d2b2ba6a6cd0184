//! Completions and manual pages, as the program generates them.

use std::fs;
use std::process::Command;

use crate::harness::{Driven, Home};

const COMMANDS: [&str; 11] = [
    "refresh",
    "provision",
    "release",
    "run",
    "status",
    "permissions",
    "init",
    "demo",
    "agent",
    "completions",
    "man",
];

#[test]
fn completions_name_commands_and_options() {
    let home = Home::bare();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = home.ondeck(&["completions", shell]).succeeded().stdout;
        for word in COMMANDS.into_iter().chain(["machine-source", "idle-time-sec", "aws-region"]) {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    assert!(!home.dir().exists(), "nothing is created");
}

#[test]
fn bash_accepts_its_completions() {
    let home = Home::bare();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ondeck");
    fs::write(&file, home.ondeck(&["completions", "bash"]).succeeded().stdout).unwrap();
    assert!(Command::new("bash").arg("-n").arg(&file).status().unwrap().success());
}

#[test]
fn an_unknown_shell_is_refused() {
    let done = Home::bare().ondeck(&["completions", "cmd"]).exited(2);
    assert!(done.stderr.contains("invalid value 'cmd'"), "{}", done.stderr);
}

#[test]
fn every_command_has_a_page_with_every_flag() {
    let home = Home::bare();
    let folder = tempfile::tempdir().unwrap();
    home.ondeck(&["man", folder.path().to_str().unwrap()]).succeeded();
    assert!(folder.path().join("ondeck.1").exists());
    for command in COMMANDS {
        let page = fs::read_to_string(folder.path().join(format!("ondeck-{command}.1"))).unwrap();
        // A page writes every hyphen as an escape.
        let page = page.replace("\\-", "-");
        let help = home.ondeck(&[command, "--help"]).succeeded().stdout;
        let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        let flags = options.flat_map(str::split_whitespace).filter(|word| word.starts_with("--"));
        for flag in flags.map(|flag| flag.trim_end_matches(['.', ','])) {
            assert!(page.contains(flag), "{command}: {flag}");
        }
    }
}

#[test]
fn a_directory_that_does_not_exist_is_refused() {
    let done = Home::bare().ondeck(&["man", "/nonexistent/man1"]).exited(2);
    assert!(done.stderr.contains("/nonexistent/man1"), "{}", done.stderr);
    assert!(done.stderr.contains("\nhint: name a directory that exists"), "{}", done.stderr);
}
