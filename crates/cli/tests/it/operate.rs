//! `ondeck drain`, `retire`, `terminate` and `pool` on the local backend.

use std::collections::BTreeSet;

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{AtTerminal, Background, Done, Driven, Home, signal, until};
use crate::json::assert_valid;

/// All that the records and the pool consist of, but for what agents write.
fn inventory(home: &Home) -> Vec<String> {
    let rows = |sql: &str| home.texts(sql);
    [
        rows(
            "SELECT json_array(id, state, run, threshold, updated_at, ticketed_at, departure) \
              FROM instances ORDER BY id",
        ),
        rows("SELECT json_array(seq, instance, transition, why) FROM events ORDER BY seq"),
        rows("SELECT json_array(id, body) FROM tickets ORDER BY id"),
        rows("SELECT json_array(id, ended_at) FROM machines ORDER BY id"),
    ]
    .concat()
}

fn actions(done: &Done) -> Vec<(String, String)> {
    let answer = done.json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let machines = answer["machines"].as_array().unwrap().iter();
    machines.map(|it| (text(&it["instanceId"]), text(&it["action"]))).collect()
}

#[test]
fn a_drain_ends_idle_machines_and_busy_ones_after_their_runs() {
    let home = Home::with(&[]);
    let warm = home.warm_up(2);
    let busy = home.provision("7", 1).succeeded().ids().remove(0);
    let idle = warm.iter().find(|it| **it != busy).unwrap().clone();
    let drain = ["drain", "--all", "--yes", "--json", "--actor=alice", "--reason=old disks"];
    let done = home.ondeck(&drain).succeeded();
    assert_valid("drain", &done);
    let found: BTreeSet<(String, String)> = actions(&done).into_iter().collect();
    let expected = [(&idle, "terminate"), (&busy, "leave-after-run")];
    assert_eq!(found, expected.map(|(id, action)| (id.clone(), action.to_owned())).into());
    until("the idle one is gone", || !home.agents().contains_key(&idle));
    assert_eq!(home.standings(), ["running 7"]);
    let events = "SELECT transition || ': ' || why FROM events WHERE why LIKE '%alice%' ORDER BY 1";
    let why = "drained by alice: old disks";
    let expected = ["drain", "expire", "reap"].map(|it| format!("{it}: {why}"));
    assert_eq!(home.texts(events), expected);

    let again = home.ondeck(&["drain", "--all", "--json"]).succeeded();
    assert_eq!(actions(&again), [(busy.clone(), "none".to_owned())], "nothing is left to ask");
    let job = ["run", "--run-id=7", "--", "echo", "done"];
    assert_eq!(home.ondeck(&job).succeeded().stdout, "done\n", "the run works on");
    let released = home.release("7").succeeded().json();
    assert_eq!(released["instances"][0]["outcome"], "terminated", "{released}");
    assert_eq!((home.standings().len(), home.tickets()), (0, 1), "a ticket of before is left");
    assert_eq!(home.provision("8", 1).succeeded().sources(), ["cold"]);
    assert_eq!(home.tickets(), 0, "which the next run deletes");
}

#[test]
fn a_dry_run_changes_nothing() {
    let home = Home::with(&[]);
    let warm = home.warm_up(2);
    home.provision("7", 1).succeeded();
    let before = inventory(&home);
    for arguments in [
        &["drain", "--all"][..],
        &["retire", "--all"],
        &["terminate", &warm[1]],
        &["pool", "repair"],
        &["pool", "list"],
    ] {
        let dry = if arguments == ["pool", "list"] { vec![] } else { vec!["--dry-run"] };
        home.ondeck(&[arguments, &dry[..]].concat()).succeeded();
        assert_eq!(inventory(&home), before, "{arguments:?}");
    }
    let forced = home.ondeck(&["terminate", "--force", "--dry-run", "--json", &warm[0]]);
    let forced = forced.succeeded();
    assert_valid("terminate", &forced);
    assert_eq!(inventory(&home), before);
    let machine = &forced.json()["machines"][0];
    let is_busy = machine["runId"] == "7";
    assert_eq!(machine["action"], if is_busy { "take-from-run" } else { "terminate" });
}

