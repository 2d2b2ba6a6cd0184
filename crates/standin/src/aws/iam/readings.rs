//! What Service Quotas and IAM itself ask IAM about a call that reads, as the Service Authorization
//! Reference lists it: quotas are no resources for reading, and an instance profile is one.

use crate::aws::call::Call;

use super::arns::Arns;
use super::{Authorization, Context};

pub(crate) fn quota(operation: &str) -> Authorization {
    let (action, resource) = (format!("servicequotas:{operation}"), "*".to_owned());
    Authorization { action, resource, context: Context::default() }
}

pub(crate) fn profile(call: &Call, arns: &Arns) -> Authorization {
    let name = call.params().and_then(|params| params.text("InstanceProfileName"));
    Authorization {
        action: format!("iam:{}", call.operation),
        resource: arns.profile(name.unwrap_or("*")),
        context: Context::default(),
    }
}
