//! What `ondeck permissions check` shows.

use ondeck_core::model::failure::{Failure, FailureKind};
use serde::Serialize;

use super::wire::{SchemaVersion, to_json};
use super::{Report, table};

/// The answers to the requests of one role.
#[derive(Debug)]
pub(crate) struct PermissionsReport {
    pub(crate) role: String,
    pub(crate) checks: Vec<CheckRow>,
}

/// Printed by `ondeck permissions check --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PermissionsJson<'a> {
    schema_version: SchemaVersion,
    /// The role that was checked.
    role: &'a str,
    /// How many requests AWS decided as expected.
    as_expected: usize,
    /// How many it decided otherwise.
    wrong: usize,
    /// How many it answered with an error that does not tell what it decided.
    unclear: usize,
    /// How many were not decided: not sent, because they have no form without effect or need what
    /// the pool does not have; or about something that EC2 looked for first and did not find.
    skipped: usize,
    /// All requests of the role, in the order of the tables.
    checks: &'a [CheckRow],
}

/// One request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "CheckJson"))]
pub(crate) struct CheckRow {
    /// Service and operation, such as `dynamodb:GetItem`.
    pub(crate) call: String,
    /// What the request is about.
    pub(crate) what: String,
    /// What AWS should decide.
    pub(crate) expected: ExpectedDecision,
    /// What it decided, with its error code if there is one; or why the request was skipped.
    pub(crate) answer: String,
    pub(crate) result: RowResult,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum ExpectedDecision {
    Denied,
    Allowed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum RowResult {
    AsExpected,
    Wrong,
    Unclear,
    Skipped,
}

impl RowResult {
    fn word(self) -> &'static str {
        match self {
            RowResult::AsExpected => "ok",
            RowResult::Wrong => "WRONG",
            RowResult::Unclear => "UNCLEAR",
            RowResult::Skipped => "skipped",
        }
    }
}

impl PermissionsReport {
    fn count(&self, result: RowResult) -> usize {
        self.checks.iter().filter(|check| check.result == result).count()
    }

    fn row(&self, check: &CheckRow) -> Vec<String> {
        let expected = match check.expected {
            ExpectedDecision::Denied => "denied",
            ExpectedDecision::Allowed => "allowed",
        };
        let cells =
            [&*self.role, &check.call, &check.what, expected, &check.answer, check.result.word()];
        cells.map(str::to_owned).to_vec()
    }
}

impl Report for PermissionsReport {
    fn json(&self) -> String {
        to_json(&PermissionsJson {
            schema_version: SchemaVersion,
            role: &self.role,
            as_expected: self.count(RowResult::AsExpected),
            wrong: self.count(RowResult::Wrong),
            unclear: self.count(RowResult::Unclear),
            skipped: self.count(RowResult::Skipped),
            checks: &self.checks,
        })
    }

    fn text(&self) -> String {
        let header = ["role", "action", "on what", "expected", "answer", "result"];
        let rows = self.checks.iter().map(|check| self.row(check)).collect();
        format!(
            "{}\n{}: {} as expected, {} wrong, {} unclear, {} skipped",
            table(&header, rows),
            self.role,
            self.count(RowResult::AsExpected),
            self.count(RowResult::Wrong),
            self.count(RowResult::Unclear),
            self.count(RowResult::Skipped),
        )
    }

    fn failure(&self) -> Option<Failure> {
        let (wrong, unclear) = (self.count(RowResult::Wrong), self.count(RowResult::Unclear));
        let failing =
            |check: &&CheckRow| matches!(check.result, RowResult::Wrong | RowResult::Unclear);
        let first = self.checks.iter().find(failing)?;
        let sent = self.checks.len() - self.count(RowResult::Skipped);
        let message = format!(
            "of {sent} requests as {}, AWS decided {wrong} wrongly and left {unclear} unclear; the \
             first: {} on {}: {}",
            self.role, first.call, first.what, first.answer
        );
        let hint = "compare the policies of the role with docs/aws-permissions.md";
        Some(Failure::new(FailureKind::WrongPermissions, message).hint(hint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(results: &[RowResult]) -> PermissionsReport {
        let check = |result: &RowResult| CheckRow {
            call: "dynamodb:Scan".to_owned(),
            what: "the whole table".to_owned(),
            expected: ExpectedDecision::Denied,
            answer: "allowed".to_owned(),
            result: *result,
        };
        PermissionsReport {
            role: "release".to_owned(),
            checks: results.iter().map(check).collect(),
        }
    }

    #[test]
    fn what_is_wrong_or_unclear_fails_and_what_was_skipped_does_not() {
        use RowResult::{AsExpected, Skipped, Unclear, Wrong};
        assert_eq!(report(&[AsExpected, Skipped]).failure(), None);
        for failing in [Wrong, Unclear] {
            let failure = report(&[AsExpected, failing, Skipped]).failure().unwrap();
            assert_eq!(failure.kind.exit_code(), 9);
        }
        let report = report(&[AsExpected, Wrong, Skipped]);
        insta::assert_snapshot!(report.failure().unwrap().message, @"of 2 requests as release, AWS decided 1 wrongly and left 0 unclear; the first: dynamodb:Scan on the whole table: allowed");
        insta::assert_snapshot!(report.text(), @"
        role     action         on what          expected  answer   result
        release  dynamodb:Scan  the whole table  denied    allowed  ok
        release  dynamodb:Scan  the whole table  denied    allowed  WRONG
        release  dynamodb:Scan  the whole table  denied    allowed  skipped
        release: 1 as expected, 1 wrong, 0 unclear, 1 skipped
        ");
    }
}
