//! The port `Forge` on GitHub.

mod address;
mod deprecation;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod runner_list;
mod runs;
mod software;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::excerpt::one_line;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::settings::{InvalidSetting, Settings};
use ondeck_core::ports::{
    Clock, FailedJob, Forge, ListedRunner, OpenRuns, PortError, PortResult, RequestBudget, Rerun,
    RunStatus, WaitingJobs,
};

use crate::auth::{Auth, Identity, IssuedToken};
use crate::client::{Client, Purpose, Request};
use crate::http;
use crate::packages::{PACKAGES_SETTING, URL_SETTING};
pub(crate) use address::Addresses;
use runner_list::RunnerList;
use runs::RunReader;

/// Called with every secret that GitHub issues before the secret is used, so that the caller can mask
/// it in logs.
pub type OnSecret = Arc<dyn Fn(&Secret) + Send + Sync>;

/// How GitHub is reached, and as whom.
#[derive(Debug, Clone)]
pub struct GitHubOptions {
    /// The address of the web interface: `https://github.com`, an Enterprise Server, or a host under
    /// `ghe.com`.
    pub server_url: String,
    /// The address of the API; by default derived from `server_url`.
    pub api_url: Option<String>,
    pub scope: RunnerScope,
    /// The credentials for managing runners.
    pub auth: Auth,
    /// The token for reading runs and jobs; by default `auth` is used.
    pub jobs_token: Option<Secret>,
    /// The repository, as `OWNER/NAME`, whose runs are searched for waiting jobs. Without one, none
    /// are searched.
    pub jobs_repository: Option<String>,
    /// Six letters or digits at the end of this pool's runner names; see [`crate::pool_tag`].
    pub pool_tag: String,
    /// The API that lists the releases of actions/runner.
    pub runner_api_url: String,
}

/// Where runners register, which decides whose jobs they can take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunnerScope {
    Repository { owner: String, name: String },
    Organisation { owner: String },
}

impl RunnerScope {
    /// Its path in the API, without a leading slash.
    pub(crate) fn path(&self) -> String {
        match self {
            RunnerScope::Repository { owner, name } => format!("repos/{owner}/{name}"),
            RunnerScope::Organisation { owner } => format!("orgs/{owner}"),
        }
    }

    /// "repository" or "organisation", for messages.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            RunnerScope::Repository { .. } => "repository",
            RunnerScope::Organisation { .. } => "organisation",
        }
    }

    fn check(&self) -> Result<(), Failure> {
        let (RunnerScope::Repository { owner, .. } | RunnerScope::Organisation { owner }) = self;
        let name = match self {
            RunnerScope::Repository { name, .. } => name,
            RunnerScope::Organisation { owner } => owner,
        };
        if is_name(owner) && is_name(name) {
            return Ok(());
        }
        Err(Failure::invalid(format!("not the name of a {}: {}", self.noun(), one_line(self)))
            .hint("write OWNER/NAME for a repository, NAME for an organisation"))
    }
}

impl fmt::Display for RunnerScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunnerScope::Repository { owner, name } => write!(f, "{owner}/{name}"),
            RunnerScope::Organisation { owner } => f.write_str(owner),
        }
    }
}

/// GitHub, managing the runners of one repository or organisation.
pub struct GitHubForge {
    scope: RunnerScope,
    target: String,
    /// Whether GitHub operates the server. `false` for Enterprise Server.
    hosted: bool,
    /// Authenticates requests about runners.
    manager: Arc<Identity>,
    /// Authenticates requests about runs, with the repository they are about.
    reader: Option<(Arc<Identity>, String)>,
    /// Authenticates requests for releases of actions/runner.
    releases: Arc<Identity>,
    list: RunnerList,
    on_secret: OnSecret,
    /// Set, and logged, when a request shows that the token may not read runs.
    cannot_read_runs: AtomicBool,
    clock: Arc<dyn Clock>,
    /// What the last set-up has to say to the operator.
    notice: Mutex<Option<String>>,
}

