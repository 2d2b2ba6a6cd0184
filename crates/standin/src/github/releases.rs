//! The releases of the runner, and other downloads.

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::http::Answer;
use crate::timestamps::iso;

use super::answers;
use super::repository;
use super::request::ApiRequest;
use super::state::{Release, Served, State};

/// The only repository with releases.
pub(super) const REPOSITORY: &str = "actions/runner";

/// The path of a release's file on the web host.
pub(super) fn download_path(tag: &str, name: &str) -> String {
    format!("/{REPOSITORY}/releases/download/{tag}/{name}")
}

/// The file name of the runner's package.
pub(super) fn package_name(version: &str) -> String {
    format!("actions-runner-linux-x64-{version}.tar.gz")
}

/// Answers `GET /repos/actions/runner/releases/latest` and `…/tags/{tag}`.
pub(super) fn show(state: &State, ask: &ApiRequest, tag: Option<&str>) -> Answer {
    let release = match tag {
        Some(tag) => state.releases.iter().find(|release| release.tag == tag),
        None => state.releases.last(),
    };
    release.map_or_else(answers::not_found, |release| answers::found(200, &entry(release, ask)))
}

/// Answers `GET …/actions/runners/downloads` with the files of the latest release.
pub(super) fn downloads(state: &State, ask: &ApiRequest) -> Answer {
    let Some(release) = state.releases.last() else { return answers::found(200, &json!([])) };
    let entries = release.assets.iter().filter_map(|(name, bytes)| {
        let (os, rest) = name.strip_prefix("actions-runner-")?.split_once('-')?;
        let (architecture, _) = rest.split_once('-')?;
        Some(json!({
            "os": os,
            "architecture": architecture,
            "download_url": format!("{}{}", ask.root, download_path(&release.tag, name)),
            "filename": name,
            "sha256_checksum": digest(bytes),
        }))
    });
    answers::found(200, &Value::Array(entries.collect()))
}

/// Answers `GET …/actions/runners/deprecations/{version}`. Without an announcement, a version that was
/// published has no deadlines, and GitHub does not know any other.
pub(super) fn deadlines(state: &State, version: &str) -> Answer {
    let is_published = state.releases.iter().any(|release| release.tag == format!("v{version}"));
    let announced = state.deadlines.get(version).copied();
    let Some((registration, jobs)) = announced.or(is_published.then_some((None, None))) else {
        return answers::not_found();
    };
    let body = json!({
        "runner_version": version,
        "registration_deprecates_at": registration.map(iso),
        "runtime_deprecates_at": jobs.map(iso),
    });
    answers::found(200, &body)
}

/// Whether the request is one that GitHub has announced, but not described yet.
pub(super) fn is_undescribed(ask: &ApiRequest) -> bool {
    let is_asked = |part: &[String]| part == ["actions", "runners", "deprecations"];
    ask.method.as_str() == "GET" && ask.segments.windows(3).any(is_asked)
}

/// Answers with a served file or a redirect; `None` if there is neither at the path.
pub(super) fn download(state: &State, ask: &ApiRequest) -> Option<Answer> {
    Some(match state.files.get(&ask.path)? {
        Served::File(bytes) => answers::file(bytes),
        Served::Elsewhere(path) if path.starts_with('/') => {
            answers::elsewhere(&format!("{}{path}", ask.root))
        }
        Served::Elsewhere(url) => answers::elsewhere(url),
    })
}

/// The SHA-256 digest in hexadecimal digits.
pub(super) fn digest(bytes: &Bytes) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes what is written");
        text
    })
}

fn entry(release: &Release, ask: &ApiRequest) -> Value {
    let api = format!("{}/repos/{REPOSITORY}/releases", ask.api);
    let at = iso(release.at);
    let tag = &release.tag;
    let assets = release.assets.iter().enumerate().map(|(index, (name, bytes))| {
        json!({
            "url": format!("{api}/assets/{index}"),
            "id": index,
            "node_id": format!("RA_{index}"),
            "name": name,
            "label": "",
            "uploader": repository::user(ask, "actions"),
            "content_type": "application/x-gzip",
            "state": "uploaded",
            "size": bytes.len(),
            "digest": format!("sha256:{}", digest(bytes)),
            "download_count": 0,
            "created_at": at,
            "updated_at": at,
            "browser_download_url": format!("{}{}", ask.root, download_path(tag, name)),
        })
    });
    json!({
        "url": format!("{api}/1"),
        "assets_url": format!("{api}/1/assets"),
        "upload_url": format!("{api}/1/assets{{?name,label}}"),
        "html_url": format!("{}/{REPOSITORY}/releases/tag/{tag}", ask.root),
        "id": 1,
        "author": repository::user(ask, "actions"),
        "node_id": "RE_1",
        "tag_name": tag,
        "target_commitish": "main",
        "name": tag,
        "draft": false,
        "prerelease": false,
        "immutable": false,
        "created_at": at,
        "updated_at": at,
        "published_at": at,
        "assets": assets.collect::<Vec<_>>(),
        "tarball_url": format!("{}/repos/{REPOSITORY}/tarball/{tag}", ask.api),
        "zipball_url": format!("{}/repos/{REPOSITORY}/zipball/{tag}", ask.api),
        "body": "",
    })
}
