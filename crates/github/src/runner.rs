//! The port `Runner` on actions/runner.
//!
//! Successive runs use the same software under the same user. Anything that a job could change and a
//! later run would use is therefore owned by the agent, or created anew for each run.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::credentials::{Token, TokenPurpose};
use ondeck_core::model::ids::RunId;
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::ports::{AgentStore, Clock, PortResult, Runner};
use ondeck_core::runtime::retry::{Retry, retry};

use self::docker::Docker;
use self::fetch::FastRandom;
use self::install::{Installation, Installer};
use self::layout::Layout;
use self::listener::{Listener, Need};
use self::registration::Registrar;
use self::seat::Seat;
use self::user::User;
use crate::inputs::group_names;

mod cleaning;
mod connection;
mod dependencies;
mod deregistration;
mod diagnostics;
mod disk;
mod docker;
mod environment;
mod fetch;
mod globalization;
mod hooks;
mod install;
mod layout;
mod leftover_files;
mod listener;
mod options;
mod program;
mod registration;
mod seat;
mod traces;
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
    cgroup: Option<PathBuf>,
    own_machine: Option<PathBuf>,
    layout: Layout,
    /// Whether it has taken a job since it was registered.
    has_worked: Arc<AtomicBool>,
    state: Mutex<RunnerState>,
}

/// What outlives the calls of the port: the future of `work` may be dropped at any moment while its
/// listener goes on running.
#[derive(Debug, Default)]
struct RunnerState {
    prepared: Option<Arc<Prepared>>,
    listener: Option<Listener>,
    /// What it is registered with, once it is.
    seat: Option<Seat>,
    /// The number of the last registration.
    number: u32,
    /// What the runner needs before a listener can be started again.
    need: Option<Need>,
    /// Whether GitHub removes the present registration as soon as its last job is over. Not so if a
    /// listener died with a job. Not known if an earlier process of the agent has registered the runner.
    is_removable: bool,
    /// Whether [`Runner::drain`] was called after the last call of `register` or `work`.
    drained: bool,
    /// The version that GitHub has served last, and when, in steady time.
    served: Option<(String, Duration)>,
    /// What has happened to the runner in this run, for its account.
    remarks: Vec<String>,
}

/// The result of `prepare`.
#[derive(Debug)]
struct Prepared {
    user: User,
    software: Installation,
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
            cgroup: None,
            own_machine: None,
            layout,
            has_worked: Arc::default(),
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

    /// Names the folder of the cgroup that the wrapper moves each command to. All processes in it
    /// belong to a run.
    #[must_use]
    pub fn with_cgroup(self, folder: Option<PathBuf>) -> GitHubRunner {
        GitHubRunner { cgroup: folder, ..self }
    }

    /// Declares that the computer below `root` belongs to the pool alone. Between two runs everything
    /// on it is then restored: docker with its images, and the files of all users.
    #[must_use]
    pub fn with_own_machine(self, root: impl Into<PathBuf>) -> GitHubRunner {
        GitHubRunner { own_machine: Some(root.into()), ..self }
    }

    fn state(&self) -> MutexGuard<'_, RunnerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepared(&self) -> Result<Arc<Prepared>, String> {
        self.state().prepared.clone().ok_or_else(|| "the runner was not prepared".to_owned())
    }

    fn docker(&self) -> Docker {
        let Timeouts { docker: within, docker_patience: patience, .. } = self.timeouts;
        Docker { program: self.docker.clone(), within, patience }
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

    fn start_listener(&self, prepared: &Prepared, seat: &Seat) -> Result<Listener, String> {
        let root = &prepared.software.root;
        let mut command = prepared.user.command(root.join("bin/Runner.Listener"));
        environment::apply(&mut command, &prepared.user, &self.layout, &self.options.id);
        hooks::set_variables(&mut command, &self.layout);
        hooks::withdraw_end(&self.layout)?;
        command.arg("run").current_dir(root);
        if let Some(run) = &seat.run {
            command.env("ONDECK_RUN_ID", run.as_str());
        }
        let record = |leader| self.layout.record_group(leader);
        let clock = self.clock.clone();
        let (job_start, worked) = (self.timeouts.job_start, self.has_worked.clone());
        let listener = Listener::start(clock, command, job_start, worked, record)?;
        self.state().listener = Some(listener.clone());
        Ok(listener)
    }

    /// The listener that `register` started, or a new one if that has exited.
    async fn listener(&self, seat: &Seat) -> Result<Listener, String> {
        let earlier = self.state().listener.clone();
        match earlier {
            Some(listener) if listener.is_listening() => return Ok(listener),
            Some(listener) => {
                listener.end(self.timeouts.stop_idle).await;
                // It may have exited for a reason of its own that no call of `work` has seen.
                if listener.has_exited() {
                    self.note_exit(&*self.prepared()?, &listener.exited().await)?;
                }
            }
            None => {}
        }
        // A job may have outlived its listener and would go on unsupervised.
        self.kill_processes(&self.prepared()?.user).await?;
        self.connect(seat).await
    }
}

/// Fails if the runner could not execute scripts in this folder: it does not quote their paths.
fn check_path(path: &Path) -> Result<(), String> {
    let is_special = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\');
    if path.to_string_lossy().contains(is_special) {
        let path = path.display();
        return Err(format!("actions/runner cannot work in a path with blanks or quotes: {path}"));
    }
    Ok(())
}

impl fmt::Debug for GitHubRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHubRunner({})", self.options.id)
    }
}

#[async_trait]
impl Runner for GitHubRunner {
    async fn make_user(&self) -> Result<(), String> {
        self.layout.make()?;
        let (clock, name) = (&*self.clock, self.options.user.as_deref());
        let made = User::find_or_create(clock, name, &self.layout.home).await;
        made.map(drop).map_err(|why| format!("the runner is not ready: {why}"))
    }

