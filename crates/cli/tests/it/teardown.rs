//! `ondeck teardown` on the local backend: what it refuses, what it leaves, and being killed in it.

use std::fs;

use crate::harness::{Driven, Home, until};
use crate::json::assert_valid;

const CLOSED: &str = "SELECT count(*) FROM settings WHERE name = 'closed-at'";

/// Nothing of the pool is left: no process, no file.
#[track_caller]
fn assert_gone(home: &Home) {
    assert_eq!(home.processes(), Vec::<i32>::new());
    let left = fs::read_dir(home.dir()).map(Iterator::count);
    assert!(left.is_err(), "{left:?}");
}

#[test]
fn nothing_is_left_and_a_second_call_has_nothing_to_do() {
    let home = Home::with(&[]);
    let machines = home.warm_up(2);
    let done = home.ondeck(&["teardown", "--yes", "--json"]).succeeded();
    assert_valid("teardown", &done);
    let answer = done.json();
    let mut terminated: Vec<String> = serde_json::from_value(answer["machines"].clone()).unwrap();
    let mut expected = machines;
    terminated.sort();
    expected.sort();
    assert_eq!((terminated, &answer["closed"]), (expected, &false.into()));
    assert_gone(&home);

    let again = home.ondeck(&["teardown", "--yes"]).succeeded();
    let nothing = format!("nothing was left of pool {}\n", home.dir().display());
    assert_eq!((again.stdout.as_str(), again.stderr.as_str()), (nothing.as_str(), ""));
    assert_gone(&home);
    home.ondeck(&["provision", "--run-id=1"]).exited(3);
    home.refresh(&[]);
    assert_eq!(home.provision("1", 1).succeeded().sources(), ["cold"], "a new pool");
}

#[test]
fn files_of_others_in_the_home_stay() {
    let home = Home::with(&[]);
    fs::write(home.dir().join("notes.txt"), "mine").unwrap();
    home.ondeck(&["teardown", "--yes"]).succeeded();
    let left = fs::read_dir(home.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["notes.txt"]);
}

#[test]
fn a_pool_in_use_is_refused_and_stays_open() {
    let home = Home::with(&[]);
    let machine = home.provision("7", 1).succeeded().ids().remove(0);
    let done = home.ondeck(&["teardown", "--yes", "--json"]).exited(12);
    assert_valid("teardown", &done);
    let answer = done.json();
    assert_eq!(answer["inUse"][0]["instanceId"], machine);
    assert_eq!((&answer["inUse"][0]["runId"], &answer["closed"]), (&"7".into(), &false.into()));
    assert_eq!(answer["error"]["kind"], "in-use");
    let named = format!("runs own machines: {machine} (running for run 7)");
    assert_eq!(answer["error"]["message"], named);
    assert_eq!(home.provision("8", 1).succeeded().sources(), ["cold"]);
    assert_eq!(home.standings(), ["running 7", "running 8"]);
}

#[test]
fn force_terminates_also_what_runs_own() {
    let home = Home::with(&[]);
    home.provision("7", 2).succeeded();
    home.kill_before("activate", &["provision", "--run-id", "8"]);
    home.kill_before("register", &["provision", "--run-id", "9"]);
    let done = home.ondeck(&["teardown", "--yes", "--force", "--json"]).succeeded();
    assert_eq!(done.json()["machines"].as_array().unwrap().len(), 4, "{}", done.stdout);
    assert_gone(&home);
}

#[test]
fn it_waits_for_runs_with_the_pool_closed() {
    let home = Home::with(&["--min-idle=large=1"]);
    home.provision("7", 1).succeeded();
    let teardown = home.start(&["teardown", "--yes", "--wait-min=2"]);
    until("the pool is closed", || home.number(CLOSED) == 1);
    let refused = home.ondeck(&["provision", "--run-id=8", "--json"]).exited(3);
    assert_eq!(refused.json()["error"]["kind"], "closed");
    // Refresh cleans up and launches nothing, although the minimum is not reached.
    let refreshed = home.ondeck(&["refresh", "--json", "--idle-time-sec=7"]).exited(3).json();
    assert_eq!((&refreshed["setUp"], &refreshed["warmed"]), (&false.into(), &0.into()));
    home.release("7").succeeded();
    teardown.finish().succeeded();
    assert_gone(&home);
}

