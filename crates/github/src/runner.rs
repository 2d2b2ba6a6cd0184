//! The port `Runner` on actions/runner.
//!
//! Successive runs use the same software under the same user. Anything that a job could change and a
//! later run would use is therefore owned by the agent, or created anew for each run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ondeck_core::model::credentials::{Token, TokenPurpose};
use ondeck_core::model::label::Label;
use ondeck_core::ports::{AgentStore, Clock, PortResult, Runner};
use ondeck_core::runtime::retry::{Retry, retry};
use ondeck_processes::{MachineProcesses, kill_others};

use self::docker::Docker;
use self::fetch::FastRandom;
use self::install::{Installation, Installer};
use self::layout::Layout;
use self::listener::{Listener, ListenerExit};
use self::program::timeout;
use self::registration::{Registrar, RegistrationRequest};
use self::user::User;
use crate::inputs::group_names;
use crate::names::runner_name;
use crate::packages::URL_SETTING;

mod diagnostics;
mod docker;
mod environment;
mod fetch;
mod hooks;
mod install;
mod layout;
mod leftover_files;
mod listener;
mod options;
mod program;
mod registration;
mod user;

pub use options::{RunnerOptions, Timeouts};

/// The setting for the runner group to register into. Without it, GitHub uses its default group.
pub const GROUP_SETTING: &str = crate::inputs::RUNNER_GROUP.name;
/// The setting for the supplementary groups of the user that jobs run as.
const GROUPS_SETTING: &str = crate::inputs::RUNNER_GROUPS.name;

/// actions/runner on one machine.
pub struct GitHubRunner {
    options: RunnerOptions,
    store: Arc<dyn AgentStore>,
    clock: Arc<dyn Clock>,
    timeouts: Timeouts,
    docker: OsString,
    wrapper: Vec<OsString>,
    layout: Layout,
    state: Mutex<RunnerState>,
}

/// What outlives the calls of the port: the future of `work` may be dropped at any moment while its
/// listener goes on running.
#[derive(Debug, Default)]
struct RunnerState {
    prepared: Option<Arc<Prepared>>,
    listener: Option<Listener>,
}

/// The result of `prepare`.
#[derive(Debug)]
struct Prepared {
    user: User,
    software: Installation,
    /// Whether GitHub is known to serve this version of the software.
    served: AtomicBool,
}

impl GitHubRunner {
    /// Creates the runner with default timeouts and the `docker` on the path. Does nothing on the
    /// machine yet.
    pub fn new(
        options: RunnerOptions,
        store: Arc<dyn AgentStore>,
        clock: Arc<dyn Clock>,
    ) -> GitHubRunner {
        let layout = Layout::of(&options.folder);
        GitHubRunner {
            options,
            store,
            clock,
            timeouts: Timeouts::default(),
            docker: "docker".into(),
            wrapper: Vec::new(),
            layout,
            state: Mutex::default(),
        }
    }

    /// Replaces the default timeouts.
    #[must_use]
    pub fn with_timeouts(self, timeouts: Timeouts) -> GitHubRunner {
        GitHubRunner { timeouts, ..self }
    }

    /// Replaces the program that is run as docker.
    #[must_use]
    pub fn with_docker(self, program: impl Into<OsString>) -> GitHubRunner {
        GitHubRunner { docker: program.into(), ..self }
    }

    /// Puts these words in front of each command of the runner. They must be a program that executes
    /// its other arguments in its own place. It is run by the agent's user.
    #[must_use]
    pub fn with_wrapper(self, wrapper: Vec<OsString>) -> GitHubRunner {
        GitHubRunner { wrapper, ..self }
    }

