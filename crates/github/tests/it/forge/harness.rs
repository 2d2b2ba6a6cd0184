//! The harness of these tests: a stand-in for GitHub, a clock that agrees with it, and forges on both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::settings::Settings;
use ondeck_core::ports::{PortError, PortResult};
use ondeck_core::runtime::retry::{Retry, retry};
use ondeck_core::testkit::FixedRandom;
use ondeck_github::{Auth, GitHubForge, GitHubOptions, RunnerScope};
use ondeck_standin::{GitHub, Permission};

use super::clock::MovedClock;

/// A token with all permissions on `acme/web` and `acme`.
pub(crate) const TOKEN: &str = "ghp_siteToken0123456789";
pub(crate) const POOL_TAG: &str = "a1b2c3";

pub(crate) struct ForgeHarness {
    pub(crate) github: GitHub,
    pub(crate) clock: Arc<MovedClock>,
    secrets: Arc<Mutex<Vec<Secret>>>,
}

impl ForgeHarness {
    pub(crate) fn new() -> ForgeHarness {
        ForgeHarness::with(ondeck_standin::GitHubOptions::default())
    }

    pub(crate) fn with(options: ondeck_standin::GitHubOptions) -> ForgeHarness {
        let github = GitHub::start(options);
        github.allow(TOKEN, "acme/web", &[Permission::Administration, Permission::ActionsRead]);
        github.allow(TOKEN, "acme", &[Permission::OrganisationRunners]);
        ForgeHarness { github, clock: Arc::default(), secrets: Arc::default() }
    }

    /// Options for the stand-in, with [`TOKEN`], for the repository.
    pub(crate) fn options(&self) -> GitHubOptions {
        options(self.github.url())
    }

    pub(crate) fn forge(&self) -> GitHubForge {
        self.forge_with(self.options())
    }

    pub(crate) fn forge_of_organisation(&self) -> GitHubForge {
        let scope = RunnerScope::Organisation { owner: "acme".to_owned() };
        self.forge_with(GitHubOptions { scope, ..self.options() })
    }

    pub(crate) fn forge_with(&self, options: GitHubOptions) -> GitHubForge {
        self.try_forge(options).unwrap()
    }

    pub(crate) fn try_forge(&self, options: GitHubOptions) -> Result<GitHubForge, Failure> {
        let secrets = self.secrets.clone();
        let on_secret = move |secret: &Secret| secrets.lock().unwrap().push(secret.clone());
        GitHubForge::new(options, self.clock.clone(), Arc::new(on_secret))
    }

    /// The secrets that were announced, in order.
    pub(crate) fn secrets(&self) -> Vec<Secret> {
        self.secrets.lock().unwrap().clone()
    }

    /// Advances the stand-in's clock and ours.
    pub(crate) fn advance(&self, span: Duration) {
        self.github.advance(span);
        self.clock.advance(span);
    }

    /// Calls with core's retry.
    pub(crate) async fn retried<T, F>(&self, mut call: impl FnMut() -> F) -> PortResult<T>
    where
        F: Future<Output = PortResult<T>>,
    {
        retry(&*self.clock, &FixedRandom(0), Retry::SHORT, |_| call()).await
    }
}

/// Options for this server, with [`TOKEN`], for the repository.
pub(crate) fn options(url: &str) -> GitHubOptions {
    GitHubOptions {
        server_url: url.to_owned(),
        api_url: None,
        scope: RunnerScope::Repository { owner: "acme".to_owned(), name: "web".to_owned() },
        auth: Auth::Token(Secret::new(TOKEN)),
        jobs_token: None,
        jobs_repository: Some("acme/web".to_owned()),
        pool_tag: POOL_TAG.to_owned(),
        runner_api_url: format!("{url}/api/v3"),
    }
}

/// Parses settings; panics if they are invalid.
pub(crate) fn settings(entries: &[(&str, &str)]) -> Settings {
    let entry = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let map: BTreeMap<String, String> = entries.iter().map(entry).collect();
    Settings::from_map(&map).unwrap()
}

/// Reason and hint of an error that is final. Panics for any other result.
#[track_caller]
pub(crate) fn refusal<T: std::fmt::Debug>(answer: PortResult<T>) -> (String, String) {
    match answer {
        Err(PortError::Forge { reason, hint }) => (reason, hint),
        other => panic!("not refused: {other:?}"),
    }
}

/// Reason and hint of a rate limit that is over or not. Panics for any other result.
#[track_caller]
pub(crate) fn limit<T: std::fmt::Debug>(answer: PortResult<T>, over: bool) -> (String, String) {
    match answer {
        Err(PortError::Limited { reason, hint, is_over }) if is_over == over => (reason, hint),
        other => panic!("not limited: {other:?}"),
    }
}

/// Reason of an error that may pass. Panics for any other result.
#[track_caller]
pub(crate) fn transient<T: std::fmt::Debug>(answer: PortResult<T>) -> String {
    match answer {
        Err(PortError::Unavailable { service: "GitHub", reason }) => reason,
        other => panic!("not unavailable: {other:?}"),
    }
}
