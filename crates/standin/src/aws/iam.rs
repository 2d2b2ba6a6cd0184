//! IAM for the gateway: an evaluator of identity policies, what each call needs, and who calls.
//!
//! The evaluator knows the elements and operators that the policies in `policies/` use. A policy
//! with anything else is refused when it is read: an element that is skipped would make the
//! gateway answer differently from AWS.

mod arns;
mod condition;
mod context;
pub(crate) mod dynamodb;
pub(crate) mod ec2;
pub(crate) mod logs;
mod pattern;
mod policy;
mod principals;
pub(crate) mod readings;
pub(crate) mod secrets;
pub(crate) mod sqs;
pub(crate) mod web_identity;

pub(crate) use arns::{ACCOUNT, Arns};
pub(crate) use context::Context;
pub(crate) use policy::Policy;
pub use principals::{PolicyPool, Role};
pub(crate) use principals::{Principal, Principals};

/// What a service asks IAM about a call: may the caller perform this action on this resource?
/// A call may need several of them, and is made only if all are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authorization {
    /// The action, such as `dynamodb:GetItem`.
    pub(crate) action: String,
    /// The resource's ARN, or `*` for an action without resources.
    pub(crate) resource: String,
    /// The condition keys of the request.
    pub(crate) context: Context,
}

/// What IAM answers. An explicit deny beats every allow; without an allow, the answer is no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    Allowed,
    /// No statement allows it.
    ImplicitlyDenied,
    /// The statement with this name denies it.
    ExplicitlyDenied(String),
}

/// Evaluates all policies of a caller, which count like one policy with all statements.
///
/// Documented in the IAM User Guide: "Policy evaluation logic".
pub(crate) fn decide<'a>(
    policies: impl IntoIterator<Item = &'a Policy>,
    asked: &Authorization,
) -> Decision {
    let mut allowed = false;
    for statement in policies.into_iter().flat_map(Policy::statements) {
        if !statement.applies_to(asked) {
            continue;
        }
        if statement.denies() {
            return Decision::ExplicitlyDenied(statement.name().to_owned());
        }
        allowed = true;
    }
    if allowed { Decision::Allowed } else { Decision::ImplicitlyDenied }
}

/// Sets the keys for the tags that a request gives to a resource.
fn request_tags<'a>(context: &mut Context, tags: impl IntoIterator<Item = (&'a str, &'a str)>) {
    let mut keys = Vec::new();
    for (key, value) in tags {
        context.set(&format!("aws:RequestTag/{key}"), value);
        keys.push(key.to_owned());
    }
    context.set_all("aws:TagKeys", keys);
}

#[cfg(test)]
mod tests;
