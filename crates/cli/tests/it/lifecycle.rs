//! The lifecycle of machines when nothing goes wrong.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::harness::{Background, Driven, Home, race, until};

#[test]
fn machines_go_from_run_to_run_and_at_last_away() {
    let home = Home::with(&["--self-termination-grace-sec=60"]);
    let cold = home.provision("1", 3).succeeded();
    assert_eq!(cold.sources(), ["cold", "cold", "cold"]);
    assert_eq!(home.standings(), ["running 1", "running 1", "running 1"]);
    let job = ["run", "--run-id", "1", "--", "sh", "-c", "echo $ONDECK_INSTANCE_ID"];
    let done = home.ondeck(&job).succeeded();
    assert!(cold.ids().contains(&done.stdout.trim_end().to_owned()), "{done:?}");
    let released = home.release("1").succeeded();
    assert_eq!(released.ids(), cold.ids());
    assert_eq!(released.json()["instances"][0]["outcome"], "pooled");
    assert_eq!(home.standings(), ["idle", "idle", "idle"]);
    assert_eq!(home.status()["pool"]["large"], 3);

    let warm = home.provision("2", 3).succeeded();
    assert_eq!(warm.sources(), ["warm", "warm", "warm"]);
    assert_eq!(warm.ids(), cold.ids());
    assert_eq!(home.tickets(), 0);

    home.ondeck(&["release", "--run-id", "2", "--idle-time-sec", "1"]).succeeded();
    until("refresh has reaped them", || {
        home.refresh(&[]);
        home.agents().is_empty()
    });
    home.assert_empty();
}

#[test]
fn the_answer_of_provision_has_the_documented_shape() {
    let home = Home::with(&[]);
    let answer = home.provision("4711", 2).succeeded().json();
    assert_eq!(
        keys(&answer),
        [
            "instances",
            "label",
            "labels",
            "requested",
            "runId",
            "schemaVersion",
            "search",
            "status",
            "timings"
        ],
        "{answer}"
    );
    assert_eq!(answer["status"], "success");
    assert_eq!(answer["runId"], "4711");
    assert_eq!(answer["label"], "4711");
    assert_eq!(answer["labels"], serde_json::json!(["4711", "4711"]));
    assert_eq!(answer["requested"], 2);
    let timings = &answer["timings"];
    let phases = ["adoptionMs", "creationMs", "postProvisionMs", "selectionMs", "totalMs"];
    assert_eq!(keys(timings), [&phases[..], &["validationMs"]].concat());
    let total = timings["totalMs"].as_u64().unwrap();
    for instance in answer["instances"].as_array().unwrap() {
        #[rustfmt::skip]
        let fields = [
            "foundMs", "instanceId", "instanceType", "ownedMs", "readyMs", "registeredMs",
            "resourceClass", "source", "usageClass", "why",
        ];
        assert_eq!(keys(instance), fields);
        assert!(instance["instanceId"].as_str().unwrap().starts_with("i-"));
        assert_eq!(instance["source"], "cold");
        assert_eq!(instance["instanceType"], "c6i.large");
        assert_eq!(instance["usageClass"], "on-demand");
        assert_eq!(instance["resourceClass"], "large");
        let reached = ["ownedMs", "registeredMs", "readyMs"].map(|name| instance[name].as_u64());
        assert!(reached.is_sorted() && reached[2] <= Some(total), "{answer}");
        assert_eq!(instance["why"], "the pool held no ticket");
    }
}

