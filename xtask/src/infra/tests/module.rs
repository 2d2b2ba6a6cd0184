//! Reads the module as Terraform does, as far as the module needs that. Attributes that AWS would
//! answer become names in angle brackets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use hcl::eval::{Context, Evaluate as _, FuncArgs, FuncDef, ParamType};
use hcl::expr::Expression;
use hcl::{Block, Body};
use serde_json::{Map, Value, json};

use super::snake;

/// The files of the module.
pub(super) struct Module {
    pub(super) variables: BTreeMap<String, Variable>,
    locals: BTreeMap<String, Expression>,
    resources: Vec<Block>,
    outputs: BTreeMap<String, Expression>,
}

pub(super) struct Variable {
    /// Its type, such as `list(string)`.
    pub(super) kind: String,
    pub(super) default: Option<Value>,
    /// The conditions that its values fulfil.
    pub(super) validations: String,
}

/// What the module creates for some values of its variables.
pub(super) struct State {
    /// By type and name.
    pub(super) resources: BTreeMap<String, Resource>,
    pub(super) outputs: BTreeMap<String, Value>,
}

pub(super) struct Resource {
    pub(super) attributes: Map<String, Value>,
    /// The name of the resource that it waits for.
    pub(super) depends_on: Option<String>,
}

/// A value of a variable of this type, written as for the template.
pub(super) fn value_of(kind: &str, text: &str) -> Value {
    match kind {
        "bool" => json!(text == "true"),
        "number" => json!(text.parse::<u32>().unwrap()),
        "list(string)" => json!(text.split(',').filter(|it| !it.is_empty()).collect::<Vec<_>>()),
        "string" => json!(text),
        other => panic!("unknown type: {other}"),
    }
}

impl Module {
    pub(super) fn read(folder: &Path) -> Module {
        let mut module = Module {
            variables: BTreeMap::new(),
            locals: BTreeMap::new(),
            resources: Vec::new(),
            outputs: BTreeMap::new(),
        };
        for file in fs::read_dir(folder).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            for block in hcl::parse(&text).unwrap().into_blocks() {
                module.add(block);
            }
        }
        module
    }

    fn add(&mut self, block: Block) {
        let name = || block.labels()[0].as_str().to_owned();
        match block.identifier() {
            "variable" => {
                self.variables.insert(name(), Variable::read(block.body()));
            }
            "locals" => {
                for local in block.body.into_attributes() {
                    let added = self.locals.insert(local.key().to_owned(), local.expr().clone());
                    assert!(added.is_none(), "two locals: {}", local.key());
                }
            }
            "output" => {
                self.outputs.insert(name(), attribute(block.body(), "value").unwrap().clone());
            }
            "resource" => self.resources.push(block),
            "data" | "terraform" => {}
            other => panic!("unknown block: {other}"),
        }
    }

    /// What is created with these parameters of the template, whose resources have these names.
    pub(super) fn applied(
        &self,
        given: &BTreeMap<&str, &str>,
        logical_names: &BTreeSet<String>,
    ) -> State {
        let given: BTreeMap<String, &str> =
            given.iter().map(|(name, value)| (snake(name), *value)).collect();
        let variables = self.variables.iter().map(|(name, variable)| {
            let value = given.get(name).map(|text| value_of(&variable.kind, text));
            (name.clone(), value.or_else(|| variable.default.clone()).unwrap())
        });
        let mut scope = Scope::new(variables.collect());
        scope.add_locals(&self.locals);
        for (number, block) in self.resources.iter().enumerate() {
            let count = attribute(block.body(), "count").map(|count| scope.value(count));
            let name = block.labels()[1].as_str();
            let logical = logical_names.iter().find(|it| snake(it) == name);
            let logical = logical.unwrap_or_else(|| panic!("not in the template: {name}"));
            scope.add_resource(block.labels()[0].as_str(), name, logical, count.as_ref(), number);
        }
        scope.declare_resources();
        scope.add_locals(&self.locals);
        let unknown: Vec<&String> =
            self.locals.keys().filter(|it| !scope.locals.contains_key(*it)).collect();
        assert!(unknown.is_empty(), "cannot evaluate: {unknown:?}");
        let created = scope.created.iter().map(|number| &self.resources[*number]);
        let resources = created.map(|block| {
            let [kind, name] = [0, 1].map(|label| block.labels()[label].as_str());
            (format!("{kind}.{name}"), scope.resource(block.body()))
        });
        let outputs = self.outputs.iter().map(|(name, expr)| (name.clone(), scope.value(expr)));
        State { resources: resources.collect(), outputs: outputs.collect() }
    }
}

impl Variable {
    fn read(body: &Body) -> Variable {
        let scope = Scope::new(Map::new());
        let validations = body.blocks().filter(|block| block.identifier() == "validation");
        let conditions = validations
            .map(|block| hcl::format::to_string(attribute(block.body(), "condition").unwrap()));
        Variable {
            kind: hcl::format::to_string(attribute(body, "type").unwrap()).unwrap(),
            default: attribute(body, "default").map(|expr| scope.value(expr)),
            validations: conditions.collect::<Result<Vec<_>, _>>().unwrap().join("\n"),
        }
    }
}

fn attribute<'a>(body: &'a Body, name: &str) -> Option<&'a Expression> {
    body.attributes().find(|attribute| attribute.key() == name).map(hcl::Attribute::expr)
}

