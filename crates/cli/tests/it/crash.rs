//! Killed for real between two steps: what is left behind, and every way in which it is closed.
//! One test for each row of the design's table of crash windows, and each of its closers.

use rustix::process::Signal;

use crate::harness::{Driven, Home, signal, until, with_both_labels};

const OPEN_INTENTS: &str = "SELECT count(*) FROM intents WHERE outcome = ''";
const HIDDEN_TICKETS: &str = "SELECT count(*) FROM tickets WHERE received_count > 0";

/// A pool whose tickets come back soon after the run that held them died, and whose runs wait for
/// that.
fn with_short_holds(label: &str) -> Home {
    Home::with(&[label, "--ticket-hold-sec=1.5", "--pickup-patience-sec=15"])
}

/// Waits, without any refresh, until no machine is alive; then buries the records.
fn until_the_machines_end_themselves(home: &Home) {
    until("the machines end themselves", || home.agents().is_empty());
    // Of classes without idle machines, a refresh looks at the tickets of some.
    until("no ticket is left", || {
        home.refresh(&[]);
        home.tickets() == 0
    });
    home.assert_empty();
}

/// A claim ends soon. The run has no new machine to wait for.
const SHORT_CLAIM: [&str; 3] =
    ["--claim-timeout-sec=6", "--claim-registration-timeout-sec=5", "--validation-timeout-sec=0.5"];

/// A new machine that is not handed over ends soon.
const SHORT_CREATED: [&str; 2] = ["--created-timeout-sec=5", "--validation-timeout-sec=4"];

#[test]
fn after_the_intent_an_intent_is_left_and_refresh_settles_it() {
    with_both_labels(|label| {
        let home = Home::with(&[label]);
        let short = ["--created-timeout-sec=1", "--validation-timeout-sec=0.5"];
        home.kill_before("launch", &[&["provision", "--run-id", "1"], &short[..]].concat());
        assert_eq!(home.number(OPEN_INTENTS), 1);
        home.assert_empty();

        until("refresh settles the intent", || home.refresh(&[])["intentsSettled"] == 1);
        assert_eq!(home.number(OPEN_INTENTS), 0);
        let outcome = "SELECT outcome FROM intents";
        assert_eq!(home.texts(outcome), ["abandoned, machines terminated by refresh: 0"]);
        assert_eq!(home.provision("1", 1).succeeded().sources(), ["cold"]);
    });
}

#[test]
fn after_the_launch_machines_without_records_end_themselves() {
    with_both_labels(|label| {
        let home =
            Home::with(&[label, "--boot-deadline-sec=3", SHORT_CREATED[0], SHORT_CREATED[1]]);
        home.kill_before("register", &["provision", "--run-id", "1", "--instance-count", "2"]);
        assert_eq!(home.number("SELECT count(*) FROM machines"), 2);
        assert_eq!(home.standings(), Vec::<String>::new());
        assert_eq!(home.number(OPEN_INTENTS), 1);

        until_the_machines_end_themselves(&home);
        until("refresh settles the intent", || home.refresh(&[])["intentsSettled"] == 1);
        assert_eq!(home.number("SELECT count(*) FROM machines WHERE ended_at = ''"), 0);
    });
}

#[test]
fn after_the_launch_machines_without_records_are_swept() {
    with_both_labels(|label| {
        let home = Home::with(&[label, "--boot-deadline-sec=120"]);
        home.kill_before("register", &["provision", "--run-id", "1", "--instance-count", "2"]);
        assert_eq!(home.agents().len(), 2);

        until("refresh sweeps both", || {
            home.refresh(&[]);
            home.agents().is_empty()
        });
        home.assert_empty();
    });
}

#[test]
fn after_the_registration_the_release_of_the_run_expires_what_is_left() {
    with_both_labels(|label| {
        let home = Home::with(&[label, "--self-termination-grace-sec=60"]);
        home.kill_before("activate", &["provision", "--run-id", "1", "--instance-count", "2"]);
        assert_eq!(home.standings(), ["created 1", "created 1"]);
        assert_eq!(home.agents().len(), 2);

        let released = home.release("1").succeeded().json();
        for instance in released["instances"].as_array().unwrap() {
            assert_eq!(instance["outcome"], "expired");
            assert_eq!(instance["reason"], "left created by an unfinished provision");
        }
        assert_eq!(home.refresh(&[])["reaped"].as_array().unwrap().len(), 2);
        home.assert_empty();
    });
}

