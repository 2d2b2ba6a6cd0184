//! The runner on a machine. It is chosen by the settings when the machine is prepared, because an
//! agent starts before it has read them.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::{AgentStore, Clock, Runner};
use ondeck_core::runtime::retry::{Retry, retry};

use super::{FORGE, GITHUB};
use crate::surroundings::Entropy;

/// Makes a runner, or returns why it cannot.
pub(super) type MakeRunner = Box<dyn Fn() -> Result<Arc<dyn Runner>, String> + Send + Sync>;

/// A runner for the forge that the settings name at the first [`Runner::prepare`].
pub(super) struct ChosenRunner {
    store: Arc<dyn AgentStore>,
    clock: Arc<dyn Clock>,
    #[cfg_attr(
        not(all(feature = "github", target_os = "linux")),
        expect(dead_code, reason = "only the runner for GitHub reads it")
    )]
    place: RunnerPlace,
    local: MakeRunner,
    chosen: OnceLock<Chosen>,
}

/// The runner, and whether it is for GitHub.
struct Chosen {
    runner: Arc<dyn Runner>,
    github: bool,
}

/// What a runner for GitHub has to know about its machine.
#[cfg_attr(
    not(all(feature = "github", target_os = "linux")),
    expect(dead_code, reason = "only the runner for GitHub reads it")
)]
pub(super) struct RunnerPlace {
    pub(super) id: InstanceId,
    /// Names the set of records that the machine belongs to, as the control plane does.
    pub(super) label: String,
    pub(super) folder: std::path::PathBuf,
    /// Folders above `folder` that belong to the pool; see `RunnerOptions::pool_folders`.
    pub(super) pool_folders: Vec<std::path::PathBuf>,
    /// The user that jobs run as unless the settings name another; `None` for the agent's own.
    pub(super) user: Option<&'static str>,
    /// Words in front of each command of the runner; see `GitHubRunner::with_wrapper`.
    pub(super) wrapper: Vec<std::ffi::OsString>,
    /// The folder of the cgroup that the wrapper moves commands to; see `GitHubRunner::with_cgroup`.
    pub(super) cgroup: Option<std::path::PathBuf>,
    /// Whether the computer belongs to the pool alone.
    pub(super) own_machine: bool,
}

/// In a build without the local backend: always fails.
#[cfg(not(feature = "local"))]
pub(super) fn no_local_runner() -> MakeRunner {
    Box::new(|| Err("jobs come from the local forge, which this build does not have".to_owned()))
}

impl ChosenRunner {
    /// `local` makes the runner for the local forge.
    pub(super) fn new(
        store: Arc<dyn AgentStore>,
        clock: Arc<dyn Clock>,
        place: RunnerPlace,
        local: MakeRunner,
    ) -> ChosenRunner {
        ChosenRunner { store, clock, place, local, chosen: OnceLock::new() }
    }

    async fn choose(&self) -> Result<Chosen, String> {
        let settings = self.settings(Retry::PATIENT).await?;
        let github = is_github(&settings);
        let runner = if github { self.github(&settings)? } else { (self.local)()? };
        Ok(Chosen { runner, github })
    }

    async fn settings(&self, how: Retry) -> Result<BTreeMap<String, String>, String> {
        let asked = retry(&*self.clock, &Entropy, how, |_| self.store.settings()).await;
        asked.map_err(|error| format!("settings: {error}"))
    }

