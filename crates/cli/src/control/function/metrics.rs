//! What CloudWatch makes metrics of: one line on stdout for each call, in the embedded metric format.
//! Its reference is "Specification: Embedded metric format" in the CloudWatch User Guide. Each metric
//! costs money, so there are only those that an alarm needs.

use std::io::Write;
use std::time::SystemTime;

use ondeck_core::modes::refresh::Outcome;
use serde_json::{Value, json};

/// The namespace of the metrics, which alarms name as well.
pub(super) const NAMESPACE: &str = "ondeck";

/// Prints the metrics of one call. A refresh without an outcome has none but that it failed.
pub(super) fn print(pool: &str, outcome: Option<&Outcome>) {
    let line = line(pool, outcome, SystemTime::now());
    // If stdout is closed, there are no metrics, and the alarm for a missing refresh says so.
    drop(writeln!(std::io::stdout(), "{line}"));
}

pub(super) fn line(pool: &str, outcome: Option<&Outcome>, now: SystemTime) -> Value {
    let millis = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let succeeded = outcome.is_some_and(|outcome| outcome.failure.is_none());
    let mut values = vec![("RefreshSucceeded", "Count", json!(u8::from(succeeded)))];
    if let Some(outcome) = outcome {
        let orphan = outcome.oldest_orphan.unwrap_or_default().as_secs();
        values.push(("OldestOrphanAge", "Seconds", json!(orphan)));
        values.push(("Stranded", "Count", json!(outcome.stranded.len())));
        // Not 0 if EC2 did not answer: an alarm on it would end.
        values.extend(outcome.machines.map(|count| ("Machines", "Count", json!(count))));
    }
    let metrics: Vec<Value> =
        values.iter().map(|(name, unit, _)| json!({ "Name": name, "Unit": unit })).collect();
    let mut line = json!({
        "_aws": {
            "Timestamp": millis,
            "CloudWatchMetrics": [
                { "Namespace": NAMESPACE, "Dimensions": [["Pool"]], "Metrics": metrics }
            ],
        },
        "Pool": pool,
    });
    for (name, _, value) in values {
        line[name] = value;
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_metric_has_its_value() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_750_000_000_123);
        let outcome = Outcome {
            oldest_orphan: Some(Duration::from_secs(75)),
            machines: Some(7),
            ..Outcome::default()
        };
        let line = line("acme/shop", Some(&outcome), at);
        assert_eq!(line["_aws"]["Timestamp"], 1_750_000_000_123_u64);
        let declared = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(
            (&declared["Namespace"], &declared["Dimensions"]),
            (&json!(NAMESPACE), &json!([["Pool"]]))
        );
        for metric in declared["Metrics"].as_array().unwrap() {
            assert!(line[metric["Name"].as_str().unwrap()].is_u64(), "{metric}");
        }
        assert_eq!((&line["OldestOrphanAge"], &line["Stranded"]), (&json!(75), &json!(0)));
        assert_eq!(line["Machines"], 7);
        assert_eq!((&line["RefreshSucceeded"], &line["Pool"]), (&json!(1), &json!("acme/shop")));
    }

    #[test]
    fn machines_that_were_not_counted_are_not_none() {
        let line = line("acme/shop", Some(&Outcome::default()), SystemTime::UNIX_EPOCH);
        assert!(line.get("Machines").is_none(), "{line}");
    }

    #[test]
    fn a_refresh_without_an_outcome_has_failed() {
        let line = line("acme/shop", None, SystemTime::UNIX_EPOCH);
        assert_eq!(line["RefreshSucceeded"], 0);
        assert_eq!(line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap().len(), 1);
    }
}