    fn state(&self) -> MutexGuard<'_, RunnerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepared(&self) -> Result<Arc<Prepared>, String> {
        self.state().prepared.clone().ok_or_else(|| "the runner was not prepared".to_owned())
    }

    fn docker(&self) -> Docker {
        Docker { program: self.docker.clone(), within: self.timeouts.docker }
    }

    fn registrar<'a>(&'a self, prepared: &'a Prepared) -> Registrar<'a> {
        Registrar {
            clock: &*self.clock,
            id: &self.options.id,
            user: &prepared.user,
            layout: &self.layout,
            software: &prepared.software,
        }
    }

    async fn settings(&self) -> Result<BTreeMap<String, String>, String> {
        let asked = self.ask(|| self.store.settings()).await;
        asked.map_err(|error| format!("settings: {error}"))
    }

    /// Reads a token from the store. Fails if there is none or it has expired.
    async fn token(&self, purpose: TokenPurpose) -> Result<Token, String> {
        let which = purpose.as_str();
        let asked = self.ask(|| self.store.token(purpose)).await;
        match asked.map_err(|error| format!("{which} token: {error}"))? {
            None => Err(format!("there is no {which} token: run ondeck refresh")),
            Some(found) if found.expires_at <= self.clock.now() => {
                let at = found.expires_at;
                Err(format!("the {which} token expired at {at}: run ondeck refresh"))
            }
            Some(found) => Ok(found),
        }
    }

    async fn ask<T, F>(&self, call: impl Fn() -> F) -> PortResult<T>
    where
        F: Future<Output = PortResult<T>>,
    {
        retry(&*self.clock, &FastRandom, Retry::SHORT, |_| call()).await
    }

    /// Kills every process that runs left on this machine, including those that an earlier process of
    /// this agent started. Fails if one survives.
    async fn kill_processes(&self, user: &User) -> Result<(), String> {
        let group = self.layout.group()?;
        let machine = MachineProcesses {
            groups: group.into_iter().collect(),
            found_by: user.found_by(),
            ..MachineProcesses::of(&self.options.id)
        };
        let left = kill_others(machine).await.map_err(|e| format!("leftover processes: {e}"))?;
        left.map_or(Ok(()), |survivors| Err(survivors.to_string()))
    }

    /// Records the start of a run and docker's inventory at that time, unless an earlier process of
    /// this agent has already done so for the same run.
    async fn begin(&self) -> Result<(), String> {
        if self.layout.load(DOCKER)?.is_none() {
            let there = self.docker().inventory(&*self.clock).await;
            let text = serde_json::to_string(&there).map_err(|e| e.to_string())?;
            self.layout.save(DOCKER, &text)?;
        }
        if self.layout.load(BEGAN)?.is_none() {
            self.layout.save(BEGAN, "")?;
        }
        Ok(())
    }

    /// When the run started, by the file system's clock, because it is compared with file times.
    fn began(&self) -> Option<SystemTime> {
        self.layout.state.join(BEGAN).metadata().and_then(|found| found.modified()).ok()
    }

    /// Removes the registration that an earlier process of this agent left. A failure is only logged,
    /// because refresh removes offline runners and GitHub expires them.
    async fn forget_earlier(&self, registrar: &Registrar<'_>) -> Result<(), String> {
        if registrar.is_registered() {
            let removed = match self.token(TokenPurpose::Removal).await {
                Ok(token) => registrar.remove(&token, self.timeouts.remove, Duration::ZERO).await,
                Err(why) => Err(why),
            };
            if let Err(why) = removed {
                tracing::warn!("cannot remove an earlier registration: {why}");
            }
        }
        registrar.forget()
    }

    fn start_listener(&self, prepared: &Prepared, label: &Label) -> Result<Listener, String> {
        let root = &prepared.software.root;
        let mut command = prepared.user.command(root.join("bin/Runner.Listener"));
        environment::apply(&mut command, &prepared.user, &self.layout, &self.options.id);
        hooks::set_variables(&mut command, &self.layout);
        hooks::withdraw_end(&self.layout)?;
        command.arg("run").current_dir(root).env("ONDECK_RUN_ID", label.run.as_str());
        let record = |leader| self.layout.record_group(leader);
        let listener = Listener::start(self.clock.clone(), command, record)?;
        self.state().listener = Some(listener.clone());
        Ok(listener)
    }

    /// Starts the listener and waits until it can take jobs. Fails with its last output if it exits,
    /// is refused by GitHub or does not get ready in time.
    async fn listen(&self, prepared: &Prepared, label: &Label) -> Result<(), String> {
        let listener = self.start_listener(prepared, label)?;
        let within = self.timeouts.listen;
        let Installation { version, on_image, .. } = &prepared.software;
        match timeout(&*self.clock, within, listener.listening()).await {
            Some(Ok(())) => match self.refusal(prepared, &listener).await {
                None => return Ok(()),
                Some(exit) => Err(exit.reason(version, *on_image)),
            },
            Some(Err(exit)) => Err(exit.reason(version, *on_image)),
            None => {
                let words = listener.kill(&*self.clock).await;
                let after = within.as_secs_f32();
                Err(format!("the runner does not listen for jobs after {after} s: {words}"))
            }
        }
        .inspect_err(|_| self.state().listener = None)
    }

    /// Returns how the listener exited if GitHub refused its version. With a deprecated version the
    /// listener reports that it is listening, and exits when it first asks for a job. Once a version
    /// has been served, later runs skip this wait.
    async fn refusal(&self, prepared: &Prepared, listener: &Listener) -> Option<ListenerExit> {
        if prepared.served.load(Ordering::Relaxed) {
            return None;
        }
        let exit = timeout(&*self.clock, self.timeouts.refuse, listener.exited()).await;
        prepared.served.store(exit.is_none(), Ordering::Relaxed);
        exit
    }

    /// The listener that `register` started, or a new one if that has exited.
    async fn listener(&self, label: &Label) -> Result<Listener, String> {
        if let Some(listener) = self.state().listener.clone() {
            return Ok(listener);
        }
        let prepared = self.prepared()?;
        // A job may have outlived its listener and would go on unsupervised.
        self.kill_processes(&prepared.user).await?;
        self.start_listener(&prepared, label)
    }

    /// Removes the files of a run, and moves the runner's diagnostics to the archive.
    async fn clear_folders(&self, prepared: &Arc<Prepared>) -> Result<(), String> {
        let (prepared, layout) = (prepared.clone(), self.layout.clone());
        let (folder, began) = (self.options.folder.clone(), self.began());
        let clear = move || {
            let Prepared { user, software, .. } = &*prepared;
            diagnostics::archive(&software.root.join("_diag"), &layout.diagnostics)?;
            software.clear()?;
            if let Some(began) = began
                && user.dedicated
            {
                leftover_files::remove(user, &folder, began)?;
            }
            layout.renew(user)
        };
        tokio::task::spawn_blocking(clear).await.map_err(|e| e.to_string())?
    }
}

