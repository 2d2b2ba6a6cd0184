//! Reads the template as CloudFormation does, as far as the template needs that. References to what
//! is created become names in angle brackets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};
use serde_yaml_ng::Value as Yaml;

/// The template, with its functions in their long form.
#[derive(Clone)]
pub(super) struct Template(pub(super) Value);

/// What the template creates for some parameters.
#[derive(Debug)]
pub(super) struct Stack {
    pub(super) conditions: BTreeMap<String, bool>,
    pub(super) resources: BTreeMap<String, Resource>,
    pub(super) outputs: BTreeMap<String, Value>,
}

#[derive(Debug)]
pub(super) struct Resource {
    pub(super) kind: String,
    pub(super) properties: Map<String, Value>,
    /// The names of the resources that it waits for, besides those that it refers to.
    pub(super) depends_on: Vec<String>,
}

impl Template {
    pub(super) fn read(file: &Path) -> Template {
        let yaml: Yaml = serde_yaml_ng::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        Template(long_form(&yaml))
    }

    pub(super) fn parameters(&self) -> &Map<String, Value> {
        self.0["Parameters"].as_object().unwrap()
    }

    /// Whether it has a rule of this name, about several parameters.
    pub(super) fn has_rule(&self, name: &str) -> bool {
        self.0["Rules"].get(name).is_some()
    }

    /// The names of all resources, also of those that only some stacks have.
    pub(super) fn logical_names(&self) -> BTreeSet<String> {
        self.0["Resources"].as_object().unwrap().keys().cloned().collect()
    }

    /// Whether a rule refuses these parameters.
    pub(super) fn refuses(&self, rule: &str, given: &BTreeMap<&str, &str>) -> bool {
        let resolver = self.resolver(given);
        let rule = &self.0["Rules"][rule];
        let mut assertions = rule["Assertions"].as_array().into_iter().flatten();
        resolver.is_true(&rule["RuleCondition"])
            && assertions.any(|assertion| !resolver.is_true(&assertion["Assert"]))
    }

    fn resolver(&self, given: &BTreeMap<&str, &str>) -> Resolver<'_> {
        let values = self.parameters().iter().map(|(name, parameter)| {
            let default = parameter.get("Default").and_then(Value::as_str);
            let text = given.get(name.as_str()).copied().or(default);
            let text = text.unwrap_or_else(|| panic!("no value for {name}"));
            let value = match parameter["Type"].as_str() {
                Some("CommaDelimitedList") => json!(text.split(',').collect::<Vec<_>>()),
                Some("Number") => json!(text.parse::<u64>().unwrap()),
                _ => json!(text),
            };
            (name.clone(), value)
        });
        Resolver { template: &self.0, values: values.collect() }
    }

    /// What is created with these parameters and the defaults of the others.
    pub(super) fn deployed(&self, given: &BTreeMap<&str, &str>) -> Stack {
        let resolver = self.resolver(given);
        let conditions = self.0["Conditions"].as_object().unwrap();
        let is_there = |it: &Value| it["Condition"].as_str().is_none_or(|it| resolver.holds(it));
        let created = self.0["Resources"].as_object().unwrap().iter();
        let outputs = self.0["Outputs"].as_object().unwrap().iter().map(|(name, output)| {
            let value = resolver.resolved(&output["Value"]).filter(|_| is_there(output));
            (name.clone(), value.unwrap_or_default())
        });
        Stack {
            conditions: conditions.keys().map(|it| (it.clone(), resolver.holds(it))).collect(),
            resources: created
                .filter(|(_, resource)| is_there(resource))
                .map(|(name, resource)| (name.clone(), resolver.resource(resource)))
                .collect(),
            outputs: outputs.collect(),
        }
    }
}

/// The value as JSON, with `!Name x` as `{"Fn::Name": x}`.
fn long_form(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::Tagged(tagged) => {
            let name = tagged.tag.to_string();
            let name = match name.trim_start_matches('!') {
                name @ ("Ref" | "Condition") => name.to_owned(),
                name => format!("Fn::{name}"),
            };
            json!({ name: long_form(&tagged.value) })
        }
        Yaml::Mapping(fields) => {
            let field = |(name, value): (&Yaml, &Yaml)| {
                (name.as_str().unwrap().to_owned(), long_form(value))
            };
            Value::Object(fields.iter().map(field).collect())
        }
        Yaml::Sequence(values) => values.iter().map(long_form).collect(),
        plain => serde_json::to_value(plain).unwrap(),
    }
}

struct Resolver<'a> {
    template: &'a Value,
    values: BTreeMap<String, Value>,
}