    async fn prepare(&self) -> Result<(), String> {
        self.layout.make()?;
        let (clock, name) = (&*self.clock, self.options.user.as_deref());
        let user = User::find_or_create(clock, name, &self.layout.home).await?;
        let user = User { wrapper: self.wrapper.clone(), ..user };
        user.open_folders(&self.options.pool_folders)?;
        user.check_access_above(&self.options.folder)?;
        self.kill_processes(&user).await?;
        if self.began().is_none() {
            self.layout.renew(&user)?;
        }
        let settings = self.settings().await?;
        let groups = settings.get(GROUPS_SETTING).map_or("", String::as_str);
        let groups = group_names(groups).map_err(|why| format!("{GROUPS_SETTING} {why}"))?;
        user.set_groups(clock, &groups).await?;
        let refused = self.refused()?;
        let installer = Installer {
            clock,
            id: &self.options.id,
            user: &user,
            layout: &self.layout,
            image: &self.options.image,
            timeouts: &self.timeouts,
            refused: &refused,
        };
        let software = installer.find(&settings).await?;
        let Installation { root, version, .. } = &software;
        [root, &self.layout.hooks].into_iter().try_for_each(|path| check_path(path))?;
        tracing::info!(
            version,
            user = user.name,
            "actions/runner is prepared in {}",
            root.display()
        );
        let prepared = Arc::new(Prepared { user, software });
        self.take_baseline(&prepared).await?;
        self.state().prepared = Some(prepared);
        Ok(())
    }

    /// Returns when the runner can take jobs. Being listed is not enough: GitHub also registers
    /// deprecated versions, which never get a job.
    async fn register(&self, label: &Label) -> Result<(), String> {
        self.take_seat(&Seat::of_run(label)).await
    }

    async fn listen_as(&self, label: &MachineLabel) -> Result<u32, String> {
        self.listen_under(label).await
    }

    /// The hook of a job waits for the owner, and then lets the job in or refuses it.
    async fn name_owner(&self, run: &RunId) -> Result<(), String> {
        self.seat_owner(run)
    }

    async fn lapse(&self) -> String {
        self.lapsed().await
    }

    /// A listener with a job is interrupted as soon as it says that the job is completed: it has
    /// reported the result by then, and asks for the next job a little later. A listener without a
    /// job closes its session, so that GitHub gives it none.
    async fn drain(&self, why: &str) {
        if let Err(error) = hooks::announce_end(&self.layout, why) {
            tracing::warn!("jobs are not told why they are the last: {error}");
        }
        let listener = {
            let mut state = self.state();
            state.drained = true;
            state.listener.clone()
        };
        let Some(listener) = listener else { return };
        listener.without_job().await;
        if !listener.has_exited() {
            let idle = self.timeouts.stop_idle;
            listener.interrupt(idle, idle).await;
        }
        let mut state = self.state();
        if listener.has_exited() && state.listener.as_ref().is_some_and(|it| it.is(&listener)) {
            state.listener = None;
        }
    }

    fn is_busy(&self) -> bool {
        let listener = self.state().listener.clone();
        listener.as_ref().is_some_and(Listener::is_busy)
    }

    /// The notes of the hooks count as well: the listener may have been killed before its announcement
    /// was read.
    fn has_worked(&self) -> bool {
        let now = self.clock.now();
        self.has_worked.load(Ordering::Relaxed) || !hooks::account(&self.layout, now).is_empty()
    }

    async fn revive(&self, label: &Label) -> Result<(), String> {
        self.state().drained = false;
        self.listener(&self.seat_for(label)).await.map(drop)
    }

    async fn work(&self, label: &Label) -> String {
        self.state().drained = false;
        let listener = match self.listener(&self.seat_for(label)).await {
            Ok(listener) => listener,
            Err(why) => return why,
        };
        let exit = listener.exited().await;
        let noted = self.prepared().and_then(|prepared| self.note_exit(&prepared, &exit));
        noted.unwrap_or_else(|why| why)
    }

    async fn stop(&self) -> Result<(), String> {
        let Ok(prepared) = self.prepared() else { return Ok(()) };
        self.close_seat()?;
        let listener = self.state().listener.take();
        // Once the listener has exited, its descendants cannot be told from other processes.
        let descendants = self.listeners_descendants().await?;
        if let Some(listener) = listener {
            if !listener.has_exited() {
                let Timeouts { stop_busy, stop_idle, .. } = self.timeouts;
                listener.interrupt(stop_busy, stop_idle).await;
            }
            // It may have exited for a reason of its own that no call of `work` has seen.
            if listener.has_exited() {
                self.note_exit(&prepared, &listener.exited().await)?;
            } else if listener.is_busy() {
                self.state().is_removable = false;
            }
        }
        self.kill_with(&prepared.user, descendants).await
    }

    async fn deregister(&self) -> Result<(), String> {
        let Ok(prepared) = self.prepared() else { return Ok(()) };
        let registrar = self.registrar(&prepared);
        self.remove_registrations(&registrar).await?;
        self.state().seat = None;
        Ok(())
    }

    async fn account(&self) -> String {
        let jobs = hooks::account(&self.layout, self.clock.now());
        let remarks = self.state().remarks.clone();
        let parts = std::iter::once(jobs).chain(remarks).filter(|part| !part.is_empty());
        parts.collect::<Vec<_>>().join("; ")
    }

    /// Also fails if GitHub refuses the version of the software.
    async fn clean(&self) -> Result<(), String> {
        let prepared = self.prepared()?;
        self.state().remarks.clear();
        self.remove_traces(&prepared).await?;
        self.check_version(&prepared)
    }
}