/// State files that exist while a run is on the machine.
const BEGAN: &str = "began";
const DOCKER: &str = "docker";

impl fmt::Debug for GitHubRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHubRunner({})", self.options.id)
    }
}

#[async_trait]
impl Runner for GitHubRunner {
    async fn prepare(&self) -> Result<(), String> {
        self.layout.make()?;
        let (clock, name) = (&*self.clock, self.options.user.as_deref());
        let user = User::find_or_create(clock, name, &self.layout.home).await?;
        let user = User { wrapper: self.wrapper.clone(), ..user };
        self.kill_processes(&user).await?;
        if self.began().is_none() {
            self.layout.renew(&user)?;
        }
        let settings = self.settings().await?;
        let groups = settings.get(GROUPS_SETTING).map_or("", String::as_str);
        let groups = group_names(groups).map_err(|why| format!("{GROUPS_SETTING} {why}"))?;
        user.set_groups(clock, &groups).await?;
        let installer = Installer {
            clock,
            id: &self.options.id,
            user: &user,
            layout: &self.layout,
            image: &self.options.image,
            timeouts: &self.timeouts,
        };
        let software = installer.find(&settings).await?;
        let Installation { root, version, .. } = &software;
        tracing::info!(
            version,
            user = user.name,
            "actions/runner is prepared in {}",
            root.display()
        );
        self.state().prepared =
            Some(Arc::new(Prepared { user, software, served: AtomicBool::new(false) }));
        Ok(())
    }

