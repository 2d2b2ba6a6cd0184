//! The server side of the runner double's protocol.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::github::protocol::{
    Exchange, Exchanged, Message, Opened, Opening, Order, Progress, Registration,
};
use crate::http::{Answer, Connection};
use crate::sync::locked;

use super::answers;
use super::auth::{Target, is_bearer};
use super::by_hand;
use super::jobs::{Conclusion, JobId, JobState};
use super::latency::Draws;
use super::request::ApiRequest;
use super::runner_faults::RunnerFault;
use super::runners::GitHubRunner;
use super::state::{Purpose, Registered, Session, State, secret};
use super::{GitHubViolation, Shared};

/// How long a request for a message waits before it is answered with none.
const PATIENCE: Duration = Duration::from_secs(20);
/// The runner group that always exists.
const DEFAULT_GROUP: &str = "default";

/// Answers a request of the runner double.
pub(super) async fn answer(shared: &Arc<Shared>, ask: &ApiRequest) -> Answer {
    let segments: Vec<&str> = ask.segments.iter().map(String::as_str).collect();
    match (ask.method.as_str(), segments.as_slice()) {
        ("POST", ["actions", "runner-registration"]) => exchange(shared, ask).await,
        ("POST", ["_standin", "runners"]) => register(shared, ask).await,
        // The double makes these requests for the time that they take.
        ("GET", ["_standin", "runner-groups" | "runners" | "connection"])
        | ("GET", ["_standin", "oauth2", "token"]) => answers::done(),
        ("POST", ["_standin", "sessions"]) => open(shared, ask).await,
        ("DELETE", ["_standin", "sessions", id]) => close(shared, id),
        ("GET", ["_standin", "sessions", id, "message"]) => message(shared, ask, id).await,
        ("POST", ["_standin", "jobs", id]) => progress(shared, ask, id),
        ("POST", ["_standin", "queue", owner, name, run]) => {
            by_hand::queue(shared, ask, &format!("{owner}/{name}"), (run, run)).await
        }
        ("POST", ["_standin", "queue", owner, name, run, label]) => {
            by_hand::queue(shared, ask, &format!("{owner}/{name}"), (run, label)).await
        }
        _ => answers::not_found(),
    }
}

/// Exchanges a registration token or a remove token for one to register or remove with. As at
/// GitHub, a registration token serves for both.
async fn exchange(shared: &Arc<Shared>, ask: &ApiRequest) -> Answer {
    let Some(Exchange { url, runner_event, unknown }) = body(ask) else {
        return answers::not_found();
    };
    if !unknown.is_empty() {
        report_flags(shared, &runner_event, &unknown.join(", "));
    }
    let Some(target) = target_of(&url) else { return answers::not_found() };
    let fault = shared.look(|state| state.runner_fault("", &target));
    if runner_event == "register" {
        hang_if(fault == Some(RunnerFault::RegistrationHangs)).await;
        if fault == Some(RunnerFault::RegistrationRefused) {
            return answers::not_found();
        }
    }
    let secret = ask.credentials().filter(|(scheme, _)| *scheme == "RemoteAuth");
    let secret = secret.map(|(_, secret)| secret.to_owned()).unwrap_or_default();
    shared.change(|state| {
        let pass = state.runner_tokens.get(&secret).cloned();
        let pass = pass.filter(|pass| state.now() < pass.expires && target.is(pass.target.name()));
        let fits = |purpose| match purpose {
            Purpose::Registration => true,
            Purpose::Removal => runner_event == "remove",
            Purpose::Exchanged => false,
        };
        if !pass.is_some_and(|pass| fits(pass.purpose)) {
            return answers::not_found();
        }
        let (token, _) = state.issue(target, Purpose::Exchanged);
        let url = format!("{}/_standin", ask.root);
        let exchanged = Exchanged { url, token_schema: "OAuthAccessToken".to_owned(), token };
        answers::found(200, &json!(exchanged))
    })
}

/// Records flags of `config.sh` that the runner does not know.
pub(super) fn report_flags(shared: &Shared, event: &str, flags: &str) {
    let request = format!("config.sh ({event})");
    let problem = format!("no such flag: {flags}");
    locked(&shared.violations).push(GitHubViolation { request, problem });
}

