//! Compares requests with the API's own model: every parameter that is sent must exist there,
//! have the type that it has there, and nothing that the model requires may be missing.

use std::collections::{BTreeMap, BTreeSet};

use ondeck_standin::emulators::Emulators;
use serde_json::Value;

use super::loopback::Asked;

/// What a request holds at one place: values under their names, or a value.
#[derive(Default)]
struct Node {
    value: Option<String>,
    children: BTreeMap<String, Node>,
}

/// # Panics
/// If a request is not what the model describes.
pub(crate) fn check(requests: &[Asked]) {
    assert!(!requests.is_empty(), "nothing was asked");
    let path = Emulators::running().models.join("ec2.json");
    let model: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for asked in requests {
        let mut root = Node::default();
        for (name, value) in asked.params() {
            let place = name
                .split('.')
                .fold(&mut root, |node, part| node.children.entry(part.to_owned()).or_default());
            assert!(place.value.replace(value).is_none(), "twice: {name}");
        }
        let action = root.children.remove("Action").and_then(|node| node.value).unwrap();
        let version = root.children.remove("Version").and_then(|node| node.value);
        assert_eq!(version.as_deref(), model["metadata"]["apiVersion"].as_str());
        let input = model["operations"][&action]["input"]["shape"].as_str();
        let input = input.unwrap_or_else(|| panic!("no such action: {action}"));
        let mut problems = Vec::new();
        compare(&model, input, &root, &action, &mut problems);
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

fn compare(model: &Value, shape: &str, node: &Node, at: &str, problems: &mut Vec<String>) {
    let described = &model["shapes"][shape];
    let mut wrong = |what: String| problems.push(format!("{at}: {what}"));
    match described["type"].as_str().unwrap_or_default() {
        "structure" => structure(model, described, node, at, problems),
        "list" => {
            let expected: BTreeSet<String> =
                (1..=node.children.len()).map(|n| n.to_string()).collect();
            if expected != node.children.keys().cloned().collect() || node.value.is_some() {
                wrong("not a list counted from one".to_owned());
            }
            let member = described["member"]["shape"].as_str().unwrap();
            for (n, child) in &node.children {
                compare(model, member, child, &format!("{at}.{n}"), problems);
            }
        }
        kind => {
            let Some(value) = node.value.as_deref().filter(|_| node.children.is_empty()) else {
                return wrong(format!("not a value, but should be of type {kind}"));
            };
            let fits = match kind {
                "string" | "blob" => true,
                "integer" | "long" => value.parse::<i64>().is_ok(),
                "boolean" => matches!(value, "true" | "false"),
                _ => false,
            };
            if !fits {
                wrong(format!("not of type {kind}: {value}"));
            }
            if let Some(words) = described["enum"].as_array()
                && !words.iter().any(|word| word == value)
            {
                wrong(format!("not one of {shape}: {value}"));
            }
        }
    }
}

fn structure(model: &Value, described: &Value, node: &Node, at: &str, problems: &mut Vec<String>) {
    let members = described["members"].as_object().unwrap();
    let named: BTreeMap<String, &Value> =
        members.iter().map(|(name, member)| (on_the_wire(name, member), member)).collect();
    for (name, child) in &node.children {
        match named.get(name) {
            Some(member) => {
                let shape = member["shape"].as_str().unwrap();
                compare(model, shape, child, &format!("{at}.{name}"), problems);
            }
            None => problems.push(format!("{at}: no such parameter: {name}")),
        }
    }
    for required in described["required"].as_array().into_iter().flatten() {
        let required = required.as_str().unwrap();
        if !node.children.contains_key(&on_the_wire(required, &members[required])) {
            problems.push(format!("{at}: missing: {required}"));
        }
    }
}

/// EC2's own rule for what a parameter is called.
fn on_the_wire(name: &str, member: &Value) -> String {
    if let Some(name) = member["queryName"].as_str() {
        return name.to_owned();
    }
    let name = member["locationName"].as_str().unwrap_or(name);
    let (first, rest) = name.split_at(1);
    format!("{}{rest}", first.to_ascii_uppercase())
}

#[test]
#[should_panic(expected = "CreateFleet.TargetCapacitySpecification: no such parameter: Totally")]
fn an_unknown_parameter_is_found() {
    let body = "Action=CreateFleet&Version=2016-11-15&TargetCapacitySpecification.Totally=1";
    check(&[Asked { headers: Vec::new(), body: body.to_owned() }]);
}

#[test]
#[should_panic(expected = "not one of FleetType: instantly")]
fn an_unknown_word_is_found() {
    let body = "Action=CreateFleet&Version=2016-11-15&Type=instantly";
    check(&[Asked { headers: Vec::new(), body: body.to_owned() }]);
}
