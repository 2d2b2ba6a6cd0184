//! The table of `docs/performance.md`.

use super::judgement::{Judgement, LOADED, QUIET, Verdict};
use super::requirements::Bound;
use super::results::{PROCESSES, Results};

const HEADER: &str = "\
| | median | worst | calls | round trips | limit | times the limit | required | holds | beside a load | holds |
| --- | --: | --: | --: | --: | --: | --: | --: | --- | --: | --- |
";

/// The table, and what the figures were measured with.
pub(super) fn table(results: &Results, judgements: &[Judgement]) -> String {
    let mut text = String::from(HEADER);
    for judgement in judgements {
        text.push_str(&line(judgement));
    }
    let trip = |condition| results.round_trip_ms(condition).map(|ms| format!("{ms:.1} ms"));
    let quiet = trip(QUIET).unwrap_or_else(|| "not measured".to_owned());
    let loaded = trip(LOADED).unwrap_or_else(|| "not measured".to_owned());
    text.push_str(&format!(
        "\nThe gateway added {} ms to each call. A round trip took {quiet} in the median, and {loaded} \
         beside the load. Measured in {:.0} s.\n",
        results.latency_ms, results.seconds,
    ));
    text
}

/// The processor time of a round, by process, on the quiet computer.
pub(super) fn cpu_table(results: &Results, judgements: &[Judgement]) -> String {
    let mut text = format!("\n| CPU ms of a round | {} |\n", PROCESSES.join(" | "));
    text.push_str(&format!("| --- |{}\n", " --: |".repeat(PROCESSES.len())));
    for Judgement { requirement, .. } in judgements {
        let Some(row) = results.find(requirement.row, QUIET) else { continue };
        let figures = PROCESSES.map(|process| row.cpu_ms(process));
        if figures.iter().any(Option::is_some) {
            let figures = figures.map(|ms| ms.map(|ms| format!("{ms:.1}")).unwrap_or_default());
            text.push_str(&format!("| {} | {} |\n", requirement.words, figures.join(" | ")));
        }
    }
    text
}

fn line(judgement: &Judgement) -> String {
    let Judgement { requirement, quiet, loaded } = judgement;
    let bound = requirement.bound;
    let shown = |value: f64| shown(bound, value);
    let whole = |value: Option<f64>| value.map(|it| format!("{it:.0}")).unwrap_or_default();
    let (median, worst) = match bound {
        Bound::Calls { .. } => (quiet.ms.map(millis), quiet.worst.map(millis)),
        _ => (Some(shown(quiet.value)), quiet.worst.map(millis)),
    };
    let limit = match (quiet.limit_ms, quiet.beside) {
        (Some(limit), _) => millis(limit),
        (None, Some(beside)) => format!("{} by SQLite itself", shown(beside)),
        (None, None) => String::new(),
    };
    let times = match (quiet.limit_ms, quiet.beside) {
        (Some(limit), _) => format!("{:.1}", quiet.value / limit),
        (None, Some(beside)) => format!("{:.2}", quiet.value / beside),
        (None, None) => String::new(),
    };
    let cells = [
        requirement.words.to_owned(),
        median.unwrap_or_default(),
        worst.unwrap_or_default(),
        whole(quiet.calls),
        whole(quiet.trips),
        limit,
        times,
        required(bound, quiet),
        holds(Some(quiet)),
        loaded.as_ref().map(|it| shown(it.value)).unwrap_or_default(),
        holds(loaded.as_ref()),
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn required(bound: Bound, verdict: &Verdict) -> String {
    let allowed = shown(bound, verdict.allowed);
    match bound {
        Bound::Rate { .. } => format!("≥ {allowed}"),
        _ => format!("≤ {allowed}"),
    }
}

fn holds(verdict: Option<&Verdict>) -> String {
    match verdict.map(|verdict| verdict.holds) {
        None => String::new(),
        Some(true) => "yes".to_owned(),
        Some(false) => "**no**".to_owned(),
    }
}

/// A value with its unit.
fn shown(bound: Bound, value: f64) -> String {
    match bound {
        Bound::Time { .. } | Bound::TimeOverOutside { .. } => millis(value),
        Bound::Calls { .. } => format!("{value:.0} calls"),
        // What is rounded to nothing has no sign.
        Bound::Figure { unit, .. } => format!("{:.2}{unit}", (value * 100.0).round() / 100.0 + 0.0),
        Bound::Rate { .. } => thousands(value),
    }
}

fn millis(value: f64) -> String {
    format!("{} ms", thousands(value))
}

fn thousands(value: f64) -> String {
    let whole = format!("{value:.0}");
    match whole.len() {
        0..=3 => whole,
        length => format!("{},{}", &whole[..length - 3], &whole[length - 3..]),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::aws::judgement;

    #[test]
    fn each_row_states_what_is_required_of_it() {
        let round = |ms: f64, calls: u32, trips: u32| json!({"ms": ms, "calls": calls, "trips": trips, "roundTripMs": 10.0, "outsideMs": 0.0});
        let quiet = |row: &str, rounds: serde_json::Value| json!({"row": row, "condition": QUIET, "rounds": rounds});
        let loaded = json!({
            "row": "reap-500", "condition": LOADED, "rounds": [round(1_204.0, 41, 9)],
        });
        let mut idle = quiet("idle-agent", json!([]));
        idle["callsAMinute"] = 12.04.into();
        let claims = json!([{"claimsASecond": 6_000.0, "sqliteASecond": 12_000.0}]);
        let results = Results::of(&json!({
            "latencyMs": 8,
            "seconds": 61,
            "results": [
                quiet("reap-500", json!([round(512.0, 41, 8), round(480.0, 41, 8)])),
                loaded,
                quiet("refresh-empty", json!([round(90.0, 14, 5)])),
                idle,
                quiet("local-claims", claims),
            ],
        }));
        let text = table(&results, &judgement::all(&results));
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| refresh, nothing to do, no idle machine | 90 ms | 90 ms | 14 | 5 |  |  | ≤ 12 calls | **no** |  |  |",
                "| refresh that reaps 500 | 512 ms | 512 ms | 41 | 8 | 80 ms | 6.4 | ≤ 600 ms | yes | 1,204 ms | **no** |",
                "| idle agent, calls a minute | 12.04 |  |  |  |  |  | ≤ 15.00 | yes |  |  |",
                "| claims a second by 8 processes, local backend | 6,000 |  |  |  | 12,000 by SQLite itself | 0.50 | ≥ 4,080 | yes |  |  |",
                "",
                "The gateway added 8 ms to each call. A round trip took 10.0 ms in the median, and 10.0 ms beside the load. Measured in 61 s.",
            ]
        );
    }
}
