//! GitHub's own runner, as the agent of a machine drives it.
//!
//! One run after the other uses the same software, under the same user. So whatever a job could
//! change and the next run would meet is the agent's and not the runner's, or is made anew.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::ids::RunId;
use ondeck_core::ports::{AgentStore, Clock, PortResult, Runner};
use ondeck_core::runtime::retry::{Retry, retry};
use ondeck_processes::{Ending, end_all};

use self::docker::Docker;
use self::fetch::Chance;
use self::install::{Installation, Search};
use self::layout::Layout;
use self::listener::{Death, Listener};
use self::program::bounded;
use self::registration::{Registrar, Request};
use self::user::User;
use crate::names::runner_name;
use crate::packages::URL_SETTING;

mod diagnostics;
mod docker;
mod environment;
mod fetch;
mod hooks;
mod install;
mod layout;
mod leftovers;
mod listener;
mod options;
mod program;
mod registration;
mod user;

pub use options::{Bounds, RunnerOptions};

/// The setting that says into which group of runners to register; without it, the default one.
pub const GROUP_SETTING: &str = crate::inputs::RUNNER_GROUP.name;

/// The runner on a machine.
pub struct GitHubRunner {
    options: RunnerOptions,
    store: Arc<dyn AgentStore>,
    clock: Arc<dyn Clock>,
    bounds: Bounds,
    docker: OsString,
    layout: Layout,
    now: Mutex<Now>,
}

/// What the runner is about. Kept apart from the future that works, which may be dropped at any
/// moment and still leaves a listener.
#[derive(Debug, Default)]
struct Now {
    ready: Option<Arc<Ready>>,
    listener: Option<Listener>,
}

/// What preparing has found.
#[derive(Debug)]
struct Ready {
    user: User,
    software: Installation,
    /// Whether GitHub has been seen to talk to this version.
    served: AtomicBool,
}

