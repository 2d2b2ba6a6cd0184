//! Changes one thing in a template or in its module, and sees that the comparison finds it: each
//! value, each branch, each property and each resource.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use hcl::Body;
use hcl::expr::Expression;
use hcl::structure::Structure;
use serde_json::{Value, json};

use super::module::{Module, State};
use super::template::{Stack, Template};
use super::{PAIRS, Pair, comparison};

/// A pair as it is committed, with what its two languages deploy.
struct Committed {
    template: Template,
    module: Module,
    deployments: Vec<Deployment>,
    ruled: Vec<BTreeMap<&'static str, &'static str>>,
}

struct Deployment {
    given: BTreeMap<&'static str, &'static str>,
    stack: Stack,
    state: State,
    /// The module with the values of its policies, which take most of the time to evaluate.
    evaluated: Module,
}

impl Committed {
    fn read(pair: &Pair) -> Committed {
        let (template, module) = pair.read();
        let names = template.logical_names();
        let deployments = pair.deployments().map(|given| {
            let state = module.applied(&given, &names).unwrap();
            let mut evaluated = module.clone();
            for (name, expr) in evaluated.locals.iter_mut().filter(|it| is_policy(it.0)) {
                *expr = Expression::from(state.locals[name].as_str().unwrap());
            }
            Deployment { stack: template.deployed(&given), given, state, evaluated }
        });
        let deployments = deployments.collect();
        Committed { deployments, ruled: pair.ruled().collect(), template, module }
    }

    /// Whether the comparison finds the change of the template. Text that it cannot read fails the
    /// comparison, too.
    fn finds_in_template(&self, countdown: &mut Countdown) -> bool {
        let mut changed = self.template.clone();
        change_template(&mut changed.0, countdown);
        let differs = || {
            let is_found = |it: &Deployment| differ(&changed.deployed(&it.given), &it.state);
            self.deployments.iter().any(is_found)
                || !comparison::parameters(&changed, &self.module).is_empty()
                || self
                    .ruled
                    .iter()
                    .any(|given| !comparison::rules(&changed, &self.module, given).is_empty())
        };
        catch_unwind(AssertUnwindSafe(differs)).unwrap_or(true)
    }

    /// Whether the comparison finds the change of the module.
    fn finds_in_module(&self, countdown: &mut Countdown) -> bool {
        let number = countdown.left;
        let mut changed = self.module.clone();
        change_module(&mut changed, countdown);
        // A policy may depend on another local, and on nothing else that is changed.
        let is_local = countdown.changed.as_ref().is_some_and(|it| it.starts_with(LOCAL));
        let names = self.template.logical_names();
        let is_found = |it: &Deployment| {
            let state = if is_local {
                changed.applied(&it.given, &names)
            } else {
                let mut changed = it.evaluated.clone();
                change_module(&mut changed, &mut Countdown::new(number));
                changed.applied(&it.given, &names)
            };
            state.map_or(true, |state| differ(&it.stack, &state))
        };
        let differs = || {
            self.deployments.iter().any(is_found)
                || !comparison::parameters(&self.template, &changed).is_empty()
        };
        catch_unwind(AssertUnwindSafe(differs)).unwrap_or(true)
    }
}

fn differ(stack: &Stack, state: &State) -> bool {
    !comparison::resources(stack, state).is_empty() || !comparison::outputs(stack, state).is_empty()
}

/// Whether the local is a policy, which is generated.
fn is_policy(name: &str) -> bool {
    name.starts_with("policy_")
}

/// How the names of locals begin.
const LOCAL: &str = "local";

/// What a change is made to: the one with this number, counted from 0.
struct Countdown {
    left: usize,
    /// What was changed, once it was.
    changed: Option<String>,
}

impl Countdown {
    fn new(number: usize) -> Countdown {
        Countdown { left: number, changed: None }
    }

    /// Whether it is the turn of this one.
    fn is_now(&mut self, what: impl FnOnce() -> String) -> bool {
        if self.changed.is_some() {
            return false;
        }
        if self.left == 0 {
            self.changed = Some(what());
            return true;
        }
        self.left -= 1;
        false
    }
}

/// Makes every change, one at a time, and returns their number and those that were not found.
fn not_found(mut change: impl FnMut(&mut Countdown) -> bool) -> (usize, Vec<String>) {
    let mut missed = Vec::new();
    for number in 0.. {
        let mut countdown = Countdown::new(number);
        let is_found = change(&mut countdown);
        let Some(what) = countdown.changed else { return (number, missed) };
        if !is_found {
            missed.push(what);
        }
    }
    unreachable!("a file has an end")
}

#[test]
fn a_change_of_a_template_is_found() {
    for pair in PAIRS {
        let committed = Committed::read(&pair);
        let (made, missed) = not_found(|countdown| committed.finds_in_template(countdown));
        assert!(made > 200, "{made}");
        assert!(missed.is_empty(), "{}: {}", pair.template, missed.join("\n"));
    }
}

#[test]
fn a_change_of_a_module_is_found() {
    for pair in PAIRS {
        let committed = Committed::read(&pair);
        let (made, missed) = not_found(|countdown| committed.finds_in_module(countdown));
        assert!(made > 200, "{made}");
        assert!(missed.is_empty(), "{}: {}", pair.module, missed.join("\n"));
    }
}

