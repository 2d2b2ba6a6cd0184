//! Roles that workflows of GitHub assume: their trust policies, and the tokens of workflows.
//!
//! Documented in the IAM User Guide: "Create a role for OpenID Connect federation" and "Available keys
//! for AWS OIDC federation".

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::Value;

use super::arns::ACCOUNT;
use super::principals::{PolicyPool, Role};
use super::{Authorization, Context, Decision, Policy, decide};
use crate::sync::locked;

/// GitHub's issuer of tokens, without `https://`.
const ISSUER: &str = "token.actions.githubusercontent.com";

pub(crate) const ACTION: &str = "sts:AssumeRoleWithWebIdentity";

/// The claims of GitHub's tokens that STS offers as condition keys. A trust policy that names another
/// one is refused, because its condition would never hold.
const KEYS: [&str; 11] = [
    "aud",
    "sub",
    "actor",
    "actor_id",
    "enterprise_id",
    "environment",
    "job_workflow_ref",
    "ref",
    "repository",
    "repository_id",
    "workflow",
];

/// Who may assume a role: for each statement, the identity provider and the rest.
#[derive(Debug, Clone)]
struct TrustPolicy(Vec<(String, Policy)>);

impl TrustPolicy {
    /// Reads a trust policy. Fails for what the evaluator does not know exactly, for another principal
    /// than an identity provider, and for a condition key that STS does not offer.
    fn parse(text: &str) -> Result<TrustPolicy, String> {
        let mut policy: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let statements = policy["Statement"].as_array_mut().ok_or("Statement is not a list")?;
        let statements = std::mem::take(statements);
        let read = |mut statement: Value| {
            let fields = statement.as_object_mut().ok_or("a statement is not an object")?;
            let principal = fields.remove("Principal").ok_or("a statement without Principal")?;
            let provider = principal["Federated"].as_str().ok_or("Principal is not Federated")?;
            if principal.as_object().is_some_and(|kinds| kinds.len() > 1) {
                return Err("Principal has more than Federated".to_owned());
            }
            let conditions = fields.get("Condition").and_then(Value::as_object);
            let keys = conditions.into_iter().flat_map(|all| all.values());
            for key in keys.filter_map(Value::as_object).flat_map(|keys| keys.keys()) {
                let claim = key.strip_prefix(&format!("{ISSUER}:"));
                if !claim.is_some_and(|claim| KEYS.contains(&claim)) {
                    return Err(format!("STS has no such key for GitHub: {key}"));
                }
            }
            // A trust policy is about the role that it belongs to.
            fields.insert("Resource".to_owned(), "*".into());
            let mut alone = policy.clone();
            alone["Statement"] = Value::Array(vec![statement]);
            Ok((provider.to_owned(), Policy::parse(&alone.to_string())?))
        };
        statements.into_iter().map(read).collect::<Result<_, String>>().map(TrustPolicy)
    }

    fn decide(&self, asked: &Authorization) -> Decision {
        let provider = format!("arn:aws:iam::{ACCOUNT}:oidc-provider/{ISSUER}");
        let about = self.0.iter().filter(|(trusted, _)| *trusted == provider);
        decide(about.map(|(_, policy)| policy), asked)
    }
}

/// A role that can be assumed, and what it may do.
#[derive(Debug, Clone)]
pub(crate) struct TrustedRole {
    trust: TrustPolicy,
    pub(crate) name: String,
    pub(crate) pool: PolicyPool,
    pub(crate) roles: Vec<Role>,
}

/// The answer of STS to a token.
#[derive(Debug)]
pub(crate) enum Assumption {
    /// The role may be assumed, by the workflow with this subject.
    Allowed(TrustedRole, String),
    /// The token is not one of GitHub's.
    InvalidToken,
    /// The role does not exist, or its trust policy does not admit the token.
    Denied { subject: String, context: Context, statement: Option<String> },
}

/// All roles that can be assumed, and all tokens that GitHub has issued.
#[derive(Debug, Default)]
pub(crate) struct WebIdentities {
    roles: Mutex<BTreeMap<String, TrustedRole>>,
    tokens: Mutex<BTreeMap<String, BTreeMap<String, String>>>,
}

impl WebIdentities {
    /// Adds a role, or gives it another trust policy.
    pub(crate) fn add(
        &self,
        arn: String,
        name: &str,
        trust: &str,
        pool: &PolicyPool,
        roles: &[Role],
    ) -> Result<(), String> {
        let trust = TrustPolicy::parse(&trust.replace("ACCOUNT", ACCOUNT))?;
        let (name, pool, roles) = (name.to_owned(), pool.clone(), roles.to_vec());
        locked(&self.roles).insert(arn, TrustedRole { trust, name, pool, roles });
        Ok(())
    }

    /// A token with these claims, signed by GitHub as far as this stand-in for STS can tell.
    pub(crate) fn issue(&self, claims: &[(&str, &str)]) -> String {
        let claims = claims.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let token = format!("token.{:016x}.{:016x}", fastrand::u64(..), fastrand::u64(..));
        locked(&self.tokens).insert(token.clone(), claims.collect());
        token
    }

    /// Whether the holder of a token may assume a role.
    pub(crate) fn assume(&self, role: &str, token: &str) -> Assumption {
        let Some(claims) = locked(&self.tokens).get(token).cloned() else {
            return Assumption::InvalidToken;
        };
        let mut context = Context::default();
        for key in KEYS {
            context.set_if(&format!("{ISSUER}:{key}"), claims.get(key).cloned());
        }
        let subject = claims.get("sub").cloned().unwrap_or_default();
        let found = locked(&self.roles).get(role).cloned();
        let Some(found) = found else {
            return Assumption::Denied { subject, context, statement: None };
        };
        let (action, resource) = (ACTION.to_owned(), role.to_owned());
        let asked = Authorization { action, resource, context: context.clone() };
        match found.trust.decide(&asked) {
            Decision::Allowed => Assumption::Allowed(found, subject),
            Decision::ImplicitlyDenied => Assumption::Denied { subject, context, statement: None },
            Decision::ExplicitlyDenied(statement) => {
                Assumption::Denied { subject, context, statement: Some(statement) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust(principal: &str, condition: &str) -> String {
        format!(
            r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", {principal}
                "Action": "sts:AssumeRoleWithWebIdentity", "Condition": {condition}}}]}}"#
        )
    }

    #[test]
    fn what_would_never_hold_or_is_not_known_exactly_is_refused() {
        let provider =
            r#""Principal": {"Federated": "arn:aws:iam::000000000000:oidc-provider/x"},"#;
        let on = |key: &str| format!(r#"{{"StringEquals": {{"{ISSUER}:{key}": "x"}}}}"#);
        assert!(TrustPolicy::parse(&trust(provider, &on("sub"))).is_ok());
        for (principal, condition) in [
            ("", on("sub")),
            (r#""Principal": "*","#, on("sub")),
            (r#""Principal": {"AWS": "arn:aws:iam::000000000000:root"},"#, on("sub")),
            (provider, on("event_name")),
            (provider, r#"{"StringEquals": {"sub": "x"}}"#.to_owned()),
            (provider, r#"{"DateLessThan": {"aws:CurrentTime": "x"}}"#.to_owned()),
        ] {
            let text = trust(principal, &condition);
            assert!(TrustPolicy::parse(&text).is_err(), "{text}");
        }
    }
}
