//! Handles one request: checks, faults, routing and the log.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use hyper::header::HeaderName;
use hyper::http::request::Parts;

use crate::http::{Answer, Connection, Cut, Handler, Outcome};
use crate::sync::locked;

use super::auth::{Caller, Permission, Target};
use super::budget::{Exceeded, Remaining};
use super::faults::{GitHubFault, plan};
use super::protocol::UNKNOWN_FLAGS;
use super::request::ApiRequest;
use super::state::{Purpose, State};
use super::{GitHubRequest, Shared};
use super::{answers, apps, environments, jobs, labels, listener, releases, runners};

/// The supported versions of the REST API.
const VERSIONS: [&str; 2] = ["2022-11-28", "2026-03-10"];

/// The request handler of the server.
pub(super) struct Serving(pub(super) Arc<Shared>);

impl Handler for Serving {
    async fn handle(&self, connection: Connection, head: Parts, body: Bytes) -> Outcome {
        let shared = &self.0;
        let (behind_tls, latency) =
            shared.look(|state| (state.options.behind_tls, state.options.latency));
        let ask = ApiRequest::of(connection, head, body, behind_tls);
        let rules = locked(&shared.rules).clone();
        let (delay, fault) = plan(&ask, &rules);
        let caller = shared.look(|state| caller_name(state, &ask));
        let mut noting = Noting::new(shared, &ask, caller.clone(), fault);
        if !(delay + latency).is_zero() {
            tokio::time::sleep(delay + latency).await;
        }
        let outcome = match fault {
            None | Some(GitHubFault::Delay(_)) => {
                Outcome::Answered(perform(shared, &ask, caller.as_deref()).await)
            }
            Some(GitHubFault::CutBody) => {
                Outcome::Halved(perform(shared, &ask, caller.as_deref()).await)
            }
            Some(GitHubFault::LostAnswer) => {
                perform(shared, &ask, caller.as_deref()).await;
                Outcome::Cut(Cut::Closed)
            }
            Some(GitHubFault::Reset) => Outcome::Cut(Cut::Reset),
            Some(GitHubFault::Hang) => std::future::pending().await,
            Some(fault) => Outcome::Answered(refused(shared, fault)),
        };
        let outcome = match outcome {
            Outcome::Answered(answer) => {
                Outcome::Answered(shared.signed(answer, caller.as_deref()))
            }
            other => other,
        };
        if let Some(entry) = &mut noting.entry {
            entry.status = outcome.status();
        }
        outcome
    }

    fn closed(&self, connection: Connection) {
        listener::gone(&self.0, connection);
    }
}

fn refused(shared: &Shared, fault: GitHubFault) -> Answer {
    match fault {
        GitHubFault::Status(status) => answers::server_error(status),
        GitHubFault::TooManyRequests { retry_after } => answers::too_many(retry_after),
        GitHubFault::SecondaryLimit { retry_after } => answers::secondary_limit(retry_after),
        GitHubFault::PrimaryLimit { reset_in } => {
            answers::primary_limit(shared.look(State::now) + reset_in)
        }
        _ => answers::not_json(),
    }
}

/// The caller's name in the log of requests.
fn caller_name(state: &State, ask: &ApiRequest) -> Option<String> {
    if let Some(name) = Caller::of(state, ask.credentials()).name() {
        return Some(name.to_owned());
    }
    let app = super::auth::app(state, ask.credentials());
    app.ok().map(|app| format!("app {}", app.id))
}