/// Descriptions of parameters and outputs are not compared.
fn change_template(template: &mut Value, countdown: &mut Countdown) {
    for section in ["Parameters", "Rules", "Conditions", "Resources", "Outputs"] {
        let entries = template[section].as_object_mut().unwrap();
        let names: Vec<String> = entries.keys().cloned().collect();
        for name in names {
            let path = format!("{section}.{name}");
            // A condition that is gone is a mistake that cfn-lint finds.
            if section != "Conditions" && countdown.is_now(|| format!("without {path}")) {
                entries.remove(&name);
                return;
            }
            let entry = &mut entries[&name];
            if section == "Rules" {
                let assertions = entry["Assertions"].as_array_mut().unwrap();
                for (number, it) in assertions.iter_mut().enumerate() {
                    change_value(&mut it["Assert"], &format!("{path}.{number}"), countdown);
                }
                change_value(&mut entry["RuleCondition"], &path, countdown);
                continue;
            }
            if let Some(fields) = entry.as_object_mut().filter(|_| section != "Conditions") {
                fields.remove("Description");
            }
            change_value(entry, &path, countdown);
        }
    }
}

fn change_value(value: &mut Value, path: &str, countdown: &mut Countdown) {
    match value {
        Value::Object(fields) => {
            if let Some(branches) = fields.get_mut("Fn::If").and_then(Value::as_array_mut)
                && countdown.is_now(|| format!("{path}: branches"))
            {
                branches.swap(1, 2);
            }
            let names: Vec<String> = fields.keys().cloned().collect();
            for name in names {
                // What a function is called with is changed, the function is not.
                let is_function =
                    name == "Ref" || name.starts_with("Fn::") || path.starts_with("Conditions.");
                if !is_function && countdown.is_now(|| format!("{path}: without {name}")) {
                    fields.remove(&name);
                    return;
                }
                change_value(&mut fields[&name], &format!("{path}.{name}"), countdown);
            }
        }
        Value::Array(values) => {
            for (number, value) in values.iter_mut().enumerate() {
                change_value(value, &format!("{path}.{number}"), countdown);
            }
        }
        // An unknown condition is a mistake that cfn-lint finds.
        _ if path.ends_with(".Condition") || path.ends_with(".Fn::If.0") => {}
        plain => {
            if countdown.is_now(|| format!("{path}: {plain}")) {
                *plain = match plain {
                    Value::Bool(value) => json!(!*value),
                    Value::Number(value) => json!(value.as_u64().unwrap() + 1),
                    Value::String(value) => json!(format!("{value}1")),
                    _ => json!("changed"),
                };
            }
        }
    }
}

fn change_module(module: &mut Module, countdown: &mut Countdown) {
    for (name, variable) in &mut module.variables {
        if countdown.is_now(|| format!("default of {name}")) {
            variable.default = match variable.default {
                None => Some(json!("changed")),
                Some(_) => None,
            };
        }
        if !variable.validations.is_empty() && countdown.is_now(|| format!("values of {name}")) {
            variable.validations.clear();
        }
    }
    for number in 0..module.resources.len() {
        let block = &mut module.resources[number];
        let address = format!("{}.{}", block.labels()[0].as_str(), block.labels()[1].as_str());
        if countdown.is_now(|| format!("without {address}")) {
            module.resources.remove(number);
            return;
        }
        change_body(&mut block.body, &address, countdown);
    }
    for (kind, all) in [(LOCAL, &mut module.locals), ("output", &mut module.outputs)] {
        for (name, expr) in all {
            let path = format!("{kind}.{name}");
            // The policies are generated, and changed in the template.
            if kind == LOCAL && is_policy(name) {
                if countdown.is_now(|| path) {
                    *expr = Expression::from("{}");
                }
            } else {
                change_expr(expr, &path, countdown);
            }
        }
    }
}

fn change_body(body: &mut Body, path: &str, countdown: &mut Countdown) {
    for number in 0..body.0.len() {
        let name = match &body.0[number] {
            Structure::Attribute(attribute) => attribute.key().to_owned(),
            Structure::Block(block) => block.identifier().to_owned(),
        };
        if countdown.is_now(|| format!("{path}: without {name}")) {
            body.0.remove(number);
            return;
        }
        let path = format!("{path}.{name}");
        match &mut body.0[number] {
            Structure::Attribute(attribute) => {
                // How many there are is a matter of the condition alone.
                if name == "count" {
                    let Expression::Conditional(count) = &mut attribute.expr else {
                        panic!("{path} is no condition");
                    };
                    if countdown.is_now(|| path) {
                        std::mem::swap(&mut count.true_expr, &mut count.false_expr);
                    }
                } else {
                    change_expr(&mut attribute.expr, &path, countdown);
                }
            }
            Structure::Block(block) => change_body(&mut block.body, &path, countdown),
        }
    }
}

fn change_expr(expr: &mut Expression, path: &str, countdown: &mut Countdown) {
    match expr {
        Expression::Array(values) => {
            for (number, value) in values.iter_mut().enumerate() {
                change_expr(value, &format!("{path}.{number}"), countdown);
            }
        }
        Expression::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                change_expr(value, &format!("{path}.{name:?}"), countdown);
            }
        }
        Expression::FuncCall(call) => {
            for value in &mut call.args {
                change_expr(value, path, countdown);
            }
        }
        Expression::Parenthesis(inner) => change_expr(inner, path, countdown),
        Expression::Conditional(choice) => {
            if countdown.is_now(|| format!("{path}: branches")) {
                std::mem::swap(&mut choice.true_expr, &mut choice.false_expr);
            }
            change_expr(&mut choice.true_expr, path, countdown);
            change_expr(&mut choice.false_expr, path, countdown);
        }
        plain => {
            if countdown.is_now(|| format!("{path}: {plain:?}")) {
                *plain = match &*plain {
                    Expression::Bool(value) => Expression::Bool(!value),
                    Expression::Number(value) => Expression::from(value.as_u64().unwrap() + 1),
                    Expression::String(value) => Expression::String(format!("{value}1")),
                    _ => Expression::from("changed"),
                };
            }
        }
    }
}
