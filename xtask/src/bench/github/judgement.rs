//! Compares what was measured with what is required, and draws the table.

use serde_json::Value;

const HEADER: &str = "\
| | median | worst | beside it | ratio | required | holds | rounds |
| --- | --: | --: | --: | --: | --: | --- | --: |
";

/// What a row must keep.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    /// At most this many times what was measured beside it, in the same rounds.
    Times(f64),
    /// As [`Bound::Times`], and no machine may be lost.
    TimesAndNoneLost(f64),
    /// At most what the runner takes to leave and to register again, and this, in milliseconds.
    RunnerAnd(f64),
    /// The row is measured and not judged.
    Nothing,
}

/// A kind of row, whose name is behind that of the backend in the name of a row.
struct Kind {
    name: &'static str,
    words: &'static str,
    beside: &'static str,
    bound: Bound,
}

const KINDS: [Kind; 7] = [
    Kind {
        name: "warm-ready",
        words: "warm provision of {}, ready",
        beside: "local forge",
        bound: Bound::Times(1.15),
    },
    Kind {
        name: "warm-run",
        words: "warm provision of {}, label of the run, without the wait for its last look",
        beside: "before",
        bound: Bound::Times(1.05),
    },
    // Its looks become less frequent with time, so that its end is late by up to a sixth of it.
    Kind {
        name: "whole-warm-run",
        words: "warm provision of {}, label of the run, from start to exit",
        beside: "before",
        bound: Bound::Nothing,
    },
    Kind {
        name: "release",
        words: "release of {} until the last machine is free",
        beside: "label of the run",
        bound: Bound::Times(1.05),
    },
    // It looks for what the row above measures every 200 ms, and sends the tickets after that.
    Kind {
        name: "whole-release",
        words: "release of {}, from start to exit",
        beside: "label of the run",
        bound: Bound::Nothing,
    },
    Kind {
        name: "again",
        words: "release of {} until they are ready again",
        beside: "",
        bound: Bound::RunnerAnd(300.0),
    },
    Kind {
        name: "outage",
        words: "provision of {}, ready, while GitHub answers 503",
        beside: "local forge",
        bound: Bound::TimesAndNoneLost(1.15),
    },
];

/// The number of machines whose registrations take more of the computer than of the clock, so that how
/// soon they are ready again says little about the program.
const MANY: &str = "50";

/// A row that was measured.
#[derive(Debug)]
pub(super) struct Judgement {
    words: String,
    beside_words: &'static str,
    bound: Bound,
    median_ms: f64,
    worst_ms: f64,
    /// The median of what was measured beside it.
    beside_ms: Option<f64>,
    /// The most that is allowed, in milliseconds.
    allowed_ms: Option<f64>,
    lost: Option<u64>,
    rounds: usize,
}

/// All rows of the results, in their order.
pub(super) fn all(results: &Value) -> Vec<Judgement> {
    let rows = results["results"].as_array().into_iter().flatten();
    rows.filter_map(|row| Judgement::of(results, row)).collect()
}

impl Judgement {
    /// `None` if the row is of no kind that this knows, or has no rounds.
    fn of(results: &Value, row: &Value) -> Option<Judgement> {
        let (backend, rest) = row["row"].as_str()?.split_once('-')?;
        let kind = KINDS.iter().find(|kind| rest.starts_with(kind.name))?;
        let count = rest.strip_prefix(kind.name)?.trim_start_matches('-').split('-').next()?;
        let latency = row["latencyMs"].as_f64().unwrap_or_default();
        let bound = match kind.bound {
            Bound::RunnerAnd(_) if count == MANY => Bound::Nothing,
            bound => bound,
        };
        let (all, beside) = (each(row, "ms"), each(row, "besideMs"));
        let worst_ms = all.iter().copied().fold(0.0, f64::max);
        let rounds = all.len();
        let beside_ms = middle(beside);
        let allowed_ms = match bound {
            Bound::Times(most) | Bound::TimesAndNoneLost(most) => Some(most * beside_ms?),
            Bound::RunnerAnd(more) => Some(runner_ms(results, latency) + more),
            Bound::Nothing => None,
        };
        Some(Judgement {
            words: format!("{backend}, {latency} ms: {}", kind.words.replace("{}", count)),
            beside_words: kind.beside,
            bound,
            median_ms: middle(all)?,
            worst_ms,
            beside_ms,
            allowed_ms,
            lost: row["lost"].as_u64(),
            rounds,
        })
    }

