use std::fs;
use std::path::Path;
use std::time::Duration;

use ondeck_core::ports::Runner;
use ondeck_github::{PACKAGES_SETTING, Timeouts, VERSION_SETTING};
use ondeck_standin::not_applicable;

use crate::runner::harness::{RunnerHarness, appears, label};
use crate::runner::server::{Answer, Server};

/// Names of temporary files of downloads that still exist.
fn files_left(folder: &Path) -> Vec<String> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let all = names(folder).into_iter().chain(names(&folder.join("state")));
    all.filter(|name| name.contains("unpacking") || name.contains("package")).collect()
}

#[tokio::test]
async fn a_runner_on_the_image_is_used_unless_it_is_older_than_the_latest() {
    for (version, is_used) in
        [("2.336.0", true), ("2.1000.0", true), ("2.335.9", false), ("2.99.0", false)]
    {
        let harness = RunnerHarness::with_image(version).await;
        harness.set(VERSION_SETTING, "latest").await;
        let server = Server::start(harness.package("2.336.0"), &[]);
        harness.set(PACKAGES_SETTING, &server.packages("2.336.0")).await;
        let runner = harness.runner();
        runner.prepare().await.unwrap();
        runner.register(&label("4711")).await.unwrap();
        assert_eq!(server.requests() == 0, is_used, "{version}");
        assert_eq!(harness.image.join(".runner").exists(), is_used, "{version}");
        runner.stop().await.unwrap();
    }
}

/// GitHub serves a version for 30 days after a newer one has come out.
#[tokio::test]
async fn an_older_runner_on_the_image_is_used_if_the_download_fails() {
    let harness = RunnerHarness::with_image("2.335.0").await;
    let server = Server::start(harness.package("2.336.0"), &[Answer::Status(404)]);
    harness.set(PACKAGES_SETTING, &server.packages("2.336.0")).await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("4711")).await.unwrap();
    assert_eq!(server.requests(), 1);
    assert!(harness.image.join(".runner").exists());
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    runner.clean().await.unwrap();

    harness.inject("exit", "7");
    harness.inject("words", "");
    let missing = Server::start(harness.package("2.336.0"), &[Answer::Status(404); 3]);
    harness.set(PACKAGES_SETTING, &missing.packages("2.336.0")).await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let error = runner.register(&label("4712")).await.unwrap_err();
    assert!(error.contains("is deprecated: 2.335.0; ") && error.contains("404"), "{error}");

    let pinned = RunnerHarness::with_image("2.335.0").await;
    pinned.set(VERSION_SETTING, "2.336.0").await;
    pinned.set(PACKAGES_SETTING, &missing.packages("2.336.0")).await;
    let error = pinned.runner().prepare().await.unwrap_err();
    assert!(error.contains("answered 404"), "{error}");
}

#[tokio::test]
async fn a_version_that_the_image_lacks_is_downloaded_once() {
    let harness = RunnerHarness::with_image("2.330.0").await;
    let server = Server::start(harness.package("2.336.0"), &[]);
    harness.set(VERSION_SETTING, "2.336.0").await;
    harness.set(PACKAGES_SETTING, &server.packages("2.336.0")).await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    assert_eq!(server.requests(), 1);
    runner.register(&label("4711")).await.unwrap();
    assert!(harness.folder.join("actions-runner/.runner").exists());
    runner.stop().await.unwrap();
    harness.runner().prepare().await.unwrap();
    assert_eq!(server.requests(), 1, "a second start finds it");
    assert_eq!(files_left(&harness.folder), [""; 0]);

    let newer = Server::start(harness.package("2.337.0"), &[]);
    harness.set(VERSION_SETTING, "").await;
    harness.set(PACKAGES_SETTING, &newer.packages("2.337.0")).await;
    fs::remove_dir_all(&harness.image).unwrap();
    harness.runner().prepare().await.unwrap();
    assert_eq!(newer.requests(), 1);
    let version = fs::read_to_string(harness.folder.join("actions-runner/bin/version")).unwrap();
    assert_eq!(version, "2.337.0\n");
}

#[tokio::test]
async fn transient_download_errors_are_retried() {
    let harness = RunnerHarness::new().await;
    let answers = [Answer::Cut, Answer::Status(503)];
    let server = Server::start(harness.package("2.336.0"), &answers);
    harness.set(PACKAGES_SETTING, &server.packages("2.336.0")).await;
    harness.runner().prepare().await.unwrap();
    assert_eq!(server.requests(), 3);
    assert_eq!(files_left(&harness.folder), [""; 0]);
}

#[tokio::test]
async fn permanent_download_errors_are_reported_and_leave_no_files() {
    let harness = RunnerHarness::new().await;
    let package = harness.package("2.336.0");
    let wrong = "0".repeat(64);
    for (content, digest, answers, problem) in [
        (&package, Some(&wrong), vec![], "unexpected digest of "),
        (&package, None, vec![Answer::Status(404)], "answered 404"),
        (&b"not a package".to_vec(), None, vec![], "cannot unpack the package"),
    ] {
        let server = Server::start(content.clone(), &answers);
        let packages = match digest {
            Some(digest) => server.packages_with("2.336.0", digest),
            None => server.packages("2.336.0"),
        };
        harness.set(PACKAGES_SETTING, &packages).await;
        let runner = harness.runner();
        let error = runner.prepare().await.unwrap_err();
        assert!(error.contains(problem), "{error}");
        assert_eq!(server.requests(), 1, "{problem}");
        assert_eq!(files_left(&harness.folder), [""; 0], "{problem}");
        assert!(!harness.folder.join("actions-runner").exists());
        let error = runner.register(&label("4711")).await.unwrap_err();
        assert_eq!(error, "the runner was not prepared");
    }
}

