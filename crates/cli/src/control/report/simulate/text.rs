//! A grid as text.

use std::time::Duration;

use ondeck_core::model::requirements::UsageClass;
use ondeck_replay::{Point, Reason};

use super::super::{span, table};
use super::{Played, SimulateReport};

pub(super) fn text(report: &SimulateReport) -> String {
    let parts = [history(report), points(report), recommendation(report), small_print(report)];
    parts.join("\n\n")
}

fn history(report: &SimulateReport) -> String {
    let history = &report.history;
    let classes: Vec<String> = history.classes().iter().map(ToString::to_string).collect();
    let day = |at: ondeck_core::model::timestamp::Timestamp| at.to_string()[..16].replace('T', " ");
    format!(
        "{}: {} with {} of {}, {} to {} UTC",
        report.source,
        counted(history.runs().len(), "run", "runs"),
        counted(report.machines(), "machine", "machines"),
        classes.join(", "),
        day(history.since()),
        day(history.until()),
    )
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn points(report: &SimulateReport) -> String {
    let rows = report.points.iter().enumerate().map(|(index, Played { point, measured })| {
        let mark = if index == report.recommended.index { "*" } else { "" };
        let mut cells = vec![
            mark.to_owned(),
            point.usage.to_string(),
            point.min_idle.to_string(),
            minutes(point.idle_time),
            format!("{:.0} %", 100.0 * measured.warm_share()),
            seconds(measured.mean_wait()),
            seconds(measured.percentile(50)),
            seconds(measured.percentile(95)),
            measured.cost.to_string(),
            measured.busy.to_string(),
        ];
        if has_interruptions(report) {
            cells.push(measured.repeated.to_string());
        }
        cells
    });
    let mut header = vec![
        "",
        "usage",
        "min-idle",
        "idle time",
        "warm",
        "mean wait",
        "median",
        "p95",
        "cost",
        "busy",
    ];
    if has_interruptions(report) {
        header.push("repeated");
    }
    table(&header, rows.collect())
}

fn has_interruptions(report: &SimulateReport) -> bool {
    report.model.interruptions > 0
}

/// Whole minutes, or seconds where it is not.
pub(super) fn minutes(time: Duration) -> String {
    match time.as_millis() % 60_000 {
        0 => format!("{} min", time.as_secs() / 60),
        _ => format!("{} s", time.as_secs_f64()),
    }
}

pub(super) fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..600 => format!("{:.1} s", time.as_secs_f64()),
        _ => span(time),
    }
}

/// The settings of a point in words.
pub(super) fn settings(point: &Point) -> String {
    let window = if point.window.is_empty() || point.min_idle == 0 {
        String::new()
    } else {
        format!(" ({})", point.window)
    };
    let Point { usage, min_idle, idle_time, .. } = point;
    format!("{usage}, min-idle {min_idle}{window}, idle time {}", minutes(*idle_time))
}

fn recommendation(report: &SimulateReport) -> String {
    let Played { point, measured } = report.chosen();
    let usage = match point.usage {
        UsageClass::Spot => "usage-class: spot",
        UsageClass::OnDemand => "usage-class: on-demand",
    };
    format!(
        "Recommended (*): {}. {} {:.0} % of the machines are warm, runs wait {} on \
         average, and the machines cost {}.\n\n# ondeck.toml\n{}\n# in the workflow, for provision: {usage}",
        settings(point),
        reason(report),
        100.0 * measured.warm_share(),
        seconds(measured.mean_wait()),
        measured.cost,
        report.toml.trim_end(),
    )
}

fn reason(report: &SimulateReport) -> String {
    match report.recommended.reason {
        Reason::SparesEnough => format!(
            "It is the cheapest point that spares at least {} % of the waiting that the best one spares \
             against a boot for each run.",
            report.aim
        ),
        Reason::LittleToSpare => {
            "It is the cheapest point: even the best one spares less than a quarter of a boot."
                .to_owned()
        }
    }
}

fn small_print(report: &SimulateReport) -> String {
    let (model, prices) = (&report.model, &report.prices);
    let spot = match model.interruptions {
        0 => "Spot machines are not interrupted.".to_owned(),
        count => {
            format!("{count} spot machines are interrupted in 1,000 hours; their runs begin again.")
        }
    };
    format!(
        "Assumed: a boot takes {}, a registration {}, a refresh every {}. {spot}\nPrices of {}: {}. Spot is \
         estimated at {:.0} % of on-demand, unless the table has a price.\nWaiting is until a run has all of \
         its machines. Cost is from the first start to the last planned end, without disks and traffic.",
        seconds(model.boot),
        seconds(model.registration),
        minutes(model.refresh_every),
        prices.as_of,
        prices.source,
        100.0 * prices.spot_share,
    )
}
