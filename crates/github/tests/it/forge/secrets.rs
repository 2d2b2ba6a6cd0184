//! Secrets do not appear in logs, errors or `Debug` output.

use std::io;
use std::sync::{Arc, Mutex};

use ondeck_core::model::secret::Secret;
use ondeck_core::ports::{Forge, PortResult, RequestBudget};
use ondeck_github::{Auth, GitHubForge, GitHubOptions};
use ondeck_standin::{GitHubFault, GitHubFaultRule, Occurrence, Permission};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

use super::harness::{ForgeHarness, TOKEN, options, settings};
use super::keys::Keys;
use super::scripted::{Scripted, answer};

/// Captures what is logged on this thread at every level, until it is dropped.
pub(crate) struct Log {
    text: Lines,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn start() -> Log {
        let text = Lines::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .with_writer(text.clone())
            .finish();
        Log { text, _guard: tracing::subscriber::set_default(subscriber) }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

/// Makes every call and returns all results as text.
async fn everything(forge: &GitHubForge) -> String {
    fn text<T: std::fmt::Debug>(answer: &PortResult<T>) -> String {
        let words = answer.as_ref().err().map(ToString::to_string);
        format!("{answer:?} {answer:#?} {words:?}\n")
    }
    let mut said = format!("{forge:?} {forge:#?} {:?}\n", forge.target());
    said += &text(&forge.set_up(&settings(&[])).await);
    said += &text(&forge.set_up(&settings(&[("actions-runner-version", "2.335.0")])).await);
    said += &text(&forge.mint().await);
    said += &text(&forge.runners().await);
    said += &text(&forge.remove_runner("i-1-1-a1b2c3").await);
    said += &text(&forge.open_runs(0, &RequestBudget::new(9)).await);
    said
}

#[track_caller]
fn assert_hidden(said: &str, secrets: &[Secret]) {
    for secret in secrets {
        for line in secret.expose().lines().filter(|line| !line.starts_with("-----")) {
            assert!(!said.contains(line), "{line} is in {said}");
        }
    }
}

#[tokio::test]
async fn no_secret_is_shown_after_any_fault() {
    let log = Log::start();
    let keys = Keys::generate();
    let jobs = Secret::new("ghs_jobsToken0123456789");
    let mut said = String::new();
    let mut secrets = vec![Secret::new(TOKEN), keys.private.clone(), jobs.clone()];
    for fault in [
        None,
        Some(GitHubFault::Status(502)),
        Some(GitHubFault::TooManyRequests { retry_after: std::time::Duration::from_secs(1) }),
        Some(GitHubFault::PrimaryLimit { reset_in: std::time::Duration::from_secs(600) }),
        Some(GitHubFault::Reset),
        Some(GitHubFault::CutBody),
        Some(GitHubFault::NotJson),
    ] {
        let harness = ForgeHarness::new();
        harness.github.publish_runner("2.336.0", "new");
        harness.github.queue_job("acme/web", "7", &["7"], "true");
        harness.github.add_app("12345", &keys.public, "acme", &[Permission::Administration]);
        let app = Auth::App { id: "12345".to_owned(), private_key: keys.private.clone() };
        let options = [
            harness.options(),
            GitHubOptions { jobs_token: Some(jobs.clone()), ..harness.options() },
            GitHubOptions { auth: app, ..harness.options() },
        ];
        if let Some(fault) = fault {
            harness.github.inject(GitHubFaultRule::new(fault).occurrence(Occurrence::Every(2)));
        }
        for options in options {
            said += &format!("{options:?} {options:#?}\n");
            said += &everything(&harness.forge_with(options)).await;
        }
        secrets.extend(harness.secrets());
    }
    assert!(secrets.len() > 12 && said.contains("status 502") && said.contains("(secret)"));
    let logged = log.text();
    assert!(logged.contains("GitHub answered"), "{logged}");
    assert_hidden(&said, &secrets);
    assert_hidden(&logged, &secrets);
}

#[tokio::test]
async fn an_echoed_token_is_not_shown() {
    let log = Log::start();
    let echo = format!(r#"{{"message":"you sent Bearer {TOKEN}","errors":["{TOKEN}"]}}"#);
    let mut said = String::new();
    for status in [301, 400, 401, 403, 404, 422, 429, 500, 503] {
        let header = format!("x-github-sso: partial {TOKEN}");
        let away = format!("location: http://127.0.0.1:1/{TOKEN}");
        let answer = answer(status, &[&header, &away], &echo);
        let server = Scripted::with(vec![answer]).await;
        said += &everything(&ForgeHarness::new().forge_with(options(&server.url))).await;
    }
    for body in [
        echo,
        format!(r#"[{{"os":{{"{TOKEN}":1}}}}]"#),
        format!(r#"{{"token":["{TOKEN}"],"runners":"{TOKEN}","workflow_runs":"{TOKEN}"}}"#),
        format!(r#"{{"token":"{TOKEN}","expires_at":"{TOKEN}"}}"#),
        format!("<p>{TOKEN}"),
    ] {
        let server = Scripted::with(vec![answer(200, &[], &body)]).await;
        said += &everything(&ForgeHarness::new().forge_with(options(&server.url))).await;
    }
    assert!(said.contains("you sent Bearer (secret)"), "{said}");
    assert_hidden(&said, &[Secret::new(TOKEN)]);
    assert_hidden(&log.text(), &[Secret::new(TOKEN)]);
}

#[test]
fn an_invalid_token_is_rejected_and_not_shown() {
    let harness = ForgeHarness::new();
    for text in ["", "  ", "ghp_hidden ghp_hidden", "ghp_hidden\nx", "ghp_hidden\u{fc}"] {
        let token = Secret::new(text);
        let given = GitHubOptions { auth: Auth::Token(token.clone()), ..harness.options() };
        let failure = harness.try_forge(given).unwrap_err();
        assert!(failure.message.starts_with("github-token is empty"), "{failure}");
        assert!(!format!("{failure:?}").contains("hidden"));
        let given = GitHubOptions { jobs_token: Some(token), ..harness.options() };
        let failure = harness.try_forge(given).unwrap_err();
        assert!(failure.message.starts_with("jobs-token is empty"), "{failure}");
    }
    let padded = Auth::Token(Secret::new(format!(" {TOKEN}\n")));
    harness.forge_with(GitHubOptions { auth: padded, ..harness.options() });
}
