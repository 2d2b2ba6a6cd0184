//! What CloudWatch makes metrics of: one line for each refresh, in the embedded metric format. Its
//! reference is "Specification: Embedded metric format" in the CloudWatch User Guide.
//!
//! Each metric costs money, so the function declares only those that an alarm needs. The other values are
//! in the line as well, where queries of the log find them.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ondeck_core::modes::refresh::Outcome;
use serde_json::{Value, json};

/// The namespace of the metrics, which alarms name as well.
pub(crate) const NAMESPACE: &str = "ondeck";

/// Which values become metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Declared {
    /// Those that alarms need.
    #[cfg_attr(not(feature = "aws"), expect(dead_code, reason = "only the function has alarms"))]
    Alarms,
    All,
}

/// One value of a line.
struct Field {
    name: &'static str,
    unit: &'static str,
    value: Value,
    has_alarm: bool,
}

/// The line of one refresh of this pool. A refresh without an outcome has failed, and says no more than
/// that.
pub(crate) fn line(
    pool: &str,
    outcome: Option<&Outcome>,
    took: Duration,
    now: SystemTime,
    declared: Declared,
) -> Value {
    let millis = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let fields = fields(outcome, took);
    let metrics: Vec<Value> = fields
        .iter()
        .filter(|field| field.has_alarm || declared == Declared::All)
        .map(|field| json!({ "Name": field.name, "Unit": field.unit }))
        .collect();
    let mut line = json!({
        "_aws": {
            "Timestamp": u64::try_from(millis).unwrap_or(u64::MAX),
            "CloudWatchMetrics": [
                { "Namespace": NAMESPACE, "Dimensions": [["Pool"]], "Metrics": metrics }
            ],
        },
        "Pool": pool,
    });
    for Field { name, value, .. } in fields {
        line[name] = value;
    }
    line
}

fn fields(outcome: Option<&Outcome>, took: Duration) -> Vec<Field> {
    let alarm = |name, unit, value| Field { name, unit, value, has_alarm: true };
    let other = |name, unit, value| Field { name, unit, value, has_alarm: false };
    let count = |name, count: usize| other(name, "Count", json!(count));
    let succeeded = outcome.is_some_and(|outcome| outcome.failure.is_none());
    let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let mut fields = vec![
        alarm("RefreshSucceeded", "Count", json!(u8::from(succeeded))),
        other("RefreshDuration", "Milliseconds", json!(took)),
    ];
    let Some(outcome) = outcome else { return fields };
    let orphan = outcome.oldest_orphan.unwrap_or_default().as_secs();
    fields.push(alarm("OldestOrphanAge", "Seconds", json!(orphan)));
    fields.push(alarm("Stranded", "Count", json!(outcome.stranded.len())));
    // Not 0 if EC2 did not answer: an alarm on it would end.
    fields.extend(outcome.machines.map(|count| alarm("Machines", "Count", json!(count))));
    fields.extend([
        count("Reaped", outcome.reaped.len()),
        count("OrphansTerminated", outcome.orphans.len()),
        count("Unresponsive", outcome.unresponsive.len()),
        count("Interrupted", outcome.interrupted.len()),
        count("Rotated", outcome.rotated.len()),
        count("Requeued", outcome.requeued.len()),
        count("Warmed", outcome.warmed),
        count("Starting", outcome.starting),
        count("Silent", outcome.silent.len()),
        count("Failing", outcome.failing.len()),
        count("Rescued", outcome.rescued.len()),
        count("Completed", outcome.completed.len()),
        count("Warnings", outcome.warnings.len()),
    ]);
    fields
}

/// Prints a line on stdout.
#[cfg(feature = "aws")]
pub(crate) fn print(line: &Value) {
    // If stdout is closed, there are no metrics, and the alarm for a missing refresh says so.
    drop(writeln!(std::io::stdout(), "{line}"));
}

