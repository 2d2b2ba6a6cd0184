//! What can go wrong between a program and GitHub, on demand.

use std::time::Duration;

use crate::injection::{ActiveFault, Occurrence};

use super::request::Ask;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitHubFault {
    /// It takes longer, and nothing else. Adds up, and goes together with one other.
    Delay(Duration),
    /// GitHub has trouble of its own (500, 502, 503), before anything has happened.
    Status(u16),
    /// 429, with the time to wait.
    TooManyRequests {
        /// In whole seconds.
        retry_after: Duration,
    },
    /// 403, with the time to wait.
    SecondaryLimit {
        /// In whole seconds.
        retry_after: Duration,
    },
    /// 403, with nothing remaining of the hour's requests.
    PrimaryLimit {
        /// How long until there is.
        reset_in: Duration,
    },
    /// The connection is reset before anything has happened.
    Reset,
    /// It happens, and the connection is closed without an answer.
    LostAnswer,
    /// It happens, and half of the answer's body arrives before the connection is closed.
    CutBody,
    /// Nothing happens, and there is no answer for as long as the caller cares to wait.
    Hang,
    /// Nothing happens, and somebody else answers in HTML, saying 200.
    NotJson,
}

/// A rule by which requests are disturbed.
#[derive(Debug, Clone, PartialEq)]
pub struct GitHubFaultRule {
    /// For this method alone.
    pub method: Option<String>,
    /// For paths of this pattern alone, without `/api/v3`: `*` stands for one part of it, `**`
    /// at the end for any.
    pub path: Option<String>,
    /// For which of those requests.
    pub occurrence: Occurrence,
    /// What goes wrong with them.
    pub fault: GitHubFault,
}

impl GitHubFaultRule {
    /// For every request, but for those of the stand-in's own runner under `/_standin`.
    pub fn new(fault: GitHubFault) -> GitHubFaultRule {
        GitHubFaultRule { method: None, path: None, occurrence: Occurrence::Always, fault }
    }

    /// For one method and paths of one pattern: `on("GET", "/repos/*/*/actions/runners")`.
    #[must_use]
    pub fn on(self, method: &str, path: &str) -> GitHubFaultRule {
        GitHubFaultRule { method: Some(method.to_owned()), path: Some(path.to_owned()), ..self }
    }

    /// For some of the requests.
    #[must_use]
    pub fn occurrence(self, occurrence: Occurrence) -> GitHubFaultRule {
        GitHubFaultRule { occurrence, ..self }
    }

    fn is_for(&self, ask: &Ask) -> bool {
        let meant = match &self.path {
            Some(pattern) => matches(pattern, &ask.path),
            None => !ask.is_private(),
        };
        meant && self.method.as_ref().is_none_or(|method| method == ask.method.as_str())
    }
}

/// Whether a path is of a pattern.
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

/// What is to happen to one request: delays add up, of the rest the first rule wins.
pub(super) fn plan(
    ask: &Ask,
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