#[tokio::test]
async fn files_of_a_crashed_download_are_replaced() {
    let harness = RunnerHarness::new().await;
    let server = Server::start(harness.package("2.336.0"), &[]);
    harness.set(PACKAGES_SETTING, &server.packages("2.336.0")).await;
    fs::create_dir_all(harness.folder.join("actions-runner.unpacking/bin")).unwrap();
    fs::create_dir_all(harness.folder.join("actions-runner/bin")).unwrap();
    fs::create_dir_all(harness.folder.join("state")).unwrap();
    fs::write(harness.folder.join("state/package.tar.gz"), "half of it").unwrap();
    harness.runner().prepare().await.unwrap();
    assert_eq!(files_left(&harness.folder), [""; 0]);
}

#[tokio::test]
async fn without_image_and_package_prepare_fails() {
    let harness = RunnerHarness::new().await;
    let error = harness.runner().prepare().await.unwrap_err();
    assert_eq!(error, "no runner on the image, and no package is known: run ondeck refresh");
}

/// `config.sh` would refuse to start, and the listener aborts unless it is set to do without libicu.
#[tokio::test]
async fn a_machine_without_libicu_is_used() {
    for on_image in [true, false] {
        let harness = RunnerHarness::new().await;
        let server = Server::start(harness.package("2.336.0"), &[]);
        harness.set(PACKAGES_SETTING, &server.packages("2.336.0")).await;
        if on_image {
            harness.lay_out(&harness.image, "2.336.0");
        }
        harness.inject("no-icu", "");
        let runner = harness.runner();
        runner.prepare().await.unwrap();
        runner.register(&label("1")).await.unwrap();
        assert_eq!(server.requests() == 0, on_image);
        let package = harness.folder.join("actions-runner");
        let root = if on_image { &harness.image } else { &package };
        for program in ["Listener", "Worker", "PluginHost"] {
            let path = root.join(format!("bin/Runner.{program}.runtimeconfig.json"));
            let text = fs::read_to_string(path).unwrap();
            assert!(
                text.contains(r#""System.Globalization.Invariant": true"#),
                "{program}: {text}"
            );
            assert!(text.contains("System.GC.Server"), "the other settings stay: {text}");
        }
        let done = harness.queue(&label("1"), 1, "env | grep -i globalization || echo none");
        appears(&done).await;
        let said = fs::read_to_string(done.with_extension("log")).unwrap();
        assert_eq!(said, "none\n", "jobs see nothing of it");
        runner.stop().await.unwrap();
        runner.deregister().await.unwrap();
    }
}

#[tokio::test]
async fn a_runner_that_does_not_start_is_reported_by_prepare() {
    let harness = RunnerHarness::new().await;
    let server = Server::start(harness.package("2.336.0"), &[]);
    harness.set(PACKAGES_SETTING, &server.packages("2.336.0")).await;
    harness.inject("no-start", "");
    let error = harness.runner().prepare().await.unwrap_err();
    let start = "actions/runner 2.336.0 does not start: a library is missing: libssl.so (";
    assert!(error.starts_with(start), "{error}");
}

#[tokio::test]
async fn missing_libraries_are_installed_once() {
    if !rustix::process::geteuid().is_root() {
        return not_applicable("root: installation of libraries");
    }
    const STARTS: &str = "rm \"$github/faults/no-start\"";
    for (on_image, script, problem) in [
        (true, STARTS, ""),
        (false, STARTS, ""),
        (true, "true", "a library is missing: libssl.so (its installdependencies.sh did not help)"),
        (false, "echo no network; exit 1", "installdependencies.sh failed: exit status: 1: no net"),
        (false, "sleep 300", "took more than 0.5 s"),
    ] {
        let harness = RunnerHarness::new().await;
        harness.inject("dependencies", script);
        let package = harness.package("2.336.0");
        let server = Server::start(package, &[]);
        if on_image {
            harness.lay_out(&harness.image, "2.336.0");
        }
        if !on_image || !problem.is_empty() {
            harness.set(PACKAGES_SETTING, &server.packages("2.336.0")).await;
        }
        harness.inject("no-start", "");
        let timeouts = Timeouts { dependencies: Duration::from_millis(500), ..Timeouts::default() };
        let is_slow = problem.contains("0.5");
        let runner = harness.runner();
        let runner = if is_slow { runner.with_timeouts(timeouts) } else { runner };
        let prepared = runner.prepare().await;
        if problem.is_empty() {
            prepared.unwrap();
        } else {
            let error = prepared.unwrap_err();
            let again = harness.runner().prepare().await.unwrap_err();
            let once =
                "a library is missing: libssl.so (its installdependencies.sh has run before)";
            assert!(again.contains(once), "{again}");
            // The image's own runner is reported in the log, and the download is tried next.
            let expected = if on_image { once } else { problem };
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(harness.log().matches("installdependencies").count(), 1, "{script}");
    }
}
