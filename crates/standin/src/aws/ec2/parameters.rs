//! Parameters of Systems Manager with the ids of images, which launch templates name as
//! `resolve:ssm:PARAMETER`. EC2 reads the parameter at each launch: Amazon EC2 User Guide, "Use a
//! Systems Manager parameter instead of an AMI ID".

use hyper::StatusCode;
use hyper::header::HeaderMap;
use serde_json::{Value, json};

use crate::http::Answer;

use super::state::State;

/// What precedes the name of a parameter in a launch template.
const ALIAS: &str = "resolve:ssm:";
/// Where AWS publishes parameters for every account. All of them exist here.
const PUBLIC: &str = "/aws/service/";
/// The image of the public parameters, unless a test publishes another.
const PUBLIC_IMAGE: &str = "ami-00000000000000aaa";

/// The parameter that a launch template names in place of an image's id; `None` if it names an image.
pub(crate) fn named(image: &str) -> Option<&str> {
    image.strip_prefix(ALIAS)
}

impl State {
    /// The id of an image that is given by its id or by a parameter; `None` if there is no such
    /// parameter.
    pub(crate) fn image_id(&self, given: &str) -> Option<String> {
        match named(given) {
            Some(name) => self.image_parameter(name),
            None => Some(given.to_owned()),
        }
    }

    fn image_parameter(&self, name: &str) -> Option<String> {
        let published = self.parameters.get(name).cloned();
        published.or_else(|| name.starts_with(PUBLIC).then(|| PUBLIC_IMAGE.to_owned()))
    }
}

/// Performs GetParameters. Names without a parameter are listed, and the call succeeds: Systems Manager
/// API Reference, "GetParameters".
pub(crate) fn get(state: &State, request: &Value) -> Answer {
    let names = request["Names"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let (mut parameters, mut invalid) = (Vec::new(), Vec::new());
    for name in names {
        match state.image_parameter(name) {
            Some(value) => parameters.push(json!({
                "Name": name,
                "Type": "String",
                "Value": value,
                "Version": 1,
                "DataType": "aws:ec2:image",
            })),
            None => invalid.push(name),
        }
    }
    let body = json!({ "Parameters": parameters, "InvalidParameters": invalid }).to_string();
    Answer { status: StatusCode::OK, headers: HeaderMap::new(), body: body.into() }
}
