//! Where jobs come from: GitHub, or a forge in the local files.

use std::sync::Arc;

use ondeck_core::model::failure::Failure;
use ondeck_core::ports::Forge;

use crate::inputs::Refresh;

/// GitHub, for the pool of this name, and the repository or organisation that it belongs to if
/// nobody says otherwise.
#[cfg(feature = "github")]
pub(super) fn github(
    inputs: &Refresh,
    pool: &str,
    owner: Option<&str>,
) -> Result<Arc<dyn Forge>, Failure> {
    self::github::forge(&inputs.github, pool, owner)
}

/// GitHub, in a build that does not know it.
#[cfg(not(feature = "github"))]
pub(super) fn github(
    _inputs: &Refresh,
    _pool: &str,
    _owner: Option<&str>,
) -> Result<Arc<dyn Forge>, Failure> {
    Err(Failure::invalid("this build of ondeck knows no GitHub")
        .hint("build it with --features github, or give --forge local to try it without GitHub"))
}

#[cfg(feature = "github")]
mod github {
    use std::env;

    use ondeck_github::{Auth, GitHubForge, GitHubOptions, RunnerScope};

    use super::{Arc, Failure, Forge};
    use crate::control::github_actions;
    use crate::inputs::{GitHubInputs, ScopeKind};
    use crate::surroundings::WallClock;

    const PUBLIC: &str = "https://github.com";
    const PUBLIC_API: &str = "https://api.github.com";

    pub(super) fn forge(
        inputs: &GitHubInputs,
        pool: &str,
        owner: Option<&str>,
    ) -> Result<Arc<dyn Forge>, Failure> {
        // A workflow says where its own GitHub is; who names another one means that.
        let (server_url, api_url) = match &inputs.github_url {
            Some(url) => (url.clone(), None),
            None => (
                variable("GITHUB_SERVER_URL").unwrap_or_else(|| PUBLIC.to_owned()),
                variable("GITHUB_API_URL"),
            ),
        };
        let named = inputs
            .repository
            .clone()
            .or_else(|| variable("GITHUB_REPOSITORY"))
            .or_else(|| owner.map(str::to_owned))
            .ok_or_else(|| {
                Failure::invalid("no repository given")
                    .hint("give --repository OWNER/NAME, or set GITHUB_REPOSITORY")
            })?;
        let options = GitHubOptions {
            server_url,
            api_url,
            scope: scope(inputs.scope, &named)?,
            auth: auth(inputs),
            jobs_token: inputs.jobs_token.clone(),
            jobs_repository: Some(named).filter(|name| name.contains('/')),
            pool_tag: ondeck_github::pool_tag(pool),
            runner_api_url: inputs
                .actions_runner_api_url
                .clone()
                .unwrap_or_else(|| PUBLIC_API.to_owned()),
        };
        let forge = GitHubForge::new(options, Arc::new(WallClock), Arc::new(github_actions::mask))?;
        Ok(Arc::new(forge))
    }

    fn auth(inputs: &GitHubInputs) -> Auth {
        match (&inputs.github_token, &inputs.github_app_id, &inputs.github_app_private_key) {
            (Some(token), _, _) => Auth::Token(token.clone()),
            (None, Some(id), Some(key)) => Auth::App { id: id.clone(), private_key: key.clone() },
            _ => Auth::Missing,
        }
    }

    fn scope(kind: ScopeKind, named: &str) -> Result<RunnerScope, Failure> {
        match (kind, named.split_once('/')) {
            (ScopeKind::Repository, Some((owner, name))) => {
                Ok(RunnerScope::Repository { owner: owner.to_owned(), name: name.to_owned() })
            }
            (ScopeKind::Repository, None) => {
                Err(Failure::invalid(format!("no repository given, only an owner: {named}"))
                    .hint("give --repository OWNER/NAME, or --scope organisation"))
            }
            (ScopeKind::Organisation, parts) => {
                let owner = parts.map_or(named, |(owner, _)| owner).to_owned();
                Ok(RunnerScope::Organisation { owner })
            }
        }
    }

    /// A variable that is set and not empty.
    fn variable(name: &str) -> Option<String> {
        env::var(name).ok().filter(|value| !value.is_empty())
    }
}
