//! The runner stand-in's package, its registration and its removal.

use std::process::{Command, Output};
use std::time::Duration;

use ondeck_standin::{
    GitHubFault, GitHubFaultRule, GitHubRunner, Occurrence, RunnerFault, runner_package,
};

use super::REPOSITORY;
use super::runner::RunnerHarness;
use crate::harness::SOON;

/// The exit code, and stdout with stderr.
fn told(output: &Output) -> (Option<i32>, String) {
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn a_package_is_the_same_each_time_and_says_its_version() {
    let package = runner_package("2.336.0");
    assert!(package == runner_package("2.336.0"), "the same each time");
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("package.tar.gz");
    std::fs::write(&archive, &package).unwrap();
    let tar = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(folder.path()).status();
    assert!(tar.unwrap().success());
    for (program, arguments) in
        [("config.sh", vec!["--version"]), ("bin/Runner.Listener", vec!["--version"])]
    {
        let mut command = Command::new(folder.path().join(program));
        command.args(arguments).env("RUNNER_ALLOW_RUNASROOT", "1");
        assert_eq!(told(&command.output().unwrap()), (Some(0), "2.336.0\n".to_owned()));
    }
}

#[test]
fn a_runner_is_registered_once_and_removed() {
    let harness = RunnerHarness::new();
    let token = harness.github.registration_token(REPOSITORY);
    let (code, said) = told(&harness.config(&["--token", &token, "--labels", "4711"]));
    assert_eq!(code, Some(0), "{said}");
    for line in ["√ Connected to GitHub", "√ Runner successfully added", "√ Settings Saved."]
    {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    let runner = harness.github.runners().remove(0);
    let expected = GitHubRunner {
        labels: vec!["4711".to_owned()],
        id: runner.id,
        ..GitHubRunner::new(REPOSITORY, "i-1-1")
    };
    assert_eq!(runner, expected);
    for file in [".runner", ".credentials", ".credentials_rsaparams"] {
        let text = std::fs::read_to_string(harness.path(file)).unwrap();
        assert!(!text.contains(&token), "{file}");
    }
    let (code, said) = told(&harness.config(&["--token", &token, "--labels", "4711"]));
    assert_eq!(code, Some(1));
    assert!(said.contains("already configured"), "{said}");
    let token = harness.github.remove_token(REPOSITORY);
    let removal = harness.command("config.sh").args(["remove", "--token", &token]).output();
    let (code, said) = told(&removal.unwrap());
    assert_eq!(code, Some(0), "{said}");
    for line in ["√ Runner removed successfully", "√ Removed .credentials", "√ Removed .runner"]
    {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    assert!(harness.github.runners().is_empty());
    assert!(!harness.path(".runner").exists() && !harness.path(".credentials_rsaparams").exists());
    let again = harness.command("config.sh").args(["remove", "--token", &token]).output();
    let (code, said) = told(&again.unwrap());
    assert_eq!(code, Some(0));
    assert!(said.contains("config files are missing"), "{said}");
    assert!(harness.github.violations().is_empty());
}

#[test]
fn variables_say_what_flags_say() {
    let harness = RunnerHarness::new();
    let token = harness.github.registration_token("acme");
    let configured = harness
        .command("config.sh")
        .env("ACTIONS_RUNNER_INPUT_UNATTENDED", "true")
        .env("ACTIONS_RUNNER_INPUT_URL", format!("{}/acme", harness.github.url()))
        .env("ACTIONS_RUNNER_INPUT_TOKEN", &token)
        .env("ACTIONS_RUNNER_INPUT_NAME", "i-2-1")
        .env("ACTIONS_RUNNER_INPUT_LABELS", "a,b")
        .output();
    assert_eq!(told(&configured.unwrap()).0, Some(0));
    let runner = harness.github.runners().remove(0);
    assert_eq!((runner.scope.as_str(), runner.name.as_str()), ("acme", "i-2-1"));
    assert_eq!(runner.labels, ["self-hosted", "Linux", "X64", "a", "b"]);
    let removed = harness
        .command("config.sh")
        .arg("remove")
        .env("ACTIONS_RUNNER_INPUT_TOKEN", harness.github.remove_token("acme"))
        .output();
    assert_eq!(told(&removed.unwrap()).0, Some(0));
    assert!(harness.github.runners().is_empty());
}

#[test]
fn a_refused_registration_prints_the_reason() {
    let harness = RunnerHarness::new();
    harness.github.add_runner(GitHubRunner::new(REPOSITORY, "i-1-1"));
    let expired = harness.github.registration_token(REPOSITORY);
    harness.github.advance(Duration::from_secs(3_601));
    let token = harness.github.registration_token(REPOSITORY);
    let elsewhere = harness.github.registration_token("acme/other");
    let removing = harness.github.remove_token(REPOSITORY);
    let not_found = "Response status code does not indicate success: 404 (Not Found).";
    let cases = [
        (vec!["--labels", "1"], "Invalid configuration provided for token."),
        (vec!["--token", &expired, "--labels", "1"], not_found),
        (vec!["--token", &expired, "--labels", "1"], "Http response code: NotFound from 'POST "),
        (vec!["--token", &elsewhere, "--labels", "1"], not_found),
        (vec!["--token", &removing, "--labels", "1"], not_found),
        (vec!["--token", "made-up", "--labels", "1"], not_found),
        (vec!["--token", &token], "without specifying --labels is not supported"),
        (vec!["--token", &token, "--labels", "1"], "A runner exists with the same name i-1-1."),
        (
            vec!["--token", &token, "--labels", "1", "--runnergroup", "big"],
            "Could not find any self-hosted runner group named \"big\".",
        ),
    ];
    for (arguments, words) in cases {
        let (code, said) = told(&harness.config(&arguments));
        assert_eq!(code, Some(1), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(!harness.path(".runner").exists());
    }
    let (code, said) = told(&harness.config(&["--token", &token, "--labels", "1", "--replace"]));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("√ Successfully replaced the runner"), "{said}");
    assert_eq!(harness.github.runners().len(), 1);
}

#[test]
fn an_unknown_flag_is_reported_and_recorded() {
    let harness = RunnerHarness::new();
    let token = harness.github.registration_token(REPOSITORY);
    let (code, said) = told(&harness.config(&["--token", &token, "--labels", "1", "--label", "2"]));
    assert_eq!(code, Some(0), "the real one goes on as well");
    assert!(
        said.contains("Unrecognized command-line input arguments for command configure: 'label'"),
        "{said}"
    );
    let violations = harness.github.violations();
    assert_eq!(violations[0].to_string(), "config.sh (register): no such flag: label");
}

#[test]
fn root_must_be_allowed_explicitly() {
    let harness = RunnerHarness::new();
    let mut command = harness.command("config.sh");
    let asked = command.env_remove("RUNNER_ALLOW_RUNASROOT").arg("--version").output();
    let expected = if rustix::process::getuid().is_root() {
        (Some(1), "Must not run with sudo\n".to_owned())
    } else {
        (Some(0), "2.336.0\n".to_owned())
    };
    assert_eq!(told(&asked.unwrap()), expected);
}

#[test]
fn a_registration_can_be_refused_or_never_answered() {
    let harness = RunnerHarness::new();
    let token = harness.github.registration_token(REPOSITORY);
    harness.github.inject_runner_fault(REPOSITORY, RunnerFault::RegistrationRefused);
    let (code, said) = told(&harness.config(&["--token", &token, "--labels", "1"]));
    assert_eq!(code, Some(1));
    assert!(said.contains("404 (Not Found)"), "{said}");
    harness.github.clear_faults();
    harness.github.inject_runner_fault(REPOSITORY, RunnerFault::RegistrationHangs);
    let url = format!("{}/{REPOSITORY}", harness.github.url());
    let mut hanging = harness.command("config.sh");
    hanging.args(["--unattended", "--url", &url, "--token", &token, "--name", "i-1-1"]);
    let mut hanging = hanging.stdout(std::process::Stdio::null()).spawn().unwrap();
    let asked = |runners: &[GitHubRunner]| !runners.is_empty();
    assert!(harness.github.wait_for_runners(Duration::from_millis(500), asked).is_none());
    assert!(hanging.try_wait().unwrap().is_none(), "it still waits");
    hanging.kill().unwrap();
    hanging.wait().unwrap();
    harness.github.clear_faults();
    assert_eq!(told(&harness.config(&["--token", &token, "--labels", "1"])).0, Some(0));
    assert!(harness.github.wait_for_runners(SOON, asked).is_some());
}

/// The real runner sends each request three times, but not again after 404.
#[test]
fn a_request_that_fails_is_sent_three_times() {
    let harness = RunnerHarness::new();
    let token = harness.github.registration_token(REPOSITORY);
    let register = ["--token", &token, "--labels", "1"];
    let broken = GitHubFaultRule::new(GitHubFault::Status(502));
    for path in ["/actions/runner-registration", "/_standin/runners"] {
        let rule = broken.clone().on("POST", path);
        let failing = harness.github.inject(rule.clone());
        let (code, said) = told(&harness.config(&register));
        assert_eq!((code, failing.fired()), (Some(1), 3), "{said}");
        assert!(said.contains("Http response code: BadGateway from 'P"), "{said}");
        assert_eq!(said.matches(&format!("{path}' (Request Id: ")).count(), 3, "{said}");
        assert!(said.contains("success: 502 (Bad Gateway)."), "{said}");
        failing.stop();
        harness.github.inject(rule.occurrence(Occurrence::First(2)));
    }
    assert_eq!(told(&harness.config(&register)).0, Some(0));

    let remove = |token: &str| {
        let removal = harness.command("config.sh").args(["remove", "--token", token]).output();
        told(&removal.unwrap())
    };
    let path = "/repos/acme/web/actions/runners/*";
    let (code, said) = remove("made-up");
    assert_eq!((code, harness.github.count("DELETE", path)), (Some(1), 1), "{said}");
    assert!(said.contains("Http response code: NotFound from 'Delete "), "{said}");
    assert_eq!(harness.github.count("POST", "/actions/runner-registration"), 7, "no exchange");
    harness.github.inject(broken.on("DELETE", path).occurrence(Occurrence::First(2)));
    assert_eq!(remove(&token).0, Some(0), "a registration token serves as well");
    assert_eq!(harness.github.count("DELETE", path), 4);
    assert!(harness.github.runners().is_empty());
}

#[test]
fn an_unknown_flag_of_a_removal_is_recorded() {
    let harness = RunnerHarness::new();
    let token = harness.github.registration_token(REPOSITORY);
    assert_eq!(told(&harness.config(&["--token", &token, "--labels", "1"])).0, Some(0));
    let mut removal = harness.command("config.sh");
    removal.args(["remove", "--token", &token, "--unattended"]);
    assert_eq!(told(&removal.output().unwrap()).0, Some(0));
    let violations = harness.github.violations();
    assert_eq!(violations[0].to_string(), "config.sh (remove): no such flag: unattended");
}