#[test]
fn a_busy_machine_is_terminated_only_by_force_and_with_consent() {
    let home = Home::with(&[]);
    let machine = home.provision("7", 1).succeeded().ids().remove(0);
    let refused = home.ondeck(&["terminate", "--json", &machine]).exited(12);
    assert_valid("terminate", &refused);
    assert_eq!(refused.json()["machines"][0]["action"], "refuse");
    let named = format!("machines are in use: {machine} (running of run 7)");
    assert_eq!(refused.json()["error"]["message"], named);
    let unasked = home.ondeck(&["terminate", "--force", &machine]).exited(2);
    assert!(unasked.stderr.contains("stdin is not a terminal"), "{}", unasked.stderr);
    assert_eq!(home.standings(), ["running 7"]);
    let done = home.ondeck(&["terminate", "--force", "--yes", &machine]).succeeded();
    assert!(done.stdout.contains("terminate, run 7 loses it"), "{}", done.stdout);
    until("it is gone", || home.agents().is_empty());
    let again = home.ondeck(&["terminate", "--force", "--yes", "--json", &machine]).succeeded();
    assert_eq!(actions(&again), [(machine, "none".to_owned())]);
    let unknown = home.ondeck(&["terminate", "--json", "local-99"]).exited(2);
    assert_eq!(unknown.json()["unknown"][0], "local-99");
    home.ondeck(&["drain"]).exited(2);
    home.ondeck(&["drain", "--all", "--class=large"]).exited(2);
    home.ondeck(&["drain", "--old-image", "--yes"]).exited(2);
}

#[test]
fn a_drain_waits_until_the_runs_are_over() {
    let home = Home::with(&[]);
    home.provision("7", 1).succeeded();
    let waiting = home.start(&["drain", "--all", "--yes", "--wait-min=5", "--json"]);
    let marked = "SELECT count(*) FROM instances WHERE departure = 'drained'";
    until("it is marked", || home.number(marked) == 1);
    home.release("7").succeeded();
    let done = waiting.finish().succeeded();
    assert_eq!(done.json()["machines"][0]["gone"], true);
    home.assert_empty();
}

#[test]
fn machines_with_an_agent_of_an_older_protocol_are_chosen() {
    let home = Home::with(&[]);
    let machines = home.provision("7", 2).succeeded().ids();
    let select = || {
        let done = home.ondeck(&["retire", "--old-agent", "--dry-run", "--json"]).succeeded();
        actions(&done).into_iter().map(|(id, _)| id).collect::<Vec<_>>()
    };
    assert_eq!(select(), Vec::<String>::new());
    // It says no more that it speaks the present one.
    signal(home.agents()[&machines[0]], Signal::STOP);
    let older = format!("UPDATE heartbeats SET protocol = 0 WHERE id = '{}'", machines[0]);
    assert_eq!(home.file().execute(&older, []), Ok(1));
    assert_eq!(select(), [machines[0].clone()]);
}

#[test]
fn who_asks_is_the_given_name_or_the_actor_of_the_workflow_or_the_user() {
    let home = Home::with(&[]);
    let actor = |flag: &[&str], variables: &[(&str, &str)]| {
        let arguments = [&["drain", "--all", "--dry-run", "--json"], flag].concat();
        let mut command = home.command(&arguments);
        command.env("USER", "bob").envs(variables.iter().copied());
        let done = Background::start(&mut command).finish().succeeded();
        done.json()["actor"].as_str().unwrap().to_owned()
    };
    let workflow = [("GITHUB_ACTIONS", "true"), ("GITHUB_ACTOR", "carol")];
    assert_eq!(actor(&[], &[]), "bob");
    assert_eq!(actor(&[], &workflow[1..]), "bob", "this is no workflow");
    assert_eq!(actor(&[], &workflow), "carol");
    assert_eq!(actor(&["--actor=alice"], &workflow), "alice");
}

/// Runs claim while drains work.
#[test]
fn runs_that_claim_meanwhile_lose_no_machine_and_share_none() {
    let home = Home::with(&[]);
    let warm: BTreeSet<String> = home.warm_up(6).into_iter().collect();
    let provision =
        |run: usize| home.start(&["provision", "--json", "--run-id", &format!("racer-{run}")]);
    let mut racers: Vec<Background> = (0..2).map(provision).collect();
    let drains: Vec<Background> =
        (0..2).map(|_| home.start(&["drain", "--all", "--yes", "--json"])).collect();
    racers.extend((2..4).map(provision));
    let mut owned = BTreeSet::new();
    for racer in racers {
        assert!(owned.insert(racer.finish().succeeded().ids().concat()), "shared");
    }
    for drain in drains {
        drain.finish().succeeded();
    }
    let records = home.records();
    let agents = home.agents();
    for machine in &owned {
        assert!(records[machine].starts_with("running racer-"), "{machine}: {records:?}");
        assert!(agents.contains_key(machine), "{machine} is gone");
    }
    for run in 0..4 {
        home.release(&format!("racer-{run}")).succeeded();
    }
    let left: BTreeSet<String> = home.records().into_keys().collect();
    let drained = warm.intersection(&left).collect::<Vec<_>>();
    assert!(drained.is_empty(), "drained machines are in the pool: {drained:?}");
}

