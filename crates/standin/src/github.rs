//! GitHub on loopback, as far as ondeck uses it: an Enterprise Server with one address.

mod answers;
mod apps;
mod auth;
mod description;
mod faults;
mod jobs;
mod listener;
mod protocol;
mod queue;
mod releases;
mod repository;
mod request;
mod runner;
mod runner_faults;
mod runners;
mod serve;
mod state;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use jsonwebtoken::DecodingKey;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::emulators::Emulators;
use crate::http::{self, listen};
use crate::injection::ActiveFault;
use crate::sync::locked;

pub use auth::Permission;
pub use faults::{GitHubFault, GitHubFaultRule};
pub use jobs::{Conclusion, Job, JobId, JobState, RunState};
pub use runner::{LISTENER_VARIABLE, RunnerPackage, run_listener, runner_package};
pub use runner_faults::RunnerFault;
pub use runners::GitHubRunner;

use auth::{App, Target, Token};
use description::Description;
use serve::Serving;
use state::{Registered, Release, Served, State};

/// A key for an App in a test, in the format that GitHub gives it out. It opens nothing.
pub const APP_PRIVATE_KEY: &str = include_str!("github/app.pem");
/// The other half of [`APP_PRIVATE_KEY`].
pub const APP_PUBLIC_KEY: &str = include_str!("github/app.pub.pem");

/// What a GitHub is to be like.
#[derive(Debug, Clone)]
pub struct GitHubOptions {
    /// The folder with the interface's description, as `github.json`. Without it, requests are
    /// not checked.
    pub models: Option<PathBuf>,
    /// The port to listen on; 0 for any.
    pub port: u16,
    /// How long registration and remove tokens last.
    pub runner_token_life: Duration,
    /// How long a listener whose connection has ended without a word is still believed to be
    /// there.
    pub session_timeout: Duration,
    /// How long a job may take to stop once it is told to: it is interrupted first, terminated
    /// after three quarters of this, and killed in the end. The real ones have ten seconds.
    pub cancel_grace: Duration,
    /// How many entries a page has at the most, whatever was asked for.
    pub page: usize,
    /// The runner groups that there are beside the default one.
    pub runner_groups: Vec<String>,
}

impl Default for GitHubOptions {
    fn default() -> GitHubOptions {
        GitHubOptions {
            models: None,
            port: 0,
            runner_token_life: Duration::from_secs(3_600),
            session_timeout: Duration::from_secs(2),
            cancel_grace: Duration::from_secs(1),
            page: 100,
            runner_groups: Vec::new(),
        }
    }
}

impl GitHubOptions {
    /// With requests compared with GitHub's own description of its interface.
    pub fn on(emulators: &Emulators) -> GitHubOptions {
        GitHubOptions { models: Some(emulators.models.clone()), ..GitHubOptions::default() }
    }
}

/// A request, and what became of it. Those of the stand-in's own runner are not among them, but
/// for its registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubRequest {
    /// `GET`, and so on.
    pub method: String,
    /// Without `/api/v3` and without its query.
    pub path: String,
    /// Its query, decoded.
    pub query: Vec<(String, String)>,
    /// What was answered; nothing where there was no answer.
    pub status: Option<u16>,
    /// By whose token, as `token acme/web`, `installation acme` or `app 12345`.
    pub token: Option<String>,
    /// What was done to it, other than delays.
    pub fault: Option<GitHubFault>,
}

/// Something that was sent and that GitHub's description does not know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitHubViolation {
    /// In which request.
    pub request: String,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for GitHubViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.request, self.problem)
    }
}

/// GitHub on loopback, from here until it is dropped.
///
/// All methods but those that wait return at once, so that it can be used from any test,
/// asynchronous or not.
pub struct GitHub {
    shared: Arc<Shared>,
    url: String,
    runtime: Option<Runtime>,
}

/// What all connections have in common.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// For those that wait in a thread.
    changed: Condvar,
    /// For those that wait in a task.
    news: watch::Sender<u64>,
    description: Option<Description>,
    violations: Mutex<Vec<GitHubViolation>>,
    rules: Mutex<Vec<ActiveFault<GitHubFaultRule>>>,
}

impl fmt::Debug for GitHub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitHub").field("url", &self.url).finish_non_exhaustive()
    }
}