#[test]
fn after_the_registration_the_threshold_ends_the_machines_with_no_refresh() {
    with_both_labels(|label| {
        let home = Home::with(&[&[label], &SHORT_CREATED[..]].concat());
        home.kill_before("activate", &["provision", "--run-id", "1", "--instance-count", "2"]);
        assert_eq!(home.standings(), ["created 1", "created 1"]);
        until_the_machines_end_themselves(&home);
    });
}

#[test]
fn after_the_registration_refresh_reaps_what_is_past_its_threshold() {
    with_both_labels(|label| {
        let grace = "--self-termination-grace-sec=60";
        let home = Home::with(&[label, SHORT_CREATED[0], SHORT_CREATED[1], grace]);
        home.kill_before("activate", &["provision", "--run-id", "1"]);
        assert_eq!(home.standings(), ["created 1"]);
        until("refresh reaps it", || home.refresh(&[])["reaped"].as_array().unwrap().len() == 1);
        home.assert_empty();
    });
}

#[test]
fn after_the_registration_a_second_provision_of_the_run_is_not_in_the_way() {
    with_both_labels(|label| {
        let home = Home::with(&[label]);
        home.kill_before("activate", &["provision", "--run-id", "1"]);
        let again = home.provision("1", 1).succeeded();
        assert_eq!(again.sources(), ["cold"]);
        assert_eq!(home.standings(), ["created 1", "running 1"]);
        home.release("1").succeeded();
        home.refresh(&[]);
        assert_eq!(home.records().into_keys().collect::<Vec<_>>(), again.ids());
    });
}

#[test]
fn after_the_receive_the_queue_shows_the_ticket_again() {
    with_both_labels(|label| {
        let home = with_short_holds(label);
        let idle = home.warm_up(1);
        home.kill_before("claim", &["provision", "--run-id", "2"]);
        assert_eq!(home.standings(), ["idle"]);
        assert_eq!(home.number(HIDDEN_TICKETS), 1);

        let next = home.provision("3", 1).succeeded();
        assert_eq!(next.sources(), ["warm"]);
        assert_eq!(next.ids(), idle);
        assert_eq!(home.standings(), ["running 3"]);
        assert_eq!(home.tickets(), 0);
    });
}

#[test]
fn after_the_claim_the_release_of_the_run_gives_back_what_is_left() {
    with_both_labels(|label| {
        let home = Home::with(&[label, "--self-termination-grace-sec=60"]);
        let mut warm = home.warm_up(2);
        warm.sort();
        home.kill_before("commit", &["provision", "--run-id", "2", "--instance-count", "2"]);
        assert_eq!(home.standings(), ["claimed 2", "claimed 2"]);
        assert_eq!(home.tickets(), 0);
        assert_eq!(home.agents().len(), 2);

        let released = home.release("2").succeeded().json();
        for instance in released["instances"].as_array().unwrap() {
            assert_eq!(instance["outcome"], "pooled");
            assert_eq!(instance["reason"], "left claimed by an unfinished provision");
            assert_eq!(instance["usedMs"], serde_json::Value::Null);
        }
        assert_eq!((home.standings(), home.tickets()), (vec!["idle".to_owned(); 2], 2));
        let next = home.provision("3", 2).succeeded();
        assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned(); 2], warm));
    });
}

#[test]
fn after_the_claim_the_release_of_the_run_expires_what_does_not_answer() {
    with_both_labels(|label| {
        let home =
            Home::with(&[label, "--self-termination-grace-sec=60", "--release-timeout-sec=2"]);
        home.warm_up(1);
        home.kill_before("commit", &["provision", "--run-id", "2"]);
        assert_eq!(home.standings(), ["claimed 2"]);
        home.agents().into_values().for_each(|pid| signal(pid, Signal::STOP));
        let released = home.release("2").exited(8).json();
        assert_eq!(released["instances"][0]["outcome"], "expired");
        assert_eq!(home.tickets(), 0);
        assert_eq!(home.refresh(&[])["reaped"].as_array().unwrap().len(), 1);
        home.assert_empty();
    });
}

