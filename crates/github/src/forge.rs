//! GitHub as core's forge.

mod address;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod list;
mod runs;
mod software;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_trait::async_trait;
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::excerpt::one_line;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::settings::{InvalidSetting, Settings};
use ondeck_core::ports::{Clock, Forge, ListedRunner, PortError, PortResult, WaitingRun};

use crate::auth::{Auth, Fresh, Identity};
use crate::client::{Client, Purpose, Request};
use crate::http;
use crate::packages::{PACKAGES_SETTING, URL_SETTING};
use address::Addresses;
use list::List;

/// Told of every secret that comes to be, before anything else happens with it.
pub type OnSecret = Arc<dyn Fn(&Secret) + Send + Sync>;

/// What GitHub needs to be told.
#[derive(Debug, Clone)]
pub struct GitHubOptions {
    /// Where people find it: `https://github.com`, or an Enterprise Server, or a name under
    /// `ghe.com`.
    pub server_url: String,
    /// Where its API is, if it is not where that server has it.
    pub api_url: Option<String>,
    /// Where runners register.
    pub scope: Scope,
    /// What runners are managed with.
    pub auth: Auth,
    /// What runs and jobs are read with, instead of `auth`.
    pub jobs_token: Option<Secret>,
    /// `OWNER/NAME`, whose runs are looked at; without one, none are.
    pub jobs_repository: Option<String>,
    /// Six letters or digits that tell this pool's runners from those of others.
    pub mark: String,
    /// Where releases of actions/runner are looked up.
    pub runner_api_url: String,
}

/// Where runners register, and for whose jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// For one repository.
    Repository {
        /// Whose.
        owner: String,
        /// Its name.
        name: String,
    },
    /// For the repositories of an organisation.
    Organisation {
        /// Its name.
        owner: String,
    },
}

impl Scope {
    /// Its place under the root of the API.
    pub(crate) fn path(&self) -> String {
        match self {
            Scope::Repository { owner, name } => format!("repos/{owner}/{name}"),
            Scope::Organisation { owner } => format!("orgs/{owner}"),
        }
    }

    /// What it is.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Scope::Repository { .. } => "repository",
            Scope::Organisation { .. } => "organisation",
        }
    }

    fn check(&self) -> Result<(), Failure> {
        let (Scope::Repository { owner, .. } | Scope::Organisation { owner }) = self;
        let name = match self {
            Scope::Repository { name, .. } => name,
            Scope::Organisation { owner } => owner,
        };
        if is_name(owner) && is_name(name) {
            return Ok(());
        }
        Err(Failure::invalid(format!("not the name of a {}: {}", self.noun(), one_line(self)))
            .hint("it is OWNER/NAME for a repository, and NAME for an organisation"))
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::Repository { owner, name } => write!(f, "{owner}/{name}"),
            Scope::Organisation { owner } => f.write_str(owner),
        }
    }
}

/// GitHub, with the runners of one repository or organisation.
pub struct GitHubForge {
    scope: Scope,
    target: String,
    /// Whether GitHub runs the server, and not its owner.
    hosted: bool,
    /// Who manages runners.
    manager: Arc<Identity>,
    /// Who reads runs, and of which repository.
    reader: Option<(Arc<Identity>, String)>,
    /// Who reads the releases of actions/runner.
    releases: Arc<Identity>,
    list: List,
    on_secret: OnSecret,
    /// Whether it was said that runs cannot be read.
    said: AtomicBool,
}