#[test]
fn a_teardown_that_is_killed_while_it_waits_leaves_the_pool_closed_until_it_is_cancelled() {
    let home = Home::with(&[]);
    home.provision("7", 1).succeeded();
    home.warm_up(1);
    home.kill_before("expire", &["teardown", "--yes", "--wait-min=1"]);
    home.ondeck(&["provision", "--run-id=8"]).exited(3);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ondeck.toml");
    std::fs::write(&file, "[times]\nidle-time-sec = 7\n").unwrap();
    let file = file.to_str().unwrap();
    let refused = home.ondeck(&["apply", "--config", file]).exited(3);
    assert!(refused.stderr.contains("closed by ondeck teardown"), "{}", refused.stderr);
    home.ondeck(&["apply", "--config", file, "--dry-run"]).succeeded();
    let refused = home.ondeck(&["teardown", "--yes"]).exited(12);
    assert!(refused.stderr.contains("running for run 7"), "{}", refused.stderr);
    let opened = home.ondeck(&["teardown", "--cancel", "--json"]).succeeded();
    assert_valid("teardown", &opened);
    home.refresh(&[]);
    assert_eq!(home.provision("8", 1).succeeded().sources(), ["warm"]);
    assert!(home.ondeck(&["teardown", "--cancel"]).succeeded().stdout.contains("was not closed"));
}

#[test]
fn killed_anywhere_it_is_finished_by_the_next_call() {
    let steps = ["put-settings", "expire", "reap", "terminate", "delete-files", "delete-table"];
    for step in steps {
        let home = Home::with(&[]);
        home.warm_up(2);
        home.kill_before(step, &["teardown", "--yes"]);
        if step != "put-settings" {
            home.ondeck(&["provision", "--run-id=1"]).exited(3);
        }
        home.ondeck(&["teardown", "--yes"]).succeeded();
        assert_gone(&home);
    }
}

#[test]
fn a_dry_run_lists_everything_and_changes_nothing() {
    let home = Home::with(&[]);
    home.provision("7", 1).succeeded();
    let machines = home.warm_up(1);
    let before = (home.records(), home.tickets(), home.agents());
    let done = home.ondeck(&["teardown", "--dry-run", "--json"]).succeeded();
    assert_valid("teardown", &done);
    let answer = done.json();
    assert_eq!((&answer["dryRun"], &answer["closed"]), (&true.into(), &false.into()));
    assert!(answer["machines"].as_array().unwrap().contains(&machines[0].clone().into()));
    let kinds: Vec<&str> = answer["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|resource| resource["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["files", "files", "files", "table"]);
    assert_eq!((home.records(), home.tickets(), home.agents()), before);
    assert_eq!(home.provision("8", 1).succeeded().sources(), ["warm"], "it is not closed");
}

#[test]
fn a_provision_under_way_keeps_the_pool_and_force_does_not_wait_for_it() {
    let home = Home::with(&[]);
    let held = home.hold_before("launch", &["provision", "--run-id=7"]);
    let refused = home.ondeck(&["teardown", "--yes"]).exited(12);
    assert!(refused.stderr.contains("machines (being launched for run 7)"), "{}", refused.stderr);
    held.kill();
    let done = home.ondeck(&["teardown", "--yes", "--force"]).succeeded();
    assert!(done.stderr.contains("a launch for run 7 has no known outcome"), "{}", done.stderr);
    assert_gone(&home);
}

#[test]
fn without_a_terminal_it_needs_yes() {
    let home = Home::with(&[]);
    let refused = home.ondeck(&["teardown"]).exited(2);
    assert!(refused.stderr.contains("hint: type the name of the pool, or give --yes"));
    home.provision("1", 1).succeeded();
}