/// The target in a URL like `http://127.0.0.1:1234/acme/web`, or `…/acme` for an organisation.
fn target_of(url: &str) -> Option<Target> {
    let (_, rest) = url.split_once("://")?;
    let (_, name) = rest.split_once('/')?;
    let name = name.trim_end_matches('/');
    (!name.is_empty() && name.matches('/').count() < 2).then(|| Target::of(name))
}

async fn register(shared: &Arc<Shared>, ask: &ApiRequest) -> Answer {
    let Some(registration) = body::<Registration>(ask) else { return answers::not_found() };
    let Some(target) = shared.look(|state| exchanged(state, ask)) else {
        return answers::unknown_caller("Bad credentials");
    };
    let fault = shared.look(|state| state.runner_fault(&registration.name, &target));
    hang_if(fault == Some(RunnerFault::RegistrationHangs)).await;
    if fault == Some(RunnerFault::RegistrationRefused) {
        return answers::not_found();
    }
    pause(shared, Draws::registration).await;
    shared.change(|state| enlist(state, registration, &target))
}

fn enlist(state: &mut State, registration: Registration, target: &Target) -> Answer {
    let Registration { name, labels, group, replace, ephemeral, version } = registration;
    if let Some(group) = group
        && !group.eq_ignore_ascii_case(DEFAULT_GROUP)
        && !state.options.runner_groups.contains(&group)
    {
        let message = format!("Could not find any self-hosted runner group named \"{group}\".");
        return answers::refusal(400, &message);
    }
    let same = |it: &&Registered| it.runner.name == name && target.is(&it.runner.scope);
    let known = state.runners.values().find(same).map(|it| it.runner.id);
    if known.is_some() && !replace {
        return answers::refusal(409, &format!("A runner exists with the same name {name}."));
    }
    let id = known.unwrap_or_else(|| state.new_id());
    let key = secret("key", 32);
    let runner = GitHubRunner {
        id,
        scope: target.name().to_owned(),
        labels,
        online: false,
        busy: false,
        ephemeral,
        version,
        name,
    };
    state
        .runners
        .insert(id, Registered { runner, key: key.clone(), session: None, job: None, freed: None });
    let registered = crate::github::protocol::Registered { id, key, replaced: known.is_some() };
    answers::found(201, &json!(registered))
}

/// Waits for as long as the distribution of registration times says, if there is one.
async fn pause(shared: &Shared, draw: fn(&mut Draws) -> Duration) {
    let drawn = shared.quietly(|state| state.draws.as_mut().map(draw));
    tokio::time::sleep(drawn.unwrap_or_default()).await;
}

/// The target of the request's exchanged token; `None` if it is invalid.
fn exchanged(state: &State, ask: &ApiRequest) -> Option<Target> {
    let (scheme, secret) = ask.credentials()?;
    let pass = state.runner_tokens.get(secret)?;
    (is_bearer(scheme) && pass.purpose == Purpose::Exchanged).then(|| pass.target.clone())
}

async fn open(shared: &Arc<Shared>, ask: &ApiRequest) -> Answer {
    let Some(Opening { runner, version }) = body(ask) else { return answers::not_found() };
    let key = ask.credentials().map(|(_, key)| key.to_owned()).unwrap_or_default();
    let known = |state: &mut State| {
        let registered = state.runners.get(&runner).filter(|it| it.key == key)?;
        let target = Target::of(&registered.runner.scope);
        let (name, in_session) = (registered.runner.name.clone(), registered.session.is_some());
        let fault = state.runner_fault(&name, &target);
        *state.attempts.entry(name).or_default() += 1;
        Some((fault, in_session))
    };
    let Some((fault, in_session)) = shared.change(known) else {
        return answers::unknown_caller("the runner registration has been deleted");
    };
    match fault {
        Some(RunnerFault::NeverConnects) => std::future::pending().await,
        Some(RunnerFault::Retryable) => return answers::refusal(400, "Bad request"),
        Some(RunnerFault::SessionUnavailable) => return answers::server_error(503),
        Some(RunnerFault::SessionError) => return answers::server_error(500),
        Some(RunnerFault::Deleted) => {
            shared.change(|state| state.runners.remove(&runner));
            return answers::unknown_caller("the runner registration has been deleted");
        }
        Some(RunnerFault::SessionConflict) => return conflict(),
        _ if in_session => return conflict(),
        _ => {}
    }
    let (to_caller, answer) = oneshot::channel();
    let (shared, connection) = (shared.clone(), ask.connection);
    // A caller that gives up meanwhile does not keep GitHub from opening the session.
    tokio::spawn(async move {
        tokio::time::sleep(shared.look(|state| state.options.session_delay)).await;
        pause(&shared, Draws::session).await;
        let opened = shared.change(|state| begin(state, runner, connection, version));
        if to_caller.send(opened).is_err() {
            gone(&shared, connection);
        }
    });
    answer.await.unwrap_or_else(|_| answers::server_error(500))
}

