//! Faults that a test injects between a program and GitHub.

use std::time::Duration;

use crate::injection::{ActiveFault, Occurrence};

use super::request::ApiRequest;

/// A fault that a [`GitHubFaultRule`] injects into a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitHubFault {
    /// The request takes longer. Delays of several rules add up, and combine with one other fault.
    Delay(Duration),
    /// GitHub answers with a server error (500, 502 or 503) and does nothing.
    Status(u16),
    /// Status 429, with the time to wait.
    TooManyRequests {
        /// The value of the `retry-after` header, in whole seconds.
        retry_after: Duration,
    },
    /// The secondary rate limit: status 403, with the time to wait.
    SecondaryLimit {
        /// The value of the `retry-after` header, in whole seconds.
        retry_after: Duration,
    },
    /// The primary rate limit: status 403, with no requests remaining in this hour.
    PrimaryLimit {
        /// The time until the limit resets.
        reset_in: Duration,
    },
    /// The connection is reset before GitHub sees the request.
    Reset,
    /// GitHub performs the request, and the connection is closed without an answer.
    LostAnswer,
    /// GitHub performs the request, and the connection is closed after half of the answer's body.
    CutBody,
    /// GitHub does nothing and never answers.
    Hang,
    /// GitHub does nothing, and a proxy answers with HTML and status 200.
    NotJson,
}

/// Which requests get a fault. A filter that is `None` admits every request.
#[derive(Debug, Clone, PartialEq)]
pub struct GitHubFaultRule {
    pub method: Option<String>,
    /// A pattern for paths without `/api/v3`: `*` matches one segment, `**` at the end matches
    /// any number of them.
    pub path: Option<String>,
    /// Which of the requests that pass the filters get the fault.
    pub occurrence: Occurrence,
    pub fault: GitHubFault,
}

impl GitHubFaultRule {
    /// Injects the fault into every request, except those of the runner double under `/_standin`.
    pub fn new(fault: GitHubFault) -> GitHubFaultRule {
        GitHubFaultRule { method: None, path: None, occurrence: Occurrence::Always, fault }
    }

    /// Limits the rule to a method and a pattern: `on("GET", "/repos/*/*/actions/runners")`.
    #[must_use]
    pub fn on(self, method: &str, path: &str) -> GitHubFaultRule {
        GitHubFaultRule { method: Some(method.to_owned()), path: Some(path.to_owned()), ..self }
    }

    /// Limits the rule to some of the requests that pass its filters.
    #[must_use]
    pub fn occurrence(self, occurrence: Occurrence) -> GitHubFaultRule {
        GitHubFaultRule { occurrence, ..self }
    }

    fn is_for(&self, ask: &ApiRequest) -> bool {
        let meant = match &self.path {
            Some(pattern) => matches(pattern, &ask.path),
            None => !ask.is_private(),
        };
        meant && self.method.as_ref().is_none_or(|method| method == ask.method.as_str())
    }
}

/// Whether a path matches a pattern; see [`GitHubFaultRule::path`].
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = path.split('/');
    for wanted in pattern.split('/') {
        if wanted == "**" {
            return true;
        }
        match parts.next() {
            Some(part) if wanted == "*" || wanted == part => {}
            _ => return false,
        }
    }
    parts.next().is_none()
}

/// The delay and the fault for one request. Delays add up; of the other faults,
/// the first rule's wins.
pub(super) fn plan(
    ask: &ApiRequest,
    rules: &[ActiveFault<GitHubFaultRule>],
) -> (Duration, Option<GitHubFault>) {
    let (mut delay, mut fault) = (Duration::ZERO, None);
    for rule in rules {
        match rule.rule().fault {
            GitHubFault::Delay(longer) => {
                if rule.fires(|rule| rule.is_for(ask)) {
                    delay += longer;
                }
            }
            other => {
                if fault.is_none() && rule.fires(|rule| rule.is_for(ask)) {
                    fault = Some(other);
                }
            }
        }
    }
    (delay, fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_paths() {
        let cases = [
            ("/repos/*/*/actions/runners", "/repos/acme/web/actions/runners", true),
            ("/repos/*/*/actions/runners", "/repos/acme/web/actions/runners/1", false),
            ("/repos/*/*/actions/runners/*", "/repos/acme/web/actions/runners", false),
            ("/repos/**", "/repos/acme/web/actions/runners/1", true),
            ("/repos/**", "/orgs/acme/actions/runners", false),
            ("/app", "/app", true),
        ];
        for (pattern, path, meant) in cases {
            assert_eq!(matches(pattern, path), meant, "{pattern} {path}");
        }
    }
}