impl GitHubForge {
    /// Checks the options. Nothing is contacted yet.
    pub fn new(
        options: GitHubOptions,
        clock: Arc<dyn Clock>,
        on_secret: OnSecret,
    ) -> Result<GitHubForge, Failure> {
        let GitHubOptions { scope, auth, mark, .. } = options;
        scope.check()?;
        if mark.len() != 6 || !mark.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(Failure::invalid(format!(
                "not six letters or digits: {}",
                one_line(&mark)
            )));
        }
        let addresses = Addresses::new(
            &options.server_url,
            options.api_url.as_deref(),
            &options.runner_api_url,
        )?;
        let client = move |url| Client::new(url, clock.clone());
        let api = &addresses.api;
        let manager = Identity::new(client(api)?, &auth, &scope, on_secret.clone())?;
        let manager = Arc::new(manager);
        let reader = match (options.jobs_repository, &options.jobs_token) {
            (None, _) => None,
            (Some(repository), None) => Some((manager.clone(), repository)),
            (Some(repository), Some(token)) => {
                Some((Arc::new(Identity::of_token(client(api)?, "jobs-token", token)?), repository))
            }
        };
        if let Some((_, repository)) = &reader {
            check_repository(repository)?;
        }
        // A token is shown to the server that it is for, and to no other.
        let known = http::same_server(api, &addresses.releases) && auth != Auth::Missing;
        let releases = if known {
            manager.clone()
        } else {
            Arc::new(Identity::anybody(client(&addresses.releases)?))
        };
        let target = format!("{}/{scope}", addresses.server);
        let (list, said) = (List::new(mark), AtomicBool::new(false));
        let hosted = addresses.hosted;
        Ok(GitHubForge { scope, target, hosted, manager, reader, releases, list, on_secret, said })
    }

    async fn make_token(&self, kind: &str) -> PortResult<Fresh> {
        let path = format!("{}/actions/runners/{kind}", self.scope.path());
        let request = Request::post(Purpose::Runners(&self.scope), path);
        let answer = self.manager.ask(&request).await?;
        if !answer.is_success() {
            return Err(self.manager.complaint(&request, &answer));
        }
        Fresh::read(&request, &answer, &self.on_secret)
    }
}

#[async_trait]
impl Forge for GitHubForge {
    async fn set_up(&self, settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        let packages = software::look_up(self, settings).await?;
        let packages = serde_json::to_string(&packages).map_err(|error| {
            PortError::Setting(InvalidSetting {
                name: PACKAGES_SETTING.to_owned(),
                problem: format!("cannot be written down: {error}"),
            })
        })?;
        Ok(BTreeMap::from([
            (URL_SETTING.to_owned(), self.target.clone()),
            (PACKAGES_SETTING.to_owned(), packages),
        ]))
    }

    fn target(&self) -> Option<String> {
        Some(self.target.clone())
    }

    async fn mint(&self) -> PortResult<Option<Credentials>> {
        let registration = self.make_token("registration-token").await?;
        let removal = self.make_token("remove-token").await?;
        Ok(Some(Credentials {
            expires_at: registration.expires_at.min(removal.expires_at),
            registration: registration.token,
            removal: removal.token,
        }))
    }

    async fn runners(&self) -> PortResult<Vec<ListedRunner>> {
        self.list.take(&self.manager, &self.scope).await
    }

    async fn remove_runner(&self, name: &str) -> PortResult<()> {
        self.list.strike(&self.manager, &self.scope, name).await
    }

    async fn waiting_runs(&self, served: &BTreeSet<RunId>) -> PortResult<Vec<WaitingRun>> {
        let Some((reader, repository)) = &self.reader else { return Ok(Vec::new()) };
        runs::waiting(reader, repository, served, &self.said).await
    }
}

impl fmt::Debug for GitHubForge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHubForge({})", self.target)
    }
}

fn check_repository(repository: &str) -> Result<(), Failure> {
    match repository.split_once('/') {
        Some((owner, name)) if is_name(owner) && is_name(name) => Ok(()),
        _ => Err(Failure::invalid(format!(
            "not the name of a repository: {}",
            one_line(&repository)
        ))
        .hint("it is of the form OWNER/NAME")),
    }
}

/// Whether GitHub could have given such a name. It becomes a part of addresses as it is.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty()
        && name.len() <= 100
        && name.chars().all(allowed)
        && !matches!(name, "." | "..")
}
