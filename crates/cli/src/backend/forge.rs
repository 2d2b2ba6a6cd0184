//! Where jobs come from: GitHub, or a forge in the local files.

use std::sync::Arc;

use ondeck_core::inputs::Given;
use ondeck_core::model::failure::Failure;
use ondeck_core::ports::Forge;

/// GitHub, for the pool of this name, and the repository or organisation that it belongs to if
/// nobody says otherwise.
#[cfg(feature = "github")]
pub(super) fn github(
    given: &Given,
    pool: &str,
    owner: Option<&str>,
) -> Result<Arc<dyn Forge>, Failure> {
    self::github::forge(given, pool, owner)
}

/// GitHub, in a build that does not know it.
#[cfg(not(feature = "github"))]
pub(super) fn github(
    _given: &Given,
    _pool: &str,
    _owner: Option<&str>,
) -> Result<Arc<dyn Forge>, Failure> {
    Err(Failure::invalid("this build of ondeck knows no GitHub")
        .hint("build it with --features github, or give --forge local to try it without GitHub"))
}

#[cfg(feature = "github")]
mod github {
    use std::env;

    use ondeck_github::{Auth, GitHubForge, GitHubOptions, Scope, inputs};

    use super::{Arc, Failure, Forge, Given};
    use crate::control::actions;
    use crate::surroundings::WallClock;

    const PUBLIC: &str = "https://github.com";

    pub(super) fn forge(
        given: &Given,
        pool: &str,
        owner: Option<&str>,
    ) -> Result<Arc<dyn Forge>, Failure> {
        // A workflow says where its own GitHub is; who names another one means that.
        let (server_url, api_url) = match given.owned(&inputs::URL) {
            Some(url) => (url, None),
            None => (
                variable("GITHUB_SERVER_URL").unwrap_or_else(|| PUBLIC.to_owned()),
                variable("GITHUB_API_URL"),
            ),
        };
        let named = given
            .owned(&inputs::REPOSITORY)
            .or_else(|| variable("GITHUB_REPOSITORY"))
            .or_else(|| owner.map(str::to_owned))
            .ok_or_else(|| {
                Failure::invalid("no repository given")
                    .hint("give --repository OWNER/NAME, or set GITHUB_REPOSITORY")
            })?;
        let options = GitHubOptions {
            server_url,
            api_url,
            scope: scope(given, &named)?,
            auth: auth(given),
            jobs_token: given.secret(&inputs::JOBS_TOKEN),
            jobs_repository: Some(named).filter(|name| name.contains('/')),
            mark: ondeck_github::mark(pool),
            runner_api_url: given
                .owned(&inputs::RUNNER_API_URL)
                .unwrap_or_else(|| inputs::PUBLIC_API.to_owned()),
        };
        let forge = GitHubForge::new(options, Arc::new(WallClock), Arc::new(actions::mask))?;
        Ok(Arc::new(forge))
    }

    fn auth(given: &Given) -> Auth {
        let token = given.secret(&inputs::TOKEN);
        let app = (given.owned(&inputs::APP_ID), given.secret(&inputs::APP_PRIVATE_KEY));
        match (token, app) {
            (Some(token), _) => Auth::Token(token),
            (None, (Some(id), Some(private_key))) => Auth::App { id, private_key },
            _ => Auth::Missing,
        }
    }

    fn scope(given: &Given, named: &str) -> Result<Scope, Failure> {
        let organisation = given.text(&inputs::SCOPE) == Some(inputs::ORGANISATION_SCOPE);
        match (organisation, named.split_once('/')) {
            (false, Some((owner, name))) => {
                Ok(Scope::Repository { owner: owner.to_owned(), name: name.to_owned() })
            }
            (false, None) => {
                Err(Failure::invalid(format!("no repository given, only an owner: {named}"))
                    .hint("give --repository OWNER/NAME, or --runner-scope organisation"))
            }
            (true, parts) => {
                let owner = parts.map_or(named, |(owner, _)| owner).to_owned();
                Ok(Scope::Organisation { owner })
            }
        }
    }

    /// A variable that is set and not empty.
    fn variable(name: &str) -> Option<String> {
        env::var(name).ok().filter(|value| !value.is_empty())
    }
}