/// Adds a line to a file in one write, so that the lines of two refreshes do not mix. Fails with what
/// went wrong.
pub(crate) fn append(file: &Path, line: &Value) -> Result<(), String> {
    let mut options = std::fs::OpenOptions::new();
    let opened = options.create(true).append(true).open(file);
    opened
        .and_then(|mut opened| opened.write_all(format!("{line}\n").as_bytes()))
        .map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the specification demands of a document.
    fn schema() -> Value {
        let name = json!({ "type": "string", "minLength": 1, "maxLength": 1024 });
        let unit = json!({ "enum": [
            "Seconds", "Microseconds", "Milliseconds", "Bytes", "Kilobytes", "Megabytes",
            "Gigabytes", "Terabytes", "Bits", "Kilobits", "Megabits", "Gigabits", "Terabits",
            "Percent", "Count", "Bytes/Second", "Kilobytes/Second", "Megabytes/Second",
            "Gigabytes/Second", "Terabytes/Second", "Bits/Second", "Kilobits/Second",
            "Megabits/Second", "Gigabits/Second", "Terabits/Second", "Count/Second", "None",
        ]});
        json!({
            "type": "object",
            "required": ["_aws"],
            "properties": { "_aws": {
                "type": "object",
                "required": ["Timestamp", "CloudWatchMetrics"],
                "properties": {
                    "Timestamp": { "type": "integer", "minimum": 0 },
                    "CloudWatchMetrics": { "type": "array", "items": {
                        "type": "object",
                        "required": ["Namespace", "Dimensions", "Metrics"],
                        "properties": {
                            "Namespace": name,
                            "Dimensions": { "type": "array", "minItems": 1, "items": {
                                "type": "array", "minItems": 0, "maxItems": 30,
                                "items": { "type": "string", "minLength": 1, "maxLength": 250 },
                            }},
                            "Metrics": { "type": "array", "maxItems": 100, "items": {
                                "type": "object",
                                "required": ["Name"],
                                "additionalProperties": false,
                                "properties": {
                                    "Name": name,
                                    "Unit": unit,
                                    "StorageResolution": { "enum": [1, 60] },
                                },
                            }},
                        },
                    }},
                },
            }},
        })
    }

    /// Fails unless a line is a document as the specification has it.
    fn check(line: &Value) {
        let mut schemas = boon::Schemas::new();
        let mut compiler = boon::Compiler::new();
        compiler.add_resource("emf.json", schema()).unwrap();
        let compiled = compiler.compile("emf.json", &mut schemas).unwrap();
        schemas.validate(line, compiled).unwrap_or_else(|error| panic!("{error}: {line}"));
        let directive = &line["_aws"]["CloudWatchMetrics"][0];
        for metric in directive["Metrics"].as_array().unwrap() {
            let value = &line[metric["Name"].as_str().unwrap()];
            assert!(value.is_number(), "a target that is no number: {metric}");
        }
        for dimension in directive["Dimensions"].as_array().unwrap() {
            for name in dimension.as_array().unwrap() {
                let value = line[name.as_str().unwrap()].as_str().unwrap();
                assert!((1..=1024).contains(&value.len()), "{name}");
            }
        }
        assert!(line.to_string().len() < 256 * 1024 && !line.to_string().contains('\n'));
    }

    fn of(outcome: Option<&Outcome>, declared: Declared) -> Value {
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_750_000_000_123);
        let line = line("acme/shop", outcome, Duration::from_millis(1_234), at, declared);
        check(&line);
        line
    }

    fn names(line: &Value) -> Vec<&str> {
        let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
        metrics.iter().map(|metric| metric["Name"].as_str().unwrap()).collect()
    }

    #[test]
    fn each_metric_has_its_value_and_the_others_are_in_the_line() {
        let outcome = Outcome {
            oldest_orphan: Some(Duration::from_secs(75)),
            machines: Some(7),
            warmed: 2,
            ..Outcome::default()
        };
        let line = of(Some(&outcome), Declared::Alarms);
        assert_eq!(line["_aws"]["Timestamp"], 1_750_000_000_123_u64);
        let declared = &line["_aws"]["CloudWatchMetrics"][0];
        assert_eq!(
            (&declared["Namespace"], &declared["Dimensions"]),
            (&json!(NAMESPACE), &json!([["Pool"]]))
        );
        assert_eq!(names(&line), ["RefreshSucceeded", "OldestOrphanAge", "Stranded", "Machines"]);
        assert_eq!((&line["OldestOrphanAge"], &line["Stranded"]), (&json!(75), &json!(0)));
        assert_eq!((&line["Machines"], &line["Warmed"]), (&json!(7), &json!(2)));
        assert_eq!((&line["RefreshSucceeded"], &line["Pool"]), (&json!(1), &json!("acme/shop")));
        assert_eq!(line["RefreshDuration"], 1_234);

        let all = of(Some(&outcome), Declared::All);
        let fields = all.as_object().unwrap().keys();
        let values = fields.filter(|name| !["_aws", "Pool"].contains(&name.as_str()));
        assert_eq!(names(&all).len(), values.count(), "{all}");
    }

    #[test]
    fn machines_that_were_not_counted_are_not_none() {
        let line = of(Some(&Outcome::default()), Declared::All);
        assert!(line.get("Machines").is_none(), "{line}");
    }

    #[test]
    fn a_refresh_without_an_outcome_has_failed() {
        let line = of(None, Declared::Alarms);
        assert_eq!((&line["RefreshSucceeded"], names(&line).len()), (&json!(0), 1));
    }
}
