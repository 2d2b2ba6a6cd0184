//! The cap on what machines may cost in a day, on the local backend: real processes race for the last
//! money.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::cost::account;
use crate::harness::{Background, Done, Driven, Home, until};

const AGE: &str = "--max-machine-age-min=30";

/// Waits if midnight in UTC, at which amounts begin anew, is so near that a test could see it.
pub(crate) fn away_from_midnight() {
    const DAY: u64 = 24 * 3_600;
    let is_near = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let second = now.as_secs() % DAY;
        !(10..=DAY - 300).contains(&second)
    };
    while is_near() {
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

/// The arguments of a provision whose machines all have one price.
pub(crate) fn wanted(run: &str, count: u32) -> Vec<String> {
    let words = ["provision", "--json", "--allowed-instance-types=c6i.large", "--run-id", run];
    let count = format!("--instance-count={count}");
    words.iter().map(|word| (*word).to_owned()).chain([count]).collect()
}

fn provision(home: &Home, run: &str, count: u32) -> Done {
    let words = wanted(run, count);
    home.ondeck(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

/// What one machine reserves that was launched just now, in dollars, in a pool with a wide cap.
pub(crate) fn one_reserves(home: &Home) -> f64 {
    provision(home, "first", 1).succeeded();
    amount(&home.refresh(&[]), "reservedUsd")
}

fn amount(refreshed: &Value, name: &str) -> f64 {
    refreshed["spend"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {refreshed}"))
}

fn assert_at_cap(refused: Done) {
    let error = refused.exited(4).json()["error"].clone();
    assert_eq!(error["kind"], "at-spend-cap");
    let told = error["message"].as_str().unwrap();
    assert!(told.contains("is spent and") && told.ends_with("more is needed"), "{told}");
    assert!(error["hint"].as_str().unwrap().contains("--max-spend-per-day"));
}

#[test]
fn concurrent_provisions_never_exceed_the_cap() {
    away_from_midnight();
    let home = Home::with(&[AGE, "--max-spend-per-day=50"]);
    let one = one_reserves(&home);
    home.refresh(&[&format!("--max-spend-per-day={}", one * 5.5)]);
    let racers: Vec<Background> = (0..8)
        .map(|run| {
            let words = wanted(&run.to_string(), 1);
            home.start(&words.iter().map(String::as_str).collect::<Vec<_>>())
        })
        .collect();
    let done: Vec<Done> = racers.into_iter().map(Background::finish).collect();
    let (served, refused): (Vec<Done>, Vec<Done>) = done.into_iter().partition(|it| it.code == 0);
    assert_eq!((served.len(), refused.len()), (4, 4));
    assert_eq!(home.number("SELECT count(*) FROM machines"), 5, "no sixth one was ever launched");
    refused.into_iter().for_each(assert_at_cap);
    let refreshed = home.refresh(&[]);
    let (spent, reserved) = (amount(&refreshed, "spentUsd"), amount(&refreshed, "reservedUsd"));
    assert!(spent + reserved <= amount(&refreshed, "capUsd"), "{refreshed}");
    home.release("first").succeeded();
    let warm = provision(&home, "late", 1).succeeded();
    assert_eq!(warm.sources(), ["warm"], "a claim needs no money");
    let status = home.ondeck(&["status"]).succeeded();
    assert!(status.stdout.contains("reserved of $"), "{}", status.stdout);
}

#[test]
fn what_is_left_of_the_cap_is_told_by_cost() {
    away_from_midnight();
    let home = Home::with(&[]);
    assert_eq!(account(&home, &[])["spend"], Value::Null, "there is no cap");
    home.refresh(&[AGE, "--max-spend-per-day=50"]);
    provision(&home, "1", 1).succeeded();
    let refreshed = home.refresh(&[]);
    assert!(amount(&refreshed, "reservedUsd") > 0.0, "{refreshed}");
    let told = account(&home, &[])["spend"].clone();
    assert_eq!(told, refreshed["spend"]);
    let cap = format!(" reserved of $50.00 on {} (UTC)", told["day"].as_str().unwrap());
    let text = home.ondeck(&["cost"]).succeeded().stdout;
    assert!(text.contains(&cap), "{text}");
    assert!(!text.contains("those of the program"), "{text}");
    let mut table: Value =
        serde_json::from_str(&home.ondeck(&["cost", "--print-prices"]).succeeded().stdout).unwrap();
    let file = home.outside().join("prices.json");
    for (price, is_told) in [(0.085, false), (0.1, true)] {
        table["onDemand"]["c6i.large"] = price.into();
        std::fs::write(&file, table.to_string()).unwrap();
        let done = home.ondeck(&["cost", "--prices", file.to_str().unwrap()]).succeeded();
        let (warning, note) =
            ("max-spend-per-day is kept by the program's own prices", cap.as_str());
        assert_eq!(done.stderr.contains(warning), is_told, "{}", done.stderr);
        let line = done.stdout.lines().find(|line| line.contains(note)).unwrap();
        assert_eq!(line.contains("Prices are those of the program here: "), is_told, "{line}");
    }
    let plots = home.outside();
    home.ondeck(&["cost", "--plot", plots.to_str().unwrap()]).succeeded();
    let plot = std::fs::read_to_string(plots.join("cost-dark.svg")).unwrap();
    assert!(plot.contains(&cap), "{plot}");
    home.refresh(&["--reset=max-spend-per-day,max-machine-age-min"]);
    assert_eq!(account(&home, &[])["spend"], Value::Null, "there is none any more");
}

#[test]
fn a_provision_that_rolls_back_gives_its_money_back_by_the_next_refresh() {
    away_from_midnight();
    let home = Home::with(&[AGE, "--max-spend-per-day=50"]);
    let one = one_reserves(&home);
    home.refresh(&[&format!("--max-spend-per-day={}", one * 3.5), "--local-boot-ms=60000"]);
    let mut slow = wanted("slow", 2);
    slow.push("--validation-timeout-sec=1".to_owned());
    home.ondeck(&slow.iter().map(String::as_str).collect::<Vec<_>>()).exited(5);
    assert_at_cap(provision(&home, "1", 2));
    home.refresh(&["--local-boot-ms=0"]);
    provision(&home, "1", 2).succeeded();
}

#[test]
fn a_provision_that_is_killed_holds_its_money_until_its_deadline() {
    away_from_midnight();
    let home = Home::with(&[AGE, "--max-spend-per-day=50", "--boot-deadline-sec=2"]);
    let one = one_reserves(&home);
    home.refresh(&[&format!("--max-spend-per-day={}", one * 3.5)]);
    let short = ["--created-timeout-sec=3", "--validation-timeout-sec=2"].map(str::to_owned);
    let killed = [wanted("killed", 2), short.to_vec()].concat();
    home.kill_before("launch", &killed.iter().map(String::as_str).collect::<Vec<_>>());
    home.refresh(&[]);
    assert_at_cap(provision(&home, "1", 2));
    until("refresh gives the money back", || amount(&home.refresh(&[]), "reservedUsd") < one * 1.1);
    provision(&home, "1", 2).succeeded();
}

#[test]
fn a_count_of_yesterday_is_carried_over_and_what_does_not_fit_is_drained() {
    away_from_midnight();
    let home = Home::with(&[AGE, "--max-spend-per-day=50"]);
    let one = one_reserves(&home);
    provision(&home, "second", 1).succeeded();
    home.refresh(&[&format!("--max-spend-per-day={}", one * 2.2)]);
    home.release("second").succeeded();
    // As if the count had been made a day ago.
    home.file()
        .execute(
            "UPDATE machine_count SET body = json_set(body,
                '$.spend.day', strftime('%Y-%m-%dT00:00:00.000Z', 'now', '-1 day'),
                '$.spend.asOf', strftime('%Y-%m-%dT23:59:00.000Z', 'now', '-1 day'))",
            [],
        )
        .unwrap();
    let told = account(&home, &[])["spend"].clone();
    assert_eq!(told["day"], home.texts("SELECT date('now')").concat().as_str(), "{told}");
    assert_eq!(told["spentUsd"], 0.0, "yesterday's is not today's: {told}");
    assert_eq!(home.status()["summary"]["spend"], told);
    let mut fresh = wanted("third", 2);
    fresh.push("--machine-source=new".to_owned());
    let refused = home.ondeck(&fresh.iter().map(String::as_str).collect::<Vec<_>>());
    assert_at_cap(refused);
    assert_eq!(account(&home, &[])["spend"], told, "what the first launch of the day begins with");
    let days = "SELECT count(*) FROM machine_count
        WHERE json_extract(body, '$.spend.day') = strftime('%Y-%m-%dT00:00:00.000Z', 'now')";
    assert_eq!(home.number(days), 1, "the provision has begun the day");
    // What the count had seen has cost its price since midnight.
    let carried = home.refresh(&["--max-spend-per-day=50"]);
    let (spent, reserved) = (amount(&carried, "spentUsd"), amount(&carried, "reservedUsd"));
    let refreshed = home.refresh(&[&format!("--max-spend-per-day={}", spent + reserved * 0.6)]);
    let drained = refreshed["drained"].as_array().unwrap_or_else(|| panic!("{refreshed}"));
    assert_eq!(drained.len(), 1, "{refreshed}");
    let why = "SELECT count(*) FROM events WHERE why LIKE '%max-spend-per-day%'";
    assert!(home.number(why) > 0, "the reason is recorded");
    until("the drained machine is gone, and the one of the run stays", || {
        home.refresh(&[]);
        home.standings() == ["running first"]
    });
}

#[test]
fn a_cap_that_cannot_be_kept_is_refused_with_a_hint() {
    let home = Home::with(&[AGE, "--max-spend-per-day=5"]);
    for (given, problem) in [
        (&["--max-spend-per-day=0"][..], "max-spend-per-day is not an amount in dollars above 0"),
        (&["--max-spend-per-day=ten"], "max-spend-per-day is not an amount in dollars above 0"),
        (&["--reset=max-machine-age-min"], "max-spend-per-day needs max-machine-age-min"),
        (&["--max-machine-age-min="], "max-spend-per-day needs max-machine-age-min"),
        (&["--min-idle=large/t3.large=1"], "max-spend-per-day cannot be kept for class large"),
        (
            &[r#"--local-catalogue=[{"type":"own.one","cpu":2,"mem":4096}]"#],
            "max-spend-per-day cannot be kept for class",
        ),
    ] {
        let refused = home.ondeck(&[&["refresh"], given].concat());
        assert_eq!(refused.code, 2, "{given:?}: {}", refused.stderr);
        let told = format!("{}{}", refused.stdout, refused.stderr);
        assert!(told.contains(problem) && told.contains("hint"), "{given:?}: {told}");
    }
    let unknown = ["provision", "--run-id=1", "--allowed-instance-types=z99.*"];
    let refused = home.ondeck(&unknown).exited(2);
    assert!(
        refused.stderr.contains("no allowed instance type has a price: z99.*"),
        "{}",
        refused.stderr
    );
    assert_eq!(amount(&home.refresh(&[]), "capUsd"), 5.0, "the cap is as it was");
}
