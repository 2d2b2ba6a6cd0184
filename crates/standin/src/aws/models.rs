//! Checks requests against the models in botocore: every member exists and has the right type.

mod json;
mod leaf;
mod query;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Deserialize;

use crate::aws::call::{Call, Content, Service};

/// A part of a request that the API's model does not allow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub service: Service,
    pub operation: String,
    /// The path of the member in the request; empty for the request itself.
    pub place: String,
    pub problem: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { service, operation, place, problem } = self;
        write!(f, "{service} {operation}: ")?;
        if !place.is_empty() {
            write!(f, "{place}: ")?;
        }
        f.write_str(problem)
    }
}

/// The models of the services that are checked. Each is read on first use, because EC2's alone has four
/// megabytes.
#[derive(Debug)]
pub(crate) struct Models {
    folder: PathBuf,
    dynamodb: OnceLock<Model>,
    sqs: OnceLock<Model>,
    logs: OnceLock<Model>,
    ec2: OnceLock<Model>,
    quotas: OnceLock<Model>,
    iam: OnceLock<Model>,
}

/// The files of the models, without their ending.
const MODELS: [&str; 6] = ["dynamodb", "sqs", "logs", "ec2", "service-quotas", "iam"];

impl Models {
    /// Uses the models in a folder.
    ///
    /// # Panics
    /// If a model is missing. Without it, requests would pass unchecked.
    pub(crate) fn new(folder: &Path) -> Models {
        for name in MODELS {
            let name = format!("{name}.json");
            let file = folder.join(&name);
            assert!(file.is_file(), "no API model: {}", file.display());
        }
        Models {
            folder: folder.to_owned(),
            dynamodb: OnceLock::new(),
            sqs: OnceLock::new(),
            logs: OnceLock::new(),
            ec2: OnceLock::new(),
            quotas: OnceLock::new(),
            iam: OnceLock::new(),
        }
    }

    /// Returns the violations in a request. STS, SSM and Secrets Manager have no model here, so their
    /// requests are not checked.
    pub(crate) fn check(&self, call: &Call) -> Vec<Violation> {
        let mut found = Found::default();
        let model = match call.service {
            Service::DynamoDb => {
                self.dynamodb.get_or_init(|| Model::read(&self.folder, "dynamodb"))
            }
            Service::Sqs => self.sqs.get_or_init(|| Model::read(&self.folder, "sqs")),
            Service::Logs => self.logs.get_or_init(|| Model::read(&self.folder, "logs")),
            Service::Ec2 => self.ec2.get_or_init(|| Model::read(&self.folder, "ec2")),
            Service::Quotas => {
                self.quotas.get_or_init(|| Model::read(&self.folder, "service-quotas"))
            }
            Service::Iam => self.iam.get_or_init(|| Model::read(&self.folder, "iam")),
            Service::Sts | Service::Secrets => return Vec::new(),
            Service::Unknown => {
                found.add("", "no such service here");
                return found.of(call);
            }
        };
        match (model.operations.get(&call.operation), call.content()) {
            (None, _) => found.add("", "no such operation"),
            (_, Content::Unreadable) => found.add("", "the body cannot be read"),
            (Some(Operation { input: None }), _) => {}
            (Some(Operation { input: Some(input) }), Content::Json(value)) => {
                json::check(model, &input.shape, value, "", &mut found);
            }
            (Some(Operation { input: Some(input) }), Content::Query(params)) => {
                query::check_request(model, &input.shape, params, &mut found);
            }
        }
        found.of(call)
    }
}

/// Collects violations as pairs of path and problem.
#[derive(Debug, Default)]
struct Found(Vec<(String, String)>);

impl Found {
    fn add(&mut self, place: &str, problem: impl Into<String>) {
        self.0.push((place.to_owned(), problem.into()));
    }

    fn of(self, call: &Call) -> Vec<Violation> {
        let violation = |(place, problem)| Violation {
            service: call.service,
            operation: call.operation.clone(),
            place,
            problem,
        };
        self.0.into_iter().map(violation).collect()
    }
}

/// An API model, without its documentation.
#[derive(Debug, Deserialize)]
struct Model {
    metadata: Metadata,
    operations: HashMap<String, Operation>,
    shapes: HashMap<String, Shape>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    api_version: String,
}

#[derive(Debug, Deserialize)]
struct Operation {
    input: Option<Reference>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    shape: String,
    location_name: Option<String>,
    query_name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Shape {
    #[serde(rename = "type")]
    kind: ShapeType,
    #[serde(default)]
    members: HashMap<String, Reference>,
    member: Option<Reference>,
    key: Option<Reference>,
    value: Option<Reference>,
    #[serde(default)]
    required: Vec<String>,
    #[serde(default, rename = "enum")]
    choices: Vec<String>,
    min: Option<f64>,
    max: Option<f64>,
    pattern: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ShapeType {
    Structure,
    List,
    Map,
    String,
    Integer,
    Long,
    Float,
    Double,
    Boolean,
    Timestamp,
    Blob,
}

impl Model {
    fn read(folder: &Path, name: &str) -> Model {
        let file = folder.join(format!("{name}.json"));
        let text = std::fs::read(&file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        serde_json::from_slice(&text)
            .unwrap_or_else(|error| panic!("not an API model: {}: {error}", file.display()))
    }

    fn shape(&self, name: &str) -> &Shape {
        self.shapes.get(name).unwrap_or_else(|| panic!("the model lacks its own shape: {name}"))
    }
}

/// Appends a step to the path of a member.
fn below(place: &str, step: &str) -> String {
    if place.is_empty() { step.to_owned() } else { format!("{place}.{step}") }
}
