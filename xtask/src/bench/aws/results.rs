//! What the benchmark has measured, as it stands in `aws.json`.

use serde_json::Value;

/// The processes whose processor time is measured, by their names in the results; the last are those that
/// are no part of the benchmark.
pub(super) const PROCESSES: [&str; 5] = ["program", "gateway", "dynamodb", "agents", "others"];

/// All rows of one run.
#[derive(Debug, Default)]
pub(super) struct Results {
    /// What the gateway added to each call.
    pub(super) latency_ms: f64,
    pub(super) seconds: f64,
    pub(super) rows: Vec<Measured>,
}

/// One row under one condition.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) row: String,
    pub(super) condition: String,
    figures: Value,
}

impl Results {
    pub(super) fn of(json: &Value) -> Results {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let rows = json["results"].as_array().into_iter().flatten().map(|figures| Measured {
            row: text(&figures["row"]),
            condition: text(&figures["condition"]),
            figures: figures.clone(),
        });
        Results {
            latency_ms: json["latencyMs"].as_f64().unwrap_or_default(),
            seconds: json["seconds"].as_f64().unwrap_or_default(),
            rows: rows.collect(),
        }
    }

    /// A row under a condition; `None` if it was not measured.
    pub(super) fn find(&self, row: &str, condition: &str) -> Option<&Measured> {
        self.rows.iter().find(|it| it.row == row && it.condition == condition)
    }

    /// The median round trip of a condition, over all rows.
    pub(super) fn round_trip_ms(&self, condition: &str) -> Option<f64> {
        let rows = self.rows.iter().filter(|it| it.condition == condition);
        let all: Vec<f64> = rows.flat_map(|it| it.each("roundTripMs")).collect();
        middle(all)
    }
}

impl Measured {
    pub(super) fn count(&self) -> usize {
        self.rounds().len()
    }

    /// A figure of the row as a whole.
    pub(super) fn figure(&self, name: &str) -> Option<f64> {
        self.figures[name].as_f64()
    }

    /// The middle value over all rounds. Of an even number of values, the larger of the two.
    pub(super) fn median(&self, name: &str) -> Option<f64> {
        middle(self.each(name))
    }

    /// The median processor time of one of [`PROCESSES`], in milliseconds.
    pub(super) fn cpu_ms(&self, process: &str) -> Option<f64> {
        middle(self.rounds().iter().filter_map(|round| round["cpuMs"][process].as_f64()).collect())
    }

    /// The largest value of all rounds.
    pub(super) fn largest(&self, name: &str) -> Option<f64> {
        self.each(name).into_iter().reduce(f64::max)
    }

    fn each(&self, name: &str) -> Vec<f64> {
        self.rounds().iter().filter_map(|round| round[name].as_f64()).collect()
    }

    fn rounds(&self) -> &[Value] {
        self.figures["rounds"].as_array().map_or(&[], Vec::as_slice)
    }
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figures_are_taken_over_rounds() {
        let round = |ms: f64, trips: u32| {
            let cpu = json!({ "program": ms / 10.0 });
            json!({"ms": ms, "trips": trips, "roundTripMs": 10.0, "cpuMs": cpu})
        };
        let rounds = [round(90.0, 7), round(70.0, 6), round(80.0, 6), round(300.0, 9)];
        let results = Results::of(&json!({
            "latencyMs": 8,
            "results": [{"row": "warm-1-prompt", "condition": "quiet", "rounds": rounds}],
        }));
        let row = results.find("warm-1-prompt", "quiet").unwrap();
        assert_eq!((row.median("ms"), row.largest("ms")), (Some(90.0), Some(300.0)));
        assert_eq!((row.median("trips"), row.count()), (Some(7.0), 4));
        assert_eq!(row.median("claims"), None);
        assert_eq!((row.cpu_ms("program"), row.cpu_ms("agents")), (Some(9.0), None));
        assert_eq!(results.round_trip_ms("quiet"), Some(10.0));
        assert_eq!(results.round_trip_ms("loaded"), None);
        assert!(results.find("warm-1-prompt", "loaded").is_none());
    }
}
