//! What a run's jobs were and printed is not left to the jobs of other runs.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::harness::{Driven, Home, signal, until};

const COMMAND: &str = "SECRET-OF-THE-COMMAND";
/// Not in the command: it is put together by the job.
const OUTPUT: &str = "SECRET-OF-THE-OUTPUT";

fn job(then: &str) -> Vec<String> {
    let script = format!(
        ": {COMMAND}; for i in 1 2 3 4 5 6 7 8 9; do echo SECRET-OF-'THE-OUTPUT'; done; {then}"
    );
    ["run", "--run-id", "1", "--", "sh", "-c", &script].map(str::to_owned).to_vec()
}

/// The files below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else {
            let bytes = fs::read(&path).unwrap_or_default();
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

fn run(home: &Home, job: &[String]) -> i32 {
    let words: Vec<&str> = job.iter().map(String::as_str).collect();
    let done = home.ondeck(&words);
    assert!(done.stdout.contains(OUTPUT), "{}{}", done.stdout, done.stderr);
    done.code
}

#[track_caller]
fn assert_erased(home: &Home) {
    for text in [COMMAND, OUTPUT] {
        assert_eq!(files_with(home.dir(), text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn commands_and_output_are_erased_when_the_run_is_released() {
    let home = Home::with(&[]);
    home.provision("1", 2).succeeded();
    assert_eq!(run(&home, &job("exit 0")), 0);
    assert_eq!(run(&home, &job("exit 3")), 3);
    assert_ne!(files_with(home.dir(), OUTPUT), Vec::<String>::new(), "kept while the run lasts");
    home.release("1").succeeded();
    assert_erased(&home);
    let rows = home.texts("SELECT state || ' ' || exit_code || ' ' || argv FROM jobs ORDER BY id");
    assert_eq!(rows, ["done 0 []", "done 3 []"]);
}

#[test]
fn they_are_erased_when_the_machine_is_terminated() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    run(&home, &job("exit 0"));
    home.ondeck(&["release", "--run-id", "1", "--idle-time-sec=0"]).succeeded();
    home.refresh(&[]);
    until("the machine is gone", || home.agents().is_empty());
    assert_erased(&home);
}

#[test]
fn they_are_erased_by_refresh_if_the_agent_was_killed() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    run(&home, &job("exit 0"));
    home.agents().into_values().for_each(|pid| signal(pid, Signal::KILL));
    until("the agent is gone", || home.agents().is_empty());
    home.refresh(&[]);
    assert_erased(&home);
}

#[test]
fn a_caller_that_waits_gets_all_output_of_a_job_that_release_ends_and_then_it_is_erased() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let words = job("sleep 1000");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let waiting = home.start(&words);
    waiting.until_it_says(OUTPUT);
    home.release("1").succeeded();
    let done = waiting.finish().exited(143);
    assert_eq!(done.stdout.matches(OUTPUT).count(), 9);
    assert!(done.stderr.contains("the machine was taken away"), "{}", done.stderr);
    home.refresh(&[]);
    assert_erased(&home);
}

#[test]
fn a_file_that_output_has_made_large_becomes_small_again() {
    const MEGABYTE: u64 = 1024 * 1024;
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let script = "head -c 20000000 /dev/zero | tr '\\0' x";
    let done = home.ondeck(&["run", "--run-id", "1", "--", "sh", "-c", script]).succeeded();
    assert_eq!(done.stdout.len(), 20_000_000);
    let size = || {
        let of = |name: &str| fs::metadata(home.dir().join(name)).map_or(0, |found| found.len());
        of("ondeck.db") + of("ondeck.db-wal")
    };
    assert!(size() > 20 * MEGABYTE, "{}", size());
    home.release("1").succeeded();
    home.refresh(&[]);
    assert!(size() < 3 * MEGABYTE, "{}", size());
    assert_eq!(home.provision("2", 1).succeeded().sources(), ["warm"]);
}
