//! Requests to GitHub's API, and the permissions that they need.

use std::fmt;

use reqwest::Method;

use crate::forge::RunnerScope;

pub(crate) struct Request<'a> {
    pub(crate) method: Method,
    /// Relative to the root of the API, without a leading slash.
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) purpose: Purpose<'a>,
}

impl<'a> Request<'a> {
    pub(crate) fn get(purpose: Purpose<'a>, path: String) -> Request<'a> {
        Request { method: Method::GET, path, query: Vec::new(), purpose }
    }

    pub(crate) fn post(purpose: Purpose<'a>, path: String) -> Request<'a> {
        Request { method: Method::POST, ..Request::get(purpose, path) }
    }

    pub(crate) fn delete(purpose: Purpose<'a>, path: String) -> Request<'a> {
        Request { method: Method::DELETE, ..Request::get(purpose, path) }
    }

    /// Adds a query parameter.
    pub(crate) fn with(mut self, name: &'static str, value: &impl ToString) -> Request<'a> {
        self.query.push((name, value.to_string()));
        self
    }
}

/// What a request is about. Error messages name it, and hints name the permission it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose<'a> {
    /// The runners of a repository or an organisation, including their tokens and downloads.
    Runners(&'a RunnerScope),
    /// The runs of a repository, and their jobs.
    Runs(&'a str),
    /// Re-running jobs of a repository.
    Reruns(&'a str),
    /// The installation of the GitHub App, and its token.
    Installation(&'a RunnerScope),
    /// The release of actions/runner with this version.
    Release(&'a str),
}

/// The kind of a token, as far as its prefix tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    FineGrained,
    Classic,
    /// An installation token made outside of ondeck, such as a workflow's `GITHUB_TOKEN`.
    Installation,
    /// Requested by ondeck for its GitHub App.
    App,
    Unknown,
}

impl TokenKind {
    pub(crate) fn of(token: &str) -> TokenKind {
        match token {
            _ if token.starts_with("github_pat_") => TokenKind::FineGrained,
            _ if token.starts_with("ghp_") => TokenKind::Classic,
            _ if token.starts_with("ghs_") => TokenKind::Installation,
            _ => TokenKind::Unknown,
        }
    }
}

impl fmt::Display for TokenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == TokenKind::App { "the GitHub App" } else { "the token" })
    }
}

impl Purpose<'_> {
    /// The verb for messages such as "may not {verb} {purpose}".
    pub(crate) fn verb(&self) -> &'static str {
        match self {
            Purpose::Runners(_) => "manage",
            Purpose::Installation(_) => "use",
            Purpose::Reruns(_) => "re-run",
            Purpose::Runs(_) | Purpose::Release(_) => "read",
        }
    }

    /// The hint that says which permission a token of this kind needs.
    pub(crate) fn needs(&self, kind: TokenKind) -> String {
        let (permission, scope, place) = match self {
            Purpose::Runners(place @ RunnerScope::Repository { .. }) => {
                ("Administration: write", "repo", place.to_string())
            }
            Purpose::Runners(place @ RunnerScope::Organisation { .. }) => {
                ("Self-hosted runners: write", "admin:org", place.to_string())
            }
            Purpose::Runs(repository) => ("Actions: read", "repo", (*repository).to_owned()),
            Purpose::Reruns(repository) => ("Actions: write", "repo", (*repository).to_owned()),
            Purpose::Installation(_) => {
                return "check whether the GitHub App is suspended or has permission requests that \
                        are not accepted yet"
                    .to_owned();
            }
            Purpose::Release(_) => {
                return "any token may read releases of actions/runner".to_owned();
            }
        };
        match kind {
            TokenKind::FineGrained => {
                format!("a fine-grained token needs {permission} on {place}")
            }
            TokenKind::Classic => {
                format!(
                    "a classic token needs the scope {scope}, and its owner the right to \
                         administer {place}"
                )
            }
            TokenKind::Installation if matches!(self, Purpose::Runners(_)) => format!(
                "an installation token needs {permission} on {place}, which a workflow's own \
                 GITHUB_TOKEN never has"
            ),
            TokenKind::Installation => {
                format!("an installation token needs {permission} on {place}")
            }
            TokenKind::App => format!("the GitHub App needs {permission} on {place}"),
            TokenKind::Unknown => format!(
                "a fine-grained token needs {permission} on {place}; a classic one the scope \
                 {scope}"
            ),
        }
    }
}

impl fmt::Display for Purpose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Purpose::Runners(place) => write!(f, "the runners of {place}"),
            Purpose::Runs(repository) => write!(f, "the runs of {repository}"),
            Purpose::Reruns(repository) => write!(f, "jobs of {repository}"),
            Purpose::Installation(place) => write!(f, "the installation on {place}"),
            Purpose::Release(version) => write!(f, "release {version} of actions/runner"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = include_str!("../../../../docs/github-permissions.md");

    #[test]
    fn the_permissions_page_names_what_the_hints_name() {
        let repository =
            RunnerScope::Repository { owner: "acme".to_owned(), name: "web".to_owned() };
        let organisation = RunnerScope::Organisation { owner: "acme".to_owned() };
        for (purpose, permission, scope) in [
            (Purpose::Runners(&repository), "Administration: write", "repo"),
            (Purpose::Runners(&organisation), "Self-hosted runners: write", "admin:org"),
            (Purpose::Runs("acme/web"), "Actions: read", "repo"),
            (Purpose::Reruns("acme/web"), "Actions: write", "repo"),
        ] {
            let hint = purpose.needs(TokenKind::Unknown);
            assert!(hint.contains(permission) && hint.ends_with(scope), "{hint}");
            assert!(DOCUMENT.contains(permission), "{permission}");
            assert!(DOCUMENT.contains(&format!("`{scope}`")), "{scope}");
        }
    }
}
