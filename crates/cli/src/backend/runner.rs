//! The runner on a machine: the one that the settings name, chosen when it is made ready. An
//! agent starts before it knows them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::ports::{AgentStore, Runner};
use ondeck_core::runtime::retry::{Retry, retry};

use super::{FORGE, GITHUB};
use crate::surroundings::{Entropy, WallClock};

/// Makes a runner, or says why it cannot.
type Make = Box<dyn Fn() -> Result<Arc<dyn Runner>, String> + Send + Sync>;

/// One that is not chosen yet.
pub(super) struct ChosenRunner {
    store: Arc<dyn AgentStore>,
    #[cfg_attr(not(feature = "github"), expect(dead_code, reason = "only GitHub asks for it"))]
    place: Place,
    local: Make,
    chosen: OnceLock<Chosen>,
}

/// One that is, and for which forge.
struct Chosen {
    runner: Arc<dyn Runner>,
    github: bool,
}

/// What a runner for GitHub has to know.
#[cfg_attr(not(feature = "github"), expect(dead_code, reason = "only GitHub asks for it"))]
pub(super) struct Place {
    /// The machine.
    pub(super) id: InstanceId,
    /// The pool, by whatever name the control plane knows it.
    pub(super) pool: String,
    /// Where the machine's files are.
    pub(super) folder: std::path::PathBuf,
    /// The user that jobs run as unless the settings name another; none for the agent's own.
    pub(super) user: Option<&'static str>,
}

impl ChosenRunner {
    /// With a way to make the one for the local forge.
    pub(super) fn new(store: Arc<dyn AgentStore>, place: Place, local: Make) -> ChosenRunner {
        ChosenRunner { store, place, local, chosen: OnceLock::new() }
    }

    async fn choose(&self) -> Result<Chosen, String> {
        let settings = self.settings(Retry::PATIENT).await?;
        let github = is_github(&settings);
        let runner = if github { self.github(&settings)? } else { (self.local)()? };
        Ok(Chosen { runner, github })
    }

    async fn settings(&self, how: Retry) -> Result<BTreeMap<String, String>, String> {
        let asked = retry(&WallClock, &Entropy, how, |_| self.store.settings()).await;
        asked.map_err(|error| format!("settings: {error}"))
    }

    #[cfg(feature = "github")]
    fn github(&self, settings: &BTreeMap<String, String>) -> Result<Arc<dyn Runner>, String> {
        use ondeck_github::inputs::RUNNER_USER;
        use ondeck_github::{GitHubRunner, RunnerOptions};

        /// Where images have it.
        const IMAGE: [&str; 4] = [
            "/opt/actions-runner",
            "/home/runner/actions-runner",
            "/home/ubuntu/actions-runner",
            "/home/ec2-user/actions-runner",
        ];
        let Place { id, pool, folder, user: usual } = &self.place;
        let options = RunnerOptions {
            id: id.clone(),
            mark: ondeck_github::mark(pool),
            folder: folder.clone(),
            image: IMAGE.iter().map(Into::into).collect(),
            user: settings.get(RUNNER_USER.name).map(String::as_str).or(*usual).map(str::to_owned),
        };
        let clock = Arc::new(WallClock);
        Ok(Arc::new(GitHubRunner::new(options, self.store.clone(), clock)))
    }

    #[cfg(not(feature = "github"))]
    fn github(&self, _settings: &BTreeMap<String, String>) -> Result<Arc<dyn Runner>, String> {
        Err("jobs come from GitHub, which this build of the agent does not know".to_owned())
    }

    fn chosen(&self) -> Result<&Arc<dyn Runner>, String> {
        let chosen = self.chosen.get().map(|chosen| &chosen.runner);
        chosen.ok_or_else(|| "the runner was never made ready".to_owned())
    }

    /// A machine that was made ready for one forge would register there and wait for jobs that
    /// come to another by now.
    async fn check_forge(&self) -> Result<(), String> {
        let github = is_github(&self.settings(Retry::SHORT).await?);
        match self.chosen.get() {
            Some(chosen) if chosen.github != github => {
                Err("jobs come from another forge than when this machine was made ready".to_owned())
            }
            _ => Ok(()),
        }
    }
}

fn is_github(settings: &BTreeMap<String, String>) -> bool {
    settings.get(FORGE).is_some_and(|forge| forge == GITHUB)
}

#[async_trait]
impl Runner for ChosenRunner {
    async fn prepare(&self) -> Result<(), String> {
        if self.chosen.get().is_none() {
            let chosen = self.choose().await?;
            // Whoever was faster has chosen by the same settings.
            self.chosen.get_or_init(|| chosen);
        }
        self.chosen()?.prepare().await
    }

    async fn register(&self, run: &RunId) -> Result<(), String> {
        self.check_forge().await?;
        self.chosen()?.register(run).await
    }

    async fn work(&self, run: &RunId) -> String {
        match self.chosen() {
            Ok(runner) => runner.work(run).await,
            Err(why) => why,
        }
    }

    async fn stop(&self) -> Result<(), String> {
        self.chosen()?.stop().await
    }

    async fn deregister(&self) -> Result<(), String> {
        self.chosen()?.deregister().await
    }

    async fn account(&self) -> String {
        match self.chosen() {
            Ok(runner) => runner.account().await,
            Err(_) => String::new(),
        }
    }

    async fn clean(&self) -> Result<(), String> {
        self.chosen()?.clean().await
    }
}
