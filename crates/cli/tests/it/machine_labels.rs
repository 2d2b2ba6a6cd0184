//! Machines that register while they are idle, each under a label of its own.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::Value;

use crate::doctor::assert_finds;
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

/// Jobs reach a machine by its label, and any machine of the run by the run's.
#[test]
fn a_job_names_a_machine_or_the_run() {
    let home = pool();
    let own = labels(&home.provision("1", 2).succeeded());
    let script = "echo $ONDECK_RUN_ID $ONDECK_INSTANCE_ID";
    let run = |more: &[&str]| {
        let begin: &[&str] = &["run", "--run-id", "1"];
        home.ondeck(&[begin, more, &["--", "sh", "-c", script]].concat())
    };
    let on: Vec<String> =
        own.iter().map(|label| run(&["--label", label]).succeeded().stdout).collect();
    assert_ne!(on[0], on[1], "each label is of one machine");
    assert_eq!(run(&["--label", &own[0]]).succeeded().stdout, on[0]);
    for any in [&[][..], &["--label", ""], &["--label", "1"]] {
        let said = run(any).succeeded().stdout;
        assert!(on.contains(&said), "{any:?}: {said}");
    }
    let other = home.ondeck(&["run", "--run-id", "2", "--label", &own[0], "--", "true"]).exited(1);
    assert!(other.stderr.contains("this machine was given to run 1"), "{}", other.stderr);
    for wrong in ["2", "m12", "1-"] {
        let refused = run(&["--label", wrong]).exited(2);
        let words = format!("label is neither of a machine nor of run 1: \"{wrong}\"");
        assert!(refused.stderr.contains(&words), "{}", refused.stderr);
    }
    let nowhere = format!("m{}", "0".repeat(32));
    let waits = ["--label", &nowhere, "--queue-timeout-sec", "1"];
    let left = run(&waits).exited(4);
    assert!(left.stderr.contains(&format!("label: {nowhere}")), "{}", left.stderr);
}

/// A job for any machine of its run waits for one, and is of one size of machines if it names that.
#[test]
fn a_job_that_waits_for_its_run_gets_the_machine_that_it_names() {
    let home = pool();
    let script = "echo $ONDECK_INSTANCE_ID";
    let waits = ["run", "--run-id", "5", "--label", "5-other", "--", "sh", "-c", script];
    let job = home.start(&waits);
    until("the job is queued", || home.texts("SELECT state FROM jobs") == ["queued"]);
    let first = home.ondeck(&["provision", "--run-id=5", "--json"]).succeeded();
    let none = ["run", "--run-id", "5", "--", "true"];
    home.ondeck(&none).succeeded();
    assert_eq!(home.texts("SELECT state FROM jobs WHERE label = '5-other'"), ["queued"]);
    let other = ["provision", "--run-id=5", "--label-suffix=other", "--json"];
    let second = home.ondeck(&other).succeeded();
    assert_ne!(first.ids(), second.ids());
    assert_eq!(job.finish().succeeded().stdout.trim(), second.ids().concat());
}

impl Home {
    /// Plants that the agent of each idle machine says it cannot register, for ten minutes.
    fn cannot_register(&self) {
        let sql = "UPDATE readiness SET body = json_object('notReady', json_object(
            'since', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-10 minutes'), 'why', 'GitHub says 503'))";
        assert_eq!(self.file().execute(sql, []), Ok(1));
    }
}