/// The names that expressions refer to.
struct Scope {
    context: Context<'static>,
    locals: Map<String, Value>,
    /// The objects of all resources, by type and name.
    resources: Map<String, Value>,
    /// The numbers of the resources that are created.
    created: Vec<usize>,
}

impl Scope {
    fn new(variables: Map<String, Value>) -> Scope {
        let mut context = Context::new();
        context.declare_var("var", hcl_value(Value::Object(variables)));
        let data = json!({
            "aws_partition": { "current": { "partition": "aws" } },
            "aws_region": { "current": { "region": "us-east-1" } },
            "aws_caller_identity": { "current": { "account_id": "123456789012" } },
            "aws_availability_zones": {
                "current": { "names": ["<zone 0>", "<zone 1>", "<zone 2>"] },
            },
        });
        context.declare_var("data", hcl_value(data));
        for (name, function) in FUNCTIONS {
            let definition = FuncDef::builder().variadic_param(ParamType::Any).build(function);
            context.declare_func(name, definition);
        }
        Scope { context, locals: Map::new(), resources: Map::new(), created: Vec::new() }
    }

    /// Evaluates locals until no further one can be evaluated.
    fn add_locals(&mut self, all: &BTreeMap<String, Expression>) {
        loop {
            let before = self.locals.len();
            for (name, expr) in all {
                if self.locals.contains_key(name) {
                    continue;
                }
                if let Ok(value) = expr.evaluate(&self.context) {
                    self.locals.insert(name.clone(), json_value(&value));
                    let locals = Value::Object(self.locals.clone());
                    self.context.declare_var("local", hcl_value(locals));
                }
            }
            if self.locals.len() == before {
                return;
            }
        }
    }

    fn add_resource(
        &mut self,
        kind: &str,
        name: &str,
        logical: &str,
        count: Option<&Value>,
        number: usize,
    ) {
        let object = json!({
            "id": format!("<{logical}>"), "name": format!("<{logical}>"),
            "arn": format!("<{logical}.Arn>"),
            "allocation_id": format!("<{logical}.AllocationId>"),
        });
        let is_there = count != Some(&json!(0));
        let value = match count {
            None => object,
            Some(_) if is_there => json!([object]),
            Some(_) => json!([]),
        };
        self.resources.entry(kind).or_insert_with(|| json!({}))[name] = value;
        if is_there {
            self.created.push(number);
        }
    }

    fn declare_resources(&mut self) {
        for (kind, objects) in self.resources.clone() {
            self.context.declare_var(hcl::Identifier::unchecked(kind), hcl_value(objects));
        }
    }

    fn value(&self, expr: &Expression) -> Value {
        let value = expr.evaluate(&self.context);
        json_value(&value.unwrap_or_else(|error| panic!("{expr:?}: {error}")))
    }

    /// The attributes of a resource, with nested blocks as lists.
    fn resource(&self, body: &Body) -> Resource {
        let mut attributes = Map::new();
        for attribute in body.attributes() {
            if !["count", "depends_on"].contains(&attribute.key()) {
                attributes.insert(attribute.key().to_owned(), self.value(attribute.expr()));
            }
        }
        for block in body.blocks() {
            let nested = Value::Object(self.resource(block.body()).attributes);
            let list = attributes.entry(block.identifier()).or_insert_with(|| json!([]));
            list.as_array_mut().unwrap().push(nested);
        }
        let awaited = attribute(body, "depends_on").map(|it| hcl::format::to_string(it).unwrap());
        let name =
            |it: String| it.rsplit('.').next().unwrap().trim_end_matches([']', '\n']).to_owned();
        Resource { attributes, depends_on: awaited.map(name) }
    }
}

type Function = fn(FuncArgs) -> Result<hcl::Value, String>;

/// The functions that the module calls.
const FUNCTIONS: [(&str, Function); 8] = [
    ("jsonencode", |args| on_json(&args, |args| json!(args[0].to_string()))),
    ("concat", |args| {
        on_json(&args, |args| args.iter().flat_map(|it| it.as_array().unwrap().clone()).collect())
    }),
    ("merge", |args| {
        on_json(&args, |args| {
            let fields = args.iter().flat_map(|it| it.as_object().unwrap().clone());
            Value::Object(fields.collect())
        })
    }),
    ("one", |args| on_json(&args, |args| args[0].get(0).cloned().unwrap_or_default())),
    ("length", |args| on_json(&args, |args| json!(args[0].as_array().unwrap().len()))),
    ("join", |args| {
        on_json(&args, |args| {
            let parts: Vec<&str> = args[1].as_array().unwrap().iter().map(text).collect();
            json!(parts.join(text(&args[0])))
        })
    }),
    ("split", |args| {
        on_json(&args, |args| json!(text(&args[1]).split(text(&args[0])).collect::<Vec<_>>()))
    }),
    ("cidrsubnet", |args| {
        on_json(&args, |args| {
            assert_eq!(args[1], json!(4));
            let two = text(&args[0]).strip_suffix(".0.0/16").unwrap();
            json!(format!("{two}.{}.0/20", 16 * args[2].as_u64().unwrap()))
        })
    }),
];

fn on_json(args: &FuncArgs, function: fn(&[Value]) -> Value) -> Result<hcl::Value, String> {
    let args: Vec<Value> = args.iter().map(json_value).collect();
    Ok(hcl_value(function(&args)))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn hcl_value(value: Value) -> hcl::Value {
    hcl::to_value(value).unwrap()
}

fn json_value(value: &hcl::Value) -> Value {
    serde_json::to_value(value).unwrap()
}