impl GitHub {
    /// Opens it.
    ///
    /// # Panics
    /// If the port is taken, the description is missing, or the system refuses a thread.
    pub fn start(options: GitHubOptions) -> GitHub {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("github")
            .enable_all()
            .build()
            .expect("the system has threads");
        let listener = listen(options.port);
        let address = listener.local_addr().expect("a listener has an address");
        let shared = Arc::new(Shared {
            description: options.models.as_deref().map(Description::read),
            state: Mutex::new(State::new(options)),
            changed: Condvar::new(),
            news: watch::Sender::new(0),
            violations: Mutex::default(),
            rules: Mutex::default(),
        });
        runtime.spawn(http::serve(listener, Arc::new(Serving(shared.clone()))));
        GitHub { shared, url: format!("http://{address}"), runtime: Some(runtime) }
    }

    /// The web's root.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The REST interface's root. What is there is also at the web's root, as on a host that has
    /// nothing else.
    pub fn api_url(&self) -> String {
        format!("{}/api/v3", self.url)
    }

    /// Makes a token known, for a repository (`acme/web`) or for an organisation and all of its
    /// repositories (`acme`). Adds to what it was allowed before.
    pub fn allow(&self, token: &str, target: &str, permissions: &[Permission]) {
        self.shared.change(|state| {
            let known = state.tokens.entry(token.to_owned()).or_insert_with(|| Token {
                name: format!("token {target}"),
                is_integration: false,
                grants: Vec::new(),
                expires: None,
            });
            known.grants.push((Target::of(target), permissions.to_vec()));
        });
    }

    /// Forgets a token, as if somebody had revoked it.
    pub fn revoke(&self, token: &str) {
        self.shared.change(|state| state.tokens.remove(token));
    }

    /// Makes an App known that is installed on an owner. Gives the installation's number.
    ///
    /// # Panics
    /// If the key is no RSA key in PEM.
    pub fn add_app(
        &self,
        id: &str,
        public_key: &str,
        owner: &str,
        permissions: &[Permission],
    ) -> u64 {
        let key = DecodingKey::from_rsa_pem(public_key.as_bytes()).expect("a public key in PEM");
        self.shared.change(|state| {
            let installation = state.new_id();
            state.apps.push(App {
                id: id.to_owned(),
                key,
                owner: owner.to_owned(),
                permissions: permissions.to_vec(),
                installation,
            });
            installation
        })
    }

    /// A registration token, without asking for it.
    pub fn registration_token(&self, target: &str) -> String {
        self.shared.change(|state| state.issue(Target::of(target), state::Purpose::Registration).0)
    }

    /// A remove token, without asking for it.
    pub fn remove_token(&self, target: &str) -> String {
        self.shared.change(|state| state.issue(Target::of(target), state::Purpose::Removal).0)
    }

    /// The runners that are registered, in the order in which they were.
    pub fn runners(&self) -> Vec<GitHubRunner> {
        self.shared.look(|state| state.runners.values().map(|it| it.runner.clone()).collect())
    }

    /// Lists a runner that no program stands behind. Gives its number.
    pub fn add_runner(&self, runner: GitHubRunner) -> u64 {
        self.shared.change(|state| {
            let id = state.new_id();
            let runner = GitHubRunner { id, ..runner };
            let key = state::secret("key", 32);
            state.runners.insert(id, Registered { runner, key, session: None, job: None });
            id
        })
    }

    /// Strikes a runner from the list, whatever it does.
    pub fn remove_runner(&self, name: &str) {
        self.shared.change(|state| state.runners.retain(|_, it| it.runner.name != name));
    }

    /// Waits until a listener has asked for a session so many times, granted or not. Says
    /// whether it has.
    pub fn wait_for_attempts(&self, runner: &str, count: usize, at_most: Duration) -> bool {
        let asked = |state: &State| state.attempts.get(runner).copied().unwrap_or_default();
        self.shared.wait(at_most, |state| (asked(state) >= count).then_some(())).is_some()
    }

    /// Waits until the list of runners is as it should be, and gives it; `None` if it does not
    /// become so in time.
    pub fn wait_for_runners(
        &self,
        at_most: Duration,
        suits: impl Fn(&[GitHubRunner]) -> bool,
    ) -> Option<Vec<GitHubRunner>> {
        self.shared.wait(at_most, |state| {
            let runners: Vec<_> = state.runners.values().map(|it| it.runner.clone()).collect();
            suits(&runners).then_some(runners)
        })
    }

    /// Serves a file, to everybody.
    pub fn serve_file(&self, path: &str, bytes: impl Into<Bytes>) {
        let file = Served::File(bytes.into());
        self.shared.change(|state| state.files.insert(path.to_owned(), file));
    }