#[test]
fn people_see_which_idle_machines_are_ready_and_why_one_is_not() {
    let home = pool();
    let [machine] = home.warm_up(1).try_into().unwrap();
    home.until_all_are_ready(1);
    let status = || home.ondeck(&["status", "--json"]).succeeded().json();
    let explain = || home.ondeck(&["explain", &machine]).succeeded().stdout;
    let ready = status();
    assert_eq!(
        (&ready["summary"]["ready"], &ready["instances"][0]["ready"]),
        (&1.into(), &true.into())
    );
    assert_eq!(ready["instances"][0].get("marks"), None);
    let text = home.ondeck(&["status"]).succeeded().stdout;
    assert!(text.contains("\nready: 1 of 1 idle machines are online\n"), "{text}");
    let story = explain().replace(char::is_whitespace, " ");
    let online = format!("It is online under the label {}", home.runners().pop_first().unwrap());
    assert!(story.contains(&online), "{story}");
    assert_finds(&home, &[]);

    home.cannot_register();
    let unready = status();
    let (summary, machine_seen) = (&unready["summary"], &unready["instances"][0]);
    assert_eq!((&summary["ready"], &machine_seen["ready"]), (&0.into(), &false.into()));
    let mark = serde_json::json!([{ "mark": "unready", "reason": "GitHub says 503" }]);
    assert_eq!(machine_seen["marks"], mark);
    assert_eq!(summary["problems"][0]["kind"], "unready");
    let story = explain().replace(char::is_whitespace, " ");
    assert!(
        story.contains("It is not registered, since ") && story.contains(": GitHub says 503."),
        "{story}"
    );
    let answer = assert_finds(&home, &["machines-unready"]);
    assert_eq!(answer["findings"][0]["about"], serde_json::json!([machine]));
    let refreshed = home.ondeck(&["refresh", "--json"]).succeeded();
    let words =
        format!("1 of 1 idle machines are not registered, {machine} for 10 min: GitHub says 503");
    assert!(refreshed.stderr.contains(&words), "{}", refreshed.stderr);
    assert_eq!(home.agents().len(), 1, "a class with one machine tells nothing about GitHub");
}

#[test]
fn people_see_which_claims_found_a_machine_online() {
    let home = pool();
    let [machine] = home.warm_up(1).try_into().unwrap();
    home.until_all_are_ready(1);
    let warm = home.ondeck(&["provision", "--run-id=2", "--json"]).succeeded();
    assert!(
        warm.json()["instances"][0]["why"].as_str().unwrap().ends_with(", was online"),
        "{}",
        warm.stdout
    );
    let story = home.ondeck(&["explain", "2"]).succeeded().stdout.replace(char::is_whitespace, " ");
    assert!(story.contains(&format!("{machine} was online already.")), "{story}");
    let own = labels(&warm).concat();
    let of_machine = home.ondeck(&["explain", &machine]).succeeded().stdout;
    let of_machine = of_machine.replace(char::is_whitespace, " ");
    assert!(of_machine.contains(&format!("reach it under the label {own}")), "{of_machine}");
}

#[test]
fn jobs_that_wait_for_a_label_of_a_machine_are_found() {
    let home = pool();
    let nowhere = format!("m{}", "0".repeat(32));
    let run = home.start(&["run", "--run-id", "9", "--label", &nowhere, "--", "true"]);
    until("the job is queued", || home.number("SELECT count(*) FROM jobs") == 1);
    let answer = assert_finds(&home, &["jobs-unserved"]);
    let what = format!("1 job waits for labels that no machine has: {nowhere} (run 9)");
    assert_eq!(answer["findings"][0]["what"], what.as_str());
    assert_eq!(answer["findings"][0]["severity"], "warning", "the run was never given it");
    run.kill();
    // One that the run was given is missed once its provision is some minutes old.
    let own = labels(&home.provision("1", 1).succeeded()).concat();
    let asked = "UPDATE demands SET body = json_set(body, '$.at', '2026-01-01T00:00:00.000Z')";
    assert_eq!(home.file().execute(asked, []), Ok(1));
    let serves = ["run", "--run-id", "1", "--label", &own, "--", "sleep", "1000"];
    let busy = home.start(&serves);
    until("the job runs", || home.texts("SELECT state FROM jobs WHERE run = '1'") == ["running"]);
    let waits = home.start(&serves);
    until("another waits", || home.number("SELECT count(*) FROM jobs WHERE run = '1'") == 2);
    assert_finds(&home, &[]);
    for job in [busy, waits] {
        job.kill();
    }
}
