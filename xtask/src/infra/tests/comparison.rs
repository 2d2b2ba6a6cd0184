//! What differs between a template and the module with the same content.

use std::collections::{BTreeMap, BTreeSet};

use hcl::expr::Expression;
use serde_json::Value;

use super::module::{self, Module, State};
use super::snake;
use super::template::{Stack, Template};
use super::types;

/// Rules about several parameters: their names in the template, the variable of the module that has
/// them, and the condition there.
const RULES: [(&str, &str, &str); 2] = [
    ("SubnetsOfNetwork", "subnet_ids", "var.vpc_id == \"\" || length(var.subnet_ids) > 0"),
    (
        "ReaderOfBudget",
        "monthly_budget",
        "var.monthly_budget == 0 || var.budget_email != \"\" || var.alarm_topic != \"\"",
    ),
];

/// Differences between the parameters: names, types, defaults and what values are refused.
pub(super) fn parameters(template: &Template, module: &Module) -> Vec<String> {
    let parameters = template.parameters();
    let names: BTreeSet<String> = parameters.keys().map(|name| snake(name)).collect();
    let variables: BTreeSet<String> = module.variables.keys().cloned().collect();
    let mut found: Vec<String> = names
        .symmetric_difference(&variables)
        .map(|name| format!("only one of both has the parameter {name}"))
        .collect();
    for (name, parameter) in parameters {
        let Some(variable) = module.variables.get(&snake(name)) else { continue };
        let kind = kind(parameter);
        if kind != variable.kind {
            found.push(format!("type of {name}: {kind}, {}", variable.kind));
        }
        let default = parameter.get("Default").and_then(Value::as_str);
        let default = default.map(|text| module::value_of(&variable.kind, text));
        if variable.default != default {
            found.push(format!("default of {name}: {default:?}, {:?}", variable.default));
        }
        let mut rules = Vec::from_iter(rule(&snake(name), kind, parameter));
        let others = RULES.iter().filter(|it| it.1 == snake(name) && template.has_rule(it.0));
        rules.extend(others.map(|it| it.2.to_owned()));
        let expected: Vec<Expression> = rules.iter().map(|it| parsed(it)).collect();
        if variable.validations != expected {
            found.push(format!("values of {name}: {rules:?}, {:?}", variable.validations));
        }
    }
    found
}

/// Differences between what rules about several parameters refuse.
pub(super) fn rules(
    template: &Template,
    module: &Module,
    given: &BTreeMap<&str, &str>,
) -> Vec<String> {
    let differs = |(rule, _, condition): &&(&str, &str, &str)| {
        template.has_rule(rule)
            && template.refuses(rule, given) == module.holds(&parsed(condition), given)
    };
    RULES.iter().filter(differs).map(|it| format!("rule {}: {given:?}", it.0)).collect()
}

/// The type of the variable that stands for a parameter.
fn kind(parameter: &Value) -> &str {
    let values: Vec<&str> = allowed(parameter).collect();
    match parameter["Type"].as_str() {
        Some("String") if values == ["true", "false"] => "bool",
        Some("String") if !values.is_empty() && values.iter().all(is_number) => "number",
        Some("String") => "string",
        Some("Number") => "number",
        Some("CommaDelimitedList") => "list(string)",
        _ => "unknown",
    }
}

fn allowed(parameter: &Value) -> impl Iterator<Item = &str> {
    parameter["AllowedValues"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn is_number(text: &&str) -> bool {
    text.parse::<u32>().is_ok()
}

/// The condition that the values of a variable have to fulfil.
fn rule(name: &str, kind: &str, parameter: &Value) -> Option<String> {
    if let Some(pattern) = parameter.get("AllowedPattern") {
        return Some(match kind {
            "list(string)" => {
                format!("alltrue([for it in var.{name} : can(regex({pattern}, it))])")
            }
            _ => format!("can(regex({pattern}, var.{name}))"),
        });
    }
    if let Some(least) = parameter.get("MinValue") {
        return Some(format!("var.{name} >= {least}"));
    }
    let values: Vec<String> = match kind {
        "bool" => Vec::new(),
        "number" => allowed(parameter).map(str::to_owned).collect(),
        _ => allowed(parameter).map(|value| format!("\"{value}\"")).collect(),
    };
    let list = values.join(", ");
    (!values.is_empty()).then(|| format!("contains([{list}], var.{name})"))
}

fn parsed(expression: &str) -> Expression {
    let body = hcl::parse(&format!("it = {expression}\n")).unwrap();
    let attribute = body.into_attributes().next().unwrap();
    attribute.expr
}

/// Differences between the resources of one deployment: which are created, and their properties.
pub(super) fn resources(stack: &Stack, state: &State) -> Vec<String> {
    let mut found = Vec::new();
    let mut created = BTreeSet::new();
    for (name, resource) in &stack.resources {
        let expected = match types::in_module(name, resource) {
            Ok(expected) => expected,
            Err(difference) => {
                found.push(difference);
                continue;
            }
        };
        for resource in expected {
            let address = resource.address;
            created.insert(address.clone());
            let Some(other) = state.resources.get(&address) else {
                found.push(format!("only in the template: {address}"));
                continue;
            };
            let attributes = types::comparable(&address, &other.attributes);
            let names: BTreeSet<&String> =
                attributes.keys().chain(resource.attributes.keys()).collect();
            for name in names {
                let [ours, theirs] = [&resource.attributes, &attributes].map(|it| it.get(name));
                if ours != theirs {
                    found.push(format!("{address}.{name}: {ours:?}, {theirs:?}"));
                }
            }
            if resource.depends_on != other.depends_on {
                let both = (resource.depends_on, &other.depends_on);
                found.push(format!("{address} waits for {both:?}"));
            }
        }
    }
    let others = state.resources.keys().filter(|address| !created.contains(*address));
    found.extend(others.map(|address| format!("only in the module: {address}")));
    found
}

/// Differences between the outputs of one deployment.
pub(super) fn outputs(stack: &Stack, state: &State) -> Vec<String> {
    let ours: BTreeMap<String, &Value> =
        stack.outputs.iter().map(|(name, value)| (snake(name), value)).collect();
    let names: BTreeSet<&String> = ours.keys().chain(state.outputs.keys()).collect();
    let differs = |name: &&String| ours.get(*name).copied() != state.outputs.get(*name);
    names.into_iter().filter(differs).map(|name| format!("output {name}")).collect()
}