impl GitHubForge {
    /// Checks the options without contacting GitHub. Fails on the first invalid one.
    pub fn new(
        options: GitHubOptions,
        clock: Arc<dyn Clock>,
        on_secret: OnSecret,
    ) -> Result<GitHubForge, Failure> {
        let GitHubOptions { scope, auth, pool_tag, .. } = options;
        scope.check()?;
        if pool_tag.len() != 6 || !pool_tag.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(Failure::invalid(format!(
                "the pool tag is not six letters or digits: {}",
                one_line(&pool_tag)
            )));
        }
        let addresses = Addresses::new(
            &options.server_url,
            options.api_url.as_deref(),
            &options.runner_api_url,
        )?;
        let client = |url| Client::new(url, clock.clone());
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
        // A token must not be sent to any other server than the one it is for.
        let known = http::same_server(api, &addresses.releases) && auth != Auth::Missing;
        let releases = if known {
            manager.clone()
        } else {
            Arc::new(Identity::anonymous(client(&addresses.releases)?))
        };
        let target = format!("{}/{scope}", addresses.server);
        let (list, cannot_read_runs) = (RunnerList::new(pool_tag), AtomicBool::new(false));
        let hosted = addresses.hosted;
        Ok(GitHubForge {
            scope,
            target,
            hosted,
            manager,
            reader,
            releases,
            list,
            on_secret,
            cannot_read_runs,
            clock,
            notice: Mutex::default(),
        })
    }

    /// Replaces what [`Forge::notice`] returns.
    fn note(&self, notice: Option<String>) {
        *self.notice.lock().unwrap_or_else(PoisonError::into_inner) = notice;
    }

    /// Reads runs; `None` if there is no repository to read them from.
    fn run_reader<'a>(&'a self, budget: &'a RequestBudget) -> Option<RunReader<'a>> {
        let (reader, repository) = self.reader.as_ref()?;
        let cannot_read = &self.cannot_read_runs;
        Some(RunReader { reader, repository, budget, cannot_read })
    }

    async fn make_token(&self, kind: &str) -> PortResult<IssuedToken> {
        let path = format!("{}/actions/runners/{kind}", self.scope.path());
        let request = Request::post(Purpose::Runners(&self.scope), path);
        let answer = self.manager.ask(&request).await?;
        if !answer.is_success() {
            return Err(self.manager.error_for(&request, &answer));
        }
        IssuedToken::read(&request, &answer, &self.on_secret)
    }
}

#[async_trait]
impl Forge for GitHubForge {
    async fn set_up(&self, settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        let packages = software::look_up(self, settings).await?;
        let packages = serde_json::to_string(&packages).map_err(|error| {
            PortError::Setting(InvalidSetting {
                name: PACKAGES_SETTING.to_owned(),
                problem: format!("cannot be serialised: {error}"),
            })
        })?;
        Ok(BTreeMap::from([
            (URL_SETTING.to_owned(), self.target.clone()),
            (PACKAGES_SETTING.to_owned(), packages),
        ]))
    }

    fn notice(&self) -> Option<String> {
        self.notice.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        self.list.read(&self.manager, &self.scope).await
    }

    async fn remove_runner(&self, name: &str) -> PortResult<()> {
        self.list.remove(&self.manager, &self.scope, name).await
    }

    async fn open_runs(&self, turn: u64, budget: &RequestBudget) -> PortResult<OpenRuns> {
        match self.run_reader(budget) {
            Some(reader) => reader.open(turn).await,
            None => Ok(OpenRuns::default()),
        }
    }

    fn reads_runs(&self) -> bool {
        self.reader.is_some() && !self.cannot_read_runs.load(Ordering::Relaxed)
    }

    async fn waiting_jobs(&self, run: &RunId, budget: &RequestBudget) -> PortResult<WaitingJobs> {
        match self.run_reader(budget) {
            Some(reader) => reader.waiting_jobs(run).await,
            None => Ok(WaitingJobs::new()),
        }
    }

    async fn failed_jobs(
        &self,
        run: &RunId,
        budget: &RequestBudget,
    ) -> PortResult<Option<Vec<FailedJob>>> {
        match self.run_reader(budget) {
            Some(reader) => reader.failed_jobs(run, self.list.pool_tag()).await,
            None => Ok(None),
        }
    }

    async fn rerun(&self, run: &RunId, what: Rerun) -> PortResult<()> {
        match self.run_reader(&RequestBudget::new(1)) {
            Some(reader) => reader.rerun(run, what).await,
            None => Ok(()),
        }
    }

    async fn run_status(&self, run: &RunId, budget: &RequestBudget) -> PortResult<RunStatus> {
        match self.run_reader(budget) {
            Some(reader) => reader.status(run).await,
            None => Ok(RunStatus::Untold),
        }
    }
}

impl fmt::Debug for GitHubForge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHubForge({})", self.target)
    }
}

pub(crate) fn check_repository(repository: &str) -> Result<(), Failure> {
    match repository.split_once('/') {
        Some((owner, name)) if is_name(owner) && is_name(name) => Ok(()),
        _ => Err(Failure::invalid(format!(
            "not the name of a repository: {}",
            one_line(&repository)
        ))
        .hint("write it as OWNER/NAME")),
    }
}

/// Whether this can be the name of an owner or a repository. Names become part of URLs unescaped.
fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !name.is_empty()
        && name.len() <= 100
        && name.chars().all(allowed)
        && !matches!(name, "." | "..")
}
