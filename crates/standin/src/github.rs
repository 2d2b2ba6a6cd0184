//! GitHub on loopback, as far as ondeck uses it. It is an Enterprise Server with one address.

mod answers;
mod apps;
mod auth;
mod budget;
mod by_hand;
mod description;
mod environments;
mod faults;
mod jobs;
mod labels;
mod latency;
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
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use jsonwebtoken::DecodingKey;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::emulators::Emulators;
use crate::http::{self, listen};
use crate::injection::ActiveFault;
use crate::sync::locked;

pub use auth::Permission;
pub use budget::RequestLimits;
pub use faults::{GitHubFault, GitHubFaultRule};
pub use jobs::{Conclusion, Job, JobId, JobState, RunState};
pub use latency::RegistrationTimes;
pub use runner::{LISTENER_VARIABLE, RunnerPackage, RunnerTimes, run_listener, runner_package};
pub use runner_faults::RunnerFault;
pub use runners::GitHubRunner;

use auth::{App, Target, Token};
use description::Description;
use serve::Serving;
use state::{Registered, Release, Served, State};

/// The private key of an App for tests, in GitHub's format. It is not a secret.
pub const APP_PRIVATE_KEY: &str = include_str!("github/app.pem");
/// The public key that belongs to [`APP_PRIVATE_KEY`].
pub const APP_PUBLIC_KEY: &str = include_str!("github/app.pub.pem");

/// How a [`GitHub`] behaves.
#[derive(Debug, Clone)]
pub struct GitHubOptions {
    /// The folder with GitHub's OpenAPI description, `github.json`. Without it,
    /// requests are not checked.
    pub models: Option<PathBuf>,
    /// The port to listen on; 0 for any free one.
    pub port: u16,
    /// Whether something in front of this server ends TLS, so that callers use https.
    pub behind_tls: bool,
    /// How long registration and remove tokens are valid.
    pub runner_token_life: Duration,
    /// How long a runner stays online after its listener's connection is closed without a goodbye.
    pub session_timeout: Duration,
    /// How long GitHub waits for the job of a listener that is gone, and calls its runner busy. The
    /// answer to each renewal of a job, which a listener sends every 60 s, says that the job is locked
    /// for ten minutes (`lockedUntil`); the source of actions/runner 2.336.0 has that answer in
    /// `RunServiceHttpClient.RenewJobAsync`.
    pub job_lock: Duration,
    /// How long each request takes beside the rest, as a round trip to a server far away does. The
    /// listeners' requests take that long too.
    pub latency: Duration,
    /// How long GitHub takes to open a session.
    pub session_delay: Duration,
    /// How long registrations and sessions take, besides [`session_delay`](GitHubOptions::session_delay).
    /// Without it they take no time.
    pub registration_times: Option<RegistrationTimes>,
    /// How long a cancelled job may take to stop. It gets SIGINT first, SIGTERM after three
    /// quarters of this time, and SIGKILL at the end. The real runner gives ten seconds.
    pub cancel_grace: Duration,
    /// How long after a job its runner gets no other. A real listener needs several round trips for
    /// the next one.
    pub pause_after_job: Duration,
    /// How long GitHub calls a runner busy after its job has ended, and does not remove it.
    pub busy_after_job: Duration,
    /// The largest page of a list, even if a request asks for more.
    pub page: usize,
    /// The runner groups besides the default one.
    pub runner_groups: Vec<String>,
    /// The rate limits of the REST API.
    pub limits: RequestLimits,
}

impl Default for GitHubOptions {
    fn default() -> GitHubOptions {
        GitHubOptions {
            models: None,
            port: 0,
            behind_tls: false,
            runner_token_life: Duration::from_secs(3_600),
            session_timeout: Duration::from_secs(2),
            job_lock: Duration::from_secs(600),
            latency: Duration::ZERO,
            session_delay: Duration::ZERO,
            registration_times: None,
            cancel_grace: Duration::from_secs(1),
            pause_after_job: Duration::ZERO,
            busy_after_job: Duration::ZERO,
            page: 100,
            runner_groups: Vec::new(),
            limits: RequestLimits::default(),
        }
    }
}

impl GitHubOptions {
    /// Checks requests against GitHub's OpenAPI description.
    pub fn on(emulators: &Emulators) -> GitHubOptions {
        GitHubOptions { models: Some(emulators.models.clone()), ..GitHubOptions::default() }
    }
}

