//! `debug-on-failure-min`: machines of a failed run stay for people, on both backends.

use std::time::Duration;

use crate::harness::{Driven, Home, until, within};

/// How long machines stay, in minutes: three seconds.
const BRIEFLY: &str = "--debug-on-failure-min=0.05";

/// A pool with `debug-on-failure-min`. It must be set up and empty.
pub(crate) fn a_failed_run_keeps_its_machine(home: &impl Driven) {
    home.refresh(&["--debug-on-failure-min=10"]);
    let first = home.provision("1", 1).succeeded().ids();
    home.ondeck(&["run", "--run-id=1", "--", "sh", "-c", "echo left >trace; exit 3"]).exited(3);
    let released = home.ondeck(&["release", "--run-id=1", "--run-failed", "--json"]).succeeded();
    let released = released.json();
    let machine = &released["instances"][0];
    assert_eq!(
        (&released["status"], &machine["outcome"]),
        (&"success".into(), &"preserved".into())
    );
    let reason = machine["reason"].as_str().unwrap();
    assert!(reason.starts_with("the run failed; kept for debugging until 20"), "{reason}");

    let shown = home.status();
    let shown = &shown["instances"][0];
    assert_eq!((&shown["state"], &shown["runId"]), (&"running".into(), &"1".into()));
    assert_eq!(
        (&shown["preserved"], &shown["instanceId"]),
        (&true.into(), &first[0].clone().into())
    );
    let text = home.ondeck(&["status"]).succeeded().stdout;
    assert!(text.contains("preserved") && text.contains("pool: empty"), "{text}");

    let late = ["run", "--run-id=1", "--queue-timeout-sec=2", "--", "true"];
    until("it takes no further job", || home.ondeck(&late).code != 0);
    let other = home.provision("2", 1).succeeded();
    assert_eq!(other.sources(), ["cold"], "no other run gets it");
    let again = home.provision("1", 1).succeeded();
    assert_eq!(again.sources(), ["cold"], "nor does its own");
    home.release("1").succeeded();
    home.release("2").succeeded();
    home.refresh(&[]);
    assert_eq!(home.standings(), ["idle", "idle", "running 1"]);
}

#[test]
fn the_machines_of_a_failed_run_stay_outside_the_pool() {
    let home = Home::with(&[]);
    a_failed_run_keeps_its_machine(&home);
    let machine = home.status()["instances"].as_array().unwrap().iter().find_map(|one| {
        one["preserved"].as_bool().and_then(|_| one["instanceId"].as_str().map(str::to_owned))
    });
    let trace = home.dir().join("machines").join(machine.unwrap()).join("work/trace");
    assert_eq!(std::fs::read_to_string(trace).unwrap(), "left\n", "it is not cleaned");
}

#[test]
fn refresh_terminates_them_when_their_time_is_up() {
    let home = Home::with(&[BRIEFLY]);
    let first = home.provision("1", 1).succeeded().ids();
    home.ondeck(&["release", "--run-id=1", "--run-failed"]).succeeded();
    let is_live = || {
        home.status()["instances"]
            .as_array()
            .unwrap()
            .iter()
            .any(|one| one["instanceId"] == first[0].as_str())
    };
    assert!(is_live());
    until("the machine is gone", || {
        home.refresh(&[]);
        !is_live()
    });
}

#[test]
fn without_the_setting_a_failed_run_returns_its_machines() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let released = home.ondeck(&["release", "--run-id=1", "--run-failed", "--json"]).succeeded();
    assert_eq!(released.json()["instances"][0]["outcome"], "pooled");
    assert!(within(Duration::from_secs(10), || home.standings() == ["idle"]));
}
