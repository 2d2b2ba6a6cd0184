//! Property tests: for arbitrary answers the forge does not panic, and its errors are one line, name
//! what was requested and do not contain the token.

use std::fmt::Debug;
use std::sync::OnceLock;

use ondeck_core::model::ids::RunId;
use ondeck_core::model::secret::Secret;
use ondeck_core::ports::{Forge, PortResult, RequestBudget, Rerun};
use ondeck_github::{Auth, GitHubForge, GitHubOptions};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use super::harness::{ForgeHarness, TOKEN, options, settings};
use super::keys::Keys;
use super::scripted::{Scripted, answer};

/// Failures are not saved to a file; each one found becomes a test of its own.
fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Arbitrary text, sometimes containing the token, sometimes long.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "(?s).{0,20}",
        2 => Just(TOKEN.to_owned()),
        1 => Just(format!("you sent\r\nBearer {TOKEN}")),
        1 => "[a-z0-9.-]{500,2000}",
    ]
}

/// One body that is a valid answer to every request that returns an object.
fn valid_object() -> Value {
    let file = "actions-runner-linux-x64-2.336.0.tar.gz";
    json!({
        "runners": [{"id": 7, "name": "i-1-1-a1b2c3", "status": "online"}],
        "workflow_runs": [{"id": 7}],
        "jobs": [{"status": "queued", "labels": ["7"]}],
        "token": "AABB", "expires_at": "2026-01-22T12:13:35.123-08:00",
        "assets": [{"name": file, "browser_download_url": "https://x", "digest": "sha256:ab"}],
        "message": "Not Found", "errors": [{"message": "why"}],
    })
}

fn downloads() -> Value {
    let offer = |architecture: &str| {
        json!({
            "os": "linux", "architecture": architecture, "download_url": "https://x/y",
            "filename": format!("actions-runner-linux-{architecture}-2.336.0.tar.gz"),
            "sha256_checksum": "ab".repeat(32),
        })
    };
    json!([offer("x64"), offer("arm64")])
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
        text().prop_map(|text| json!([text])),
        text().prop_map(|text| json!({ "message": text })),
    ]
}

/// Replaces the part number `at` of a value, counted modulo the number of parts.
fn replace(value: &mut Value, at: usize, other: Value) {
    fn places(value: &Value) -> usize {
        let inner = match value {
            Value::Array(list) => list.iter().map(places).sum(),
            Value::Object(map) => map.values().map(places).sum(),
            _ => 0_usize,
        };
        inner + 1
    }
    fn place<'a>(value: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
        if *at == 0 {
            return Some(value);
        }
        *at -= 1;
        match value {
            Value::Array(list) => list.iter_mut().find_map(|inner| place(inner, at)),
            Value::Object(map) => map.values_mut().find_map(|inner| place(inner, at)),
            _ => None,
        }
    }
    let mut at = at % places(value);
    *place(value, &mut at).unwrap() = other;
}

fn body() -> impl Strategy<Value = String> {
    let valid = prop_oneof![Just(valid_object()), Just(downloads())];
    let corrupt = (valid, prop::collection::vec((any::<usize>(), any_value()), 0..3)).prop_map(
        |(mut value, places)| {
            places.into_iter().for_each(|(at, other)| replace(&mut value, at, other));
            value.to_string()
        },
    );
    let corrupt = corrupt.boxed();
    prop_oneof![
        8 => corrupt.clone(),
        1 => (corrupt, any::<prop::sample::Index>()).prop_map(|(text, at)| {
            text.chars().take(at.index(text.len())).collect()
        }),
        1 => text(),
    ]
}

fn header() -> impl Strategy<Value = String> {
    const NAMES: [&str; 8] = [
        "retry-after",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "link",
        "x-github-sso",
        "x-github-request-id",
        "location",
        "content-type",
    ];
    let value = prop_oneof![
        Just(TOKEN.to_owned()),
        Just("0".to_owned()),
        any::<u64>().prop_map(|number| number.to_string()),
        Just("99999999999999999999999".to_owned()),
        Just("required; url=https://github.com/orgs/acme/sso".to_owned()),
        Just("<https://example.com/?page=2>; rel=\"next\", <x>; rel=\"last\"".to_owned()),
        "[ -~]{0,20}",
    ];
    (proptest::sample::select(&NAMES[..]), value)
        .prop_map(|(name, value)| format!("{name}: {value}"))
}