async fn perform(shared: &Arc<Shared>, ask: &ApiRequest, caller: Option<&str>) -> Answer {
    if let Some(flags) = ask.header(UNKNOWN_FLAGS) {
        listener::report_flags(shared, "remove", flags);
    }
    if ask.is_private() || ask.path == "/actions/runner-registration" {
        return listener::answer(shared, ask).await;
    }
    if let Some(file) = shared.look(|state| releases::download(state, ask)) {
        return file;
    }
    let _counted = match Counted::begin(shared, ask, caller) {
        Ok(counted) => counted,
        Err(refusal) => return *refusal,
    };
    let description = shared.description.as_ref().filter(|_| !releases::is_undescribed(ask));
    if let Some(description) = description {
        locked(&shared.violations).extend(description.check(ask));
    }
    let answer = shared.change(|state| route(state, ask));
    if let Some(description) = description {
        locked(&shared.violations).extend(description.check_answer(ask, &answer));
    }
    answer
}

/// Answers a request to the REST API.
fn route(state: &mut State, ask: &ApiRequest) -> Answer {
    if !ask.has_user_agent() {
        let message = "Request forbidden by administrative rules. Please make sure your request \
                       has a User-Agent header";
        return answers::refusal(403, message);
    }
    if let Some(version) = ask.header("x-github-api-version")
        && !VERSIONS.contains(&version)
    {
        return answers::refusal(400, &format!("Unsupported version {version}"));
    }
    let segments: Vec<&str> = ask.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        ["repos", owner, name, rest @ ..] => {
            let target = Target::Repository(format!("{owner}/{name}"));
            of_target(state, ask, &target, rest)
        }
        ["orgs", owner, rest @ ..] => {
            of_target(state, ask, &Target::Organisation((*owner).to_owned()), rest)
        }
        ["app", "installations", id, "access_tokens"] if ask.method == "POST" => {
            apps::access_token(state, ask, id)
        }
        _ => answers::not_found(),
    }
}

fn of_target(state: &mut State, ask: &ApiRequest, target: &Target, rest: &[&str]) -> Answer {
    if let (Some(secret), ["actions", "runners", id]) = (ask.remote_auth(), rest)
        && ask.method == "DELETE"
    {
        return runners::delete_by_runner(state, target, id, secret);
    }
    let caller = Caller::of(state, ask.credentials());
    let is_repository = matches!(target, Target::Repository(_));
    let runners =
        if is_repository { Permission::Administration } else { Permission::OrganisationRunners };
    let needed = match rest {
        ["installation"] if ask.method == "GET" => {
            return apps::installation(state, ask, target);
        }
        ["releases", "latest" | "tags", ..] if target.is(releases::REPOSITORY) => {
            // These need no credentials, but invalid ones are refused.
            if matches!(caller, Caller::Unknown) {
                return answers::unknown_caller("Bad credentials");
            }
            return match rest {
                ["releases", "tags", tag] => releases::show(state, ask, Some(tag)),
                ["releases", "latest"] => releases::show(state, ask, None),
                _ => answers::not_found(),
            };
        }
        ["actions", "runners", ..] => runners,
        ["actions", "runs" | "jobs", ..] if is_repository && ask.method.as_str() == "POST" => {
            Permission::ActionsWrite
        }
        ["actions", "runs", ..] if is_repository => Permission::ActionsRead,
        ["environments", ..] if is_repository => Permission::Administration,
        _ => Permission::Metadata,
    };
    if let Err(refusal) = caller.may(target, needed) {
        return *refusal;
    }
    match (ask.method.as_str(), rest) {
        ("POST", ["actions", "runners", "registration-token"]) => {
            runners::issue(state, target, Purpose::Registration)
        }
        ("POST", ["actions", "runners", "remove-token"]) => {
            runners::issue(state, target, Purpose::Removal)
        }
        ("GET", ["actions", "runners"]) => runners::list(state, ask, target),
        ("GET", ["actions", "runners", "downloads"]) => releases::downloads(state, ask),
        ("GET", ["actions", "runners", "deprecations", version]) => {
            releases::deadlines(state, version)
        }
        ("GET", ["actions", "runners", id]) => runners::show(state, target, id),
        ("DELETE", ["actions", "runners", id]) => runners::delete(state, target, id),
        (_, ["actions", "runners", id, "labels"]) => labels::answer(state, ask, target, id, None),
        ("DELETE", ["actions", "runners", id, "labels", name]) => {
            labels::answer(state, ask, target, id, Some(name))
        }
        (_, ["environments", name, rest @ ..]) if is_repository => {
            environments::answer(state, ask, target, name, rest)
        }
        ("GET", ["actions", "runs"]) => jobs::list_runs(state, ask, target.name()),
        ("POST", ["actions", "jobs", id, "rerun"]) => {
            jobs::rerun(state, target.name(), jobs::Again::Job(id))
        }
        ("POST", ["actions", "runs", id, "rerun-failed-jobs"]) => {
            jobs::rerun(state, target.name(), jobs::Again::Failed(id))
        }
        ("GET", ["actions", "runs", id]) => jobs::show_run(state, ask, target.name(), id),
        ("GET", ["actions", "runs", id, "jobs"]) => jobs::list_jobs(state, ask, target.name(), id),
        _ => answers::not_found(),
    }
}