impl GitHubRunner {
    /// On this machine.
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
            bounds: Bounds::default(),
            docker: "docker".into(),
            layout,
            now: Mutex::default(),
        }
    }

    /// With other bounds than the usual ones.
    #[must_use]
    pub fn bounded(self, bounds: Bounds) -> GitHubRunner {
        GitHubRunner { bounds, ..self }
    }

    /// With another program for docker than the one on the path.
    #[must_use]
    pub fn with_docker(self, program: impl Into<OsString>) -> GitHubRunner {
        GitHubRunner { docker: program.into(), ..self }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ready(&self) -> Result<Arc<Ready>, String> {
        self.now().ready.clone().ok_or_else(|| "the runner was not prepared".to_owned())
    }

    fn docker(&self) -> Docker {
        Docker { program: self.docker.clone(), within: self.bounds.docker }
    }

    fn registrar<'a>(&'a self, ready: &'a Ready) -> Registrar<'a> {
        Registrar {
            clock: &*self.clock,
            id: &self.options.id,
            user: &ready.user,
            layout: &self.layout,
            software: &ready.software,
        }
    }

    async fn settings(&self) -> Result<BTreeMap<String, String>, String> {
        let asked = self.ask(|| self.store.settings()).await;
        asked.map_err(|error| format!("settings: {error}"))
    }

    /// What to register or to deregister with, at this moment.
    async fn credentials(&self, which: &str) -> Result<Credentials, String> {
        let asked = self.ask(|| self.store.credentials()).await;
        match asked.map_err(|error| format!("credentials: {error}"))? {
            None => Err(format!("there is no {which} token: has ondeck refresh run?")),
            Some(found) if found.expires_at <= self.clock.now() => {
                let at = found.expires_at;
                Err(format!("the {which} token expired at {at}: has ondeck refresh run since?"))
            }
            Some(found) => Ok(found),
        }
    }

    async fn ask<T, F>(&self, call: impl Fn() -> F) -> PortResult<T>
    where
        F: Future<Output = PortResult<T>>,
    {
        retry(&*self.clock, &Chance, Retry::SHORT, |_| call()).await
    }

    /// Ends whatever runs for a run, however it was started and by which life of this agent.
    async fn end_processes(&self, user: &User) -> Result<(), String> {
        let group = self.layout.group()?;
        let ending = Ending {
            groups: group.into_iter().collect(),
            sign: user.sign(),
            ..Ending::of(&self.options.id)
        };
        let left = end_all(&[ending]).await.map_err(|e| format!("leftover processes: {e}"))?;
        left.first().map_or(Ok(()), |undying| Err(undying.to_string()))
    }

    /// Notes when a run began and what was there before, unless an earlier life of this agent has
    /// done so for the same run.
    async fn begin(&self) -> Result<(), String> {
        if self.layout.kept(DOCKER)?.is_none() {
            let there = self.docker().inventory(&*self.clock).await;
            let text = serde_json::to_string(&there).map_err(|e| e.to_string())?;
            self.layout.keep(DOCKER, &text)?;
        }
        if self.layout.kept(BEGAN)?.is_none() {
            self.layout.keep(BEGAN, "")?;
        }
        Ok(())
    }

    /// By the clock that disks go by, whatever other clock there is.
    fn began(&self) -> Option<SystemTime> {
        self.layout.state.join(BEGAN).metadata().and_then(|found| found.modified()).ok()
    }

    /// Removes a runner that an earlier life has left on the list. GitHub forgets what cannot be
    /// removed, and so does refresh.
    async fn forget_earlier(
        &self,
        registrar: &Registrar<'_>,
        credentials: &Credentials,
    ) -> Result<(), String> {
        if registrar.is_registered()
            && let Err(why) =
                registrar.remove(credentials, self.bounds.remove, Duration::ZERO).await
        {
            tracing::warn!("an earlier registration is left behind: {why}");
        }
        registrar.forget()
    }

    fn start_listener(&self, ready: &Ready, run: &RunId) -> Result<Listener, String> {
        let root = &ready.software.root;
        let mut command = ready.user.command(root.join("bin/Runner.Listener"));
        environment::give(&mut command, &ready.user, &self.layout, &self.options.id);
        hooks::announce(&mut command, &self.layout);
        command.arg("run").current_dir(root).env("ONDECK_RUN_ID", run.as_str());
        let note = |leader| self.layout.note_group(leader);
        let listener = Listener::start(self.clock.clone(), command, note)?;
        self.now().listener = Some(listener.clone());
        Ok(listener)
    }

    /// Starts the listener, and waits until it can take jobs.
    async fn listen(&self, ready: &Ready, run: &RunId) -> Result<(), String> {
        let listener = self.start_listener(ready, run)?;
        let within = self.bounds.listen;
        let Installation { version, on_image, .. } = &ready.software;
        match bounded(&*self.clock, within, listener.listening()).await {
            Some(Ok(())) => match self.refusal(ready, &listener).await {
                None => return Ok(()),
                Some(death) => Err(death.reason(version, *on_image)),
            },
            Some(Err(death)) => Err(death.reason(version, *on_image)),
            None => {
                let words = listener.kill(&*self.clock).await;
                let after = within.as_secs_f32();
                Err(format!("the runner does not listen for jobs after {after} s: {words}"))
            }
        }
        .inspect_err(|_| self.now().listener = None)
    }

    /// How the listener died as soon as it listened. GitHub lets a version that it does not talk
    /// to any more say that it listens, and refuses it when it then asks for a job. Once is
    /// enough to know, and later runs do not wait for it.
    async fn refusal(&self, ready: &Ready, listener: &Listener) -> Option<Death> {
        if ready.served.load(Ordering::Relaxed) {
            return None;
        }
        let death = bounded(&*self.clock, self.bounds.refuse, listener.over()).await;
        ready.served.store(death.is_none(), Ordering::Relaxed);
        death
    }

    /// The listener that register has started, or another one after that has died.
    async fn listener(&self, run: &RunId) -> Result<Listener, String> {
        if let Some(listener) = self.now().listener.clone() {
            return Ok(listener);
        }
        let ready = self.ready()?;
        // A job may have outlived its listener, and would not know that it is nobody's.
        self.end_processes(&ready.user).await?;
        self.start_listener(&ready, run)
    }

    /// Removes what a run has left in folders.
    async fn clear_folders(&self, ready: &Arc<Ready>) -> Result<(), String> {
        let (ready, layout) = (ready.clone(), self.layout.clone());
        let (folder, began) = (self.options.folder.clone(), self.began());
        let clear = move || {
            let Ready { user, software, .. } = &*ready;
            diagnostics::archive(&software.root.join("_diag"), &layout.diagnostics)?;
            software.clear()?;
            if let Some(began) = began
                && user.dedicated
            {
                leftovers::sweep(user, &folder, began)?;
            }
            layout.renew(user)
        };
        tokio::task::spawn_blocking(clear).await.map_err(|e| e.to_string())?
    }
}

