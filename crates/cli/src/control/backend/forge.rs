//! Where jobs come from: GitHub, or a forge in the local files.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondeck_core::inputs::Given;
use ondeck_core::model::failure::Failure;
use ondeck_core::modes::refresh::AbsentForge;
use ondeck_core::ports::Forge;

use super::Records;
use crate::backend::{FORGE, GITHUB};
use crate::control::inputs::{is_reset, secrets};
use crate::inputs::{Backend, Common, rows};

/// The forge that refresh calls.
pub(super) async fn of_refresh(
    common: &Common,
    stored: &BTreeMap<String, String>,
    records: &Records,
) -> Result<Arc<dyn Forge>, Failure> {
    if is_github(common, stored) {
        return github(common, records).await;
    }
    #[cfg(feature = "local")]
    return Ok(Arc::new(super::local::forge(common, records)?));
    #[cfg(not(feature = "local"))]
    Err(Failure::invalid("this build of ondeck has no local forge")
        .hint("build it on Linux with --features local, or give --forge github"))
}

/// The forge whose runners teardown removes. `None` if that is GitHub and no credentials are given. The
/// runners of the local forge are gone with its file.
pub(super) async fn of_teardown(
    common: &Common,
    records: &Records,
    stored: &BTreeMap<String, String>,
) -> Result<Option<Arc<dyn Forge>>, Failure> {
    let is_github = stored.get(FORGE).map_or(common.compute != Backend::Local, |it| it == GITHUB);
    if !is_github {
        return Ok(Some(Arc::new(AbsentForge)));
    }
    match secrets(&common.given).next() {
        Some(_) => github(common, records).await.map(Some),
        None => Ok(None),
    }
}

/// Whom doctor asks about jobs and runners.
pub(super) enum ForgeOfDoctor {
    /// GitHub, with credentials.
    GitHub(Arc<dyn Forge>),
    /// GitHub, with what is needed to ask it.
    Closed(String),
    /// The local forge.
    Local,
}

/// The forge of the stored settings. Its credentials are those that refresh is given.
pub(super) async fn of_doctor(
    common: &Common,
    stored: &BTreeMap<String, String>,
    records: &Records,
) -> Result<ForgeOfDoctor, Failure> {
    let is_github = stored.get(FORGE).map_or(common.compute != Backend::Local, |it| it == GITHUB);
    if !is_github {
        return Ok(ForgeOfDoctor::Local);
    }
    if !has_credentials(&common.given) {
        let needs = "the credentials that refresh has: ONDECK_GITHUB_TOKEN, or --github-app-id and \
                     ONDECK_GITHUB_APP_PRIVATE_KEY";
        return Ok(ForgeOfDoctor::Closed(needs.to_owned()));
    }
    github(common, records).await.map(ForgeOfDoctor::GitHub)
}

/// Whether credentials for GitHub are given, or where AWS keeps them.
#[cfg_attr(
    not(any(feature = "aws", feature = "github")),
    expect(unused_variables, reason = "only GitHub needs credentials")
)]
fn has_credentials(given: &Given) -> bool {
    #[cfg(feature = "aws")]
    let is_kept = [ondeck_aws::TOKEN_SOURCE, ondeck_aws::APP_KEY_SOURCE]
        .iter()
        .any(|source| given.text(source).is_some_and(|text| !text.is_empty()));
    #[cfg(not(feature = "aws"))]
    let is_kept = false;
    #[cfg(feature = "github")]
    let is_given = [ondeck_github::inputs::TOKEN, ondeck_github::inputs::APP_PRIVATE_KEY]
        .iter()
        .any(|row| given.secret(row).is_some());
    #[cfg(not(feature = "github"))]
    let is_given = false;
    is_kept || is_given
}

/// Whether jobs come from GitHub: as given now, or as stored unless that is reset. With machines from
/// a cloud, GitHub is the default each time, because they cannot reach the jobs in a file of another
/// computer.
fn is_github(common: &Common, stored: &BTreeMap<String, String>) -> bool {
    if let Some(forge) = common.given.text(&rows::FORGE).filter(|forge| !forge.is_empty()) {
        return forge == GITHUB;
    }
    if common.compute != Backend::Local {
        return true;
    }
    if is_reset(&common.given, &rows::FORGE) {
        return false;
    }
    stored.get(FORGE).is_some_and(|forge| forge == GITHUB)
}