#[test]
fn a_command_that_is_killed_leaves_nothing_that_refresh_does_not_close() {
    for (call, arguments) in [
        ("drain", &["drain", "--all", "--yes"][..]),
        ("expire", &["drain", "--all", "--yes"]),
        ("reap", &["drain", "--all", "--yes"]),
        ("terminate", &["drain", "--all", "--yes"]),
    ] {
        let home = Home::with(&[]);
        home.warm_up(2);
        let busy = home.provision("7", 1).succeeded().ids().remove(0);
        home.kill_before(call, arguments);
        assert!(home.agents().contains_key(&busy), "killed before {call}");
        home.ondeck(arguments).succeeded();
        home.refresh(&[]);
        assert_eq!(home.standings(), ["running 7"], "killed before {call}");
        until("the idle one is gone", || home.agents().len() == 1);
        home.release("7").succeeded();
        home.refresh(&[]);
        // The tickets of machines that were terminated while idle.
        home.ondeck(&["pool", "repair"]).succeeded();
        home.assert_empty();
    }
}

/// Killed, and not called again.
#[test]
fn what_a_killed_terminate_has_begun_is_finished_by_refresh() {
    for call in ["reap", "terminate"] {
        let home = Home::with(&[]);
        let machine = home.warm_up(1).remove(0);
        home.kill_before(call, &["terminate", &machine]);
        until("refresh closes it", || {
            home.refresh(&[]);
            home.agents().is_empty() && home.standings().is_empty()
        });
    }
}

#[test]
fn retired_machines_are_replaced_and_serve_until_then() {
    let home = Home::with(&["--min-idle=large=1"]);
    let first: Vec<String> = home.records().into_keys().collect();
    let done = home.ondeck(&["retire", "--class=large", "--json"]).succeeded();
    assert_valid("retire", &done);
    assert_eq!(actions(&done), [(first[0].clone(), "replace".to_owned())]);
    assert_eq!(home.standings(), ["idle"], "it stays in the pool");
    let refreshed = home.refresh(&[]);
    assert_eq!(refreshed["rotated"][0], first[0], "{refreshed}");
    assert_eq!(home.standings(), ["idle"]);
    assert!(!home.records().contains_key(&first[0]), "another one is in its place");
}

#[test]
fn tickets_are_listed_and_repaired() {
    let home = Home::with(&[]);
    let warm = home.warm_up(2);
    let file = home.file();
    let copy = "INSERT INTO tickets (class, body, visible_at) \
                SELECT class, body, visible_at FROM tickets WHERE body LIKE '%' || ?1 || '%'";
    file.execute(copy, [&warm[0]]).unwrap();
    file.execute(
        "INSERT INTO tickets (class, body, visible_at) VALUES ('large', 'not a ticket', '')",
        [],
    )
    .unwrap();
    file.execute("DELETE FROM tickets WHERE body LIKE '%' || ?1 || '%'", [&warm[1]]).unwrap();
    let listed = home.ondeck(&["pool", "list", "--json"]).succeeded();
    assert_valid("pool", &listed);
    let answer = listed.json();
    let classes = answer["classes"].as_array().unwrap();
    let large = classes.iter().find(|it| it["resourceClass"] == "large").unwrap();
    let mut truths: Vec<&str> = large["tickets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["truth"].as_str().unwrap())
        .collect();
    truths.sort_unstable();
    assert_eq!(truths, ["duplicate", "true", "unreadable"]);
    assert_eq!(large["unannounced"][0], warm[1].as_str());
    let visible = "SELECT count(*) FROM tickets \
                   WHERE visible_at <= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
    assert_eq!((home.tickets(), home.number(visible)), (3, 3), "none stays hidden");
    let repaired = home.ondeck(&["pool", "repair"]).succeeded();
    assert!(repaired.stdout.starts_with("deleted 2 of 3 tickets and sent 1\n"), "{repaired:?}");
    assert_eq!(home.tickets(), 2);
    assert_eq!(home.provision("7", 2).succeeded().sources(), ["warm", "warm"]);
    home.ondeck(&["pool", "list", "--class=huge"]).exited(2);
}

#[test]
fn more_than_a_handful_is_asked_about_at_a_terminal() {
    let home = Home::with(&[]);
    home.warm_up(6);
    home.ondeck(&["drain", "--all"]).exited(2);
    assert_eq!(home.standings().len(), 6);
    for (line, left) in [("no", 6), ("yes", 0)] {
        let mut asked = AtTerminal::asking(home.command(&["drain", "--all"]));
        asked.answer("type yes to go on", line);
        asked.finish();
        assert_eq!(home.standings().len(), left, "{line}");
    }
}

/// A file of before this column was known.
#[test]
fn a_file_without_the_mark_is_completed() {
    let home = Home::with(&[]);
    home.warm_up(1);
    let file = home.file();
    file.execute_batch("ALTER TABLE instances DROP COLUMN departure").unwrap();
    assert_eq!(home.standings(), ["idle"]);
    home.ondeck(&["drain", "--all", "--json"]).succeeded();
    assert!(home.standings().is_empty());
}