#[test]
fn the_answer_of_status_has_the_documented_shape() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let status = home.status();
    assert_eq!(keys(&status), ["instances", "pool", "schemaVersion", "summary"]);
    let instance = &status["instances"][0];
    #[rustfmt::skip]
    let fields = [
        "cpu", "createdAt", "heartbeatAgeMs", "instanceId", "instanceType", "mem", "resourceClass",
        "runId", "signal", "state", "threshold", "ticketedAt", "updatedAt", "usageClass",
    ];
    assert_eq!(keys(instance), fields);
    assert_eq!(instance["state"], "running");
    assert_eq!(instance["runId"], "1");
    assert_eq!((&instance["cpu"], &instance["mem"]), (&json!(2), &json!(4096)));
    assert_eq!(instance["signal"], "UD_REG_OK");
    assert!(instance["heartbeatAgeMs"].is_u64());
    assert_eq!(status["pool"]["large"], 0);
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn a_second_provision_of_a_run_is_given_what_the_first_one_got() {
    let home = Home::with(&[]);
    let first = home.provision("1", 2).succeeded();
    let second = home.provision("1", 2).succeeded();
    assert_eq!((second.sources(), second.ids()), (vec!["adopted".to_owned(); 2], first.ids()));
    let more = home.provision("1", 3).succeeded();
    assert_eq!(more.sources(), ["adopted", "adopted", "cold"]);
    assert_eq!(home.agents().into_keys().collect::<Vec<_>>(), more.ids());
}

/// So many runs at once want one machine each, and so many are idle.
fn race_for_idle(runs: usize, idle: u32, inputs: &[&str]) {
    let home = Home::with(inputs);
    let warm = home.warm_up(idle).into_iter().collect();
    let ids = race(&home, runs, &warm);
    assert_eq!(home.agents().into_keys().collect::<BTreeSet<_>>(), ids);
    assert_eq!(home.tickets(), 0);
}

#[test]
fn two_runs_race_for_one_idle_machine() {
    race_for_idle(2, 1, &[]);
}

#[test]
fn six_runs_race_for_two_idle_machines() {
    race_for_idle(6, 2, &[]);
}

#[test]
fn six_runs_race_for_two_idle_machines_whose_tickets_come_twice() {
    race_for_idle(6, 2, &["--local-duplicate-tickets=true"]);
}

#[test]
fn tickets_that_come_twice_break_nothing() {
    let home = Home::with(&["--local-duplicate-tickets=true"]);
    home.warm_up(3);
    let done = home.provision("1", 3).succeeded();
    assert_eq!(done.sources(), ["warm"; 3]);
    assert_eq!(home.standings(), ["running 1"; 3]);
    home.release("1").succeeded();
    assert_eq!(home.provision("2", 4).succeeded().sources(), ["cold", "warm", "warm", "warm"]);
}

#[test]
fn machines_past_their_time_end_themselves_with_no_refresh() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    home.provision("2", 1).succeeded();
    home.ondeck(&["provision", "--run-id", "3", "--max-runtime-min", "0.02"]).succeeded();
    home.ondeck(&["release", "--run-id", "2", "--idle-time-sec", "1"]).succeeded();
    until("the idle and the overworked end themselves", || home.agents().len() == 1);
    home.refresh(&[]);
    assert_eq!(home.standings(), ["running 1"]);
}

#[test]
fn no_idle_time_means_no_idle_machine() {
    let home = Home::with(&["--idle-time-sec=0"]);
    home.provision("1", 1).succeeded();
    let released = home.release("1").succeeded().json();
    assert_eq!(released["instances"][0]["outcome"], "terminated");
    home.assert_empty();
}

#[test]
fn the_run_id_of_the_workflow_is_the_default() {
    let home = Home::with(&[]);
    let in_workflow = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        Background::start(command.env("GITHUB_RUN_ID", "16203")).finish().succeeded()
    };
    assert_eq!(in_workflow(&["provision", "--json"]).json()["runId"], "16203");
    let job = in_workflow(&["run", "--", "sh", "-c", "echo run $ONDECK_RUN_ID"]);
    assert_eq!(job.stdout, "run 16203\n");
    assert_eq!(in_workflow(&["release", "--json"]).json()["runId"], "16203");
}

#[test]
fn refresh_keeps_idle_machines_where_it_is_told_to() {
    let home = Home::with(&["--min-idle=large=2"]);
    assert_eq!(home.standings(), ["idle", "idle"]);
    assert_eq!(home.refresh(&[])["warmed"], 0);
    assert_eq!(home.provision("1", 1).succeeded().sources(), ["warm"]);
    assert_eq!(home.refresh(&[])["warmed"], 1);
    assert_eq!(home.standings(), ["idle", "idle", "running 1"]);
}
