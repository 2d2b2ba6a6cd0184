use std::fs;
use std::time::Duration;

use ondeck_core::ports::{Runner, Store};
use ondeck_github::{GROUP_SETTING, Timeouts, URL_SETTING};

use crate::runner::harness::{RunnerHarness, URL, label};

#[tokio::test]
async fn config_gets_its_arguments() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    harness.set(GROUP_SETTING, "builders").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("4711")).await.unwrap();
    let said = format!(
        "configure --unattended --url {URL} --name {}-1-a1b2c3 --labels 4711 --no-default-labels \
         --replace --work _work --disableupdate --runnergroup builders\n",
        harness.id
    );
    assert_eq!(harness.log(), said);
    runner.stop().await.unwrap();
}

#[tokio::test]
async fn each_exit_of_the_listener_has_its_reason() {
    let harness = RunnerHarness::with_image("2.320.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    for (code, words, reason) in [
        (0, "", "the listener ended"),
        (1, "Failed to create session.", "the listener gave up: Failed to create session."),
        (2, "no network", "the listener met an error that may pass: no network"),
        (3, "", "the listener ended to be updated"),
        (4, "", "the listener ended to be updated"),
        (5, "conflict", "another listener has this runner's session: conflict"),
    ] {
        harness.inject("exit", &code.to_string());
        harness.inject("words", words);
        let error = runner.register(&label("1")).await.unwrap_err();
        assert_eq!(error, reason);
        runner.stop().await.unwrap();
        runner.deregister().await.unwrap();
        runner.clean().await.unwrap();
        assert_eq!(harness.list(), [""; 0]);
    }
}

#[tokio::test]
async fn a_refused_version_that_cannot_be_replaced_is_not_for_the_pool() {
    for (code, words) in
        [("7", ""), ("1", "Runner version v2.320.0 is deprecated and cannot receive messages.")]
    {
        let harness = RunnerHarness::with_image("2.320.0").await;
        let runner = harness.runner();
        runner.prepare().await.unwrap();
        harness.inject("exit", code);
        harness.inject("words", words);
        let error = runner.register(&label("1")).await.unwrap_err();
        let reason = "this version of actions/runner is deprecated: 2.320.0; no runner on the \
                      image, and no package is known: run ondeck refresh";
        assert_eq!(error, reason);
        runner.stop().await.unwrap();
        runner.deregister().await.unwrap();
        let error = runner.clean().await.unwrap_err();
        assert_eq!(error, "GitHub refuses its version of actions/runner: 2.320.0");
        assert_eq!(harness.list(), [""; 0]);
    }
}

#[tokio::test]
async fn a_hanging_program_times_out() {
    for (fault, start) in [
        ("hang", "the registration failed: "),
        ("silent", "the runner does not listen for jobs after 7.5 s: "),
    ] {
        let harness = RunnerHarness::with_image("2.336.0").await;
        harness.inject(fault, "");
        let mut timeouts = Timeouts::default();
        let bound = if fault == "hang" { &mut timeouts.configure } else { &mut timeouts.listen };
        *bound = Duration::from_millis(500);
        let runner = harness.runner().with_timeouts(timeouts);
        runner.prepare().await.unwrap();
        let error = runner.register(&label("1")).await.unwrap_err();
        assert!(error.starts_with(start), "{error}");
        assert!(fault != "hang" || error.contains("took more than 0.5 s"), "{error}");
        runner.stop().await.unwrap();
        runner.deregister().await.unwrap();
        runner.clean().await.unwrap();
    }
}