#[cfg(all(feature = "github", feature = "simulate"))]
pub(crate) use self::github::addresses;
#[cfg(feature = "github")]
use self::github::forge as github;

#[cfg(not(feature = "github"))]
async fn github(_common: &Common, _records: &Records) -> Result<Arc<dyn Forge>, Failure> {
    Err(Failure::invalid("this build of ondeck has no GitHub")
        .hint("build it with --features github, or give --forge local to try it without GitHub"))
}

#[cfg(feature = "github")]
mod github {
    use std::env;

    use ondeck_github::{Auth, GitHubForge, GitHubOptions, RunnerScope, inputs};

    use ondeck_core::inputs::Given;
    #[cfg(feature = "aws")]
    use ondeck_core::inputs::Input;
    use ondeck_core::model::secret::Secret;

    #[cfg(feature = "aws")]
    use super::super::kept::kept;
    use super::{Arc, Common, Failure, Forge, Records};
    use crate::control::github_actions;

    const PUBLIC: &str = "https://github.com";

    /// GitHub, for the runners of these records. It goes by their clock, so that a token that is
    /// valid there is valid here.
    pub(super) async fn forge(
        common: &Common,
        records: &Records,
    ) -> Result<Arc<dyn Forge>, Failure> {
        let given = &common.given;
        let (server_url, api_url) = addresses(given);
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
            auth: auth(given, records).await?,
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

    async fn auth(given: &Given, records: &Records) -> Result<Auth, Failure> {
        let token = given.secret(&inputs::TOKEN);
        let key = given.secret(&inputs::APP_PRIVATE_KEY);
        let (token, key) = kept_secrets(given, records, token, key).await?;
        match (token, given.owned(&inputs::APP_ID), key) {
            (Some(token), _, _) => Ok(Auth::Token(token)),
            (None, Some(id), Some(private_key)) => Ok(Auth::App { id, private_key }),
            (None, Some(id), None) => {
                Err(Failure::invalid(format!("no private key given for the GitHub App: {id}"))
                    .hint("give --github-app-private-key, or --github-app-key-source on aws"))
            }
            (None, None, Some(_)) => Err(Failure::invalid("no id given for the GitHub App")
                .hint("give --github-app-id beside its key")),
            (None, None, None) => Ok(Auth::Missing),
        }
    }

    /// The token and the key as given, or as AWS keeps them. Fails if both are named, or if AWS cannot
    /// be asked.
    #[cfg(feature = "aws")]
    async fn kept_secrets(
        given: &Given,
        records: &Records,
        token: Option<Secret>,
        key: Option<Secret>,
    ) -> Result<(Option<Secret>, Option<Secret>), Failure> {
        let read = async |secret: &Input, source: &Input, known: Option<Secret>| match kept(
            given, records, secret, source,
        )? {
            Some(kept) => kept.read().await.map(Some),
            None => Ok(known),
        };
        let token = read(&inputs::TOKEN, &ondeck_aws::TOKEN_SOURCE, token).await?;
        let key = read(&inputs::APP_PRIVATE_KEY, &ondeck_aws::APP_KEY_SOURCE, key).await?;
        Ok((token, key))
    }

    #[cfg(not(feature = "aws"))]
    #[expect(clippy::unused_async, reason = "the build with AWS has to wait for it")]
    async fn kept_secrets(
        _given: &Given,
        _records: &Records,
        token: Option<Secret>,
        key: Option<Secret>,
    ) -> Result<(Option<Secret>, Option<Secret>), Failure> {
        Ok((token, key))
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

    /// The address of GitHub's server, and of its API where that is not derived from it.
    pub(crate) fn addresses(given: &Given) -> (String, Option<String>) {
        // A workflow says where its own GitHub is; who names another one means that.
        match given.owned(&inputs::URL) {
            Some(url) => (url, None),
            None => (
                variable("GITHUB_SERVER_URL").unwrap_or_else(|| PUBLIC.to_owned()),
                variable("GITHUB_API_URL"),
            ),
        }
    }

    /// A variable that is set and not empty.
    fn variable(name: &str) -> Option<String> {
        env::var(name).ok().filter(|value| !value.is_empty())
    }
}
