//! Runners in the REST API.

use serde_json::{Value, json};

use crate::http::Answer;
use crate::timestamps::iso_millis;

use super::answers;
use super::auth::Target;
use super::request::ApiRequest;
use super::state::{Purpose, Registered, State};

/// The labels that every runner gets, unless it is configured without them.
pub(super) const DEFAULT_LABELS: [&str; 3] = ["self-hosted", "Linux", "X64"];

/// A runner in GitHub's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubRunner {
    /// The number of the runner; 0 if it is not listed yet.
    pub id: u64,
    /// The name, which is unique within the scope.
    pub name: String,
    /// The repository or organisation of the runner: `acme/web` or `acme`.
    pub scope: String,
    /// The labels by which jobs select it.
    pub labels: Vec<String>,
    /// Whether its listener is connected.
    pub online: bool,
    /// Whether it is executing a job.
    pub busy: bool,
    /// Whether it is removed after one job.
    pub ephemeral: bool,
    /// The version of the runner's program.
    pub version: String,
}

impl GitHubRunner {
    /// An offline runner with the default labels.
    pub fn new(scope: &str, name: &str) -> GitHubRunner {
        GitHubRunner {
            id: 0,
            name: name.to_owned(),
            scope: scope.to_owned(),
            labels: DEFAULT_LABELS.map(str::to_owned).into(),
            online: false,
            busy: false,
            ephemeral: false,
            version: "2.336.0".to_owned(),
        }
    }
}

/// Answers `POST …/actions/runners/registration-token` and `…/remove-token` with a new token.
pub(super) fn issue(state: &mut State, target: &Target, purpose: Purpose) -> Answer {
    let (token, expires) = state.issue(target.clone(), purpose);
    answers::found(201, &json!({ "token": token, "expires_at": iso_millis(expires) }))
}

/// Answers `GET …/actions/runners`, one page per request.
pub(super) fn list(state: &State, ask: &ApiRequest, target: &Target) -> Answer {
    let wanted = ask.parameter("name");
    let is_wanted = |it: &&Registered| {
        target.is(&it.runner.scope) && wanted.is_none_or(|name| it.runner.name == name)
    };
    let entries = state.runners.values().filter(is_wanted).map(|it| entry(state, it));
    answers::page(ask, "runners", entries.collect(), state.options.page)
}

/// Answers `GET …/actions/runners/{id}` with the runner.
pub(super) fn show(state: &State, target: &Target, id: &str) -> Answer {
    match find(state, target, id) {
        Some(found) => answers::found(200, &entry(state, found)),
        None => answers::not_found(),
    }
}

/// Answers `DELETE …/actions/runners/{id}` to a runner that removes itself. Its token is not exchanged
/// before, and an invalid one gets the same answer as a runner that does not exist.
pub(super) fn delete_by_runner(
    state: &mut State,
    target: &Target,
    id: &str,
    secret: &str,
) -> Answer {
    let pass = state.runner_tokens.get(secret);
    let is_valid = pass.is_some_and(|pass| {
        state.now() < pass.expires
            && target.is(pass.target.name())
            && pass.purpose != Purpose::Exchanged
    });
    if is_valid { delete(state, target, id) } else { answers::not_found() }
}

/// Answers `DELETE …/actions/runners/{id}`. Refuses to remove a busy runner.
pub(super) fn delete(state: &mut State, target: &Target, id: &str) -> Answer {
    let Some(found) = find(state, target, id) else { return answers::not_found() };
    if found.is_kept(state.options.busy_after_job) {
        let message = format!("Bad request - {}", still_running(&found.runner.name));
        return answers::refusal(422, &message);
    }
    let id = found.runner.id;
    state.runners.remove(&id);
    answers::done()
}

/// GitHub's message for a busy runner that cannot be removed, with GitHub's quotes.
pub(super) fn still_running(name: &str) -> String {
    format!("Runner \"{name}\" is still running a job\"")
}

pub(super) fn find<'a>(state: &'a State, target: &Target, id: &str) -> Option<&'a Registered> {
    let registered = state.runners.get(&id.parse().ok()?)?;
    target.is(&registered.runner.scope).then_some(registered)
}

/// The labels of a runner in GitHub's format.
pub(super) fn listed_labels(runner: &GitHubRunner) -> Vec<Value> {
    let entry = |(index, label): (usize, &String)| {
        let kind = if is_default(label) { "read-only" } else { "custom" };
        json!({ "id": index + 1, "name": label, "type": kind })
    };
    runner.labels.iter().enumerate().map(entry).collect()
}

pub(super) fn is_default(label: &str) -> bool {
    DEFAULT_LABELS.iter().any(|default| default.eq_ignore_ascii_case(label))
}

fn entry(state: &State, registered: &Registered) -> Value {
    let runner = &registered.runner;
    json!({
        "id": runner.id,
        "runner_group_id": 1,
        "name": runner.name,
        "os": "Linux",
        "status": if runner.online { "online" } else { "offline" },
        "busy": registered.is_kept(state.options.busy_after_job),
        "ephemeral": runner.ephemeral,
        "version": runner.version,
        "labels": listed_labels(runner),
    })
}
