//! `ondeck cost` against what the test knows to be true.

use ondeck_core::model::timestamp::Timestamp;
use serde_json::{Value, json};

use crate::harness::{Driven, Home};
use crate::json::assert_valid;

/// The account, whose parts add up.
pub(crate) fn account(pool: &impl Driven, arguments: &[&str]) -> Value {
    let done = pool.ondeck(&[&["cost", "--json"], arguments].concat()).succeeded();
    assert_valid("cost", &done);
    let account = done.json();
    for list in ["days", "classes", "machines"] {
        let parts = account[list].as_array().unwrap().iter();
        let sum: f64 = parts.map(|part| part["cost"]["totalDollars"].as_f64().unwrap()).sum();
        let total = account["total"]["totalDollars"].as_f64().unwrap();
        assert!((sum - total).abs() < 1e-6, "{list}: {account:#}");
    }
    account
}

fn seconds(of: &Value, name: &str) -> f64 {
    of["cost"][name].as_f64().unwrap()
}

fn run_ids(account: &Value) -> Vec<&str> {
    account["runs"].as_array().unwrap().iter().map(|run| run["runId"].as_str().unwrap()).collect()
}

#[test]
fn one_machine_serves_two_runs_and_its_record_is_deleted() {
    let home = Home::with(&[]);
    let [machine] = &home.provision("1", 1).succeeded().ids()[..] else { panic!("one machine") };
    home.release("1").succeeded();
    home.provision("2", 1).succeeded();

    let account = self::account(&home, &[]);
    assert_eq!(account["machines"][0]["instanceId"], json!(machine));
    assert_eq!(account["machines"][0]["instanceType"], json!("c6i.large"));
    assert_eq!(account["machines"][0]["isLive"], json!(true));
    assert_eq!(account["total"]["isApproximate"], json!(false));
    assert_eq!(run_ids(&account), ["1", "2"]);
    let [booting, idle, busy] = ["bootingSeconds", "idleSeconds", "busySeconds"]
        .map(|name| seconds(&account["machines"][0], name));
    assert!(booting > 0.0 && idle > 0.0 && busy > 0.0, "{account:#}");
    let price = 0.085 / 3_600.0;
    let total = account["total"]["totalDollars"].as_f64().unwrap();
    assert!((total - price * (booting + idle + busy)).abs() < 1e-6, "{account:#}");
    let cold = &account["alwaysCold"];
    assert_eq!(
        (&cold["handOvers"], &cold["warm"], &cold["boots"]),
        (&json!(2), &json!(1), &json!(1))
    );
    assert_eq!(account["githubHosted"]["jobs"], json!(2));

    home.release("2").succeeded();
    home.file().execute("DELETE FROM instances", []).unwrap();
    let account = self::account(&home, &[]);
    assert_eq!(account["machines"][0]["instanceType"], json!("c6i.large"), "its event tells it");
    assert_eq!(account["total"]["isApproximate"], json!(true), "how it ended is unknown");
}

#[test]
fn lost_events_are_marked_and_no_time_is_lost() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    home.release("1").succeeded();
    home.file().execute("DELETE FROM events WHERE transition = 'activate'", []).unwrap();
    let account = self::account(&home, &[]);
    assert_eq!(account["total"]["isApproximate"], json!(true));
    assert!(account["total"]["uncertainSeconds"].as_f64().unwrap() > 0.0);
    assert!(seconds(&account["machines"][0], "busySeconds") > 0.0, "a part of what is unknown");
    let text = home.ondeck(&["cost"]).succeeded().stdout;
    assert!(text.contains(": ~") && text.contains("~ Events are missing"), "{text}");
}

#[test]
fn prices_can_be_replaced_and_a_type_without_one_is_said() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let file = home.outside().join("prices.json");
    let prices = file.to_str().unwrap();
    let printed = home.ondeck(&["cost", "--print-prices"]).succeeded().stdout;
    std::fs::write(&file, &printed).unwrap();
    let as_built_in = self::account(&home, &["--prices", prices]);
    assert_eq!(as_built_in["unpriced"], json!([]));

    let mut table: Value = serde_json::from_str(&printed).unwrap();
    table["onDemand"] = json!({ "x.large": 1.0 });
    std::fs::write(&file, table.to_string()).unwrap();
    let account = self::account(&home, &["--prices", prices]);
    assert_eq!(account["unpriced"], json!([{ "instanceType": "c6i.large", "machines": 1 }]));
    assert_eq!(account["total"]["totalDollars"], json!(0.0));
    assert!(account["total"]["unpricedSeconds"].as_f64().unwrap() > 0.0);
    let done = home.ondeck(&["cost", "--prices", prices]).succeeded();
    assert!(done.stdout.contains("no price"), "{}", done.stdout);
    assert!(done.stderr.contains("c6i.large has no price: 1"), "{}", done.stderr);

    std::fs::write(&file, "{}").unwrap();
    let error = home.ondeck(&["cost", "--prices", prices]).exited(2).stderr;
    assert!(error.contains("is no table of prices: missing field"), "{error}");
    let missing = home.outside().join("none");
    let error = home.ondeck(&["cost", "--prices", missing.to_str().unwrap()]).exited(2).stderr;
    assert!(error.contains("the prices cannot be read"), "{error}");
}

#[test]
fn the_beginning_is_a_span_or_a_date_of_the_last_thirty_days() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    assert_eq!(self::account(&home, &["--since", "1h"])["machines"].as_array().unwrap().len(), 1);
    for bad in ["31d", "soon", "2020-01-01", "2999-01-01"] {
        let done = home.ondeck(&["cost", "--json", "--since", bad]).exited(2);
        assert_valid("cost", &done);
    }
    assert_valid("cost", &Home::bare().ondeck(&["cost", "--json"]).exited(3));
}

#[test]
fn an_account_begins_where_older_events_may_be_deleted() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    home.release("1").succeeded();
    // As if refresh had deleted what is older than its retention, an hour.
    let warned = |arguments: &[&str]| {
        let done = home.ondeck(&[&["cost", "--json"], arguments].concat()).succeeded();
        let warned = done.stderr.contains("earlier events are deleted after retention-min");
        (done.json(), warned)
    };
    let (whole, is_warned) = warned(&["--since", "1h"]);
    assert_eq!((&whole["isPartial"], is_warned), (&json!(false), false), "all of it is kept");
    let (part, is_warned) = warned(&[]);
    assert_eq!((&part["isPartial"], is_warned), (&json!(true), true), "of seven days, an hour is");
    let time = |account: &Value, name: &str| {
        let text = account[name].as_str().unwrap();
        Timestamp::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    };
    let span = time(&part, "until").since(time(&part, "since"));
    assert_eq!(span.as_secs(), 3_600, "{part:#}");
    assert_eq!(part["runs"], whole["runs"]);
    home.refresh(&["--retention-min=0"]);
    let nothing = self::account(&home, &[]);
    assert_eq!(nothing["runs"], json!([]));
}

#[test]
fn a_plot_is_written_for_light_and_dark_pages() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let folder = home.outside().join("plots");
    let missing = home.ondeck(&["cost", "--plot", folder.to_str().unwrap()]).exited(11);
    assert!(missing.stderr.contains("the plot cannot be written"), "{}", missing.stderr);
    std::fs::create_dir(&folder).unwrap();
    home.ondeck(&["cost", "--plot", folder.to_str().unwrap()]).succeeded();
    for name in ["cost-light.svg", "cost-dark.svg"] {
        let plot = std::fs::read_to_string(folder.join(name)).unwrap();
        assert!(plot.starts_with("<svg ") && plot.contains("booting"), "{plot}");
    }
}