impl Shared {
    /// Adds the headers that GitHub sends with every answer, including the caller's rate limit.
    fn signed(&self, mut answer: Answer, caller: Option<&str>) -> Answer {
        let Remaining { limit, used, reset } =
            self.look(|state| state.budgets.remaining(&state.options.limits, caller, state.now()));
        let reset = reset.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let id = format!("{:04X}:{:06X}", fastrand::u16(..), fastrand::u32(..));
        for (name, value) in [
            ("x-github-request-id", id),
            ("x-github-api-version-selected", VERSIONS[0].to_owned()),
            ("x-ratelimit-limit", limit.to_string()),
            ("x-ratelimit-remaining", limit.saturating_sub(used).to_string()),
            ("x-ratelimit-used", used.to_string()),
            ("x-ratelimit-reset", reset.to_string()),
            ("x-ratelimit-resource", "core".to_owned()),
        ] {
            if !answer.headers.contains_key(name) {
                answer = answers::header(answer, HeaderName::from_static(name), &value);
            }
        }
        answer
    }
}

/// Counts a request among those of its caller that run, until it is dropped.
struct Counted<'a> {
    shared: &'a Shared,
    caller: Option<&'a str>,
}

impl<'a> Counted<'a> {
    /// Fails with GitHub's answer if the caller has exceeded a rate limit. Runners that remove
    /// themselves have none.
    fn begin(
        shared: &'a Shared,
        ask: &ApiRequest,
        caller: Option<&'a str>,
    ) -> Result<Option<Counted<'a>>, Box<Answer>> {
        if ask.remote_auth().is_some() {
            return Ok(None);
        }
        let begun = shared.quietly(|state| {
            let (limits, now) = (state.options.limits, state.now());
            state.budgets.begin(&limits, caller, &ask.method, now)
        });
        match begun {
            Ok(()) => Ok(Some(Counted { shared, caller })),
            Err(Exceeded::Primary(reset)) => Err(answers::primary_limit(reset).into()),
            Err(Exceeded::Secondary(span)) => Err(answers::secondary_limit(span).into()),
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.shared.quietly(|state| state.budgets.end(self.caller));
    }
}

/// Logs a request when it is dropped, so that a request whose caller gave up is logged too.
struct Noting<'a> {
    shared: &'a Shared,
    entry: Option<GitHubRequest>,
}

impl<'a> Noting<'a> {
    fn new(
        shared: &'a Shared,
        ask: &ApiRequest,
        token: Option<String>,
        fault: Option<GitHubFault>,
    ) -> Noting<'a> {
        if ask.is_private() {
            return Noting { shared, entry: None };
        }
        let method = ask.method.to_string();
        let query = ask.query.clone();
        let path = ask.path.clone();
        let entry = GitHubRequest { method, path, query, status: None, token, fault };
        Noting { shared, entry: Some(entry) }
    }
}

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.shared.change(|state| state.requests.push(entry));
        }
    }
}
