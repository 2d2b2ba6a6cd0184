//! GitHub Apps and their installations.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::http::Answer;
use crate::timestamps::iso;

use super::answers;
use super::auth::{self, App, Target, Token};
use super::repository;
use super::request::ApiRequest;
use super::state::{State, secret};

/// How long an installation token is valid.
const LIFE: Duration = Duration::from_secs(3_600);

/// Answers `GET /repos/{owner}/{repo}/installation` and `GET /orgs/{org}/installation`.
pub(super) fn installation(state: &State, ask: &ApiRequest, target: &Target) -> Answer {
    match auth::app(state, ask.credentials()) {
        Err(refusal) => *refusal,
        Ok(app) if !app.owner.eq_ignore_ascii_case(target.owner()) => answers::not_found(),
        Ok(app) => answers::found(200, &entry(app, ask, state.now())),
    }
}

/// Answers `POST /app/installations/{installation_id}/access_tokens` with a new token.
pub(super) fn access_token(state: &mut State, ask: &ApiRequest, id: &str) -> Answer {
    let app = match auth::app(state, ask.credentials()) {
        Err(refusal) => return *refusal,
        Ok(app) if app.installation.to_string() != id => return answers::not_found(),
        Ok(app) => app.clone(),
    };
    let Some(body) = ask.json() else { return answers::refusal(400, "Problems parsing JSON") };
    let Some(permissions) = auth::narrowed(&body["permissions"], &app.permissions) else {
        let message = "The permissions requested are not granted to this installation.";
        return answers::refusal(422, message);
    };
    let targets = match body["repositories"].as_array() {
        Some(names) => {
            let names = names.iter().filter_map(Value::as_str);
            names.map(|name| Target::of(&format!("{}/{name}", app.owner))).collect()
        }
        None => vec![Target::of(&app.owner)],
    };
    let selected = body["repositories"].is_array();
    let expires = state.now() + LIFE;
    let token = Token {
        name: format!("installation {}", app.owner),
        is_integration: true,
        grants: targets.into_iter().map(|target| (target, permissions.clone())).collect(),
        expires: Some(expires),
    };
    let secret = secret("ghs_", 36);
    state.tokens.insert(secret.clone(), token);
    let body = json!({
        "token": secret,
        "expires_at": iso(expires),
        "permissions": auth::listed(&permissions),
        "repository_selection": if selected { "selected" } else { "all" },
    });
    answers::found(201, &body)
}

fn entry(app: &App, ask: &ApiRequest, now: SystemTime) -> Value {
    let installation = format!("{}/app/installations/{}", ask.api, app.installation);
    json!({
        "id": app.installation,
        "account": repository::user(ask, &app.owner),
        "repository_selection": "all",
        "access_tokens_url": format!("{installation}/access_tokens"),
        "repositories_url": format!("{}/installation/repositories", ask.api),
        "html_url": format!("{}/organizations/{}/settings/installations/{}", ask.root, app.owner, app.installation),
        "app_id": app.id.parse::<u64>().unwrap_or(1),
        "app_slug": "ondeck",
        "target_id": 1,
        "target_type": "Organization",
        "permissions": auth::listed(&app.permissions),
        "events": [],
        "single_file_name": null,
        "has_multiple_single_files": false,
        "single_file_paths": [],
        "suspended_by": null,
        "suspended_at": null,
        "created_at": iso(now),
        "updated_at": iso(now),
    })
}
