//! `infra/function.yaml` against this program: CloudFormation does not compare them.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use ondeck_core::modes::refresh::Outcome;
use serde_yaml_ng::Value;

use super::{LONGEST, SPOT_WARNING, emf};

fn template() -> Value {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../infra/function.yaml");
    serde_yaml_ng::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// The properties of all resources of a type.
fn of_type<'a>(template: &'a Value, kind: &str) -> Vec<&'a Value> {
    let resources = template["Resources"].as_mapping().unwrap().values();
    resources.filter(|it| it["Type"] == kind).map(|it| &it["Properties"]).collect()
}

/// Every value of a field of this name, at any depth.
fn all<'a>(value: &'a Value, name: &str) -> Vec<&'a Value> {
    match value {
        Value::Mapping(fields) => {
            let own = fields.iter().filter(|(key, _)| *key == name).map(|(_, value)| value);
            own.chain(fields.values().flat_map(|value| all(value, name))).collect()
        }
        Value::Sequence(values) => values.iter().flat_map(|value| all(value, name)).collect(),
        Value::Tagged(tagged) => all(&tagged.value, name),
        _ => Vec::new(),
    }
}

#[test]
fn the_function_is_called_each_minute_and_nothing_retries_it() {
    let template = template();
    let [schedule] = of_type(&template, "AWS::Scheduler::Schedule")[..] else { panic!("one") };
    assert_eq!(schedule["ScheduleExpression"], "rate(1 minute)");
    assert_eq!(schedule["FlexibleTimeWindow"]["Mode"], "OFF");
    assert_eq!(schedule["Target"]["RetryPolicy"]["MaximumRetryAttempts"], 0);
    let [invocation] = of_type(&template, "AWS::Lambda::EventInvokeConfig")[..] else {
        panic!("one")
    };
    assert_eq!(invocation["MaximumRetryAttempts"], 0);
    let [rule] = of_type(&template, "AWS::Events::Rule")[..] else { panic!("one") };
    let targets = rule["Targets"].as_sequence().unwrap();
    for target in targets {
        assert_eq!(target["RetryPolicy"]["MaximumRetryAttempts"], 0);
    }
    let retries = all(&template, "MaximumRetryAttempts");
    assert_eq!(retries.len(), 2 + targets.len());
    assert!(retries.iter().all(|it| **it == 0), "{retries:?}");
}

#[test]
fn the_rule_matches_the_warning_that_the_program_knows() {
    let template = template();
    let [rule] = of_type(&template, "AWS::Events::Rule")[..] else { panic!("one") };
    let expected = format!("{{source: [aws.ec2], detail-type: [{SPOT_WARNING}]}}");
    let expected: Value = serde_yaml_ng::from_str(&expected).unwrap();
    assert_eq!(rule["EventPattern"], expected);
}

#[test]
fn lambda_ends_a_call_after_the_program_and_before_the_next_one_begins() {
    let template = template();
    let [function] = of_type(&template, "AWS::Lambda::Function")[..] else { panic!("one") };
    let timeout = function["Timeout"].as_u64().unwrap();
    assert!(LONGEST.as_secs() < timeout && timeout <= 60, "{timeout}");
    assert_eq!(function["Handler"], super::BOOTSTRAP);
}

#[test]
fn alarms_are_about_metrics_that_exist() {
    let outcome = Outcome { machines: Some(1), ..Outcome::default() };
    let (took, at) = (Duration::ZERO, SystemTime::UNIX_EPOCH);
    let line = emf::line("acme/web", Some(&outcome), took, at, emf::Declared::Alarms);
    let metrics = line["_aws"]["CloudWatchMetrics"][0]["Metrics"].as_array().unwrap();
    let made: BTreeSet<&str> = metrics.iter().map(|it| it["Name"].as_str().unwrap()).collect();
    let template = template();
    let mut watched = BTreeSet::new();
    for alarm in of_type(&template, "AWS::CloudWatch::Alarm") {
        let text = |name: &str| alarm[name].as_str().unwrap();
        let dimension = alarm["Dimensions"][0]["Name"].as_str().unwrap();
        match (text("Namespace"), text("MetricName"), dimension) {
            (emf::NAMESPACE, metric, "Pool") => watched.insert(metric),
            // Lambda's own metric.
            ("AWS/Lambda", "Errors", "FunctionName") => continue,
            other => panic!("an alarm about another metric: {other:?}"),
        };
    }
    assert!(watched.is_subset(&made), "{watched:?} of {made:?}");
    assert_eq!(
        watched.into_iter().collect::<Vec<_>>(),
        ["Machines", "OldestOrphanAge", "RefreshSucceeded"]
    );
}
