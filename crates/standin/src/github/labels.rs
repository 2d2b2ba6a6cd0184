//! The labels of a registered runner in the REST API.

use serde_json::{Value, json};

use crate::http::Answer;

use super::answers;
use super::auth::Target;
use super::request::ApiRequest;
use super::runners::{find, is_default, listed_labels};
use super::state::State;

/// Answers the requests to `…/actions/runners/{id}/labels` and `…/labels/{name}`. A runner that listens
/// takes a waiting job as soon as it has the job's labels.
pub(super) fn answer(
    state: &mut State,
    ask: &ApiRequest,
    target: &Target,
    id: &str,
    name: Option<&str>,
) -> Answer {
    let Some(found) = find(state, target, id) else { return answers::not_found() };
    let (number, present) = (found.runner.id, found.runner.labels.clone());
    let kept = |label: &&String| is_default(label);
    let labels = match (ask.method.as_str(), name) {
        ("GET", None) => present,
        ("POST", None) => union(present, given(ask)),
        ("PUT", None) => union(present.iter().filter(kept).cloned().collect(), given(ask)),
        ("DELETE", None) => present.iter().filter(kept).cloned().collect(),
        ("DELETE", Some(name)) => match present.iter().position(|label| is(label, name)) {
            None => return answers::not_found(),
            Some(_) if is_default(name) => {
                let message = format!("Label {name} is read-only and cannot be removed.");
                return answers::refusal(422, &message);
            }
            Some(index) => {
                let mut labels = present;
                labels.remove(index);
                labels
            }
        },
        _ => return answers::not_found(),
    };
    let Some(found) = state.runners.get_mut(&number) else { return answers::not_found() };
    found.runner.labels = labels;
    let labels = listed_labels(&found.runner);
    answers::found(200, &json!({ "total_count": labels.len(), "labels": labels }))
}

fn given(ask: &ApiRequest) -> Vec<String> {
    let body = ask.json().unwrap_or(Value::Null);
    let labels = body["labels"].as_array().into_iter().flatten();
    labels.filter_map(|label| label.as_str().map(str::to_owned)).collect()
}

fn union(mut labels: Vec<String>, more: Vec<String>) -> Vec<String> {
    for label in more {
        if !labels.iter().any(|known| is(known, &label)) {
            labels.push(label);
        }
    }
    labels
}

fn is(label: &str, other: &str) -> bool {
    label.eq_ignore_ascii_case(other)
}