/// Opens a session, unless another one was opened meanwhile.
fn begin(state: &mut State, runner: u64, connection: Connection, version: String) -> Answer {
    let Some(registered) = state.runners.get_mut(&runner) else {
        return answers::unknown_caller("the runner registration has been deleted");
    };
    if registered.session.is_some() {
        return conflict();
    }
    let id = secret("session", 16);
    registered.session = Some(Session { id: id.clone(), connection });
    registered.runner.online = true;
    registered.runner.version = version;
    answers::found(200, &json!(Opened { session: id }))
}

fn conflict() -> Answer {
    answers::refusal(409, "A session for this runner already exists.")
}

fn close(shared: &Arc<Shared>, id: &str) -> Answer {
    let job = shared.change(|state| state.lose(id));
    wait_for_lock(shared, job);
    answers::done()
}

/// Fails the job of a listener that is gone, once its lock is over.
fn wait_for_lock(shared: &Arc<Shared>, job: Option<JobId>) {
    let Some(job) = job else { return };
    let shared = shared.clone();
    tokio::spawn(async move {
        tokio::time::sleep(shared.look(|state| state.options.job_lock)).await;
        shared.change(|state| state.give_up(job));
    });
}

/// Answers a listener with its next message. Waits for one up to [`PATIENCE`].
async fn message(shared: &Arc<Shared>, ask: &ApiRequest, id: &str) -> Answer {
    shared.quietly(|state| {
        let mut sessions = state.runners.values_mut().filter_map(|it| it.session.as_mut());
        if let Some(session) = sessions.find(|session| session.id == id) {
            session.connection = ask.connection;
        }
    });
    let key = ask.credentials().map(|(_, key)| key.to_owned()).unwrap_or_default();
    let mut news = shared.news.subscribe();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Some(version) = shared.look(|state| unserved(state, id)) {
            let message =
                format!("Runner version v{version} is deprecated and cannot receive messages.");
            return answers::refusal(403, &message);
        }
        match shared.quietly(|state| next(state, ask, id)) {
            None if shared.look(|state| state.runners.values().any(|it| it.key == key)) => {
                return answers::refusal(410, "The session has expired.");
            }
            None => return answers::unknown_caller("the runner registration has been deleted"),
            Some(Message::Nothing) => {}
            Some(message) => {
                shared.tell();
                return answers::found(200, &json!(message));
            }
        }
        // The end of a pause after a job is no news.
        let wake = deadline.min(tokio::time::Instant::now() + Duration::from_secs(1));
        let more = tokio::time::timeout_at(wake, news.changed()).await;
        if tokio::time::Instant::now() >= deadline || matches!(more, Ok(Err(_))) {
            return answers::found(200, &json!(Message::Nothing));
        }
    }
}

/// The version of the session's runner if it is deprecated. Such a runner may open a session,
/// but gets no job.
fn unserved(state: &State, session: &str) -> Option<String> {
    let runner = &state.runners.values().find(|it| it.is_in(session))?.runner;
    let fault = state.runner_fault(&runner.name, &Target::of(&runner.scope));
    let is_deprecated =
        fault == Some(RunnerFault::Deprecated) || state.deprecated.contains(&runner.version);
    is_deprecated.then(|| runner.version.clone())
}

