//! `ondeck run`: jobs of a run, on the machines of that run only.

use std::io::Read;
use std::process::Stdio;

use crate::harness::{Driven, Home, until};

#[test]
fn output_comes_as_it_is_written_and_the_exit_code_is_the_jobs() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let go_on = home.outside().join("go-on");
    let script = format!(
        "echo to out; echo to err >&2; until [ -e {} ]; do sleep 0.05; done; exit 7",
        go_on.display()
    );
    let job = home.start(&["run", "--run-id", "1", "--", "sh", "-c", &script]);
    job.until_it_says("to out");
    job.until_it_says("to err");
    std::fs::write(go_on, "").unwrap();
    let done = job.finish().exited(7);
    assert_eq!(done.stdout, "to out\n");
    assert!(done.stderr.contains("to err\n"), "{}", done.stderr);
}

#[test]
fn a_job_ended_by_a_signal_or_never_started_exits_as_shells_have_it() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let run = |command: &[&str]| home.ondeck(&[&["run", "--run-id", "1", "--"], command].concat());
    run(&["sh", "-c", "kill -9 $$"]).exited(137);
    let done = run(&["no-such-program"]).exited(127);
    assert!(done.stderr.contains("cannot start no-such-program"), "{}", done.stderr);
}

#[test]
fn a_job_of_another_run_is_not_taken() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let waiting = ["run", "--run-id", "2", "--queue-timeout-sec", "1", "--", "true"];
    let done = home.ondeck(&waiting).exited(4);
    assert!(done.stderr.contains("no machine took the job in time, label: 2"), "{}", done.stderr);
    assert!(done.stderr.contains("hint: ondeck provision --run-id 2"), "{}", done.stderr);
    assert_eq!(home.texts("SELECT state FROM jobs"), ["cancelled"]);
}

#[test]
fn a_waiting_job_is_reported_by_refresh_and_taken_once_its_run_has_a_machine() {
    let home = Home::with(&[]);
    let job = home.start(&["run", "--run-id", "5", "--", "echo", "at last"]);
    until("the job is queued", || home.texts("SELECT state FROM jobs") == ["queued"]);
    let refreshed = home.ondeck(&["refresh", "--json"]).succeeded();
    assert_eq!(refreshed.json()["stranded"], serde_json::json!(["5"]));
    assert!(refreshed.stderr.contains("jobs wait for a run that has not asked for machines: 5"));
    home.provision("5", 1).succeeded();
    assert_eq!(job.finish().succeeded().stdout, "at last\n");
}

#[test]
fn what_a_job_leaves_is_gone_before_the_next_run() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let script = "touch here $TMPDIR/there $HOME/.everywhere
        setsid sleep 1000 >/dev/null 2>&1 &
        setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000; sleep 1000' >/dev/null 2>&1 &";
    home.ondeck(&["run", "--run-id", "1", "--", "sh", "-c", script]).succeeded();
    until("the leftovers are at work", || home.processes().len() >= 4);
    home.release("1").succeeded();
    assert_eq!(home.processes(), home.agents().into_values().collect::<Vec<_>>());

    assert_eq!(home.provision("2", 1).succeeded().sources(), ["warm"]);
    let list = ["run", "--run-id", "2", "--", "sh", "-c", "ls -A . $TMPDIR $HOME"];
    let listing = home.ondeck(&list).succeeded().stdout;
    for left in ["here", "there", "everywhere"] {
        assert!(!listing.contains(left), "{listing}");
    }
}

#[test]
fn a_job_whose_machine_is_released_is_told() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let job = home.start(&["run", "--run-id", "1", "--", "sh", "-c", "echo begun; sleep 1000"]);
    job.until_it_says("begun");
    home.release("1").succeeded();
    let done = job.finish().exited(143);
    assert!(done.stderr.contains("the machine was taken away"), "{}", done.stderr);
    assert_eq!(home.processes(), home.agents().into_values().collect::<Vec<_>>());
}

#[test]
fn a_job_whose_output_has_no_reader_any_more_is_cancelled() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let mut run = home.command(&["run", "--run-id", "1", "--", "yes"]);
    let mut run = run.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // The reader goes away after the first words.
    let mut words = [0; 4];
    run.stdout.take().unwrap().read_exact(&mut words).unwrap();
    assert_eq!(&words, b"y\ny\n");
    assert_eq!(run.wait().unwrap().code(), Some(143));
    until("the job is over", || home.texts("SELECT state FROM jobs") == ["cancelled"]);
}

/// A command under a label waits after the label's machine was killed, and a refresh helps.
#[test]
fn a_run_whose_machine_was_killed_gets_another_under_the_same_label() {
    let home = Home::with(&[]);
    let build = ["provision", "--run-id", "7", "--label-suffix", "build", "--json"];
    let dead = home.ondeck(&build).succeeded().ids().concat();
    home.provision("7", 1).succeeded();
    for pid in home.processes_of(&dead) {
        crate::harness::signal(pid, rustix::process::Signal::KILL);
    }
    let job = home.start(&["run", "--run-id", "7-build", "--", "echo", "served"]);
    until("the job is queued", || home.texts("SELECT state FROM jobs") == ["queued"]);
    until("refresh gives the run another machine", || {
        let refreshed = home.ondeck(&["refresh", "--json"]).succeeded().json();
        let silent = refreshed["silent"] == serde_json::json!([dead]);
        silent && refreshed["rescued"] == serde_json::json!(["7-build"])
    });
    assert_eq!(job.finish().succeeded().stdout, "served\n");
    let again = home.ondeck(&["refresh", "--json"]).succeeded().json();
    assert_eq!(again["rescued"], serde_json::json!([]), "no job waits");
}