    fn holds(&self) -> Option<bool> {
        let in_time = self.median_ms <= self.allowed_ms?;
        Some(in_time && (self.lost == Some(0) || !matches!(self.bound, Bound::TimesAndNoneLost(_))))
    }

    /// What is wrong with the row; `None` if nothing is.
    pub(super) fn complaint(&self) -> Option<String> {
        if self.holds() != Some(false) {
            return None;
        }
        let (words, median) = (&self.words, self.median_ms);
        let lost = self.lost.filter(|lost| *lost > 0);
        let lost = lost.map(|lost| format!(", and {lost} machines were lost")).unwrap_or_default();
        let allowed = self.allowed_ms.unwrap_or_default();
        Some(format!("{words}: {median:.0} ms, required {allowed:.0} ms{lost}"))
    }

    fn line(&self) -> String {
        let ratio = self.beside_ms.map(|beside| format!("{:.2}", self.median_ms / beside));
        let required = match self.bound {
            Bound::Times(most) => format!("≤ {most}"),
            Bound::TimesAndNoneLost(most) => {
                format!("≤ {most}, none lost ({})", self.lost.unwrap_or_default())
            }
            Bound::RunnerAnd(_) => format!("≤ {:.0} ms", self.allowed_ms.unwrap_or_default()),
            Bound::Nothing => String::new(),
        };
        let holds = match self.holds() {
            None => "",
            Some(true) => "yes",
            Some(false) => "**no**",
        };
        let beside = self.beside_ms.map(|ms| format!("{}: {ms:.0} ms", self.beside_words));
        let cells = [
            self.words.clone(),
            format!("{:.0} ms", self.median_ms),
            format!("{:.0} ms", self.worst_ms),
            beside.unwrap_or_default(),
            ratio.unwrap_or_default(),
            required,
            holds.to_owned(),
            self.rounds.to_string(),
        ];
        format!("| {} |\n", cells.join(" | "))
    }
}

/// The table, and what the figures were measured with.
pub(super) fn table(results: &Value, judgements: &[Judgement]) -> String {
    let mut text = String::from(HEADER);
    judgements.iter().for_each(|judgement| text.push_str(&judgement.line()));
    let first_job = |row: &Value| {
        let ms = row["firstJobMs"].as_f64()?;
        let backend = row["row"].as_str()?.split('-').next()?;
        Some(format!("{backend}: the first jobs were over {:.1} s after the outage.\n", ms / 1e3))
    };
    let rows = results["results"].as_array().into_iter().flatten();
    let jobs: String = rows.filter_map(first_job).collect();
    text.push_str(&format!("\n{jobs}"));
    if results["before"] != true {
        text.push_str(
            "Machines that register for their run were not compared with an older program: give one \
             with --before=PATH.\n",
        );
    }
    let seconds = results["seconds"].as_f64().unwrap_or_default();
    text.push_str(&format!("Measured in {seconds:.0} s.\n"));
    text
}

/// What the runner takes to end, to be removed, to register and to listen, with its round trips. Its end
/// and its removal are one each.
fn runner_ms(results: &Value, latency: f64) -> f64 {
    let own: f64 =
        results["runnerMs"].as_array().into_iter().flatten().filter_map(Value::as_f64).sum();
    let trips = |name: &str| results[name].as_f64().unwrap_or_default();
    let trips = trips("roundTripsToRegister") + trips("roundTripsToListen") + 2.0;
    own + trips * latency
}

fn each(row: &Value, name: &str) -> Vec<f64> {
    let rounds = row["rounds"].as_array().into_iter().flatten();
    rounds.filter_map(|round| round[name].as_f64()).collect()
}

