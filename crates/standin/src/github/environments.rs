//! The environments of a repository: which branches may use them, and the secrets that jobs get there.
//!
//! From GitHub's documentation of environments and of deployment branch policies. A job that names an
//! environment is refused before its first step if the ref of its run is not allowed, and has none of
//! the environment's secrets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::http::Answer;
use crate::timestamps::iso;

use super::auth::Target;
use super::request::ApiRequest;
use super::state::State;
use super::{GitHub, answers};

#[derive(Debug, Clone, Default)]
pub(super) struct Environment {
    id: u64,
    branches: Branches,
    /// Sealed by the caller with the public key. The stand-in hands them out as they are.
    secrets: BTreeMap<String, String>,
}

/// The refs whose jobs may use an environment.
#[derive(Debug, Clone, Default)]
enum Branches {
    #[default]
    All,
    /// Branches with protection rules, of which this GitHub has none.
    Protected,
    /// Branches whose names match a pattern, with the id of each pattern.
    Custom(Vec<(u64, String)>),
}

impl Branches {
    /// Whether a job may use the environment in a run on this ref. Policies are of the type `branch`,
    /// so no tag and no merge ref of a pull request matches.
    fn admit(&self, reference: &str) -> bool {
        match self {
            Branches::All => true,
            Branches::Protected => false,
            Branches::Custom(patterns) => reference
                .strip_prefix("refs/heads/")
                .is_some_and(|branch| patterns.iter().any(|(_, pattern)| fits(pattern, branch))),
        }
    }
}

/// Whether a branch has the form of a pattern: `*` stands for any characters but `/`, `**/` for any
/// folders.
fn fits(pattern: &str, branch: &str) -> bool {
    if let Some(rest) = pattern.strip_prefix("**/") {
        let folders = branch.match_indices('/').map(|(at, _)| &branch[at + 1..]);
        return std::iter::once(branch).chain(folders).any(|branch| fits(rest, branch));
    }
    match (pattern.chars().next(), branch.chars().next()) {
        (None, None) => true,
        (Some('*'), next) => {
            fits(&pattern[1..], branch)
                || next.is_some_and(|it| it != '/' && fits(pattern, &branch[it.len_utf8()..]))
        }
        (Some(wanted), Some(next)) if wanted == next => {
            fits(&pattern[wanted.len_utf8()..], &branch[next.len_utf8()..])
        }
        _ => false,
    }
}

/// The environments of all repositories, by repository and name. GitHub compares both without case.
pub(super) type Environments = BTreeMap<(String, String), Environment>;

fn key(repository: &str, name: &str) -> (String, String) {
    (repository.to_ascii_lowercase(), name.to_ascii_lowercase())
}

/// Answers the requests to `…/environments/{name}` and below.
pub(super) fn answer(
    state: &mut State,
    ask: &ApiRequest,
    target: &Target,
    name: &str,
    rest: &[&str],
) -> Answer {
    let (id, now) = (state.new_id(), iso(state.now()));
    let at = key(target.name(), name);
    let method = ask.method.as_str();
    if (method, rest) == ("PUT", &[]) {
        let Some(branches) = limit(&ask.json().unwrap_or_default()) else {
            let message =
                "protected_branches and custom_branch_policies cannot have the same value";
            return answers::refusal(422, message);
        };
        let environment = state.environments.entry(at).or_default();
        environment.id = if environment.id == 0 { id } else { environment.id };
        environment.branches = match (&environment.branches, branches) {
            // The patterns that are there stay.
            (Branches::Custom(patterns), Branches::Custom(_)) => Branches::Custom(patterns.clone()),
            (_, branches) => branches,
        };
        return answers::found(200, &shown(ask, name, environment, &now));
    }
    let Some(environment) = state.environments.get_mut(&at) else { return answers::not_found() };
    match (method, rest) {
        ("GET", []) => answers::found(200, &shown(ask, name, environment, &now)),
        (_, ["deployment-branch-policies"]) => policies(ask, environment, id),
        ("GET", ["secrets", "public-key"]) => {
            answers::found(200, &json!({ "key_id": "1", "key": PUBLIC_KEY }))
        }
        ("PUT", ["secrets", secret]) => {
            let body = ask.json().unwrap_or_default();
            let sealed = body["encrypted_value"].as_str().unwrap_or_default().to_owned();
            match environment.secrets.insert((*secret).to_owned(), sealed) {
                None => answers::found(201, &json!({})),
                Some(_) => answers::done(),
            }
        }
        _ => answers::not_found(),
    }
}

