//! Enforces the policies of callers: asks IAM about each call before the call is made.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::aws::call::{Call, Service};
use crate::aws::ec2::Ec2;
use crate::aws::faults::answers;
use crate::aws::iam::dynamodb::{self, Schema, Schemas};
use crate::aws::iam::sqs::Tags;
use crate::aws::iam::web_identity::{Assumption, TrustedRole, WebIdentities};
use crate::aws::iam::{
    ACCOUNT, Arns, Authorization, Context, Decision, PolicyPool, Principal, Principals, Role, logs,
    readings, secrets, sqs, web_identity,
};
use crate::http::Answer;
use crate::sync::locked;

use super::long_polls::queue_name;
use super::upstream::Upstreams;

/// A call that was refused because the caller's policies do not allow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The ARN of the caller.
    pub caller: String,
    /// The operation that was called.
    pub operation: String,
    /// The action that is not allowed, such as `dynamodb:PutItem`.
    pub action: String,
    /// The ARN of the resource, or `*`.
    pub resource: String,
    /// The request's condition keys.
    pub keys: Vec<(String, Vec<String>)>,
    /// The statement that denies it; `None` if no statement allows it.
    pub statement: Option<String>,
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denial { caller, operation, action, resource, keys, statement } = self;
        write!(f, "{caller}: {operation}: {action} on {resource}")?;
        for (key, values) in keys {
            write!(f, "; {key} = {}", values.join(", "))?;
        }
        match statement {
            Some(statement) => write!(f, "; denied by {statement}"),
            None => write!(f, "; allowed by no statement"),
        }
    }
}

/// One answer of IAM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IamDecision {
    /// The action, such as `dynamodb:PutItem`.
    pub action: String,
    /// The ARN of the resource, or `*`.
    pub resource: String,
    /// The request's condition keys.
    pub keys: Vec<(String, Vec<String>)>,
    pub allowed: bool,
}

/// The policies in force, and what they have refused.
#[derive(Debug)]
pub(super) struct Enforcement {
    decisions: Option<Mutex<Vec<IamDecision>>>,
    arns: Arns,
    principals: Principals,
    web_identities: WebIdentities,
    schemas: Mutex<HashMap<String, Schema>>,
    queue_tags: Mutex<HashMap<String, Tags>>,
    denials: Mutex<Vec<Denial>>,
}

impl Enforcement {
    pub(super) fn new(policies: &Path, region: &str, record_decisions: bool) -> Enforcement {
        let arns = Arns::new(region);
        Enforcement {
            decisions: record_decisions.then(Mutex::default),
            principals: Principals::new(policies, arns.clone()),
            web_identities: WebIdentities::default(),
            arns,
            schemas: Mutex::default(),
            queue_tags: Mutex::default(),
            denials: Mutex::default(),
        }
    }

    pub(super) fn grant(&self, key: &str, pool: &PolicyPool, roles: &[Role]) {
        self.principals.grant(key, pool, roles);
    }

    pub(super) fn add_role(
        &self,
        name: &str,
        trust: &str,
        pool: &PolicyPool,
        roles: &[Role],
    ) -> Result<String, String> {
        let arn = self.arns.role(name);
        self.web_identities.add(arn.clone(), name, trust, pool, roles)?;
        Ok(arn)
    }

    pub(super) fn issue_token(&self, claims: &[(&str, &str)]) -> String {
        self.web_identities.issue(claims)
    }

    /// The answer of STS to AssumeRoleWithWebIdentity.
    pub(super) fn assume(&self, call: &Call) -> Answer {
        let text = |name| call.params().and_then(|params| params.text(name)).unwrap_or_default();
        let (role, session) = (text("RoleArn"), text("RoleSessionName"));
        match self.web_identities.assume(role, text("WebIdentityToken")) {
            Assumption::Allowed(found, subject) => {
                let TrustedRole { name, pool, roles, .. } = &found;
                let key = self.principals.start_session(name, session, pool, roles);
                answers::assumed(&key, &format!("{role}/{session}"), &subject)
            }
            Assumption::InvalidToken => {
                let message = "The token is not one of the identity provider.";
                answers::refusal(Service::Sts, 400, "InvalidIdentityToken", message)
            }
            Assumption::Denied { subject, context, statement } => {
                locked(&self.denials).push(Denial {
                    caller: subject,
                    operation: call.operation.clone(),
                    action: web_identity::ACTION.to_owned(),
                    resource: role.to_owned(),
                    keys: keys_of(&context),
                    statement,
                });
                let message = format!("Not authorized to perform {}", web_identity::ACTION);
                answers::denied(Service::Sts, &message)
            }
        }
    }

    pub(super) fn replace(&self, key: &str, policy: &str, ec2: &Ec2) -> Result<(), String> {
        self.principals.replace(key, policy, ec2)
    }

    pub(super) fn decisions(&self) -> Vec<IamDecision> {
        self.decisions.as_ref().map(|all| locked(all).clone()).unwrap_or_default()
    }

    pub(super) fn denials(&self) -> Vec<Denial> {
        locked(&self.denials).clone()
    }

    /// The service's refusal if the caller is unknown or may not make the call, else `None`.
    pub(super) async fn refuse(
        &self,
        upstreams: &Upstreams,
        ec2: &Ec2,
        call: &Call,
    ) -> Option<Answer> {
        let Some(principal) = call.access_key().and_then(|key| self.principals.find(key, ec2))
        else {
            return Some(answers::unknown_key(call.service));
        };
        let asked = self.authorizations(upstreams, ec2, call).await;
        asked.into_iter().find_map(|asked| self.decide(&principal, call, asked))
    }

