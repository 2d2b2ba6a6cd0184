//! Agents on the local backend whose clock is 30 s off. Their heartbeats are shifted by a trigger in
//! the file, so that no moment shows a right one.

use rustix::process::Signal;

use crate::harness::{Driven, Home, signal, until};

/// More than the 24 s for which the heartbeat of an idle machine is healthy: it is sent at every second
/// period.
const AHEAD: &str = "+30 seconds";
const BEHIND: &str = "-30 seconds";

/// From now on the clock of every agent is this far off.
fn shift_clocks(home: &Home, by: &str) {
    let sql = format!(
        "CREATE TRIGGER another_clock AFTER INSERT ON heartbeats BEGIN
             UPDATE heartbeats SET at = strftime('%Y-%m-%dT%H:%M:%fZ', NEW.at, '{by}')
             WHERE id = NEW.id;
         END"
    );
    home.file().execute_batch(&sql).unwrap();
}

/// Waits until the only machine has sent a heartbeat by its other clock.
fn until_shifted(home: &Home) {
    let off = "SELECT count(*) FROM heartbeats
        WHERE abs(julianday(at) - julianday('now')) * 86400 > 20";
    until("a heartbeat is far from now", || home.number(off) == 1);
}

fn home() -> Home {
    Home::with(&["--heartbeat-period-sec=4"])
}

#[test]
fn a_new_machine_whose_clock_differs_fails_the_provision_with_a_word_about_clocks() {
    for (by, words) in [
        (AHEAD, "did not become ready: the clocks differ: its last heartbeat is "),
        (BEHIND, "did not become ready: its heartbeat stopped, or the clocks differ: its last "),
    ] {
        let home = home();
        shift_clocks(&home, by);
        let done = home.provision("1", 1).exited(5);
        let error = &done.json()["error"];
        assert!(error["message"].as_str().unwrap().contains(words), "{by}: {error}");
        let hint = "read the machine's log, and compare its clock with that of this computer";
        assert_eq!(error["hint"], hint, "{by}: {error}");
        for part in [words, hint] {
            assert!(done.stderr.contains(part), "{by}: {}", done.stderr);
        }
        home.assert_empty();
    }
}

#[test]
fn an_idle_machine_whose_clock_differs_is_discarded_with_a_word_about_clocks() {
    for (by, words) in [
        (AHEAD, "the clocks differ: its last heartbeat is "),
        (BEHIND, "its heartbeat stopped, or the clocks differ: its last heartbeat is "),
    ] {
        let home = home();
        let warm = home.warm_up(1).concat();
        shift_clocks(&home, by);
        until_shifted(&home);
        let done = home.provision("1", 1).exited(5);
        let discarded = format!("discarded: {words}");
        assert!(done.stderr.contains(&discarded), "{by}: {}", done.stderr);
        let sql =
            format!("SELECT why FROM events WHERE instance = '{warm}' AND to_state = 'terminated'");
        let why = home.texts(&sql).concat();
        assert!(why.starts_with(words), "{by}: {why}");
    }
}

#[test]
fn a_release_expires_a_machine_whose_clock_differs_with_a_word_about_clocks() {
    let home = home();
    let machine = home.provision("1", 1).succeeded().ids().concat();
    shift_clocks(&home, AHEAD);
    until_shifted(&home);
    // So that it does not answer before its heartbeat is looked at.
    signal(home.agents()[&machine], Signal::STOP);
    let done = home.release("1").exited(8);
    let one = &done.json()["instances"][0];
    assert_eq!(one["outcome"], "expired", "{one}");
    let reason = one["reason"].as_str().unwrap();
    assert!(reason.starts_with("the clocks differ: its last heartbeat is "), "{reason}");
}
