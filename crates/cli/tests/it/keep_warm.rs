//! The minimum of idle machines, lifetimes and adoption, as the program keeps them.

use serde_json::{Value, json};

use crate::harness::{Driven, Home};

/// How many seconds each live record has left.
const LEFT: &str = "SELECT CAST((julianday(threshold) - julianday('now')) * 86400 AS INTEGER)
                    FROM instances WHERE state <> 'terminated'";

fn left(home: &Home) -> Vec<i64> {
    home.texts(&format!("SELECT CAST(x AS TEXT) FROM (SELECT ({LEFT}) AS x)"))
        .iter()
        .map(|seconds| seconds.parse().unwrap())
        .collect()
}

/// Leaves the machine this many seconds, by an edit of its record.
fn leave(home: &Home, seconds: u32) {
    let sql = "UPDATE instances SET threshold = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?1)
               WHERE state <> 'terminated'";
    home.file().execute(sql, [format!("+{seconds} seconds")]).unwrap();
}

#[test]
fn a_minimum_is_kept_by_renewing_even_with_no_idle_time() {
    let home = Home::with(&["--idle-time-sec=0", "--min-idle=large=1"]);
    let kept: Vec<String> = home.records().into_keys().collect();
    assert_eq!(home.standings(), ["idle"]);
    assert!(left(&home)[0] > 29 * 60, "{:?}", left(&home));
    let again = home.refresh(&[]);
    assert_eq!((&again["warmed"], &again["renewed"]), (&json!(0), &json!([])));
    leave(&home, 60);
    let renewed = home.refresh(&[]);
    assert_eq!((&renewed["warmed"], &renewed["renewed"]), (&json!(0), &json!(kept)));
    assert!(left(&home)[0] > 29 * 60, "{:?}", left(&home));
    assert_eq!(home.provision("1", 1).succeeded().ids(), kept, "the ticket of before is as good");
}

#[test]
fn refresh_tells_what_the_minimum_costs() {
    let home = Home::with(&[]);
    // A window that does not hold now costs nothing now.
    let day =
        "SELECT substr('SunMonTueWedThuFriSat', 1 + 3 * ((strftime('%w', 'now') + 3) % 7), 3)";
    let far = format!("{} 08:00-18:00 Europe/Berlin large/spot=4; xlarge=0", home.texts(day)[0]);
    let inputs = ["refresh", "--min-idle", &far];
    let shown = home.ondeck(&inputs).succeeded().stdout;
    assert!(shown.contains("min-idle costs, in machine-hours a week: large 40"), "{shown}");
    let answer: Value = home.refresh(&[]);
    assert_eq!(answer["minIdleMachineHoursPerWeek"], json!({"large": 40.0}));
    assert_eq!(answer["warmed"], 0);
    home.assert_empty();
}

#[test]
fn a_minimum_that_cannot_be_read_is_refused() {
    let home = Home::with(&[]);
    for (text, words) in [
        ("Mon-Fri 08:00-18:00 Europe/Berlinn large=1", "names an unknown time zone: \"Europe/Berl"),
        ("Mon-Fri 08:00-08:00 large=1", "has an empty time window: \"08:00-08:00\""),
        ("Mon-Fri 8-18 large=1", "unknown time zone: \"8-18\""),
        ("Mon-Fri 08:00-18:00 huge=1", "min-idle names an unknown class: huge"),
        ("large/sport=1", "names neither spot, on-demand nor patterns"),
    ] {
        let done = home.ondeck(&["refresh", "--min-idle", text]).exited(2);
        assert!(done.stderr.contains(words), "{text}: {}", done.stderr);
        assert!(done.stderr.contains("hint: "), "{text}: {}", done.stderr);
    }
    home.assert_empty();
}

#[test]
fn an_adopted_machine_has_the_time_that_is_asked_for() {
    let home = Home::with(&["--self-termination-grace-sec=60"]);
    let first = home.provision("1", 1).succeeded().ids();
    leave(&home, 3);
    let again = home.ondeck(&["provision", "--json", "--run-id=1", "--max-runtime-min=10"]);
    let again = again.succeeded();
    assert!(left(&home).iter().all(|left| *left > 9 * 60), "{:?}", left(&home));
    match again.sources()[0].as_str() {
        "adopted" => assert_eq!(again.ids(), first),
        other => assert_eq!(other, "cold", "on a busy computer it has expired meanwhile"),
    }
}

#[test]
fn a_machine_at_the_end_of_its_lifetime_does_not_return() {
    let home = Home::with(&["--max-runs-per-machine=1", "--max-machine-age-min=60"]);
    home.provision("1", 2).succeeded();
    home.release("1").succeeded();
    home.assert_empty();
    home.refresh(&["--max-runs-per-machine="]);
    home.provision("2", 2).succeeded();
    home.release("2").succeeded();
    assert_eq!(home.standings(), ["idle", "idle"]);
    let sql = "UPDATE instances SET created_at = '2025-01-01T00:00:00.000Z'";
    home.file().execute(sql, []).unwrap();
    assert_eq!(home.refresh(&[])["rotated"].as_array().map(Vec::len), Some(1), "one at a time");
    assert_eq!(home.standings(), ["idle"]);
}
