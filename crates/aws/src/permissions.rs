//! Sends the requests of `policies/checks` with the credentials of a role, and compares what AWS
//! answers with what the role should be answered.
//!
//! No request has an effect, even if the role is allowed to make it: [`harmless`] rewrites each one,
//! or says why it has no such form.

pub(crate) mod answer;
mod harmless;
mod placeholders;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::PortResult;
use serde::Deserialize;
use serde_json::Value;

use crate::cloud::Cloud;
use crate::names::PoolName;

use crate::raw_client::RawClient;
use placeholders::Placeholders;

const DENIED: &str = include_str!("../../../policies/checks/denied.json");
const ALLOWED: &str = include_str!("../../../policies/checks/allowed.json");

/// The roles that the tables are about.
pub const ROLES: &[&str] = &["refresh", "provision", "release", "operator", "steward", "machine"];

/// Whose permissions are checked, and what the requests name.
#[derive(Debug, Clone)]
pub struct CheckSubject {
    /// One of [`ROLES`]. The credentials of the connection are expected to be this role's.
    pub role: String,
    /// The calling machine, for the role of machines.
    pub machine: Option<InstanceId>,
    /// Another pool of the account, which the role must not reach. Without it, the requests name a
    /// pool that does not exist.
    pub other_pool: Option<PoolName>,
}

/// What IAM decides about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Denied,
    Allowed,
}

/// What a row of the tables came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckResult {
    /// AWS decided as expected.
    AsExpected,
    /// AWS allowed what must be denied, or denied what must be allowed.
    Wrong,
    /// AWS answered with an error that does not tell what it decided.
    Unclear,
    /// Nothing was sent, or EC2 looked for a resource that does not exist before it decided.
    Skipped,
}

/// One row of the tables, after its request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionCheck {
    /// Service and operation, such as `dynamodb:GetItem`.
    pub call: String,
    /// What the request is about, in words.
    pub what: String,
    pub expected: Decision,
    pub result: CheckResult,
    /// The decision, with the code that AWS answered; or why there is none.
    pub answer: String,
}

/// A row of the tables.
#[derive(Debug, Clone, Deserialize)]
struct TableRow {
    role: String,
    call: String,
    request: Value,
    why: String,
}

/// Checks all rows of a role, one after the other. Fails if the settings cannot be read, or if a
/// service does not answer.
pub async fn check_permissions(
    cloud: &Cloud,
    subject: &CheckSubject,
) -> PortResult<Vec<PermissionCheck>> {
    check_rows(cloud, subject, |_| true).await
}

/// The permissions that an operator has, and the credentials of the connection lack. Fails as
/// [`check_permissions`] does.
pub(crate) async fn missing_of_operator(cloud: &Cloud) -> PortResult<Vec<PermissionCheck>> {
    let role = "operator".to_owned();
    let subject = CheckSubject { role, machine: None, other_pool: None };
    let mut checks = check_rows(cloud, &subject, |it| it == Decision::Allowed).await?;
    checks.retain(|check| check.result == CheckResult::Wrong);
    Ok(checks)
}

/// Checks the rows of a role that have these expectations.
async fn check_rows(
    cloud: &Cloud,
    subject: &CheckSubject,
    is_asked: impl Fn(Decision) -> bool,
) -> PortResult<Vec<PermissionCheck>> {
    let client = RawClient::new(cloud);
    let placeholders = Placeholders::find(cloud, subject).await?;
    let mut checks = Vec::new();
    for (expected, row) in rows() {
        if row.role == subject.role && is_asked(expected) {
            checks.push(check(&client, &placeholders, expected, row).await?);
        }
    }
    Ok(checks)
}

fn rows() -> impl Iterator<Item = (Decision, TableRow)> {
    let tables = [(Decision::Denied, DENIED), (Decision::Allowed, ALLOWED)];
    tables.into_iter().flat_map(|(expected, table)| {
        let rows: Vec<TableRow> = serde_json::from_str(table).expect("the tables are checked");
        rows.into_iter().map(move |row| (expected, row))
    })
}

async fn check(
    client: &RawClient,
    placeholders: &Placeholders,
    expected: Decision,
    row: TableRow,
) -> PortResult<PermissionCheck> {
    let TableRow { call, request, why, .. } = row;
    let request = placeholders
        .fill(&call, &request, expected)
        .and_then(|request| harmless::harmless(&call, request, &client.sqs_url(), expected));
    let (result, answer) = match request {
        Ok(request) => answer::judge(&call, expected, &client.send(&call, &request).await?),
        Err(reason) => (CheckResult::Skipped, reason.to_owned()),
    };
    Ok(PermissionCheck { call, what: why, expected, result, answer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_of_a_known_role() {
        let rows: Vec<_> = rows().collect();
        assert!(rows.len() > 150, "{}", rows.len());
        for (_, row) in &rows {
            assert!(ROLES.contains(&row.role.as_str()), "{row:?}");
        }
        for role in ROLES {
            assert!(rows.iter().any(|(_, row)| row.role == *role), "{role}");
        }
    }
}
