//! What an answer tells about IAM's decision. IAM decides before a service looks at conditions, so
//! a condition that failed means that the request was allowed.

use serde_json::Value;

use super::{CheckResult, Decision};
use crate::raw_client::RawAnswer;

/// The codes of a request that IAM denied.
pub(crate) const DENIALS: [&str; 3] =
    ["AccessDenied", "AccessDeniedException", "UnauthorizedOperation"];

/// The codes of a request that IAM allowed, and that could have no effect.
const ALLOWED: [&str; 8] = [
    "AWS.SimpleQueueService.NonExistentQueue",
    "ConditionalCheckFailedException",
    "DryRunOperation",
    "NoSuchEntity",
    "NoSuchResourceException",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
    "TransactionCanceledException",
];

/// Compares an answer with what was expected. Returns the result, and the answer in words.
pub(super) fn judge(call: &str, expected: Decision, answer: &RawAnswer) -> (CheckResult, String) {
    let code = answer.code.as_str();
    let with_code = |word: &str| match code {
        "" => word.to_owned(),
        code => format!("{word}: {code}"),
    };
    match decision(answer) {
        Some(decided) => {
            let word = if decided == Decision::Denied { "denied" } else { "allowed" };
            let fits = decided == expected;
            let result = if fits { CheckResult::AsExpected } else { CheckResult::Wrong };
            (result, with_code(word))
        }
        // The table's images, key pairs and profiles do not exist. EC2 may look for them first.
        None if call.starts_with("ec2:")
            && expected == Decision::Denied
            && is_about_input(code) =>
        {
            (CheckResult::Skipped, format!("not decided: {code}"))
        }
        None => (CheckResult::Unclear, with_code("unclear")),
    }
}

fn is_about_input(code: &str) -> bool {
    code.starts_with("Invalid") && !code.starts_with("InvalidClientTokenId")
}

/// What IAM decided; `None` if the answer does not tell.
fn decision(answer: &RawAnswer) -> Option<Decision> {
    let code = answer.code.as_str();
    if DENIALS.contains(&code) || has_denied_part(&answer.body) {
        return Some(Decision::Denied);
    }
    let allowed = code.is_empty() && answer.status < 300 || ALLOWED.contains(&code);
    allowed.then_some(Decision::Allowed)
}

/// Whether a batch of statements or a transaction reports that one of its parts was denied.
fn has_denied_part(body: &Value) -> bool {
    let parts = |name: &str| body[name].as_array().into_iter().flatten();
    let codes = parts("Responses")
        .map(|part| &part["Error"]["Code"])
        .chain(parts("CancellationReasons").map(|part| &part["Code"]));
    codes.filter_map(Value::as_str).any(|code| DENIALS.contains(&code))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_code_tells_what_was_decided() {
        use CheckResult::{AsExpected, Skipped, Unclear, Wrong};
        use Decision::{Allowed, Denied};
        for (call, expected, status, code, result, words) in [
            ("ec2:RunInstances", Denied, 403, "UnauthorizedOperation", AsExpected, "denied: "),
            ("ec2:RunInstances", Denied, 412, "DryRunOperation", Wrong, "allowed: "),
            ("ec2:RunInstances", Denied, 400, "InvalidAMIID.NotFound", Skipped, "not decided: "),
            ("ec2:RunInstances", Allowed, 400, "InvalidAMIID.NotFound", Unclear, "unclear: "),
            ("ec2:RunInstances", Denied, 401, "AuthFailure", Unclear, "unclear: "),
            ("ec2:RunInstances", Denied, 400, "InvalidClientTokenId", Unclear, "unclear: "),
            ("sqs:ReceiveMessage", Denied, 400, "AccessDeniedException", AsExpected, "denied: "),
            ("sqs:ReceiveMessage", Allowed, 400, "QueueDoesNotExist", AsExpected, "allowed: "),
            ("sqs:ReceiveMessage", Denied, 400, "QueueDoesNotExist", Wrong, "allowed: "),
            ("dynamodb:GetItem", Allowed, 200, "", AsExpected, "allowed"),
            ("dynamodb:GetItem", Denied, 200, "", Wrong, "allowed"),
            ("dynamodb:GetItem", Denied, 400, "ValidationException", Unclear, "unclear: "),
            ("dynamodb:GetItem", Denied, 404, "", Unclear, "unclear"),
        ] {
            let (code, text) = (code.to_owned(), String::new());
            let answer = RawAnswer { status, code: code.clone(), body: Value::Null, text };
            let expected_words = format!("{words}{code}");
            assert_eq!(judge(call, expected, &answer), (result, expected_words), "{call} {code}");
        }
    }

    #[test]
    fn a_part_of_a_batch_may_be_denied_by_itself() {
        for (body, decided) in [
            (json!({ "Responses": [{}, { "Error": { "Code": "AccessDenied" } }] }), "denied"),
            (
                json!({ "Responses": [{ "Error": { "Code": "ConditionalCheckFailed" } }] }),
                "allowed",
            ),
            (json!({ "CancellationReasons": [{ "Code": "AccessDenied" }] }), "denied"),
        ] {
            let (code, text) = (String::new(), String::new());
            let answer = RawAnswer { status: 200, code, body, text };
            let (_, words) = judge("dynamodb:BatchExecuteStatement", Decision::Denied, &answer);
            assert_eq!(words, decided);
        }
    }
}