/// The next message for a listener; `None` if the session does not exist.
fn next(state: &mut State, ask: &ApiRequest, session: &str) -> Option<Message> {
    let registered = state.runners.values().find(|it| it.is_in(session))?.clone();
    let runner = &registered.runner;
    let fault = state.runner_fault(&runner.name, &Target::of(&runner.scope));
    if fault == Some(RunnerFault::Crash) {
        return Some(Message::Crash);
    }
    if let Some(version) = state.updates.remove(&runner.name) {
        return Some(Message::Refresh { version });
    }
    if let Some(id) = registered.job {
        let work = state.jobs.get_mut(&id)?;
        let cancelled = std::mem::take(&mut work.cancelled);
        return Some(if cancelled { Message::Cancel { job: id.0 } } else { Message::Nothing });
    }
    if ask.parameter("status") == Some("Busy") {
        return Some(Message::Nothing);
    }
    if registered.freed.is_some_and(|at| at.elapsed() < state.options.pause_after_job) {
        return Some(Message::Nothing);
    }
    let Some(id) = state.next_job(runner) else { return Some(Message::Nothing) };
    let now = state.now();
    let work = state.jobs.get_mut(&id)?;
    work.job.state = JobState::InProgress;
    work.job.started = Some(now);
    work.job.runner_name = Some(runner.name.clone());
    work.job.runner_id = Some(runner.id);
    let (job, script) = (work.job.clone(), work.script.clone());
    let taken = state.runners.get_mut(&runner.id)?;
    taken.job = Some(id);
    taken.runner.busy = true;
    if fault == Some(RunnerFault::CrashOnJob) {
        return Some(Message::Crash);
    }
    let begins = fault != Some(RunnerFault::JobNeverBegins);
    if !begins {
        state.finish(id, Conclusion::Failure);
    }
    let run_number = state.run(&job.repository, &job.run_id).number;
    Some(Message::Job(Box::new(Order {
        job: id.0,
        name: job.name,
        repository: job.repository,
        run_id: job.run_id,
        run_attempt: job.run_attempt,
        run_number,
        script,
        begins,
        server_url: ask.root.clone(),
        api_url: format!("{}/api/v3", ask.root),
        cancel_grace: state.options.cancel_grace,
    })))
}

fn progress(shared: &Arc<Shared>, ask: &ApiRequest, id: &str) -> Answer {
    let (Ok(id), Some(progress)) = (id.parse().map(JobId), body::<Progress>(ask)) else {
        return answers::not_found();
    };
    shared.change(|state| {
        let Some(work) = state.jobs.get_mut(&id) else { return answers::not_found() };
        if work.job.state != JobState::Completed {
            work.job.log += &progress.log;
            if let Some(annotation) = progress.annotation {
                work.job.log.clear();
                work.job.annotations.push(annotation);
            }
        }
        if let Some(conclusion) = progress.conclusion.as_deref().and_then(Conclusion::of) {
            state.finish(id, conclusion);
        }
        answers::done()
    })
}

fn body<T: DeserializeOwned>(ask: &ApiRequest) -> Option<T> {
    serde_json::from_value(ask.json().unwrap_or(Value::Null)).ok()
}

async fn hang_if(hangs: bool) {
    if hangs {
        std::future::pending::<()>().await;
    }
}

/// Handles the end of a connection. Its listener has `session_timeout` to come back over another
/// one; after that its session is lost.
pub(super) fn gone(shared: &Arc<Shared>, connection: Connection) {
    let found = shared.look(|state| {
        let session = session_over(state, connection)?.id.clone();
        Some((session, state.options.session_timeout))
    });
    let Some((session, patience)) = found else { return };
    let shared = shared.clone();
    tokio::spawn(async move {
        tokio::time::sleep(patience).await;
        let job = shared.change(|state| {
            let is_same = session_over(state, connection).is_some_and(|it| it.id == session);
            is_same.then(|| state.lose(&session)).flatten()
        });
        wait_for_lock(&shared, job);
    });
}

fn session_over(state: &State, connection: Connection) -> Option<&Session> {
    let mut sessions = state.runners.values().filter_map(|it| it.session.as_ref());
    sessions.find(|session| session.connection == connection)
}