    /// Sends whoever asks for a path to another, or to an address.
    pub fn redirect(&self, path: &str, to: &str) {
        let elsewhere = Served::Elsewhere(to.to_owned());
        self.shared.change(|state| state.files.insert(path.to_owned(), elsewhere));
    }

    /// Publishes a release of the runner, the latest from now on, with its package for Linux. Its
    /// download leads elsewhere, as GitHub's do. Gives the package's SHA-256.
    pub fn publish_runner(&self, version: &str, package: impl Into<Bytes>) -> String {
        let (tag, name) = (format!("v{version}"), releases::package_name(version));
        let package = package.into();
        let store = format!("/release-assets/{name}");
        self.redirect(&releases::download_path(&tag, &name), &store);
        self.serve_file(&store, package.clone());
        let digest = releases::digest(&package);
        self.shared.change(|state| {
            let release = Release { tag, at: state.now(), assets: vec![(name, package)] };
            state.releases.push(release);
        });
        digest
    }

    /// Adds a rule, behind those that are there.
    pub fn inject(&self, rule: GitHubFaultRule) -> ActiveFault<GitHubFaultRule> {
        let occurrence = rule.occurrence;
        let active = ActiveFault::of(rule, occurrence);
        locked(&self.shared.rules).push(active.clone());
        active
    }

    /// Ends all rules, and all trouble of runners.
    pub fn clear_faults(&self) {
        locked(&self.shared.rules).clear();
        self.shared.change(|state| state.runner_faults.clear());
    }

    /// Lets something go wrong with the runners of a repository or organisation, with the one of
    /// this name, or with all of them (`*`), until somebody calls [`clear_faults`](GitHub::clear_faults).
    pub fn inject_runner_fault(&self, target: &str, fault: RunnerFault) {
        self.shared.change(|state| state.runner_faults.insert(0, (target.to_owned(), fault)));
    }

    /// Moves the clock on. Tokens expire by it; sessions do not.
    pub fn advance(&self, span: Duration) {
        self.shared.change(|state| state.ahead += span);
    }

    /// Turns the clock back, behind that of this computer.
    pub fn turn_back(&self, span: Duration) {
        self.shared.change(|state| state.behind += span);
    }

    /// Every request that is over, in the order in which they were.
    pub fn requests(&self) -> Vec<GitHubRequest> {
        self.shared.look(|state| state.requests.clone())
    }

    /// How many requests there were of a method to paths of a pattern; see
    /// [`GitHubFaultRule::path`].
    pub fn count(&self, method: &str, pattern: &str) -> usize {
        let meant = |it: &&GitHubRequest| it.method == method && faults::matches(pattern, &it.path);
        self.shared.look(|state| state.requests.iter().filter(meant).count())
    }

    /// Forgets the requests that there were.
    pub fn forget_requests(&self) {
        self.shared.change(|state| state.requests.clear());
    }

    /// What was sent that GitHub's description does not know.
    pub fn violations(&self) -> Vec<GitHubViolation> {
        locked(&self.shared.violations).clone()
    }

    /// # Panics
    /// If any request was not as GitHub's description has it, or if there is none.
    pub fn assert_requests_valid(&self) {
        assert!(self.shared.description.is_some(), "nothing was checked: no description");
        let mut violations: Vec<String> =
            self.violations().iter().map(ToString::to_string).collect();
        violations.sort();
        violations.dedup();
        assert!(
            violations.is_empty(),
            "requests that GitHub's description does not know:\n{}",
            violations.join("\n")
        );
    }
}

impl Drop for GitHub {
    fn drop(&mut self) {
        // As with the gateway: nobody may wait here, and nothing is needed any more.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn look<T>(&self, how: impl FnOnce(&State) -> T) -> T {
        how(&locked(&self.state))
    }

    /// Changes something that nobody waits for, or not yet.
    fn quietly<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        how(&mut locked(&self.state))
    }

    /// Changes something, and tells those who wait.
    fn change<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        let changed = self.quietly(how);
        self.tell();
        changed
    }

    /// Tells those who wait.
    fn tell(&self) {
        self.changed.notify_all();
        self.news.send_modify(|count| *count += 1);
    }

    /// Waits for something, in a thread.
    fn wait<T>(&self, at_most: Duration, find: impl Fn(&State) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + at_most;
        let mut state = locked(&self.state);
        loop {
            if let Some(found) = find(&state) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