#[test]
fn after_the_claim_the_threshold_ends_the_machine_with_no_refresh() {
    with_both_labels(|label| {
        let home = Home::with(&[label]);
        home.warm_up(1);
        home.kill_before("commit", &[&["provision", "--run-id", "2"], &SHORT_CLAIM[..]].concat());
        assert_eq!(home.standings(), ["claimed 2"]);
        until_the_machines_end_themselves(&home);
    });
}

#[test]
fn after_the_claim_refresh_reaps_and_others_get_a_machine_meanwhile() {
    with_both_labels(|label| {
        let home = Home::with(&[label, "--self-termination-grace-sec=60"]);
        let claimed = home.warm_up(1);
        home.kill_before("commit", &[&["provision", "--run-id", "2"], &SHORT_CLAIM[..]].concat());
        let other = home.provision("3", 1).succeeded();
        assert_eq!(other.sources(), ["cold"]);
        until("refresh reaps it", || home.refresh(&[])["reaped"] == serde_json::json!(claimed));
        assert_eq!(home.standings(), ["running 3"]);
        assert_eq!(home.agents().into_keys().collect::<Vec<_>>(), other.ids());
    });
}

#[test]
fn after_the_claim_the_ticket_that_was_not_deleted_gives_the_machine_to_no_other_run() {
    with_both_labels(|label| {
        let home = with_short_holds(label);
        let claimed = home.warm_up(1);
        // The commit does not wait for the deletion.
        home.kill_before("delete,commit", &["provision", "--run-id", "2"]);
        assert_eq!(home.standings(), ["claimed 2"]);
        assert_eq!(home.number(HIDDEN_TICKETS), 1);

        // This run waits until the ticket is shown again, and finds the machine taken.
        let other = home.provision("3", 1).succeeded();
        assert_eq!(other.sources(), ["cold"]);
        assert_ne!(other.ids(), claimed);
        assert_eq!(home.tickets(), 0);

        home.release("2").succeeded();
        assert_eq!(home.standings(), ["idle", "running 3"]);
        assert_eq!(home.provision("4", 1).succeeded().ids(), claimed);
    });
}

#[test]
fn before_the_release_nothing_has_happened() {
    with_both_labels(|label| {
        let home = Home::with(&[label]);
        home.provision("1", 1).succeeded();
        home.kill_before("release", &["release", "--run-id", "1"]);
        assert_eq!(home.standings(), ["running 1"]);
        home.release("1").succeeded();
        assert_eq!(home.standings(), ["idle"]);
        assert_eq!(home.tickets(), 1);
    });
}

#[test]
fn after_the_release_refresh_announces_the_machine_again() {
    with_both_labels(|label| {
        let home = Home::with(&[label]);
        let machine = home.provision("1", 1).succeeded().ids();
        home.kill_before("send", &["release", "--run-id", "1"]);
        assert_eq!(home.standings(), ["idle"]);
        assert_eq!(home.tickets(), 0);
        assert_eq!(home.status()["instances"][0]["ticketedAt"], "");

        assert_eq!(home.refresh(&[])["requeued"], serde_json::json!(machine));
        assert_eq!(home.tickets(), 1);
        let next = home.provision("2", 1).succeeded();
        assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], machine));
    });
}

#[test]
fn after_the_release_the_threshold_ends_the_machine_with_no_refresh() {
    with_both_labels(|label| {
        let home = Home::with(&[label]);
        home.provision("1", 1).succeeded();
        home.kill_before("send", &["release", "--run-id", "1", "--idle-time-sec", "3"]);
        assert_eq!(home.standings(), ["idle"]);
        until_the_machines_end_themselves(&home);
    });
}