/// The middle value. Of an even number of values, the larger of the two in the middle.
fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results(rows: &Value) -> Value {
        json!({
            "before": true,
            "runnerMs": [550.0, 390.0, 300.0, 30.0],
            "roundTripsToRegister": 4,
            "roundTripsToListen": 3,
            "seconds": 61,
            "results": rows,
        })
    }

    fn judged(row: &Value) -> Judgement {
        all(&results(&json!([row]))).pop().unwrap()
    }

    #[test]
    fn a_row_is_compared_with_what_was_measured_beside_it() {
        let holds = |row: &str, ms: f64| {
            let rounds = json!([{"ms": 1.0, "besideMs": 999.0}, {"ms": ms, "besideMs": 100.0},
                {"ms": 900.0, "besideMs": 100.0}]);
            judged(&json!({"row": row, "latencyMs": 0, "rounds": rounds})).holds()
        };
        assert_eq!(holds("local-warm-ready-10-0ms", 114.9), Some(true));
        assert_eq!(holds("local-warm-ready-10-0ms", 115.1), Some(false));
        assert_eq!(holds("aws-warm-run-1-100ms", 104.9), Some(true));
        assert_eq!(holds("aws-warm-run-1-100ms", 105.1), Some(false));
        assert_eq!(holds("aws-release-50-100ms", 105.1), Some(false));
    }

    #[test]
    fn machines_are_ready_again_after_the_time_of_the_runner_and_its_round_trips() {
        let allowed = |row: &str, latency: u32| {
            let row = json!({"row": row, "latencyMs": latency, "rounds": [{"ms": 1.0}]});
            judged(&row).allowed_ms
        };
        assert_eq!(allowed("local-again-10-0ms", 0), Some(1_570.0));
        assert_eq!(allowed("local-again-10-100ms", 100), Some(2_470.0));
        assert_eq!(allowed("local-again-50-0ms", 0), None);
    }

    #[test]
    fn a_lost_machine_is_a_miss() {
        let row = |lost: u32| {
            json!({"row": "local-outage-10", "latencyMs": 0, "lost": lost, "firstJobMs": 12_345.0,
                "rounds": [{"ms": 100.0, "besideMs": 100.0}]})
        };
        assert_eq!(judged(&row(0)).complaint(), None);
        let complaint = judged(&row(2)).complaint().unwrap();
        assert!(
            complaint.ends_with("100 ms, required 115 ms, and 2 machines were lost"),
            "{complaint}"
        );
    }

    #[test]
    fn the_table_says_what_was_not_measured() {
        let rounds = json!([{"ms": 120.0, "besideMs": 100.0}]);
        let mut results = results(&json!([
            {"row": "local-warm-ready-10-100ms", "latencyMs": 100, "rounds": rounds},
            {"row": "aws-again-1-0ms", "latencyMs": 0, "rounds": [{"ms": 1_400.0}]},
            {"row": "local-outage-10", "latencyMs": 0, "lost": 0, "firstJobMs": 12_345.0,
                "rounds": [{"ms": 100.0, "besideMs": 100.0}]},
        ]));
        results["before"] = json!(false);
        let text = table(&results, &all(&results));
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| local, 100 ms: warm provision of 10, ready | 120 ms | 120 ms | local forge: 100 ms | 1.20 | ≤ 1.15 | **no** | 1 |",
                "| aws, 0 ms: release of 1 until they are ready again | 1400 ms | 1400 ms |  |  | ≤ 1570 ms | yes | 1 |",
                "| local, 0 ms: provision of 10, ready, while GitHub answers 503 | 100 ms | 100 ms | local forge: 100 ms | 1.00 | ≤ 1.15, none lost (0) | yes | 1 |",
                "",
                "local: the first jobs were over 12.3 s after the outage.",
                "Machines that register for their run were not compared with an older program: give one with --before=PATH.",
                "Measured in 61 s.",
            ]
        );
    }
}
