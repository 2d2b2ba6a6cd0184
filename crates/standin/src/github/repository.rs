//! Required parts of answers that ondeck does not use: users, repositories and commits.

use serde_json::{Value, json};

use super::request::ApiRequest;

/// The hash of the only commit.
pub(super) const SHA: &str = "2f1ae6d4c8c0f7a3b5e9d1027c6b84f3a9e0d5b1";

const OF_A_REPOSITORY: [&str; 36] = [
    "archive",
    "assignees",
    "blobs",
    "branches",
    "collaborators",
    "comments",
    "commits",
    "compare",
    "contents",
    "contributors",
    "deployments",
    "downloads",
    "events",
    "forks",
    "git_commits",
    "git_refs",
    "git_tags",
    "hooks",
    "issue_comment",
    "issue_events",
    "issues",
    "keys",
    "labels",
    "languages",
    "merges",
    "milestones",
    "notifications",
    "pulls",
    "releases",
    "stargazers",
    "statuses",
    "subscribers",
    "subscription",
    "tags",
    "teams",
    "trees",
];
const OF_A_USER: [&str; 9] = [
    "followers",
    "following",
    "gists",
    "starred",
    "subscriptions",
    "organizations",
    "repos",
    "events",
    "received_events",
];

pub(super) fn user(ask: &ApiRequest, login: &str) -> Value {
    let api = format!("{}/users/{login}", ask.api);
    let mut user = json!({
        "login": login,
        "id": 1,
        "node_id": "U_1",
        "avatar_url": format!("{}/avatars/1", ask.root),
        "gravatar_id": "",
        "url": api,
        "html_url": format!("{}/{login}", ask.root),
        "type": "Organization",
        "user_view_type": "public",
        "site_admin": false,
    });
    for part in OF_A_USER {
        user[format!("{part}_url")] = format!("{api}/{part}").into();
    }
    user
}

/// A repository object in GitHub's short form.
pub(super) fn entry(ask: &ApiRequest, full_name: &str) -> Value {
    let (owner, name) = full_name.split_once('/').unwrap_or((full_name, full_name));
    let api = format!("{}/repos/{full_name}", ask.api);
    let mut repository = json!({
        "id": 1,
        "node_id": "R_1",
        "name": name,
        "full_name": full_name,
        "private": true,
        "owner": user(ask, owner),
        "html_url": format!("{}/{full_name}", ask.root),
        "description": null,
        "fork": false,
        "url": api,
    });
    for part in OF_A_REPOSITORY {
        repository[format!("{part}_url")] = format!("{api}/{part}").into();
    }
    repository
}

/// A commit object for the only commit, with this time.
pub(super) fn commit(at: &str) -> Value {
    let person = json!({ "name": "developer", "email": "developer@example.com" });
    json!({
        "id": SHA,
        "tree_id": SHA,
        "message": "a change",
        "timestamp": at,
        "author": person,
        "committer": person,
    })
}
