//! `ondeck drain`, `retire`, `terminate` and `pool` on AWS, under the policy of the steward.

use std::collections::BTreeSet;

use serde_json::Value;

use super::direct_requests;
use super::harness::{AwsHarness, LAUNCH};
use crate::harness::{Background, Done, Driven, until};
use crate::json::assert_valid;

fn actions(done: &Done) -> BTreeSet<(String, String)> {
    let answer = done.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let machines = answer["machines"].as_array().unwrap().iter();
    machines.map(|it| (text(&it["instanceId"]), text(&it["action"]))).collect()
}

/// The items of the table that agents do not write, and the tickets.
fn inventory(harness: &AwsHarness) -> (Vec<Value>, BTreeSet<String>) {
    let mut items = direct_requests::items(&harness.table());
    items.retain(|item| !item["PK"]["S"].as_str().unwrap().starts_with("AGENT#"));
    let messages = direct_requests::messages(&harness.table());
    let messages = messages.iter().map(|it| format!("{} {}", it["MessageId"], it["Body"]));
    (items, messages.collect())
}

#[test]
fn a_drain_ends_idle_machines_and_busy_ones_after_their_runs() {
    let harness = AwsHarness::with(&[]);
    let warm = harness.warm_up(2);
    let busy = harness.provision("7", 1).succeeded().ids().remove(0);
    let idle = warm.iter().find(|it| **it != busy).unwrap().clone();
    let before = inventory(&harness);
    for arguments in [
        &["drain", "--all", "--dry-run"][..],
        &["retire", "--all", "--dry-run"],
        &["terminate", &idle, "--dry-run"],
        &["pool", "repair", "--dry-run"],
    ] {
        harness.ondeck(arguments).succeeded();
        assert_eq!(inventory(&harness), before, "{arguments:?}");
    }
    let drain = ["drain", "--all", "--yes", "--json", "--actor=alice", "--reason=old disks"];
    let done = harness.ondeck(&drain).succeeded();
    assert_valid("drain", &done);
    let expected = [(&idle, "terminate"), (&busy, "leave-after-run")];
    let expected = expected.map(|(id, action)| (id.clone(), action.to_owned()));
    assert_eq!(actions(&done), expected.into());
    harness.until_machines(1);
    assert_eq!(harness.standings(), ["running 7"]);
    let events = direct_requests::items(&harness.table());
    let told = events.iter().filter(|it| it["why"]["S"] == "drained by alice: old disks").count();
    assert_eq!(told, 3, "a drain, an expiry and a reap");
    let again = harness.ondeck(&["drain", "--all", "--json"]).succeeded();
    assert_eq!(actions(&again), [(busy, "none".to_owned())].into());
    let actor = again.json()["actor"].as_str().unwrap().to_owned();
    assert!(actor.starts_with("arn:aws:"), "without --actor, as AWS knows the caller: {actor}");
    harness.release("7").succeeded();
    harness.until_machines(0);
    assert_eq!(harness.provision("8", 1).succeeded().sources(), ["cold"]);
}

#[test]
fn a_busy_machine_is_terminated_only_by_force() {
    let harness = AwsHarness::with(&[]);
    let machine = harness.provision("7", 1).succeeded().ids().remove(0);
    let refused = harness.ondeck(&["terminate", &machine, "--json"]).exited(12);
    assert_valid("terminate", &refused);
    let forced = harness.ondeck(&["terminate", &machine, "--force", "--yes"]).succeeded();
    assert!(forced.stdout.contains("run 7 loses it"), "{}", forced.stdout);
    harness.until_machines(0);
    harness.ondeck(&["terminate", &machine, "--force", "--yes"]).succeeded();
}

