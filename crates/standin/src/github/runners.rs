//! Runners, as the REST interface shows them.

use serde_json::{Value, json};

use crate::http::Answer;
use crate::timestamps::iso_millis;

use super::answers;
use super::auth::Target;
use super::request::Ask;
use super::state::{Purpose, State};

/// What the runner gives itself, unless it is told not to.
pub(super) const DEFAULT_LABELS: [&str; 3] = ["self-hosted", "Linux", "X64"];

/// A runner, as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubRunner {
    /// Its number; 0 for one that is yet to be planted.
    pub id: u64,
    /// Unique where it is registered.
    pub name: String,
    /// Where that is: `acme/web`, or `acme`.
    pub scope: String,
    /// What jobs ask for.
    pub labels: Vec<String>,
    /// Whether its listener is connected.
    pub online: bool,
    /// Whether it works on a job.
    pub busy: bool,
    /// Whether it takes one job only.
    pub ephemeral: bool,
    /// Of its program.
    pub version: String,
}

impl GitHubRunner {
    /// One that is offline, and has the default labels.
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

/// `POST …/actions/runners/registration-token` and `…/remove-token`.
pub(super) fn issue(state: &mut State, target: &Target, purpose: Purpose) -> Answer {
    let (token, expires) = state.issue(target.clone(), purpose);
    answers::found(201, &json!({ "token": token, "expires_at": iso_millis(expires) }))
}

/// `GET …/actions/runners`.
pub(super) fn list(state: &State, ask: &Ask, target: &Target) -> Answer {
    let wanted = ask.parameter("name");
    let entries =
        state.runners.values().map(|it| &it.runner).filter(|runner| {
            target.is(&runner.scope) && wanted.is_none_or(|name| runner.name == name)
        });
    answers::page(ask, "runners", entries.map(entry).collect(), state.options.page)
}

/// `GET …/actions/runners/{id}`.
pub(super) fn show(state: &State, target: &Target, id: &str) -> Answer {
    match find(state, target, id) {
        Some(runner) => answers::found(200, &entry(runner)),
        None => answers::not_found(),
    }
}

/// `DELETE …/actions/runners/{id}`.
pub(super) fn delete(state: &mut State, target: &Target, id: &str) -> Answer {
    let Some(runner) = find(state, target, id) else { return answers::not_found() };
    if runner.busy {
        let message = format!("Bad request - {}", still_running(&runner.name));
        return answers::refusal(422, &message);
    }
    let id = runner.id;
    state.runners.remove(&id);
    answers::done()
}

/// Why a runner cannot be removed; the quotes are GitHub's.
pub(super) fn still_running(name: &str) -> String {
    format!("Runner \"{name}\" is still running a job\"")
}

fn find<'a>(state: &'a State, target: &Target, id: &str) -> Option<&'a GitHubRunner> {
    let registered = state.runners.get(&id.parse().ok()?)?;
    target.is(&registered.runner.scope).then_some(&registered.runner)
}

fn entry(runner: &GitHubRunner) -> Value {
    let labels = runner.labels.iter().enumerate().map(|(index, label)| {
        let is_default = DEFAULT_LABELS.contains(&label.as_str());
        let kind = if is_default { "read-only" } else { "custom" };
        json!({ "id": index + 1, "name": label, "type": kind })
    });
    json!({
        "id": runner.id,
        "runner_group_id": 1,
        "name": runner.name,
        "os": "Linux",
        "status": if runner.online { "online" } else { "offline" },
        "busy": runner.busy,
        "ephemeral": runner.ephemeral,
        "version": runner.version,
        "labels": labels.collect::<Vec<_>>(),
    })
}