    /// Returns when the runner can take jobs. Being listed is not enough: GitHub also registers
    /// deprecated versions, which never get a job.
    async fn register(&self, label: &Label) -> Result<(), String> {
        let prepared = self.prepared()?;
        self.kill_processes(&prepared.user).await?;
        let settings = self.settings().await?;
        let url = settings
            .get(URL_SETTING)
            .ok_or("the address to register with is not set: run ondeck refresh")?;
        let token = self.token(TokenPurpose::Registration).await?;
        let registrar = self.registrar(&prepared);
        self.forget_earlier(&registrar).await?;
        prepared.software.clear()?;
        hooks::write(&self.layout, label, &prepared.software.operator_env)?;
        let count = self.layout.next_count()?;
        let request = RegistrationRequest {
            url,
            name: &runner_name(&self.options.id, count, &self.options.pool_tag),
            label: &label.to_string(),
            group: settings.get(GROUP_SETTING).map(|it| it.trim()).filter(|it| !it.is_empty()),
        };
        let add = registrar.add(&request, &token, self.timeouts.configure);
        let (began, added) = tokio::join!(self.begin(), add);
        began.and(added)?;
        self.listen(&prepared, label).await
    }

    /// A listener with a job is interrupted as soon as it says that the job is completed: it has
    /// reported the result by then, and asks for the next job a little later. A listener without a
    /// job closes its session, so that GitHub gives it none.
    async fn drain(&self, why: &str) {
        if let Err(error) = hooks::announce_end(&self.layout, why) {
            tracing::warn!("jobs are not told why they are the last: {error}");
        }
        let Some(listener) = self.state().listener.clone() else { return };
        listener.without_job().await;
        if !listener.has_exited() {
            let idle = self.timeouts.stop_idle;
            listener.interrupt(&*self.clock, idle, idle).await;
        }
        let mut state = self.state();
        if listener.has_exited() && state.listener.as_ref().is_some_and(|it| it.is(&listener)) {
            state.listener = None;
        }
    }

    fn is_busy(&self) -> bool {
        self.state().listener.as_ref().is_some_and(Listener::is_busy)
    }

    async fn work(&self, label: &Label) -> String {
        let listener = match self.listener(label).await {
            Ok(listener) => listener,
            Err(why) => return why,
        };
        let exit = listener.exited().await;
        let mut now = self.state();
        now.listener = None;
        let software = now.prepared.as_ref().map(|prepared| &prepared.software);
        software.map_or_else(String::new, |it| exit.reason(&it.version, it.on_image))
    }

    async fn stop(&self) -> Result<(), String> {
        let Ok(prepared) = self.prepared() else { return Ok(()) };
        let listener = self.state().listener.take();
        if let Some(listener) = listener.filter(|listener| !listener.has_exited()) {
            let Timeouts { stop_busy, stop_idle, .. } = self.timeouts;
            listener.interrupt(&*self.clock, stop_busy, stop_idle).await;
        }
        self.kill_processes(&prepared.user).await
    }

    async fn deregister(&self) -> Result<(), String> {
        let Ok(prepared) = self.prepared() else { return Ok(()) };
        let registrar = self.registrar(&prepared);
        if !registrar.is_registered() {
            return Ok(());
        }
        // Read only now, when no process of a job is left on the machine.
        let token = self.token(TokenPurpose::Removal).await?;
        let Timeouts { remove, idle, .. } = self.timeouts;
        registrar.remove(&token, remove, idle).await
    }

    async fn account(&self) -> String {
        hooks::account(&self.layout, self.clock.now())
    }

    async fn clean(&self) -> Result<(), String> {
        let prepared = self.prepared()?;
        self.kill_processes(&prepared.user).await?;
        let before = self.layout.load(DOCKER)?;
        let before = before.and_then(|text| serde_json::from_str(&text).ok()).flatten();
        self.docker().remove_since(&*self.clock, before).await?;
        self.clear_folders(&prepared).await?;
        self.layout.discard(DOCKER)?;
        self.layout.discard(BEGAN)
    }
}
