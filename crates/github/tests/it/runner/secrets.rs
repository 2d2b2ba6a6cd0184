use std::fs;

use ondeck_core::ports::Runner;

use crate::runner::harness::{REGISTRATION, REMOVAL, RunnerHarness, appears, contents, label};

/// The command lines of all processes.
fn command_lines() -> Vec<String> {
    let mut lines = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        if let Ok(line) = fs::read(entry.path().join("cmdline")) {
            lines.push(String::from_utf8_lossy(&line).replace('\0', " "));
        }
    }
    lines
}

#[tokio::test]
async fn no_process_shows_the_token_while_it_registers() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    harness.inject("wait", "");
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    let look = async {
        appears(&harness.github.join("waiting")).await;
        let lines = command_lines();
        let configuring = |line: &String| line.contains("configure --unattended");
        assert!(lines.iter().any(configuring), "it is registering");
        for line in lines {
            assert!(!line.contains(REGISTRATION) && !line.contains(REMOVAL), "{line}");
        }
        fs::write(harness.github.join("go"), "").unwrap();
    };
    let (registered, ()) = tokio::join!(runner.register(&run), look);
    registered.unwrap();
    runner.stop().await.unwrap();
}

#[tokio::test]
async fn no_token_is_in_files_or_reasons() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    appears(&harness.queue(&label("1"), 1, "env")).await;
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    fs::write(harness.github.join("registration-token"), "another").unwrap();
    let error = runner.register(&label("2")).await.unwrap_err();
    assert!(error.contains("the token was ***") && !error.contains(REGISTRATION), "{error}");
    let jobs = harness.github.join("jobs");
    for folder in [&harness.folder, &harness.image, &jobs] {
        for (path, content) in contents(folder) {
            let content = String::from_utf8_lossy(&content).into_owned();
            let told = content.contains(REGISTRATION) || content.contains(REMOVAL);
            assert!(!told, "{}", path.display());
        }
    }
}

#[tokio::test]
async fn no_part_of_a_token_is_in_a_reason() {
    let harness = RunnerHarness::with_image("2.336.0").await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    fs::write(harness.github.join("registration-token"), "another").unwrap();
    // Reasons are cut at the front; here the cut is in the middle of the token.
    harness.inject("talk", &"x".repeat(490));
    let error = runner.register(&label("1")).await.unwrap_err();
    let tail = &REGISTRATION[REGISTRATION.len() - 5..];
    assert!(error.contains("xxx") && !error.contains(tail), "{error}");
}
