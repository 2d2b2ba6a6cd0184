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
#[derive(Clone)]
pub(super) struct Module {
    pub(super) variables: BTreeMap<String, Variable>,
    pub(super) locals: BTreeMap<String, Expression>,
    pub(super) resources: Vec<Block>,
    pub(super) outputs: BTreeMap<String, Expression>,
}

#[derive(Clone)]
pub(super) struct Variable {
    /// Its type, such as `list(string)`.
    pub(super) kind: String,
    pub(super) default: Option<Value>,
    /// The conditions that its values fulfil.
    pub(super) validations: Vec<Expression>,
}

/// What the module creates for some values of its variables.
pub(super) struct State {
    pub(super) locals: Map<String, Value>,
    /// By type and name.
    pub(super) resources: BTreeMap<String, Resource>,
    pub(super) outputs: BTreeMap<String, Value>,
}

pub(super) struct Resource {
    pub(super) attributes: Map<String, Value>,
    /// The names of the resources that it waits for, besides those that it refers to.
    pub(super) depends_on: Vec<String>,
}

/// A value of a variable of this type, written as for the template. A text that is no such value
/// stays one.
pub(super) fn value_of(kind: &str, text: &str) -> Value {
    match kind {
        "bool" if text == "true" || text == "false" => json!(text == "true"),
        "number" => text.parse::<u32>().map_or_else(|_| json!(text), |number| json!(number)),
        "list(string)" => json!(text.split(',').filter(|it| !it.is_empty()).collect::<Vec<_>>()),
        _ => json!(text),
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
            let file = file.unwrap().path();
            // Folders are other modules.
            if file.extension().is_none_or(|it| it != "tf") {
                continue;
            }
            let text = fs::read_to_string(file).unwrap();
            for block in hcl::parse(&text).unwrap().into_blocks() {
                module.add(block);
            }
        }
        module
    }

    pub(super) fn add(&mut self, block: Block) {
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

    /// The values of the variables, for these parameters of the template.
    fn values(&self, given: &BTreeMap<&str, &str>) -> Map<String, Value> {
        let given: BTreeMap<String, &str> =
            given.iter().map(|(name, value)| (snake(name), *value)).collect();
        let variables = self.variables.iter().map(|(name, variable)| {
            let value = given.get(name).map(|text| value_of(&variable.kind, text));
            (name.clone(), value.or_else(|| variable.default.clone()).unwrap_or_default())
        });
        variables.collect()
    }

    /// Whether a condition about variables holds with these parameters.
    pub(super) fn holds(&self, condition: &Expression, given: &BTreeMap<&str, &str>) -> bool {
        Scope::new(self.values(given)).value(condition) == Ok(json!(true))
    }

    /// What is created with these parameters of the template, whose resources have these names. Fails
    /// with an expression that has no value.
    pub(super) fn applied(
        &self,
        given: &BTreeMap<&str, &str>,
        logical_names: &BTreeSet<String>,
    ) -> Result<State, String> {
        let mut scope = Scope::new(self.values(given));
        scope.add_locals(&self.locals);
        for (number, block) in self.resources.iter().enumerate() {
            let count = attribute(block.body(), "count").map(|count| scope.value(count));
            let count = count.transpose()?;
            let name = block.labels()[1].as_str();
            let logical = logical_names.iter().find(|it| snake(it) == name);
            // What the template has no resource for is reported where both are compared.
            let logical = logical.map_or(name, String::as_str);
            scope.add_resource(block.labels()[0].as_str(), name, logical, count.as_ref(), number);
        }
        scope.declare_resources();
        scope.add_locals(&self.locals);
        let unknown: Vec<&String> =
            self.locals.keys().filter(|it| !scope.locals.contains_key(*it)).collect();
        if !unknown.is_empty() {
            return Err(format!("cannot evaluate: {unknown:?}"));
        }
        let created = scope.created.iter().map(|number| &self.resources[*number]);
        let resources = created.map(|block| {
            let [kind, name] = [0, 1].map(|label| block.labels()[label].as_str());
            Ok((format!("{kind}.{name}"), scope.resource(block.body())?))
        });
        let outputs = self.outputs.iter();
        let outputs = outputs.map(|(name, expr)| Ok((name.clone(), scope.value(expr)?)));
        Ok(State {
            resources: resources.collect::<Result<_, String>>()?,
            outputs: outputs.collect::<Result<_, String>>()?,
            locals: scope.locals,
        })
    }
}

impl Variable {
    fn read(body: &Body) -> Variable {
        let scope = Scope::new(Map::new());
        let validations = body.blocks().filter(|block| block.identifier() == "validation");
        Variable {
            kind: hcl::format::to_string(attribute(body, "type").unwrap()).unwrap(),
            default: attribute(body, "default").map(|expr| scope.value(expr).unwrap()),
            validations: validations
                .map(|block| attribute(block.body(), "condition").unwrap().clone())
                .collect(),
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
                }
            }
            if self.locals.len() == before {
                return;
            }
            let locals = Value::Object(self.locals.clone());
            self.context.declare_var("local", hcl_value(locals));
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
            "function_name": format!("<{logical}>"),
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

    fn value(&self, expr: &Expression) -> Result<Value, String> {
        let value = expr.evaluate(&self.context);
        value.map(|value| json_value(&value)).map_err(|error| format!("{expr:?}: {error}"))
    }

    /// The attributes of a resource, with nested blocks as lists.
    fn resource(&self, body: &Body) -> Result<Resource, String> {
        let mut attributes = Map::new();
        for attribute in body.attributes() {
            if !["count", "depends_on"].contains(&attribute.key()) {
                attributes.insert(attribute.key().to_owned(), self.value(attribute.expr())?);
            }
        }
        for block in body.blocks() {
            let nested = Value::Object(self.resource(block.body())?.attributes);
            let list = attributes.entry(block.identifier()).or_insert_with(|| json!([]));
            list.as_array_mut().unwrap().push(nested);
        }
        let awaited = match attribute(body, "depends_on") {
            Some(Expression::Array(awaited)) => awaited.as_slice(),
            _ => &[],
        };
        let name = |it: &Expression| {
            let address = hcl::format::to_string(it).unwrap();
            address.rsplit('.').next().unwrap().trim_end().to_owned()
        };
        Ok(Resource { attributes, depends_on: awaited.iter().map(name).collect() })
    }
}

type Function = fn(FuncArgs) -> Result<hcl::Value, String>;

/// The functions that the module calls.
const FUNCTIONS: [(&str, Function); 9] = [
    ("tostring", |args| on_json(&args, |args| json!(args[0].to_string()))),
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