/// What is kept under these names lasts as long as a run does.
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
        let user = User::find_or_make(clock, name, &self.layout.home).await?;
        self.end_processes(&user).await?;
        if self.began().is_none() {
            self.layout.renew(&user)?;
        }
        let settings = self.settings().await?;
        let search = Search {
            clock,
            id: &self.options.id,
            user: &user,
            layout: &self.layout,
            image: &self.options.image,
            bounds: &self.bounds,
        };
        let software = search.find(&settings).await?;
        let Installation { root, version, .. } = &software;
        tracing::info!(version, user = user.name, "actions/runner is ready in {}", root.display());
        self.now().ready = Some(Arc::new(Ready { user, software, served: AtomicBool::new(false) }));
        Ok(())
    }

    /// Returns when the runner can take jobs, and not merely when it is on the list: a version
    /// that GitHub does not talk to any more can be put there all the same.
    async fn register(&self, run: &RunId) -> Result<(), String> {
        let ready = self.ready()?;
        self.end_processes(&ready.user).await?;
        let settings = self.settings().await?;
        let url = settings.get(URL_SETTING).ok_or("not set up: nobody knows where to register")?;
        let credentials = self.credentials("registration").await?;
        let registrar = self.registrar(&ready);
        self.forget_earlier(&registrar, &credentials).await?;
        ready.software.clear()?;
        hooks::write(&self.layout, run, &ready.software.operators)?;
        let count = self.layout.next_count()?;
        let request = Request {
            url,
            name: &runner_name(&self.options.id, count, &self.options.mark),
            label: run.as_str(),
            group: settings.get(GROUP_SETTING).map(|it| it.trim()).filter(|it| !it.is_empty()),
        };
        let add = registrar.add(&request, &credentials, self.bounds.configure);
        let (began, added) = tokio::join!(self.begin(), add);
        began.and(added)?;
        self.listen(&ready, run).await
    }

    async fn work(&self, run: &RunId) -> String {
        let listener = match self.listener(run).await {
            Ok(listener) => listener,
            Err(why) => return why,
        };
        let death = listener.over().await;
        let mut now = self.now();
        now.listener = None;
        let software = now.ready.as_ref().map(|ready| &ready.software);
        software.map_or_else(String::new, |it| death.reason(&it.version, it.on_image))
    }

    async fn stop(&self) -> Result<(), String> {
        let Ok(ready) = self.ready() else { return Ok(()) };
        let listener = self.now().listener.take();
        if let Some(listener) = listener.filter(|listener| !listener.is_over()) {
            let Bounds { stop_busy, stop_idle, .. } = self.bounds;
            listener.interrupt(&*self.clock, stop_busy, stop_idle).await;
        }
        self.end_processes(&ready.user).await
    }

    async fn deregister(&self) -> Result<(), String> {
        let Ok(ready) = self.ready() else { return Ok(()) };
        let registrar = self.registrar(&ready);
        if !registrar.is_registered() {
            return Ok(());
        }
        let credentials = self.credentials("removal").await?;
        let Bounds { remove, idle, .. } = self.bounds;
        registrar.remove(&credentials, remove, idle).await
    }

    async fn account(&self) -> String {
        hooks::account(&self.layout, self.clock.now())
    }

    async fn clean(&self) -> Result<(), String> {
        let ready = self.ready()?;
        self.end_processes(&ready.user).await?;
        let before = self.layout.kept(DOCKER)?;
        let before = before.and_then(|text| serde_json::from_str(&text).ok()).flatten();
        self.docker().remove_since(&*self.clock, before).await?;
        self.clear_folders(&ready).await?;
        self.layout.drop_kept(DOCKER)?;
        self.layout.drop_kept(BEGAN)
    }
}
