//! `reuse: never`, as the program keeps it on both backends.

use serde_json::json;

use crate::harness::{Driven, Home};

/// The machines of a pool that reuses none. It must be set up and empty.
pub(crate) fn no_machine_serves_two_runs(harness: &impl Driven) {
    harness.refresh(&["--reuse=never", "--min-idle=large=1"]);
    let kept = harness.status()["instances"][0]["instanceId"].clone();
    let first = harness.provision("1", 2).succeeded();
    let mut sources = first.sources();
    sources.sort();
    assert_eq!(sources, ["cold", "warm"], "an unused machine of the minimum can be claimed");
    assert!(first.ids().iter().any(|id| *id == kept));
    harness.ondeck(&["run", "--run-id", "1", "--", "true"]).succeeded();

    let again = harness.provision("1", 2).succeeded();
    assert_eq!((again.sources(), again.ids()), (vec!["adopted".to_owned(); 2], first.ids()));
    let released = harness.release("1").succeeded().json();
    for machine in released["instances"].as_array().unwrap() {
        assert_eq!(machine["outcome"], "terminated", "{machine}");
    }
    assert_eq!(harness.standings(), [""; 0]);

    let lax = ["provision", "--json", "--run-id=2", "--reuse=always"];
    assert_eq!(harness.ondeck(&lax).succeeded().sources(), ["cold"]);
    let released = harness.release("2").succeeded().json();
    assert_eq!(released["instances"][0]["outcome"], "terminated", "no call can be laxer");
    harness.refresh(&["--reuse=", "--min-idle="]);
}

/// A run with machines of its own in a pool that reuses them. It must be set up and empty.
pub(crate) fn one_run_can_ask_for_machines_of_its_own(harness: &impl Driven) {
    let used = harness.provision("1", 1).succeeded().ids();
    harness.release("1").succeeded();
    let strict = ["provision", "--json", "--run-id=2", "--reuse=never"];
    let own = harness.ondeck(&strict).succeeded();
    assert_eq!(own.sources(), ["cold"], "the idle machine has served another run");
    let released = harness.release("2").succeeded().json();
    assert_eq!(released["instances"][0]["outcome"], "terminated");
    let next = harness.provision("3", 1).succeeded();
    assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], used));
    let from_pool = [&strict[..2], &["--run-id=4", "--reuse=never", "--machine-source=pool"]];
    let refused = harness.ondeck(&from_pool.concat()).exited(4);
    assert_eq!(refused.json()["error"]["kind"], json!("no-capacity"));
    harness.release("3").succeeded();
}

#[test]
fn a_local_pool_reuses_no_machine() {
    no_machine_serves_two_runs(&Home::with(&[]));
}

#[test]
fn a_run_of_a_local_pool_can_ask_for_machines_of_its_own() {
    let home = Home::with(&[]);
    one_run_can_ask_for_machines_of_its_own(&home);
}

#[test]
fn another_word_is_refused() {
    let home = Home::with(&[]);
    for arguments in [&["refresh", "--reuse=sometimes"][..], &["provision", "--reuse", "once"]] {
        let done = home.ondeck(arguments).exited(2);
        assert!(done.stderr.contains("none of always, never"), "{}", done.stderr);
    }
}
