//! Reads an identity policy.

use serde_json::{Map, Value};

use super::Authorization;
use super::Context;
use super::condition::Condition;
use super::pattern::{Glob, Reach, Template, matches};

/// The only version of the policy language that knows variables.
const VERSION: &str = "2012-10-17";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy(Vec<Statement>);

/// One statement of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    name: String,
    denies: bool,
    actions: Matcher,
    resources: Matcher,
    conditions: Vec<Condition>,
}

/// `Action` or `Resource`, or its opposite: `NotAction` or `NotResource`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Matcher {
    templates: Vec<Template>,
    negated: bool,
}

impl Policy {
    /// Reads a policy. Fails for an element, an operator or a combination that this evaluator does
    /// not know exactly; the message says which.
    pub(crate) fn parse(text: &str) -> Result<Policy, String> {
        let policy: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let policy = object(&policy, "policy")?;
        only(policy, &["Version", "Id", "Statement"])?;
        if policy.get("Version").and_then(Value::as_str) != Some(VERSION) {
            return Err(format!("Version is not {VERSION}"));
        }
        let statements = match policy.get("Statement") {
            Some(Value::Array(statements)) => statements.as_slice(),
            Some(statement) => std::slice::from_ref(statement),
            None => return Err("policy without a Statement".to_owned()),
        };
        let statements = statements.iter().enumerate().map(|(at, statement)| {
            Statement::parse(statement).map_err(|problem| format!("statement {at}: {problem}"))
        });
        Ok(Policy(statements.collect::<Result<_, _>>()?))
    }

    pub(crate) fn statements(&self) -> &[Statement] {
        &self.0
    }
}

impl Statement {
    fn parse(statement: &Value) -> Result<Statement, String> {
        let fields = object(statement, "Statement")?;
        only(
            fields,
            &["Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"],
        )?;
        let denies = match fields.get("Effect").and_then(Value::as_str) {
            Some("Allow") => false,
            Some("Deny") => true,
            _ => return Err("Effect is neither Allow nor Deny".to_owned()),
        };
        let statement = Statement {
            name: fields.get("Sid").and_then(Value::as_str).unwrap_or_default().to_owned(),
            denies,
            actions: Matcher::parse(fields, "Action", |text| {
                Template::parse(&text.to_lowercase())
            })?,
            resources: Matcher::parse(fields, "Resource", Template::parse)?,
            conditions: conditions(fields.get("Condition"))?,
        };
        // AWS says that a variable without a value "might" invalidate the statement. For an allow
        // that is safe; a deny or an exception that silently disappears is not.
        let in_resources = statement.resources.has_variable();
        let in_conditions = statement.conditions.iter().any(Condition::has_variable);
        if statement.actions.has_variable() {
            return Err("Action cannot have a variable".to_owned());
        }
        if denies && (in_resources || in_conditions) {
            return Err("Deny with a variable is not supported".to_owned());
        }
        if statement.resources.negated && in_resources {
            return Err("NotResource with a variable is not supported".to_owned());
        }
        Ok(statement)
    }

    /// The statement's `Sid`, empty if it has none.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn denies(&self) -> bool {
        self.denies
    }

    /// Whether action, resource and conditions all match.
    pub(crate) fn applies_to(&self, asked: &Authorization) -> bool {
        let Authorization { action, resource, context } = asked;
        self.actions.matches(&action.to_lowercase(), context, Reach::Anything)
            && self.resources.matches(resource, context, Reach::ArnSegments)
            && self.conditions.iter().all(|condition| condition.holds(context))
    }
}

impl Matcher {
    fn parse(
        fields: &Map<String, Value>,
        element: &str,
        template: impl Fn(&str) -> Result<Template, String>,
    ) -> Result<Matcher, String> {
        let opposite = format!("Not{element}");
        let (value, negated) = match (fields.get(element), fields.get(&opposite)) {
            (Some(value), None) => (value, false),
            (None, Some(value)) => (value, true),
            _ => return Err(format!("needs either {element} or {opposite}")),
        };
        let texts = texts(value).filter(|texts| !texts.is_empty());
        let texts = texts.ok_or_else(|| format!("{element} is not a text or a list of them"))?;
        let templates = texts.iter().map(|text| template(text)).collect::<Result<_, _>>()?;
        Ok(Matcher { templates, negated })
    }

    fn has_variable(&self) -> bool {
        self.templates.iter().any(Template::has_variable)
    }

    fn matches(&self, text: &str, context: &Context, reach: Reach) -> bool {
        let one = |template: &Template| {
            let Some(pattern) = template.glob(context) else { return false };
            // A lone `*` is every resource, also one that is no ARN.
            pattern == [Glob::Many] || matches(&pattern, text, reach)
        };
        self.templates.iter().any(one) != self.negated
    }
}

fn conditions(value: Option<&Value>) -> Result<Vec<Condition>, String> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let mut conditions = Vec::new();
    for (operator, keys) in object(value, "Condition")? {
        for (key, value) in object(keys, operator)? {
            let values = texts(value).ok_or_else(|| format!("not a condition value: {value}"))?;
            conditions.push(Condition::parse(operator, key, &values)?);
        }
    }
    Ok(conditions)
}

/// A text or a list of them. Numbers and truth values may be written without quotation marks.
fn texts(value: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    };
    match value {
        Value::Array(values) => values.iter().map(text).collect(),
        value => Some(vec![text(value)?]),
    }
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{what} is not an object"))
}

fn only(fields: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match fields.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("unknown element: {name}")),
        None => Ok(()),
    }
}