#[test]
fn after_the_ticket_a_second_one_is_harmless() {
    with_both_labels(|label| {
        let home = Home::with(&[label]);
        let machine = home.provision("1", 1).succeeded().ids();
        home.kill_before("mark-ticketed", &["release", "--run-id", "1"]);
        assert_eq!(home.tickets(), 1);
        assert_eq!(home.status()["instances"][0]["ticketedAt"], "");
        assert_eq!(home.refresh(&[])["requeued"], serde_json::json!(machine));
        assert_eq!(home.tickets(), 2);

        let others = ["2", "3"].map(|run| home.start(&["provision", "--json", "--run-id", run]));
        let others = others.map(|other| other.finish().succeeded());
        let mut sources = others.each_ref().map(|done| done.sources().concat());
        sources.sort();
        assert_eq!(sources, ["cold", "warm"]);
        assert_ne!(others[0].ids(), others[1].ids());
        home.provision("4", 1).succeeded();
        assert_eq!(home.tickets(), 0);
    });
}

#[test]
fn after_the_reap_the_machine_ends_itself_with_no_refresh() {
    with_both_labels(|label| {
        let home = Home::with(&[label, "--self-termination-grace-sec=60"]);
        home.provision("1", 1).succeeded();
        home.ondeck(&["release", "--run-id", "1", "--idle-time-sec", "3"]).succeeded();
        until("its idle time is over", || home.number(EXPIRED) == 1);
        home.kill_before("terminate", &["refresh"]);
        assert_eq!(home.texts("SELECT state FROM instances"), ["terminated"]);
        until_the_machines_end_themselves(&home);
    });
}

#[test]
fn after_the_reap_refresh_sweeps_a_machine_that_does_not_end_itself() {
    with_both_labels(|label| {
        let home = Home::with(&[label, "--self-termination-grace-sec=60"]);
        home.provision("1", 1).succeeded();
        home.ondeck(&["release", "--run-id", "1", "--idle-time-sec", "3"]).succeeded();
        let agents = home.agents();
        agents.values().for_each(|pid| signal(*pid, Signal::STOP));
        until("its idle time is over", || home.number(EXPIRED) == 1);
        home.kill_before("terminate", &["refresh"]);
        assert_eq!(home.texts("SELECT state FROM instances"), ["terminated"]);
        assert_eq!(home.agents(), agents);

        let swept =
            home.refresh(&["--self-termination-grace-sec=0.1"])["orphansTerminated"].clone();
        assert_eq!(swept, serde_json::json!(agents.keys().collect::<Vec<_>>()));
        home.assert_empty();
    });
}

#[test]
fn after_a_failed_launch_the_release_of_the_run_gives_back_what_was_claimed() {
    with_both_labels(|label| {
        let home = Home::with(&[
            label,
            "--local-launch-failure=no room",
            "--self-termination-grace-sec=60",
        ]);
        home.refresh(&["--local-launch-failure="]);
        let warm = home.warm_up(1);
        home.refresh(&["--local-launch-failure=no room"]);
        home.kill_before("give-back", &["provision", "--run-id", "2", "--instance-count", "2"]);
        assert_eq!(home.standings(), ["claimed 2"]);
        home.release("2").succeeded();
        assert_eq!((home.standings(), home.tickets()), (vec!["idle".to_owned()], 1));
        assert_eq!(home.provision("3", 1).succeeded().ids(), warm);
    });
}

#[test]
fn after_it_was_given_back_refresh_announces_the_machine() {
    with_both_labels(|label| {
        let home = Home::with(&[label, "--local-launch-failure=no room"]);
        home.refresh(&["--local-launch-failure="]);
        let warm = home.warm_up(1);
        home.refresh(&["--local-launch-failure=no room"]);
        home.kill_before("send", &["provision", "--run-id", "2", "--instance-count", "2"]);
        assert_eq!((home.standings(), home.tickets()), (vec!["idle".to_owned()], 0));
        until("refresh announces it", || home.refresh(&[])["requeued"] == serde_json::json!(warm));
        assert_eq!(home.provision("3", 1).succeeded().ids(), warm);
    });
}

/// Live records past their threshold, by the file's own clock.
const EXPIRED: &str = "SELECT count(*) FROM instances WHERE state = 'idle'
    AND threshold < strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
