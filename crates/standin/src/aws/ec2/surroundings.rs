//! What launches depend on outside EC2: instance profiles of IAM, and Service Quotas.

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use serde_json::{Value, json};

use crate::aws::call::Service;
use crate::aws::faults::answers;
use crate::aws::params::Params;
use crate::aws::xml::Xml;
use crate::http::Answer;

use super::state::State;

/// The quotas for the vCPUs of standard instances, with their names.
const VCPU_QUOTAS: [(&str, &str); 2] = [
    ("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
    ("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
];

/// What is wrong with an instance profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProfileFault {
    Deleted,
    WithoutRole,
}

/// Performs GetServiceQuota. Without a quota for vCPUs, none is applied.
pub(crate) fn quota(state: &State, request: &Value) -> Answer {
    let code = request["QuotaCode"].as_str().unwrap_or_default();
    let known = VCPU_QUOTAS.iter().find(|(it, _)| *it == code);
    let (Some((code, name)), Some(vcpus)) = (known, state.capacity.vcpus) else {
        let message = "The request failed because the specified service quota does not exist.";
        return answers::refusal(Service::Quotas, 400, "NoSuchResourceException", message);
    };
    let quota = json!({
        "ServiceCode": "ec2", "QuotaCode": code, "QuotaName": name, "Unit": "None",
        "Value": vcpus as f64, "Adjustable": true, "GlobalQuota": false,
    });
    answers::done(json!({ "Quota": quota }).to_string())
}

/// Performs GetInstanceProfile. Every profile exists, with a role of the same name, unless a test has
/// planted a fault.
pub(crate) fn profile(state: &State, params: &Params) -> Answer {
    let name = params.text("InstanceProfileName").unwrap_or_default();
    let fault = state.profiles.get(name);
    if fault == Some(&ProfileFault::Deleted) {
        let message = format!("Instance Profile {name} cannot be found.");
        return answers::refusal(Service::Iam, 404, "NoSuchEntity", &message);
    }
    let body = Xml::of_iam("GetInstanceProfile", |xml| {
        xml.within("InstanceProfile", |xml| {
            xml.text("InstanceProfileName", name);
            xml.text("Arn", format_args!("arn:aws:iam::000000000000:instance-profile/{name}"));
            xml.text("Path", "/");
            xml.within("Roles", |xml| {
                if fault.is_none() {
                    xml.within("member", |xml| xml.text("RoleName", name));
                }
            });
        });
    });
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    Answer { status: StatusCode::OK, headers, body: body.into() }
}