    /// Notes the access key that an answer to AssumeRole contains. It gets the policies of the
    /// caller, because the stand-ins know no roles beside those of the policies.
    pub(super) fn note_assumed(&self, ec2: &Ec2, call: &Call, answer: &Answer) {
        let body = String::from_utf8_lossy(&answer.body);
        let key = body.split_once("<AccessKeyId>").and_then(|(_, rest)| rest.split_once('<'));
        let caller = call.access_key().and_then(|key| self.principals.find(key, ec2));
        if let (Some((key, _)), Some(caller)) = (key, caller) {
            self.principals.add(key, caller);
        }
    }

    fn decide(
        &self,
        principal: &Arc<Principal>,
        call: &Call,
        mut asked: Authorization,
    ) -> Option<Answer> {
        let decision = principal.decide(&mut asked);
        self.record(&asked, &decision);
        let statement = match decision {
            Decision::Allowed => return None,
            Decision::ImplicitlyDenied => None,
            Decision::ExplicitlyDenied(statement) => Some(statement),
        };
        let because = match &statement {
            None => format!("because no identity-based policy allows the {} action", asked.action),
            Some(_) => "with an explicit deny in an identity-based policy".to_owned(),
        };
        let Authorization { action, resource, context } = asked;
        let message = format!(
            "User: {} is not authorized to perform: {action} on resource: {resource} {because}",
            principal.arn
        );
        locked(&self.denials).push(Denial {
            caller: principal.arn.clone(),
            operation: call.operation.clone(),
            keys: keys_of(&context),
            action,
            resource,
            statement,
        });
        Some(answers::denied(call.service, &message))
    }

    fn record(&self, asked: &Authorization, decision: &Decision) {
        if let Some(decisions) = &self.decisions {
            locked(decisions).push(IamDecision {
                action: asked.action.clone(),
                resource: asked.resource.clone(),
                keys: keys_of(&asked.context),
                allowed: *decision == Decision::Allowed,
            });
        }
    }

    async fn authorizations(
        &self,
        upstreams: &Upstreams,
        ec2: &Ec2,
        call: &Call,
    ) -> Vec<Authorization> {
        let none = Value::Null;
        let request = call.json().unwrap_or(&none);
        match call.service {
            Service::DynamoDb => {
                let schemas = self.schemas_of(upstreams, call, request).await;
                dynamodb::authorizations(&call.operation, request, &self.arns, &schemas)
            }
            Service::Sqs => {
                let tags = self.tags_of_queue(upstreams, call, request).await;
                sqs::authorizations(&call.operation, request, &self.arns, &tags)
            }
            Service::Logs => logs::authorizations(&call.operation, request, &self.arns),
            Service::Secrets => secrets::authorizations(&call.operation, request, &self.arns),
            Service::Ec2 => ec2.authorizations(call, &self.arns),
            Service::Quotas => vec![readings::quota(&call.operation)],
            Service::Iam => vec![readings::profile(call, &self.arns)],
            // Every caller may ask who it is. An unknown service refuses by itself.
            Service::Sts | Service::Unknown => Vec::new(),
        }
    }

    /// The tags of the queue that a call names; none if it does not exist. Asks SQS once for each queue,
    /// and again around the calls that change them.
    async fn tags_of_queue(&self, upstreams: &Upstreams, call: &Call, request: &Value) -> Tags {
        let by_name = request["QueueName"].as_str();
        let Some(queue) = queue_name(request).or(by_name) else { return Tags::new() };
        let changes = ["CreateQueue", "DeleteQueue", "TagQueue", "UntagQueue"];
        let is_changed = changes.contains(&&*call.operation);
        let known = locked(&self.queue_tags).get(queue).cloned();
        if let Some(tags) = known.filter(|_| !is_changed) {
            return tags;
        }
        locked(&self.queue_tags).remove(queue);
        // SQS goes by the end of a URL.
        let url = format!("http://sqs/{ACCOUNT}/{queue}");
        let list = call.to_sqs("ListQueueTags", json!({ "QueueUrl": url }));
        let answer = upstreams.sqs(&list).await;
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let tags = body["Tags"].as_object().cloned().unwrap_or_default();
        let text = |(key, value): (String, Value)| Some((key, value.as_str()?.to_owned()));
        let tags: Tags = tags.into_iter().filter_map(text).collect();
        if answer.status.is_success() && !is_changed {
            locked(&self.queue_tags).insert(queue.to_owned(), tags.clone());
        }
        tags
    }

    /// The key schemas of a call's tables, as far as they exist. Asks DynamoDB once for each table.
    async fn schemas_of(&self, upstreams: &Upstreams, call: &Call, request: &Value) -> Schemas {
        if matches!(&*call.operation, "CreateTable" | "UpdateTable" | "DeleteTable") {
            locked(&self.schemas).clear();
        }
        let mut schemas = Schemas::default();
        for table in dynamodb::tables(&call.operation, request) {
            let known = locked(&self.schemas).get(&table).cloned();
            let found = match known {
                Some(schema) => Some(schema),
                None => {
                    let describe = call.to_dynamodb("DescribeTable", json!({"TableName": table}));
                    let answer = upstreams.dynamodb(&describe).await;
                    let answer: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
                    Schema::of(&answer)
                }
            };
            if let Some(schema) = found {
                locked(&self.schemas).insert(table.clone(), schema.clone());
                schemas.add(&table, schema);
            }
        }
        schemas
    }
}

fn keys_of(context: &Context) -> Vec<(String, Vec<String>)> {
    context.entries().map(|(key, values)| (key.to_owned(), values.to_vec())).collect()
}