/// Thirty-two bytes, in base64. Nothing here opens what is sealed with it.
const PUBLIC_KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// The limit that a request asks for; `None` if it contradicts itself.
fn limit(body: &Value) -> Option<Branches> {
    let policy = &body["deployment_branch_policy"];
    match (policy["protected_branches"].as_bool(), policy["custom_branch_policies"].as_bool()) {
        _ if policy.is_null() => Some(Branches::All),
        (Some(true), Some(false)) => Some(Branches::Protected),
        (Some(false), Some(true)) => Some(Branches::Custom(Vec::new())),
        _ => None,
    }
}

fn policies(ask: &ApiRequest, environment: &mut Environment, id: u64) -> Answer {
    // Without custom policies there is no such list.
    let Branches::Custom(patterns) = &mut environment.branches else {
        return answers::not_found();
    };
    let shown = |(id, name): &(u64, String)| json!({ "id": id, "node_id": format!("P_{id}"), "name": name, "type": "branch" });
    let asked = ask.json().unwrap_or_default();
    match (ask.method.as_str(), asked["name"].as_str()) {
        ("GET", _) => {
            let all: Vec<Value> = patterns.iter().map(shown).collect();
            answers::found(200, &json!({ "total_count": all.len(), "branch_policies": all }))
        }
        ("POST", Some(name)) if patterns.iter().any(|it| it.1 == name) => {
            answers::refusal(303, "Deployment branch policy already exists")
        }
        ("POST", Some(name)) => {
            patterns.push((id, name.to_owned()));
            answers::found(200, &patterns.last().map(shown).unwrap_or_default())
        }
        ("POST", None) => answers::refusal(422, "Name can't be blank"),
        _ => answers::not_found(),
    }
}

fn shown(ask: &ApiRequest, name: &str, environment: &Environment, now: &str) -> Value {
    let limit = |protected: bool| json!({ "protected_branches": protected, "custom_branch_policies": !protected });
    json!({
        "id": environment.id,
        "node_id": format!("EN_{}", environment.id),
        "name": name,
        "url": format!("{}{}", ask.api, ask.path),
        "html_url": format!("{}/environments", ask.root),
        "created_at": now,
        "updated_at": now,
        "protection_rules": [],
        "deployment_branch_policy": match environment.branches {
            Branches::All => Value::Null,
            Branches::Protected => limit(true),
            Branches::Custom(_) => limit(false),
        },
    })
}

impl GitHub {
    /// Starts a job that names an environment, in a run on this ref. Returns the secrets of the
    /// environment as they were stored. An environment that is not there is created without a limit.
    ///
    /// # Errors
    /// Returns GitHub's message if the environment's limit does not admit the ref.
    pub fn start_in_environment(
        &self,
        repository: &str,
        environment: &str,
        reference: &str,
    ) -> Result<BTreeMap<String, String>, String> {
        self.shared.change(|state| {
            let found = state.environments.entry(key(repository, environment)).or_default();
            if found.branches.admit(reference) {
                return Ok(found.secrets.clone());
            }
            let (kind, name) = match reference.strip_prefix("refs/heads/") {
                Some(branch) => ("Branch", branch),
                None => match reference.strip_prefix("refs/tags/") {
                    Some(tag) => ("Tag", tag),
                    None => ("Ref", reference),
                },
            };
            Err(format!(
                "{kind} \"{name}\" is not allowed to deploy to {environment} due to environment \
                 protection rules."
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_match_as_in_the_documentation() {
        for (pattern, branch, expected) in [
            ("main", "main", true),
            ("main", "main2", false),
            ("main", "feature/main", false),
            ("*", "topic", true),
            ("*", "feature/topic", false),
            ("release/*", "release/1", true),
            ("release/*", "release/1/2", false),
            ("release/*/*", "release/1/2", true),
            ("**/main", "a/b/main", true),
            ("**/main", "main", true),
            ("*main", "domain", true),
            ("", "main", false),
        ] {
            assert_eq!(fits(pattern, branch), expected, "{pattern} {branch}");
        }
    }
}
