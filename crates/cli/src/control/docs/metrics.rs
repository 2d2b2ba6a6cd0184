//! The reference of the metrics, and the dashboard for Grafana, say what the table of metrics says.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::action::is_up_to_date;
use crate::control::metrics::table::{METRICS, Metric, Subject};

#[test]
fn every_metric_is_in_the_reference() {
    let parts = Subject::ALL.map(|subject| {
        let mut page = "| metric | labels | meaning |\n| --- | --- | --- |\n".to_owned();
        for Metric { name, help, labels, .. } in
            METRICS.iter().filter(|metric| metric.subject == subject)
        {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            page += &format!("| `{name}` | {} | {help} |\n", labels.join(", "));
        }
        format!("\n{page}\n")
    });
    is_up_to_date("docs/reference/metrics.md", &parts);
}

/// Every expression in a part of the dashboard.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        // A choice of data sources queries nothing.
        Value::Object(_) if value["type"] == "datasource" => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if ["expr", "query", "definition"].contains(&name.as_str()) => {
                        found.push(text.to_owned());
                    }
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

/// The words of an expression that may be names, in their order.
fn words(expression: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    expression.split(|c: char| !is_part(c)).filter(|word| !word.is_empty()).collect()
}

#[test]
fn the_dashboard_shows_metrics_and_labels_that_exist() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/grafana/ondeck.json");
    let dashboard: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    let known: BTreeSet<&str> = METRICS.iter().map(|metric| metric.name).collect();
    let mut shown = BTreeSet::new();
    // The pools that have any metric.
    const POOLS: &str = "label_values({__name__=~\"ondeck_.+\"}, pool)";
    assert!(found.iter().any(|expression| expression == POOLS), "{found:?}");
    for expression in found.iter().filter(|expression| *expression != POOLS) {
        let metrics: Vec<&str> =
            words(expression).into_iter().filter(|word| word.starts_with("ondeck_")).collect();
        assert!(!metrics.is_empty(), "an expression without a metric: {expression}");
        let mut labels: BTreeSet<&str> = BTreeSet::from(["pool"]);
        for name in metrics {
            assert!(known.contains(name), "no such metric: {name}");
            shown.insert(name);
            let metric = METRICS.iter().find(|metric| metric.name == name).unwrap();
            labels.extend(metric.labels);
        }
        // What follows `by (`, and what comes before a matcher.
        let grouped = expression.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
        let grouped = grouped.flat_map(|names| names.split(',').map(str::trim));
        let matched = expression.split('{').skip(1).filter_map(|rest| rest.split('}').next());
        let matched = matched.flat_map(|pairs| pairs.split(',')).filter_map(|pair| {
            pair.split(['=', '!']).next().map(str::trim).filter(|name| !name.is_empty())
        });
        for label in grouped.chain(matched) {
            assert!(labels.contains(label), "no such label: {label} in {expression}");
        }
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let with_targets = panels.iter().filter(|panel| panel.get("targets").is_some());
    assert!(with_targets.count() > 8 && shown.len() > 15, "{shown:?}");
    // A legend can only show labels.
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "an id twice: {panel}");
        assert!(panel["title"].as_str().is_some_and(|title| !title.is_empty()), "{panel}");
    }
}
