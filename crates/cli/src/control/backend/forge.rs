//! Where jobs come from: GitHub, or a forge in the local files.

use std::sync::Arc;

use ondeck_core::model::failure::Failure;
use ondeck_core::ports::{Forge, PortError};

use super::Records;
use crate::backend::{FORGE, GITHUB};
use crate::control::inputs::is_reset;
use crate::inputs::{Backend, Common, rows};

/// The forge that refresh calls.
pub(super) async fn of_refresh(
    common: &Common,
    records: &Records,
) -> Result<Arc<dyn Forge>, Failure> {
    if is_github(common, records).await? {
        return github(common, records);
    }
    #[cfg(feature = "local")]
    return Ok(Arc::new(super::local::forge(common, records)?));
    #[cfg(not(feature = "local"))]
    Err(Failure::invalid("this build of ondeck has no local forge")
        .hint("build it on Linux with --features local, or give --forge github"))
}

/// Whether jobs come from GitHub: as given now, or as stored unless that is reset. With machines from
/// a cloud, GitHub is the default each time, because they cannot reach the jobs in a file of another
/// computer.
async fn is_github(common: &Common, records: &Records) -> Result<bool, Failure> {
    if let Some(forge) = common.given.text(&rows::FORGE).filter(|forge| !forge.is_empty()) {
        return Ok(forge == GITHUB);
    }
    if common.compute != Backend::Local {
        return Ok(true);
    }
    if is_reset(&common.given, &rows::FORGE) {
        return Ok(false);
    }
    match records.store.settings().await {
        Ok(settings) => Ok(settings.get(FORGE).is_some_and(|forge| forge == GITHUB)),
        Err(PortError::NotSetUp { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(feature = "github")]
use self::github::forge as github;

#[cfg(not(feature = "github"))]
fn github(_common: &Common, _records: &Records) -> Result<Arc<dyn Forge>, Failure> {
    Err(Failure::invalid("this build of ondeck has no GitHub")
        .hint("build it with --features github, or give --forge local to try it without GitHub"))
}

#[cfg(feature = "github")]
mod github {
    use std::env;

    use ondeck_github::{Auth, GitHubForge, GitHubOptions, RunnerScope, inputs};

    use ondeck_core::inputs::Given;

    use super::{Arc, Common, Failure, Forge, Records};
    use crate::control::github_actions;

    const PUBLIC: &str = "https://github.com";

    /// GitHub, for the runners of these records. It goes by their clock, so that a token that is
    /// valid there is valid here.
    pub(super) fn forge(common: &Common, records: &Records) -> Result<Arc<dyn Forge>, Failure> {
        let given = &common.given;
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
            .or_else(|| records.owner.clone())
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
            pool_tag: ondeck_github::pool_tag(&records.label),
            runner_api_url: given
                .owned(&inputs::RUNNER_API_URL)
                .unwrap_or_else(|| inputs::PUBLIC_API.to_owned()),
        };
        let forge =
            GitHubForge::new(options, records.clock.clone(), Arc::new(github_actions::mask))?;
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

    fn scope(given: &Given, named: &str) -> Result<RunnerScope, Failure> {
        let organisation = given.text(&inputs::SCOPE) == Some(inputs::ORGANISATION_SCOPE);
        match (organisation, named.split_once('/')) {
            (false, Some((owner, name))) => {
                Ok(RunnerScope::Repository { owner: owner.to_owned(), name: name.to_owned() })
            }
            (false, None) => {
                Err(Failure::invalid(format!("no repository given, only an owner: {named}"))
                    .hint("give --repository OWNER/NAME, or --runner-scope organisation"))
            }
            (true, parts) => {
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
