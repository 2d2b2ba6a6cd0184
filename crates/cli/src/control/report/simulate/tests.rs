use std::time::Duration;

use ondeck_core::model::money::Money;
use ondeck_core::model::prices::Prices;
use ondeck_core::model::requirements::UsageClass;
use ondeck_replay::{History, Measured, Model, Point, Reason, Recommendation};

use super::{Played, SimulateReport};
use crate::control::report::Report;

fn played(minutes: u64, min_idle: u32, wait: u64, warm: usize, cost: f64) -> Played {
    let usage = if cost < 3.0 { UsageClass::Spot } else { UsageClass::OnDemand };
    Played {
        point: Point {
            idle_time: Duration::from_secs(60 * minutes),
            min_idle,
            window: "Mon-Fri 08:00-18:00".to_owned(),
            usage,
        },
        measured: Measured {
            runs: 2,
            handed_over: 10,
            warm,
            launched: 10 - warm,
            waits: vec![Duration::from_secs(5), Duration::from_secs(wait)],
            cost: Money::from_dollars(cost).unwrap(),
            busy: Money::from_dollars(cost / 2.0).unwrap(),
            ..Measured::default()
        },
    }
}

pub(in crate::control::report) fn example() -> SimulateReport {
    let csv = "start,machines,minutes\n2026-11-02T08:30:00Z,4,12.5\n2026-11-02T09:30:00Z,6,20\n";
    let points = vec![
        played(5, 0, 45, 2, 1.5),
        played(15, 0, 25, 5, 2.25),
        played(60, 0, 15, 8, 2.9),
        played(5, 1, 30, 4, 3.5),
        played(60, 1, 7, 9, 6.5),
    ];
    SimulateReport {
        history: History::from_csv(csv).unwrap(),
        source: "week.csv".to_owned(),
        warning: None,
        model: Model::default(),
        prices: Prices::built_in(),
        points,
        recommended: Recommendation { index: 2, reason: Reason::SparesEnough },
        aim: 80,
        toml: "[times]\nidle-time-sec = 3600\n".to_owned(),
    }
}

#[test]
fn a_grid_as_text() {
    insta::assert_snapshot!(example().text());
}

#[test]
fn a_grid_with_interruptions_says_how_many_runs_began_again() {
    let mut report = example();
    report.model.interruptions = 50;
    report.points[0].measured.repeated = 3;
    let text = report.text();
    assert!(text.contains("repeated"), "{text}");
    assert!(text.contains("50 spot machines are interrupted in 1,000 hours"), "{text}");
}

#[test]
fn the_plot_joins_the_points_that_no_other_beats_and_rings_the_recommended_one() {
    for (file, plot) in example().plots() {
        assert!(file == "simulate-light.svg" || file == "simulate-dark.svg");
        // One for each point on demand, one in the legend, and two rings.
        assert_eq!(plot.matches("<circle").count(), 2 + 1 + 2, "{plot}");
        // One for each point on spot, and one in the legend.
        assert_eq!(plot.matches("<rect").count(), 3 + 1, "{plot}");
        assert_eq!(plot.matches("stroke-width=\"2.5\"").count(), 2);
        let path = plot.lines().find(|line| line.contains("stroke-opacity")).unwrap();
        assert_eq!(path.matches('L').count(), 3, "four of five points are in front: {path}");
        assert!(plot.contains("recommended: spot, min-idle 0, idle time 60 min"), "{plot}");
        assert!(
            plot.contains("<title>on-demand, min-idle 1 (Mon-Fri 08:00-18:00), idle time 5 min")
        );
    }
}

#[test]
fn what_is_missing_or_failed_is_a_warning() {
    let mut report = example();
    assert_eq!(report.warnings(), Vec::<String>::new());
    report.warning = Some("only the newest runs".to_owned());
    report.points[1].measured.failed = 2;
    report.points[1].measured.failure = Some("no capacity".to_owned());
    report.points[1].measured.unpriced = Duration::from_secs(60);
    let warnings = report.warnings();
    assert_eq!(warnings[0], "only the newest runs");
    assert_eq!(
        warnings[1],
        "runs or refreshes that failed at all points: 2; the first: no capacity"
    );
    assert!(warnings[2].starts_with("machines without a price are not counted"), "{warnings:?}");
}
