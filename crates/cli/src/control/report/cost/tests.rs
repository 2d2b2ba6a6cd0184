use std::time::Duration;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::money::Money;
use ondeck_core::model::prices::Prices;
use ondeck_core::model::record::{EventRow, MachineSpec, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::cost::{StateLimits, Window, account};
use ondeck_core::modes::refresh::SpendUse;

use super::CostReport;
use crate::control::report::Report;
use crate::inputs::Backend;

const HOUR: Duration = Duration::from_secs(3_600);

fn at(minutes: u64) -> Timestamp {
    Timestamp::parse("2026-11-10T22:00:00Z").unwrap() + Duration::from_secs(60 * minutes)
}

fn spec(instance_type: &str) -> MachineSpec {
    MachineSpec {
        resource_class: "large".parse().unwrap(),
        instance_type: instance_type.to_owned(),
        usage_class: UsageClass::OnDemand,
        cpu: 2,
        mem: 4096,
    }
}

/// A machine that boots for run 1, is idle across midnight, serves run 2 and is terminated.
fn life(id: &str, instance_type: &str) -> Vec<EventRow> {
    use State::{Claimed, Created, Idle, Running, Terminated};
    let rows = [
        (0, "register", None, Created, Some("1")),
        (1, "activate", Some(Created), Running, Some("1")),
        (61, "release", Some(Running), Idle, None),
        (181, "claim", Some(Idle), Claimed, Some("2")),
        (182, "commit", Some(Claimed), Running, Some("2")),
        (242, "release", Some(Running), Idle, None),
        (302, "reap", Some(Idle), Terminated, None),
    ];
    let row = |(minute, transition, from, to, run): (u64, &str, _, _, Option<&str>)| EventRow {
        instance: InstanceId::new(id).unwrap(),
        at: at(minute),
        transition: transition.to_owned(),
        from,
        to,
        run: run.map(|run| run.parse().unwrap()),
        why: if minute == 0 { spec(instance_type).told() } else { String::new() },
    };
    rows.into_iter().map(row).collect()
}

pub(in crate::control::report) fn report(events: &[EventRow]) -> CostReport {
    let limits = StateLimits { created: HOUR, claimed: HOUR, running: HOUR, idle: HOUR };
    let window = Window { since: at(0), until: at(360), read_since: at(0).before(HOUR), limits };
    let prices = Prices::built_in();
    let account = account(events, &[], &prices, &window);
    CostReport { account, prices, cut: None, spend: None, backend: Backend::Aws }
}

pub(in crate::control::report) fn example() -> CostReport {
    report(&life("i-0123456789abcdef0", "c6i.large"))
}

#[test]
fn a_machine_that_served_two_runs() {
    insta::assert_snapshot!(example().text());
}

/// The example, below a cap of the second day.
fn capped(cap: f64) -> CostReport {
    let [spent, reserved, cap] = [0.2, 0.15, cap].map(|it| Money::from_dollars(it).unwrap());
    let spend = SpendUse { day: at(360).start_of_day(), spent, reserved, cap };
    CostReport { spend: Some(spend), ..example() }
}

#[test]
fn what_is_left_of_the_cap_is_told_in_every_form() {
    let report = capped(0.5);
    let words = "$0.2000 spent and $0.1500 reserved of $0.5000 on 2026-11-11 (UTC)";
    let line = format!("Cap: {words}. Spot counts as on-demand here.");
    assert!(report.text().lines().any(|told| told == line), "{}", report.text());
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    let expected = serde_json::json!({
        "day": "2026-11-11", "spentUsd": 0.2, "reservedUsd": 0.15, "capUsd": 0.5,
    });
    assert_eq!(json["spend"], expected);
    for (_, plot) in report.plots() {
        assert!(plot.contains(words), "{plot}");
    }
    let without = example();
    let json: serde_json::Value = serde_json::from_str(&without.json()).unwrap();
    assert_eq!(json["spend"], serde_json::Value::Null);
    assert!(!without.text().contains("Cap: ") && !without.plots()[0].1.contains("reserved"));
}

#[test]
fn the_plot_has_the_cap_in_proportion_unless_it_is_far_above_all_bars() {
    let marks = |report: &CostReport| {
        let [(_, light), (_, dark)] = report.plots();
        let count = |plot: &str, dashes: &str| plot.matches(dashes).count();
        let both = |plot: &str| {
            // Of each, one is in the legend.
            (
                count(plot, r#"stroke-dasharray="2 2""#) - 1,
                count(plot, r#"stroke-dasharray="7 4""#) - 1,
            )
        };
        assert_eq!(both(&light), both(&dark));
        both(&light)
    };
    assert_eq!(marks(&capped(0.5)), (1, 1), "what is reserved on one day, and the cap");
    assert_eq!(marks(&capped(500.0)), (1, 0), "the bars would not be seen");
    let report = capped(0.5);
    let plot = &report.plots()[0].1;
    let of = |what: &str, from: &str| -> f64 {
        let line = plot.lines().filter(|line| line.contains(what)).nth(1).unwrap();
        let (_, rest) = line.split_once(from).unwrap();
        rest[..rest.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap()].parse().unwrap()
    };
    let reserved = of(r#"dasharray="2 2""#, "height=\"");
    // The grid reaches half a dollar at the top of the plot, and the axis is 220 below it.
    assert!((reserved / 220.0 - 0.15 / 0.5).abs() < 0.01, "{reserved}");
    assert!((of(r#"dasharray="7 4""#, "M80 ") - 44.0).abs() < 0.1, "{plot}");
}

#[test]
fn what_is_not_known_is_marked_and_what_has_no_price_is_not_counted() {
    let mut events = life("i-1", "c6i.large");
    // The release of the first run and the end are lost.
    events.remove(6);
    events.remove(2);
    events.extend(life("i-2", "z99.large"));
    let report = report(&events);
    insta::assert_snapshot!(report.text());
    assert_eq!(report.warnings(), ["machines not counted, because z99.large has no price: 1"]);
}

#[test]
fn days_with_a_guess_are_marked_in_the_plot() {
    let marks = |report: &CostReport| {
        let plots = report.plots();
        let [one, other] = plots.map(|(_, plot)| plot.matches(">~</text>").count());
        assert_eq!(one, other);
        (one, report.plots()[0].1.contains("(~: a guess in part)"))
    };
    assert_eq!(marks(&example()), (0, false));
    let mut events = life("i-1", "c6i.large");
    events.remove(2);
    let report = report(&events);
    let days = report.account.days.values().filter(|tally| tally.is_approximate()).count();
    assert!(days > 0);
    assert_eq!(marks(&report), (days, true));
}

#[test]
fn nothing_is_no_division_by_zero() {
    let report = report(&[]);
    assert!(report.text().contains("0 machines, 0.0s: $0\n"), "{}", report.text());
    for (_, plot) in report.plots() {
        assert!(!plot.contains("NaN") && !plot.contains("inf"), "{plot}");
    }
}

#[test]
fn the_parts_of_the_plot_are_as_high_as_they_cost() {
    let report = example();
    for (name, plot) in report.plots() {
        let heights = |colour: &str| -> f64 {
            let bars =
                plot.lines().filter(|line| line.starts_with("<rect x=") && line.contains(colour));
            let height = |line: &str| -> f64 {
                let (_, rest) = line.split_once("height=\"").unwrap();
                rest.split_once('"').unwrap().0.parse().unwrap()
            };
            // The first one is in the legend.
            bars.skip(1).map(height).sum()
        };
        let colours = match name {
            "cost-light.svg" => ["#2f81c7", "#d4a72c"],
            _ => ["#4493d8", "#bf8700"],
        };
        let tally = report.account.total;
        let expected = Money::dollars(tally.busy.money) / Money::dollars(tally.idle.money);
        let found = heights(colours[0]) / heights(colours[1]);
        assert!((found / expected - 1.0).abs() < 0.01, "{name}: {found} for {expected}");
        assert!(plot.contains("11-10") && plot.contains("11-11"), "{plot}");
        assert!(plot.starts_with("<svg ") && plot.ends_with("</svg>\n"));
    }
}
