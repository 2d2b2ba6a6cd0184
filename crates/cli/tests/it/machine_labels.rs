//! Machines that register while they are idle, each under a label of its own.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Done, Driven, Home, signal, until};

/// A pool whose machines have labels of their own.
fn pool() -> Home {
    Home::with(&["--runner-label=machine"])
}

fn labels(provisioned: &Done) -> Vec<String> {
    let json = provisioned.json();
    let labels = json["labels"].as_array().unwrap().iter();
    labels.map(|label| label.as_str().unwrap().to_owned()).collect()
}

impl Home {
    /// The label of each runner in the list.
    fn runners(&self) -> BTreeSet<String> {
        self.texts("SELECT label FROM runners").into_iter().collect()
    }

    /// Queues a job of a run for the label of a machine.
    fn queue_for(&self, run: &str, label: &str, script: &str) {
        let argv = serde_json::json!(["sh", "-c", script]).to_string();
        let at = "2026-01-01T00:00:00.000Z";
        let sql = "INSERT INTO jobs (label, argv, queued_at, run) VALUES (?,?,?,?)";
        self.file().execute(sql, [label, &argv, at, run]).unwrap();
    }

    /// Waits until all jobs are over. Returns their exit codes, in the order in which they were queued.
    fn exit_codes(&self) -> Vec<String> {
        let open = "SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')";
        until("the jobs are over", || self.number(open) == 0);
        self.texts("SELECT CAST(exit_code AS TEXT) FROM jobs ORDER BY id")
    }

    fn until_all_are_ready(&self, machines: usize) {
        let ready = "SELECT count(*) FROM readiness JOIN instances USING (id)
            WHERE state = 'idle' AND json_extract(body, '$.ready.generation') = generation";
        until("the idle machines are ready", || self.number(ready) == machines);
    }
}

#[test]
fn two_runs_get_the_same_machines_under_labels_that_are_registered_before() {
    let home = pool();
    let first = home.provision("1", 2).succeeded();
    assert_eq!(first.sources(), ["cold", "cold"]);
    assert_eq!(first.json()["label"], Value::from(""), "no label is that of both");
    let of_first = labels(&first);
    assert_eq!(home.runners(), of_first.iter().cloned().collect());
    for label in &of_first {
        home.queue_for("1", label, "test $ONDECK_RUN_ID = 1");
    }
    assert_eq!(home.exit_codes(), ["0", "0"]);
    home.release("1").succeeded();

    home.until_all_are_ready(2);
    let idle = home.runners();
    assert_eq!(idle.len(), 2);
    assert!(of_first.iter().all(|label| !idle.contains(label)), "each registration serves one run");
    let names = home.texts("SELECT name FROM runners ORDER BY name");
    let second = home.provision("2", 2).succeeded();
    assert_eq!(second.sources(), ["warm", "warm"]);
    assert_eq!(labels(&second).into_iter().collect::<BTreeSet<_>>(), idle);
    let after = home.texts("SELECT name FROM runners ORDER BY name");
    assert_eq!(after, names, "the claims needed no registration");
    home.release("2").succeeded();
}

#[test]
fn one_machine_has_the_only_label_and_refuses_jobs_of_other_runs() {
    let home = pool();
    let provisioned = home.provision("1", 1).succeeded();
    let own = labels(&provisioned);
    assert_eq!(provisioned.json()["label"], Value::from(own[0].as_str()));
    home.queue_for("666", &own[0], "echo in");
    home.queue_for("1", &own[0], "exit 3");
    assert_eq!(home.exit_codes(), ["1", "3"]);
    let said = home.texts("SELECT CAST(bytes AS TEXT) FROM job_output");
    let refused = "this machine was given to run 1 and takes no job of another: 666";
    assert!(said.concat().contains(refused), "{said:?}");
    // A second call of the same run gets the same label.
    assert_eq!(labels(&home.provision("1", 1).succeeded()), own);
}

#[test]
fn a_job_that_is_run_again_gets_a_machine_with_its_old_label() {
    let home = pool();
    let old = labels(&home.provision("1", 2).succeeded());
    home.release("1").succeeded();
    home.until_all_are_ready(2);
    home.queue_for("1", &old[1], "test $ONDECK_RUN_ID = 1");
    let refreshed = home.ondeck(&["refresh", "--json"]).succeeded();
    assert_eq!(refreshed.json()["rescued"], serde_json::json!(["1"]));
    assert_eq!(home.exit_codes(), ["0"]);
    let running = home.texts("SELECT label FROM instances WHERE state = 'running'");
    assert_eq!(running, [format!("1 {}", old[1])], "one job waited, and got one machine");
}

#[test]
fn a_killed_machine_is_replaced_under_its_label() {
    let home = pool();
    let own = labels(&home.provision("1", 1).succeeded());
    let (machine, agent) = home.agents().pop_first().unwrap();
    signal(agent, Signal::KILL);
    home.queue_for("1", &own[0], "true");
    // Refresh waits until the heartbeat is old.
    until("the machine is replaced", || {
        let refreshed = home.ondeck(&["refresh", "--json"]).succeeded();
        refreshed.json()["rescued"] == serde_json::json!(["1"])
    });
    assert_eq!(home.exit_codes(), ["0"]);
    let on = home.texts("SELECT instance FROM jobs");
    assert_ne!(on, [machine]);
}

#[test]
fn a_runner_that_was_removed_from_the_list_comes_back() {
    let home = pool();
    let own = labels(&home.provision("1", 1).succeeded());
    home.file().execute("DELETE FROM runners", []).unwrap();
    until("it is listed again", || home.runners() == own.iter().cloned().collect());
    home.queue_for("1", &own[0], "true");
    assert_eq!(home.exit_codes(), ["0"]);
    home.release("1").succeeded();
    home.until_all_are_ready(1);
    home.file().execute("DELETE FROM runners", []).unwrap();
    until("the idle one as well", || home.runners().len() == 1);
}
