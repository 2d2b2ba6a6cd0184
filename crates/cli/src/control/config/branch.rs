//! In a workflow, only the default branch applies a configuration. What really keeps other branches
//! out is the trust policy of the refresh role; this says so before AWS does.

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::failure::Failure;
use serde_json::Value;

use crate::control::github_actions;

/// Fails in a workflow step that does not run on the default branch of its repository.
pub(super) fn check_default() -> Result<(), Failure> {
    if !github_actions::is_active() {
        return Ok(());
    }
    let variable = |name| std::env::var(name).unwrap_or_default();
    let event = std::fs::read_to_string(variable("GITHUB_EVENT_PATH")).unwrap_or_default();
    check(&variable("GITHUB_EVENT_NAME"), &variable("GITHUB_REF"), &event)
}

/// GitHub runs scheduled workflows on the default branch only, and the event need not name it:
/// <https://docs.github.com/en/actions/reference/workflows-and-actions/events-that-trigger-workflows#schedule>
fn check(event_name: &str, git_ref: &str, event: &str) -> Result<(), Failure> {
    let event: Value = serde_json::from_str(event).unwrap_or_default();
    let branch = event["repository"]["default_branch"].as_str();
    let is_default = branch.is_some_and(|branch| git_ref == format!("refs/heads/{branch}"));
    if is_default || (branch.is_none() && event_name == "schedule") {
        return Ok(());
    }
    let message = match branch {
        Some(branch) => {
            format!("not on the default branch, which is {branch}: {}", quoted(git_ref))
        }
        None => format!(
            "the event does not name the default branch, so this may be another: {}",
            quoted(git_ref)
        ),
    };
    Err(Failure::invalid(message).hint(
        "run ondeck apply on the default branch; ondeck apply --dry-run works on each branch",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_default_branch_passes() {
        let event = r#"{"repository":{"default_branch":"main"}}"#;
        for (name, git_ref, event, passes) in [
            ("push", "refs/heads/main", event, true),
            ("workflow_dispatch", "refs/heads/main", event, true),
            ("schedule", "refs/heads/main", "{}", true),
            ("schedule", "refs/heads/other", event, false),
            ("push", "refs/heads/feature", event, false),
            ("push", "refs/heads/main2", event, false),
            ("push", "refs/tags/main", event, false),
            ("push", "main", event, false),
            ("pull_request", "refs/pull/7/merge", event, false),
            ("push", "refs/heads/main", "{}", false),
            ("push", "refs/heads/main", "not JSON", false),
            ("push", "refs/heads/main", r#"{"repository":{"default_branch":7}}"#, false),
            ("push", "", "", false),
        ] {
            assert_eq!(check(name, git_ref, event).is_ok(), passes, "{name} {git_ref} {event}");
        }
    }
}
