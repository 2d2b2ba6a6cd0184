use std::fs;
use std::time::Duration;

use ondeck_core::ports::{Runner, Store};
use ondeck_github::{Bounds, GROUP_SETTING, URL_SETTING};

use crate::runner::fixture::{Fixture, URL, run};

#[tokio::test]
async fn config_is_told_what_it_has_to_know() {
    let fixture = Fixture::with_image("2.336.0").await;
    fixture.set(GROUP_SETTING, "builders").await;
    let runner = fixture.runner();
    runner.prepare().await.unwrap();
    runner.register(&run("4711")).await.unwrap();
    let said = format!(
        "configure --unattended --url {URL} --name {}-1-a1b2c3 --labels 4711 --no-default-labels \
         --replace --work _work --disableupdate --runnergroup builders\n",
        fixture.id
    );
    assert_eq!(fixture.log(), said);
    runner.stop().await.unwrap();
}

#[tokio::test]
async fn each_way_in_which_a_listener_ends_has_its_reason() {
    let fixture = Fixture::with_image("2.320.0").await;
    let runner = fixture.runner();
    runner.prepare().await.unwrap();
    let deprecated = "this version of actions/runner is deprecated: 2.320.0; \
                      set actions-runner-version to a newer one, or renew the image";
    for (code, words, reason) in [
        (0, "", "the listener ended"),
        (1, "Failed to create session.", "the listener gave up: Failed to create session."),
        (2, "no network", "the listener met an error that may pass: no network"),
        (3, "", "the listener ended to be updated"),
        (4, "", "the listener ended to be updated"),
        (5, "conflict", "another listener has this runner's session: conflict"),
        (7, "too old", deprecated),
        (1, "Runner version v2.320.0 is deprecated and cannot receive messages.", deprecated),
    ] {
        fixture.trouble("exit", &code.to_string());
        fixture.trouble("words", words);
        let error = runner.register(&run("1")).await.unwrap_err();
        assert_eq!(error, reason);
        runner.stop().await.unwrap();
        runner.deregister().await.unwrap();
        runner.clean().await.unwrap();
        assert_eq!(fixture.list(), [""; 0]);
    }
}

#[tokio::test]
async fn what_hangs_is_given_up() {
    for (trouble, start) in [
        ("hang", "config.sh failed: "),
        ("silent", "the runner does not listen for jobs after 0.5 s: "),
    ] {
        let fixture = Fixture::with_image("2.336.0").await;
        fixture.trouble(trouble, "");
        let mut bounds = Bounds::default();
        let bound = if trouble == "hang" { &mut bounds.configure } else { &mut bounds.listen };
        *bound = Duration::from_millis(500);
        let runner = fixture.runner().bounded(bounds);
        runner.prepare().await.unwrap();
        let error = runner.register(&run("1")).await.unwrap_err();
        assert!(error.starts_with(start), "{error}");
        assert!(trouble != "hang" || error.contains("took more than 0.5 s"), "{error}");
        runner.stop().await.unwrap();
        runner.deregister().await.unwrap();
        runner.clean().await.unwrap();
    }
}

#[tokio::test]
async fn without_a_token_that_lasts_nothing_is_tried() {
    let fixture = Fixture::with_image("2.336.0").await;
    let runner = fixture.runner();
    runner.prepare().await.unwrap();
    runner.register(&run("1")).await.unwrap();
    runner.stop().await.unwrap();
    let at = fixture.expire().await;
    let error = runner.deregister().await.unwrap_err();
    assert_eq!(error, format!("the removal token expired at {at}: has ondeck refresh run since?"));
    assert!(fixture.root().join(".runner").exists(), "it is still on the list");
    let error = runner.register(&run("1")).await.unwrap_err();
    let expired = format!("the registration token expired at {at}: has ondeck refresh run since?");
    assert_eq!(error, expired);

    let fixture = Fixture::with_image("2.336.0").await;
    fixture.set(URL_SETTING, "").await;
    fixture.store.put_settings(&[("x".to_owned(), "y".to_owned())].into()).await.unwrap();
    let runner = fixture.runner();
    runner.prepare().await.unwrap();
    let error = runner.register(&run("1")).await.unwrap_err();
    assert_eq!(error, "not set up: nobody knows where to register");
    runner.deregister().await.unwrap();
}

#[tokio::test]
async fn a_removal_that_fails_keeps_what_is_known() {
    let fixture = Fixture::with_image("2.336.0").await;
    let runner = fixture.runner();
    runner.prepare().await.unwrap();
    runner.register(&run("1")).await.unwrap();
    runner.stop().await.unwrap();
    fs::write(fixture.github.join("removal-token"), "another").unwrap();
    let error = runner.deregister().await.unwrap_err();
    assert!(error.starts_with("config.sh remove failed: Http response code: NotFound"), "{error}");
    assert!(fixture.root().join(".runner").exists());
    fixture.trouble("unknown", "");
    fs::write(fixture.github.join("removal-token"), crate::runner::fixture::REMOVAL).unwrap();
    runner.deregister().await.unwrap();
    assert!(!fixture.root().join(".runner").exists(), "GitHub did not know it any more");
}

#[tokio::test]
async fn a_runner_that_github_holds_busy_is_removed_a_little_later() {
    let fixture = Fixture::with_image("2.336.0").await;
    let runner = fixture.runner();
    runner.prepare().await.unwrap();
    runner.register(&run("1")).await.unwrap();
    runner.stop().await.unwrap();
    fixture.trouble("busy", "");
    runner.deregister().await.unwrap();
    assert_eq!(fixture.list(), [""; 0]);
    assert_eq!(fixture.log().matches("remove ").count(), 2);

    let impatient = Bounds { idle: Duration::ZERO, ..Bounds::default() };
    let runner = fixture.runner().bounded(impatient);
    runner.prepare().await.unwrap();
    runner.register(&run("2")).await.unwrap();
    runner.stop().await.unwrap();
    fixture.trouble("busy", "");
    let error = runner.deregister().await.unwrap_err();
    assert!(error.contains("is currently running a job"), "{error}");
}

#[tokio::test]
async fn a_job_cannot_send_the_removal_elsewhere() {
    let fixture = Fixture::with_image("2.336.0").await;
    let runner = fixture.runner();
    runner.prepare().await.unwrap();
    runner.register(&run("1")).await.unwrap();
    fs::write(fixture.root().join(".runner"), "other\nhttps://evil.invalid\n").unwrap();
    fs::remove_file(fixture.root().join(".credentials")).unwrap();
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    assert!(fixture.log().contains(&format!("remove {}-1-a1b2c3 at {URL}\n", fixture.id)));
    assert!(!fixture.log().contains("evil"));
    assert_eq!(fixture.list(), [""; 0]);
}