    #[cfg(all(feature = "github", target_os = "linux"))]
    fn github(&self, settings: &BTreeMap<String, String>) -> Result<Arc<dyn Runner>, String> {
        use ondeck_github::inputs::RUNNER_USER;
        use ondeck_github::{GitHubRunner, RunnerOptions};

        /// Where machine images have actions/runner.
        const IMAGE: [&str; 4] = [
            "/opt/actions-runner",
            "/home/runner/actions-runner",
            "/home/ubuntu/actions-runner",
            "/home/ec2-user/actions-runner",
        ];
        let RunnerPlace {
            id,
            label,
            folder,
            pool_folders,
            user: usual,
            wrapper,
            cgroup,
            own_machine,
        } = &self.place;
        let options = RunnerOptions {
            id: id.clone(),
            pool_tag: ondeck_github::pool_tag(label),
            folder: folder.clone(),
            pool_folders: pool_folders.clone(),
            image: IMAGE.iter().map(Into::into).collect(),
            user: settings.get(RUNNER_USER.name).map(String::as_str).or(*usual).map(str::to_owned),
        };
        let runner = GitHubRunner::new(options, self.store.clone(), self.clock.clone());
        let runner = runner.with_wrapper(wrapper.clone()).with_cgroup(cgroup.clone());
        Ok(Arc::new(if *own_machine { runner.with_own_machine("/") } else { runner }))
    }

    #[cfg(not(all(feature = "github", target_os = "linux")))]
    fn github(&self, _settings: &BTreeMap<String, String>) -> Result<Arc<dyn Runner>, String> {
        Err("jobs come from GitHub, whose runner this build of the agent does not have".to_owned())
    }

    /// The runner, chosen now if that has not been done.
    async fn chosen_now(&self) -> Result<&Arc<dyn Runner>, String> {
        if self.chosen.get().is_none() {
            let chosen = self.choose().await?;
            // A concurrent call has chosen by the same settings.
            self.chosen.get_or_init(|| chosen);
        }
        self.chosen()
    }

    fn chosen(&self) -> Result<&Arc<dyn Runner>, String> {
        let chosen = self.chosen.get().map(|chosen| &chosen.runner);
        chosen.ok_or_else(|| "the runner was not prepared".to_owned())
    }

    /// Fails if the settings name another forge than the one this machine was prepared for. It
    /// would register there and wait for jobs that are queued elsewhere.
    async fn check_forge(&self) -> Result<(), String> {
        let github = is_github(&self.settings(Retry::SHORT).await?);
        match self.chosen.get() {
            Some(chosen) if chosen.github != github => {
                Err("jobs come from another forge than when this machine was prepared".to_owned())
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
    async fn make_user(&self) -> Result<(), String> {
        self.chosen_now().await?.make_user().await
    }

    async fn prepare(&self) -> Result<(), String> {
        self.chosen_now().await?.prepare().await
    }

    async fn register(&self, label: &Label) -> Result<(), String> {
        self.check_forge().await?;
        self.chosen()?.register(label).await
    }

    async fn listen_as(&self, label: &MachineLabel) -> Result<u32, String> {
        self.check_forge().await?;
        self.chosen()?.listen_as(label).await
    }

    async fn name_owner(&self, run: &RunId) -> Result<(), String> {
        self.chosen()?.name_owner(run).await
    }

    async fn lapse(&self) -> String {
        match self.chosen() {
            Ok(runner) => runner.lapse().await,
            Err(why) => why,
        }
    }

    async fn drain(&self, why: &str) {
        if let Ok(runner) = self.chosen() {
            runner.drain(why).await;
        }
    }

    fn is_busy(&self) -> bool {
        self.chosen().is_ok_and(|runner| runner.is_busy())
    }

    fn has_worked(&self) -> bool {
        self.chosen().map_or(true, |runner| runner.has_worked())
    }

    async fn revive(&self, label: &Label) -> Result<(), String> {
        self.chosen()?.revive(label).await
    }

    async fn work(&self, label: &Label) -> String {
        match self.chosen() {
            Ok(runner) => runner.work(label).await,
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

#[cfg(all(test, feature = "aws", feature = "github", target_os = "linux"))]
mod tests {
    #[test]
    fn user_data_creates_the_user_that_the_runner_uses() {
        assert_eq!(ondeck_aws::RUNNER_USER_SETTING, ondeck_github::inputs::RUNNER_USER.name);
    }
}
