//! Checks requests and answers against GitHub's OpenAPI description.

use std::path::Path;

use serde_json::Value;

use crate::http::Answer;

use super::GitHubViolation;
use super::request::ApiRequest;

/// The extracted part of the description: `paths` as in OpenAPI, and the schemas
/// that they refer to.
#[derive(Debug)]
pub(super) struct Description(Value);

impl Description {
    /// Reads `github.json` in a folder.
    ///
    /// # Panics
    /// If the file is missing. Without it, requests would pass unchecked.
    pub(super) fn read(folder: &Path) -> Description {
        let file = folder.join("github.json");
        let text = std::fs::read(&file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        let whole = serde_json::from_slice(&text)
            .unwrap_or_else(|error| panic!("not a description: {}: {error}", file.display()));
        Description(whole)
    }

    /// Returns the violations in a request.
    pub(super) fn check(&self, ask: &ApiRequest) -> Vec<GitHubViolation> {
        let mut found = Vec::new();
        match self.operation(ask) {
            None => found.push("no such operation".to_owned()),
            Some(operation) => {
                self.check_query(operation, ask, &mut found);
                self.check_body(operation, ask, &mut found);
            }
        }
        named(ask, found)
    }

    /// Returns the violations in a successful answer, which are bugs of the stand-in.
    pub(super) fn check_answer(&self, ask: &ApiRequest, answer: &Answer) -> Vec<GitHubViolation> {
        let mut found = Vec::new();
        if answer.status.is_success()
            && let Some(operation) = self.operation(ask)
        {
            let status = answer.status.as_u16().to_string();
            match &operation["responses"][&status] {
                Value::Null => found.push(format!("the stand-in answers {status}")),
                response => {
                    let schema = &self.resolved(response)["content"]["application/json"]["schema"];
                    let body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
                    if !schema.is_null() {
                        self.check_value(schema, &body, "the stand-in's answer", false, &mut found);
                    }
                }
            }
        }
        named(ask, found)
    }

    /// Finds the operation by method and path. A literal segment takes precedence over a parameter.
    fn operation(&self, ask: &ApiRequest) -> Option<&Value> {
        let method = ask.method.as_str().to_ascii_lowercase();
        let paths = self.0["paths"].as_object()?;
        let fits = |pattern: &str| {
            let parts: Vec<&str> = pattern.split('/').skip(1).collect();
            let same =
                |(wanted, part): (&&str, &String)| wanted.starts_with('{') || *wanted == part;
            parts.len() == ask.segments.len() && parts.iter().zip(&ask.segments).all(same)
        };
        let of_path = paths.iter().filter(|(pattern, _)| fits(pattern));
        let (_, item) = of_path.min_by_key(|(pattern, _)| pattern.matches('{').count())?;
        item.get(&method)
    }

    fn check_query(&self, operation: &Value, ask: &ApiRequest, found: &mut Vec<String>) {
        let none = Vec::new();
        let parameters = operation["parameters"].as_array().unwrap_or(&none);
        for (name, text) in &ask.query {
            let known = parameters.iter().map(|parameter| self.resolved(parameter));
            let known =
                known.into_iter().find(|it| it["in"] == "query" && it["name"] == name.as_str());
            match known {
                None => found.push(format!("no such parameter: {name}")),
                Some(parameter) => {
                    let schema = &parameter["schema"];
                    let value = match self.resolved(schema)["type"].as_str() {
                        Some("integer" | "number" | "boolean") => {
                            serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into())
                        }
                        _ => Value::from(text.as_str()),
                    };
                    self.check_value(schema, &value, name, true, found);
                }
            }
        }
    }

    fn check_body(&self, operation: &Value, ask: &ApiRequest, found: &mut Vec<String>) {
        let content = self.resolved(&operation["requestBody"]);
        let schema = &content["content"]["application/json"]["schema"];
        match ask.json() {
            None => found.push("the body is not JSON".to_owned()),
            Some(Value::Null) if content["required"] != true => {}
            // An empty object is equivalent to no body, and many clients send one.
            Some(body) if schema.is_null() => {
                if body != Value::Object(serde_json::Map::new()) {
                    found.push("there should be no body".to_owned());
                }
            }
            Some(body) => self.check_value(schema, &body, "body", true, found),
        }
    }

    /// Checks a value against a schema. Fields that the schema does not have are violations too.
    fn check_value(
        &self,
        schema: &Value,
        value: &Value,
        place: &str,
        strict: bool,
        found: &mut Vec<String>,
    ) {
        let schema = self.resolved(schema);
        if value.is_null() && (schema["nullable"] == true || schema["type"].is_null()) {
            return;
        }
        for part in schema["allOf"].as_array().into_iter().flatten() {
            self.check_value(part, value, place, false, found);
        }
        for choice in ["oneOf", "anyOf"] {
            if let Some(parts) = schema[choice].as_array() {
                let fits = |part: &Value| {
                    let mut problems = Vec::new();
                    self.check_value(part, value, place, strict, &mut problems);
                    problems.is_empty()
                };
                if !parts.iter().any(fits) {
                    found.push(format!("{place}: none of what it may be: {value}"));
                }
            }
        }
        if let Some(choices) = schema["enum"].as_array()
            && !choices.contains(value)
        {
            found.push(format!("{place}: not among the choices: {value}"));
        }
        let kind = schema["type"].as_str();
        if kind.is_some_and(|kind| !is_of(kind, value)) {
            found.push(format!("{place}: should be {}: {value}", kind.unwrap_or_default()));
            return;
        }
        for (index, entry) in value.as_array().into_iter().flatten().enumerate() {
            self.check_value(&schema["items"], entry, &format!("{place}[{index}]"), strict, found);
        }
        if let Some(fields) = value.as_object() {
            self.check_fields(schema, fields, place, strict, found);
        }
    }

    fn check_fields(
        &self,
        schema: &Value,
        fields: &serde_json::Map<String, Value>,
        place: &str,
        strict: bool,
        found: &mut Vec<String>,
    ) {
        for required in schema["required"].as_array().into_iter().flatten() {
            if required.as_str().is_some_and(|name| !fields.contains_key(name)) {
                found.push(format!("{place}: missing {required}"));
            }
        }
        let Some(known) = schema["properties"].as_object() else { return };
        for (name, value) in fields {
            let place = format!("{place}.{name}");
            match known.get(name) {
                Some(schema) => self.check_value(schema, value, &place, strict, found),
                None if strict => found.push(format!("{place}: no such field")),
                None => {}
            }
        }
    }

    /// The target of a reference, or the value itself if it is none.
    fn resolved<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
            Some(pointer) => self.0.pointer(pointer).unwrap_or(&Value::Null),
            None => value,
        }
    }
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn named(ask: &ApiRequest, problems: Vec<String>) -> Vec<GitHubViolation> {
    let request = format!("{} {}", ask.method, ask.path);
    let violation = |problem| GitHubViolation { request: request.clone(), problem };
    problems.into_iter().map(violation).collect()
}