impl Resolver<'_> {
    fn resource(&self, resource: &Value) -> Resource {
        let properties = self.resolved(&resource["Properties"]).unwrap();
        let awaited = match &resource["DependsOn"] {
            Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
            name => Vec::from_iter(name.as_str()),
        };
        Resource {
            kind: resource["Type"].as_str().unwrap().to_owned(),
            properties: properties.as_object().unwrap().clone(),
            depends_on: awaited.into_iter().map(str::to_owned).collect(),
        }
    }

    fn holds(&self, condition: &str) -> bool {
        self.is_true(&self.template["Conditions"][condition])
    }

    fn is_true(&self, expression: &Value) -> bool {
        let (function, argument) = expression.as_object().unwrap().iter().next().unwrap();
        let all = || argument.as_array().unwrap();
        match function.as_str() {
            "Condition" => self.holds(argument.as_str().unwrap()),
            "Fn::Equals" => self.text(&all()[0]) == self.text(&all()[1]),
            "Fn::Not" => !self.is_true(&all()[0]),
            "Fn::EachMemberEquals" => {
                let list = self.resolved(&all()[0]).unwrap();
                list.as_array().unwrap().iter().all(|it| self.text(it) == self.text(&all()[1]))
            }
            "Fn::And" => all().iter().all(|it| self.is_true(it)),
            "Fn::Or" => all().iter().any(|it| self.is_true(it)),
            other => panic!("unknown function of conditions: {other}"),
        }
    }

    /// The value that a condition compares: a number equals its text.
    fn text(&self, value: &Value) -> Option<String> {
        let value = self.resolved(value)?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// The value of an expression; `None` if it is `AWS::NoValue`.
    fn resolved(&self, value: &Value) -> Option<Value> {
        match value {
            Value::Object(fields) => match fields.iter().next() {
                Some((name, argument)) if name == "Ref" => self.reference(argument.as_str()?),
                Some((name, argument)) if name.starts_with("Fn::") => self.called(name, argument),
                _ => {
                    let field = |(name, value): (&String, &Value)| {
                        Some((name.clone(), self.resolved(value)?))
                    };
                    Some(Value::Object(fields.iter().filter_map(field).collect()))
                }
            },
            Value::Array(values) => {
                Some(values.iter().filter_map(|value| self.resolved(value)).collect())
            }
            plain => Some(plain.clone()),
        }
    }

    fn reference(&self, name: &str) -> Option<Value> {
        Some(match name {
            "AWS::NoValue" => return None,
            "AWS::Partition" => json!("aws"),
            "AWS::Region" => json!("us-east-1"),
            "AWS::AccountId" => json!("123456789012"),
            name => match self.values.get(name) {
                Some(value) => value.clone(),
                // The only resource here that is referred to by its ARN.
                None if name == "GitHubOidcProvider" => json!(format!("<{name}.Arn>")),
                None => json!(format!("<{name}>")),
            },
        })
    }

    fn called(&self, function: &str, argument: &Value) -> Option<Value> {
        let at = |index: usize| self.resolved(&argument[index]).unwrap();
        Some(match function {
            "Fn::If" => {
                let holds = self.holds(argument[0].as_str().unwrap());
                return self.resolved(&argument[if holds { 1 } else { 2 }]);
            }
            "Fn::Sub" if argument.is_array() => {
                json!(self.substituted(argument[0].as_str().unwrap(), &at(1)))
            }
            "Fn::Sub" => json!(self.substituted(argument.as_str().unwrap(), &Value::Null)),
            "Fn::Join" => {
                let list = at(1);
                let parts = list.as_array().unwrap().iter().map(|it| it.as_str().unwrap());
                json!(parts.collect::<Vec<_>>().join(at(0).as_str().unwrap()))
            }
            "Fn::Split" => {
                let (separator, text) = (at(0), at(1));
                let parts = text.as_str().unwrap().split(separator.as_str().unwrap());
                json!(parts.collect::<Vec<_>>())
            }
            "Fn::Select" => at(1)[usize::try_from(argument[0].as_u64().unwrap()).unwrap()].clone(),
            // Those of the stack's region.
            "Fn::GetAZs" if argument == "" => json!(["<zone 0>", "<zone 1>", "<zone 2>"]),
            "Fn::Cidr" => {
                assert_eq!((at(1), at(2)), (json!(4), json!(12)));
                let first = at(0);
                let two = first.as_str().unwrap().strip_suffix(".0.0/16").unwrap();
                json!([0, 16, 32, 48].map(|third| format!("{two}.{third}.0/20")))
            }
            "Fn::GetAtt" => match argument.as_str().unwrap().split_once('.').unwrap() {
                (name, "GroupId") => json!(format!("<{name}>")),
                (name, attribute) => json!(format!("<{name}.{attribute}>")),
            },
            other => panic!("unknown function: {other}"),
        })
    }

    fn substituted(&self, text: &str, own: &Value) -> String {
        let mut parts = text.split("${");
        let mut made = parts.next().unwrap().to_owned();
        for part in parts {
            let (name, rest) = part.split_once('}').unwrap();
            match name.strip_prefix('!') {
                Some(literal) => made += &format!("${{{literal}}}"),
                None => {
                    let own = own.get(name).cloned();
                    let value = own.or_else(|| self.reference(name)).unwrap();
                    made += value.as_str().unwrap();
                }
            }
            made += rest;
        }
        made
    }
}