/// Runs claim while drains work.
#[test]
fn runs_that_claim_meanwhile_lose_no_machine_and_share_none() {
    // All agents live, however busy the computer is.
    let harness = AwsHarness::with(&["--heartbeat-period-sec=30"]);
    let warm: BTreeSet<String> = harness.warm_up(4).into_iter().collect();
    let provision =
        |run: usize| harness.start(&["provision", "--json", "--run-id", &format!("racer-{run}")]);
    let mut racers: Vec<Background> = (0..2).map(provision).collect();
    let drain = harness.start(&["drain", "--all", "--yes", "--json"]);
    racers.push(provision(2));
    let mut owned = BTreeSet::new();
    for racer in racers {
        assert!(owned.insert(racer.finish().succeeded().ids().concat()), "shared");
    }
    drain.finish().succeeded();
    let (records, up) = (harness.records(), harness.machines());
    for machine in &owned {
        assert!(records[machine].starts_with("running racer-"), "{machine}: {records:?}");
        assert!(up.contains(machine), "{machine} is gone");
    }
    // The index may not have shown a machine that was released just before.
    harness.ondeck(&["drain", "--yes", "--older-than-min=0"]).succeeded();
    for run in 0..3 {
        harness.release(&format!("racer-{run}")).succeeded();
    }
    let left: BTreeSet<String> = harness.records().into_keys().collect();
    assert!(warm.is_disjoint(&left), "drained machines are in the pool: {left:?}");
}

#[test]
fn a_command_that_is_killed_leaves_nothing_that_refresh_does_not_close() {
    for call in ["drain", "expire", "reap", "terminate"] {
        let harness = AwsHarness::with(&[]);
        harness.warm_up(2);
        harness.provision("7", 1).succeeded();
        harness.kill_before(call, &["drain", "--all", "--yes"]);
        if call == "drain" || call == "expire" {
            harness.ondeck(&["drain", "--all", "--yes"]).succeeded();
        }
        until("refresh closes it", || {
            harness.refresh(&[]);
            harness.machines().len() == 1
        });
        assert_eq!(harness.standings(), ["running 7"], "killed before {call}");
    }
}

#[test]
fn machines_of_an_old_image_are_retired_and_replaced() {
    let harness = AwsHarness::with(&["--min-idle=large=1"]);
    let first = harness.machines();
    let planned = harness.ondeck(&["retire", "--old-image", "--json"]).succeeded();
    assert!(actions(&planned).is_empty(), "it is the current image");
    let mut inputs = LAUNCH.to_vec();
    inputs[0] = "--ami=ami-0fedcba9876543210";
    harness.refresh(&inputs);
    let done = harness.ondeck(&["retire", "--old-image", "--json"]).succeeded();
    assert_valid("retire", &done);
    let id = first.iter().next().unwrap().clone();
    assert_eq!(actions(&done), [(id, "replace".to_owned())].into());
    harness.refresh(&[]);
    until("another one is in its place", || {
        let up = harness.machines();
        up.len() == 1 && up.is_disjoint(&first)
    });
    assert_eq!(harness.standings(), ["idle"]);
}

#[test]
fn tickets_are_listed_and_repaired() {
    let harness = AwsHarness::with(&[]);
    let warm = harness.warm_up(2);
    harness.ondeck(&["terminate", &warm[0]]).succeeded();
    let listed = harness.ondeck(&["pool", "list", "--class=large", "--json"]).succeeded();
    assert_valid("pool", &listed);
    let answer = listed.json();
    let tickets = answer["classes"][0]["tickets"].as_array().unwrap();
    let truth = |id: &str| {
        let found = tickets.iter().find(|it| it["instanceId"] == id);
        found.map(|it| it["truth"].as_str().unwrap().to_owned())
    };
    assert_eq!(truth(&warm[0]).as_deref(), Some("not-idle"));
    assert_eq!(truth(&warm[1]).as_deref(), Some("true"));
    harness.ondeck(&["pool", "repair"]).succeeded();
    assert_eq!(harness.tickets(), 1);
    assert_eq!(harness.provision("7", 1).succeeded().sources(), ["warm"]);
}