fn any_answer() -> impl Strategy<Value = String> {
    const STATUS: [u16; 16] =
        [200, 200, 200, 200, 201, 204, 302, 400, 401, 403, 404, 409, 422, 429, 500, 503];
    let headers = prop::collection::vec(header(), 0..4);
    (proptest::sample::select(&STATUS[..]), headers, body()).prop_map(|(status, headers, body)| {
        let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
        answer(status, &headers, &body)
    })
}

const PLACE: &[&str] = &["acme/web"];
const SOFTWARE: &[&str] = &["acme/web", "actions-runner", "actions/runner", "package"];

/// Makes every call. Returns the text of each error, with the names of which it must contain one.
async fn errors_of(forge: &GitHubForge) -> Vec<(String, &'static [&'static str])> {
    let mut errors = Vec::new();
    let mut note = |text: Option<String>, about| errors.extend(text.map(|text| (text, about)));
    fn shown<T: Debug>(answer: PortResult<T>) -> Option<String> {
        let error = answer.err()?;
        let hint = ondeck_core::model::failure::Failure::from(error.clone()).hint;
        assert!(!format!("{error:?}").contains(TOKEN), "{error:?}");
        Some(format!("{error} hint: {hint}"))
    }
    let version = settings(&[("actions-runner-version", "2.335.0")]);
    note(shown(forge.set_up(&settings(&[])).await), SOFTWARE);
    note(shown(forge.set_up(&version).await), SOFTWARE);
    note(shown(forge.mint().await), PLACE);
    note(shown(forge.runners().await), PLACE);
    note(shown(forge.remove_runner("i-1-1-a1b2c3").await), &["acme/web", "i-1-1-a1b2c3"]);
    let (run, budget) = (RunId::new("7").unwrap(), RequestBudget::new(100));
    note(shown(forge.open_runs(0, &budget).await), PLACE);
    note(shown(forge.waiting_jobs(&run, &budget).await), PLACE);
    note(shown(forge.run_status(&run, &budget).await), PLACE);
    note(shown(forge.failed_jobs(&run, &budget).await), PLACE);
    note(shown(forge.rerun(&run, Rerun::FailedJobs).await), PLACE);
    errors
}

/// Errors about the caller do not name what was requested.
const ABOUT_THE_CALLER: [&str; 2] = ["limits requests until", "does not accept the token"];

proptest! {
    #![proptest_config(config(96))]

    #[test]
    fn errors_are_useful_and_contain_no_secret(
        answers in prop::collection::vec(any_answer(), 1..4)
    ) {
        let errors = runtime().block_on(async {
            let server = Scripted::with(answers).await;
            errors_of(&ForgeHarness::new().forge_with(options(&server.url))).await
        });
        for (said, about) in errors {
            prop_assert!(!said.contains(TOKEN), "{}", said);
            prop_assert!(!said.contains(char::is_control), "more than a line: {:?}", said);
            prop_assert!(said.chars().count() < 1_500, "too long: {}", said);
            let named = about.iter().chain(&ABOUT_THE_CALLER).any(|name| said.contains(name));
            prop_assert!(named, "none of {:?} is named: {}", about, said);
        }
    }
}

/// An App's key, generated once because that is slow.
fn key() -> &'static str {
    static KEY: OnceLock<Keys> = OnceLock::new();
    KEY.get_or_init(Keys::generate).private.expose()
}

proptest! {
    #![proptest_config(config(128))]

    #[test]
    fn a_corrupt_key_is_rejected_and_not_shown(
        id in "(?s).{0,9}",
        places in prop::collection::vec((any::<prop::sample::Index>(), any::<char>()), 1..4),
        cut in any::<prop::sample::Index>(), whole in any::<bool>(),
    ) {
        let mut letters: Vec<char> = key().chars().collect();
        for (at, letter) in places {
            let at = at.index(letters.len());
            letters[at] = letter;
        }
        letters.truncate(if whole { letters.len() } else { cut.index(letters.len()) });
        let private_key = Secret::new(letters.into_iter().collect::<String>());
        let harness = ForgeHarness::new();
        let auth = Auth::App { id, private_key };
        let given = GitHubOptions { auth, ..harness.options() };
        if let Err(failure) = harness.try_forge(given) {
            let said = format!("{failure} {failure:?}");
            prop_assert!(failure.message.starts_with("github-app-"), "{}", failure);
            for line in key().lines().filter(|line| !line.starts_with("-----")) {
                prop_assert!(!said.contains(line), "{}", said);
            }
        }
    }
}