#[tokio::test]
async fn without_a_valid_token_config_is_not_called() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    runner.stop().await.unwrap();
    let at = harness.expire().await;
    let error = runner.deregister().await.unwrap_err();
    assert_eq!(error, format!("the removal token expired at {at}: run ondeck refresh"));
    assert!(harness.root().join(".runner").exists(), "the runner is still registered");
    let error = runner.register(&label("1")).await.unwrap_err();
    let expired = format!("the registration token expired at {at}: run ondeck refresh");
    assert_eq!(error, expired);

    let harness = RunnerHarness::with_image("2.336.0").await;
    harness.set(URL_SETTING, "").await;
    harness.store.put_settings(&[("x".to_owned(), "y".to_owned())].into()).await.unwrap();
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let error = runner.register(&label("1")).await.unwrap_err();
    assert_eq!(error, "the address to register with is not set: run ondeck refresh");
    runner.deregister().await.unwrap();
}

#[tokio::test]
async fn a_failed_removal_keeps_the_registration() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    runner.stop().await.unwrap();
    harness.inject("refused", "");
    let error = runner.deregister().await.unwrap_err();
    assert!(error.starts_with("the removal failed: ") && error.contains("Forbidden"), "{error}");
    assert!(harness.root().join(".runner").exists());
    fs::write(harness.github.join("removal-token"), "another").unwrap();
    harness.inject("exchange", "");
    let error = runner.deregister().await.unwrap_err();
    assert!(error.contains("NotFound from 'POST "), "{error}");
    assert!(harness.root().join(".runner").exists());
    harness.inject("unknown", "");
    for fault in ["refused", "exchange"] {
        fs::remove_file(harness.github.join("faults").join(fault)).unwrap();
    }
    fs::write(harness.github.join("removal-token"), crate::runner::harness::REMOVAL).unwrap();
    runner.deregister().await.unwrap();
    assert!(!harness.root().join(".runner").exists(), "GitHub did not know it any more");
}

#[tokio::test]
async fn the_removal_of_a_busy_runner_is_retried() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    runner.stop().await.unwrap();
    harness.inject("busy", "UnprocessableEntity");
    runner.deregister().await.unwrap();
    assert_eq!(harness.list(), [""; 0]);
    assert_eq!(harness.log().matches("remove ").count(), 2);

    let impatient = Timeouts { idle: Duration::ZERO, ..Timeouts::default() };
    let runner = harness.runner().with_timeouts(impatient);
    runner.prepare().await.unwrap();
    runner.register(&label("2")).await.unwrap();
    runner.stop().await.unwrap();
    harness.inject("busy", "");
    let error = runner.deregister().await.unwrap_err();
    assert!(error.contains("is currently running a job"), "{error}");
}

/// The second name of the status is that of .NET 9. Without a status it is the old flow.
#[tokio::test]
async fn each_refusal_of_a_busy_runner_is_recognised() {
    for status in ["UnprocessableContent", ""] {
        let harness = RunnerHarness::with_image("2.336.0").await;
        let runner = harness.runner();
        runner.prepare().await.unwrap();
        runner.register(&label("1")).await.unwrap();
        runner.stop().await.unwrap();
        harness.inject("busy", status);
        runner.deregister().await.unwrap();
        assert_eq!(harness.log().matches("remove ").count(), 2, "{status}");
    }
}

/// The runner then sends no request, and exits with 0.
#[tokio::test]
async fn a_removal_without_credentials_has_failed() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    runner.stop().await.unwrap();
    for folder in [harness.root(), &harness.folder.join("state/registration")] {
        fs::remove_file(folder.join(".credentials")).unwrap();
    }
    let error = runner.deregister().await.unwrap_err();
    assert!(error.contains("because config files are missing"), "{error}");
}

#[tokio::test]
async fn a_job_cannot_redirect_the_removal_token() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    fs::write(harness.root().join(".runner"), "other\nhttps://evil.invalid\n").unwrap();
    fs::remove_file(harness.root().join(".credentials")).unwrap();
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    assert!(harness.log().contains(&format!("remove {}-1-a1b2c3 at {URL}\n", harness.id)));
    assert!(!harness.log().contains("evil"));
    assert_eq!(harness.list(), [""; 0]);
}