/// A finished request. The runner double's own requests are not logged, except the token exchange of
/// its registration and its removal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubRequest {
    /// The method, such as `GET`.
    pub method: String,
    /// The path without `/api/v3` and without the query.
    pub path: String,
    /// The decoded parameters of the query.
    pub query: Vec<(String, String)>,
    /// The status of the answer; `None` if there was none.
    pub status: Option<u16>,
    /// The caller's token, such as `token acme/web`, `installation acme` or `app 12345`.
    pub token: Option<String>,
    /// The fault that was injected, other than a delay.
    pub fault: Option<GitHubFault>,
}

/// A part of a request that GitHub's description does not allow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GitHubViolation {
    /// Method and path of the request.
    pub request: String,
    pub problem: String,
}

impl fmt::Display for GitHubViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.request, self.problem)
    }
}

/// GitHub on loopback, which runs until this is dropped.
///
/// Only the methods that wait block, so asynchronous tests can call the others too.
pub struct GitHub {
    shared: Arc<Shared>,
    url: String,
    runtime: Option<Runtime>,
}

/// The state that all connections share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Wakes threads that wait for a change.
    changed: Condvar,
    /// Wakes tasks that wait for a change.
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
    /// Starts a GitHub on loopback.
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

    /// The URL of the web host.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of the REST API. The API is also at the URL of the web host, as on a host that
    /// serves only the API.
    pub fn api_url(&self) -> String {
        format!("{}/api/v3", self.url)
    }

    /// Grants permissions to a token, for a repository (`acme/web`) or for an organisation with all
    /// of its repositories (`acme`). Earlier grants stay.
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

    pub fn revoke(&self, token: &str) {
        self.shared.change(|state| state.tokens.remove(token));
    }

    /// Adds an App that is installed on an owner. Returns the number of the installation.
    ///
    /// # Panics
    /// If the key is not an RSA key in PEM format.
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

    /// Issues a registration token without an API request.
    pub fn registration_token(&self, target: &str) -> String {
        self.shared.change(|state| state.issue(Target::of(target), state::Purpose::Registration).0)
    }

    /// Issues a remove token without an API request.
    pub fn remove_token(&self, target: &str) -> String {
        self.shared.change(|state| state.issue(Target::of(target), state::Purpose::Removal).0)
    }

    /// Every registration and remove token that was issued, by an API request or without one.
    pub fn runner_tokens(&self) -> Vec<String> {
        self.shared.look(|state| state.runner_tokens.keys().cloned().collect())
    }

    /// All registered runners, in the order of their registration.
    pub fn runners(&self) -> Vec<GitHubRunner> {
        self.shared.look(|state| state.runners.values().map(|it| it.runner.clone()).collect())
    }

    /// Adds a runner to the list without a program. Returns its number.
    pub fn add_runner(&self, runner: GitHubRunner) -> u64 {
        self.shared.change(|state| {
            let id = state.new_id();
            let runner = GitHubRunner { id, ..runner };
            let key = state::secret("key", 32);
            state
                .runners
                .insert(id, Registered { runner, key, session: None, job: None, freed: None });
            id
        })
    }

    /// Removes a runner from the list, even if it is busy.
    pub fn remove_runner(&self, name: &str) {
        self.shared.change(|state| state.runners.retain(|_, it| it.runner.name != name));
    }

    /// Refuses jobs to a version of the runner from now on.
    pub fn deprecate(&self, version: &str) {
        self.shared.change(|state| state.deprecated.insert(version.to_owned()));
    }

    /// Tells the listener of a runner to update itself to a version, with its next message. The real
    /// listener obeys even if it was configured not to update itself.
    pub fn tell_to_update(&self, runner: &str, version: &str) {
        let update = (runner.to_owned(), version.to_owned());
        self.shared.change(|state| state.updates.insert(update.0, update.1));
    }

    /// Announces until when a version of the runner may register and get jobs. Nothing is refused
    /// after that.
    pub fn announce_end(
        &self,
        version: &str,
        registration: Option<SystemTime>,
        jobs: Option<SystemTime>,
    ) {
        self.shared
            .change(|state| state.deadlines.insert(version.to_owned(), (registration, jobs)));
    }

    /// Blocks until a runner's listener has requested `count` sessions, granted or not. Returns
    /// `false` if that takes longer than `at_most`.
    pub fn wait_for_attempts(&self, runner: &str, count: usize, at_most: Duration) -> bool {
        let asked = |state: &State| state.attempts.get(runner).copied().unwrap_or_default();
        self.shared.wait(at_most, |state| (asked(state) >= count).then_some(())).is_some()
    }

    /// How many sessions all listeners have requested, granted or not.
    pub fn session_attempts(&self) -> usize {
        self.shared.look(|state| state.attempts.values().sum())
    }

    /// Adds a label to a runner, as an administrator may by the REST API.
    pub fn add_label(&self, runner: &str, label: &str) {
        self.shared.change(|state| {
            let mut found = state.runners.values_mut().filter(|it| it.runner.name == runner);
            if let Some(found) = found.next() {
                found.runner.labels.push(label.to_owned());
            }
        });
    }

    /// Blocks until the list of runners satisfies a condition, and returns it; `None` if that
    /// takes longer than `at_most`.
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

    /// Serves a file at a path, without authentication.
    pub fn serve_file(&self, path: &str, bytes: impl Into<Bytes>) {
        let file = Served::File(bytes.into());
        self.shared.change(|state| state.files.insert(path.to_owned(), file));
    }

    /// Redirects requests for a path to another path or URL.
    pub fn redirect(&self, path: &str, to: &str) {
        let elsewhere = Served::Elsewhere(to.to_owned());
        self.shared.change(|state| state.files.insert(path.to_owned(), elsewhere));
    }

    /// Publishes a release of the runner with its package for Linux, as the latest one. The
    /// download is redirected, as at GitHub. Returns the SHA-256 of the package.
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

    /// Publishes a release of ondeck in which one program has all of these names, as the Action looks
    /// for it. Returns the URL that precedes `/vVERSION/`.
    pub fn publish_release(
        &self,
        version: &str,
        names: &[String],
        program: &Bytes,
        sha256: &str,
    ) -> String {
        let page = "/ondeck-ci/ondeck/releases/download";
        let mut sums = String::new();
        for name in names {
            sums += &format!("{sha256}  {name}\n");
            self.serve_file(&format!("{page}/v{version}/{name}"), program.clone());
        }
        self.serve_file(&format!("{page}/v{version}/SHA256SUMS"), sums);
        format!("{}{page}", self.url)
    }

    /// Puts a fault rule in force, after the existing ones.
    pub fn inject(&self, rule: GitHubFaultRule) -> ActiveFault<GitHubFaultRule> {
        let occurrence = rule.occurrence;
        let active = ActiveFault::of(rule, occurrence);
        locked(&self.shared.rules).push(active.clone());
        active
    }

    /// Removes all fault rules and all runner faults.
    pub fn clear_faults(&self) {
        locked(&self.shared.rules).clear();
        self.shared.change(|state| state.runner_faults.clear());
    }

    /// Injects a fault into the runners of a repository or organisation, into the runner of this
    /// name, or into all runners (`*`), until [`clear_faults`](GitHub::clear_faults) is called.
    pub fn inject_runner_fault(&self, target: &str, fault: RunnerFault) {
        self.shared.change(|state| state.runner_faults.insert(0, (target.to_owned(), fault)));
    }

    /// Replaces [`GitHubOptions::latency`] for later requests.
    pub fn set_latency(&self, latency: Duration) {
        self.shared.quietly(|state| state.options.latency = latency);
    }

    /// Advances the clock by which tokens expire. Sessions do not depend on it.
    pub fn advance(&self, span: Duration) {
        self.shared.change(|state| state.ahead += span);
    }

    /// Turns the clock back, behind that of this computer.
    pub fn turn_back(&self, span: Duration) {
        self.shared.change(|state| state.behind += span);
    }

    /// Every finished request, in the order in which they finished.
    pub fn requests(&self) -> Vec<GitHubRequest> {
        self.shared.look(|state| state.requests.clone())
    }

    /// How many requests of a method there were to paths that match
    /// a pattern; see [`GitHubFaultRule::path`].
    pub fn count(&self, method: &str, pattern: &str) -> usize {
        let meant = |it: &&GitHubRequest| it.method == method && faults::matches(pattern, &it.path);
        self.shared.look(|state| state.requests.iter().filter(meant).count())
    }

    /// Clears the log of requests.
    pub fn forget_requests(&self) {
        self.shared.change(|state| state.requests.clear());
    }

    /// Every violation of GitHub's description so far.
    pub fn violations(&self) -> Vec<GitHubViolation> {
        locked(&self.shared.violations).clone()
    }

    /// Asserts that all requests so far were valid by GitHub's description.
    ///
    /// # Panics
    /// If any request violated it, or if this GitHub has no description to check by.
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
        // As in the gateway, this must not wait for threads within another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    fn look<T>(&self, how: impl FnOnce(&State) -> T) -> T {
        how(&locked(&self.state))
    }

    /// Changes the state without waking waiters.
    fn quietly<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        how(&mut locked(&self.state))
    }

    /// Changes the state and wakes all waiters.
    fn change<T>(&self, how: impl FnOnce(&mut State) -> T) -> T {
        let changed = self.quietly(how);
        self.tell();
        changed
    }

    fn tell(&self) {
        self.changed.notify_all();
        self.news.send_modify(|count| *count += 1);
    }

    /// Blocks until `find` returns a value; `None` if that takes longer than `at_most`.
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
