//! Corrupt rows and tickets: named, skipped, and no hindrance to the others.

use crate::harness::{Done, Driven, Home, until};

/// A pool with one machine running for run 1, one for run 2, and the first one's row corrupt.
fn with_a_corrupt_row(corruption: &str) -> (Home, String) {
    let home = Home::with(&[]);
    let corrupt = home.provision("1", 1).succeeded().ids().concat();
    home.provision("2", 1).succeeded();
    let changed =
        home.file().execute(&format!("UPDATE instances SET {corruption} WHERE run = '1'"), []);
    assert_eq!(changed, Ok(1));
    (home, corrupt)
}

#[track_caller]
fn names(done: &Done, id: &str) {
    assert!(done.stderr.contains(&format!("unreadable record \"{id}\"")), "{}", done.stderr);
}

#[test]
fn a_row_that_makes_no_sense_is_named_and_the_others_work() {
    for corruption in [
        "state = 'idle'",
        "state = 'asleep'",
        "threshold = 'tomorrow'",
        "threshold = ''",
        "cpu = 'two'",
        "usage_class = NULL",
        "resource_class = x'00ff'",
    ] {
        let (home, corrupt) = with_a_corrupt_row(corruption);
        let status = home.ondeck(&["status", "--json"]).succeeded();
        names(&status, &corrupt);
        assert_eq!(status.json()["unreadable"][0]["instanceId"], corrupt, "{corruption}");
        assert_eq!(home.standings(), ["running 2"], "{corruption}");

        let refused = home.ondeck(&["terminate", &corrupt, "--force", "--yes"]).exited(2);
        let told = format!("the records of these machines cannot be read: {corrupt}");
        assert!(refused.stderr.contains(&told), "{}", refused.stderr);
        assert!(refused.stderr.contains("hint: ondeck doctor gives"), "{}", refused.stderr);

        names(&home.ondeck(&["refresh"]).succeeded(), &corrupt);
        assert!(home.agents().contains_key(&corrupt), "it may well be at work: {corruption}");

        let again = home.provision("1", 1).succeeded();
        names(&again, &corrupt);
        assert!(!again.ids().contains(&corrupt), "{corruption}");
        let released = home.release("1").succeeded();
        names(&released, &corrupt);
        assert_eq!(released.ids(), again.ids(), "{corruption}");
        assert_eq!(released.json()["unreadable"][0]["instanceId"], corrupt, "{corruption}");
        home.release("2").succeeded();
        assert_eq!(home.provision("3", 2).succeeded().sources(), ["warm", "warm"], "{corruption}");
    }
}

#[test]
fn messages_that_are_no_tickets_are_dropped_and_said_so() {
    let home = Home::with(&[]);
    let warm = home.warm_up(1);
    let bodies = ["", "{oops", "[]", "{}", r#"{"instanceId":"../../etc"}"#, "null", "\u{1f980}"];
    for body in bodies {
        let sql = "INSERT INTO tickets (class, body, visible_at)
            VALUES ('large', ?1, '2020-01-01T00:00:00.000Z')";
        home.file().execute(sql, [body]).unwrap();
    }
    let done = home.provision("2", 1).succeeded();
    assert_eq!((done.sources(), done.ids()), (vec!["warm".to_owned()], warm));
    let dropped = done.stderr.lines().filter(|line| line.contains("malformed ticket"));
    assert_eq!(dropped.count(), bodies.len(), "{}", done.stderr);
    assert_eq!(home.tickets(), 0);
}

#[test]
fn tickets_for_what_does_not_exist_or_is_not_idle_give_no_run_a_machine() {
    let home = Home::with(&[]);
    let busy = home.provision("1", 1).succeeded().ids().concat();
    for id in [busy.as_str(), "i-0000000000000dead"] {
        let body = serde_json::json!({
            "instanceId": id, "usageClass": "on-demand", "instanceType": "c6i.large", "cpu": 2,
            "mem": 4096, "resourceClass": "large", "threshold": "2999-01-01T00:00:00.000Z",
            "generation": 0,
        });
        let sql = "INSERT INTO tickets (class, body, visible_at)
            VALUES ('large', ?1, '2020-01-01T00:00:00.000Z')";
        home.file().execute(sql, [body.to_string()]).unwrap();
    }
    let done = home.provision("2", 1).succeeded();
    assert_eq!(done.sources(), ["cold"]);
    assert_eq!(home.standings(), ["running 1", "running 2"]);
    assert_eq!(home.tickets(), 0);
}

#[test]
fn a_corrupt_setting_is_named() {
    let home = Home::with(&[]);
    let sql = "UPDATE settings SET value = 'soon' WHERE name = 'idle-time-sec'";
    home.file().execute(sql, []).unwrap();
    let done = home.provision("1", 1).exited(2);
    assert!(done.stderr.contains("idle-time-sec is not a number: \"soon\""), "{}", done.stderr);
    assert!(done.stderr.contains("hint: run ondeck refresh with a valid value"), "{}", done.stderr);
    home.refresh(&["--idle-time-sec=60"]);
    home.provision("1", 1).succeeded();
}

#[test]
fn a_machine_whose_row_was_deleted_ends_itself() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    assert_eq!(home.file().execute("DELETE FROM instances", []), Ok(1));
    until("the machine ends itself", || home.agents().is_empty());
    home.assert_empty();
}
