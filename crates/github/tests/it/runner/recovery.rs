//! What the agent does if GitHub deletes the runner or refuses its version, and if the listener fails.

use std::fs;
use std::time::Duration;

use futures_util::future::join_all;
use ondeck_core::ports::Runner;
use ondeck_github::{GitHubRunner, Timeouts};
use ondeck_standin::{
    Conclusion, GitHubFault, GitHubFaultRule, GitHubOptions, Occurrence, RegistrationTimes,
    RunnerFault, RunnerPackage,
};

use crate::runner::harness::{appears, exit_after, holds, label};
use crate::runner::standin::{REPOSITORY, SOON, StandinHarness, VERSION, leave};
use crate::runner::user::TemporaryUser;

/// The version that follows [`VERSION`].
const NEWER: &str = "2.337.0";

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_runner_registers_anew() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    let remove = || harness.github.remove_runner(&harness.name(1));
    let why = exit_after(&runner, &run, remove).await;
    assert!(why.contains("The runner no longer exists on the server."), "{why}");
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &run, job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    assert_eq!(done.runner_name, Some(harness.name(2)), "the name tells the machine");
    assert_eq!(harness.online(), [["1"]]);
    let account = leave(&runner).await;
    let said = "; registered anew: the runner was deleted from GitHub's list";
    assert!(account.starts_with("1 job, ") && account.ends_with(said), "{account}");
    assert!(harness.github.runners().is_empty());

    runner.register(&label("2")).await.unwrap();
    assert_eq!(leave(&runner).await, "", "the next run has its own account");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_runner_is_not_removed_again() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let removals = || harness.github.count("DELETE", "/repos/*/*/actions/runners/*");
    // The run ends before the runner has registered anew.
    runner.register(&label("1")).await.unwrap();
    let remove = |number| harness.github.remove_runner(&harness.name(number));
    exit_after(&runner, &label("1"), || remove(1)).await;
    leave(&runner).await;
    assert_eq!(removals(), 0);
    // The agent sees the deletion only when it stops the runner.
    runner.register(&label("2")).await.unwrap();
    let registration = harness.dir.path().join("ondeck/actions-runner/.runner");
    assert!(registration.exists());
    remove(2);
    holds("it forgets its registration", || !registration.exists()).await;
    leave(&runner).await;
    assert_eq!(removals(), 0);
    // The new registration is removed, and nothing else.
    runner.register(&label("3")).await.unwrap();
    exit_after(&runner, &label("3"), || remove(3)).await;
    runner.revive(&label("3")).await.unwrap();
    let before = removals();
    leave(&runner).await;
    assert_eq!((before, removals()), (0, 1));
}

/// The runner cancels its job first.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_that_is_deleted_with_a_job_registers_anew() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    let begun = harness.dir.path().join("begun");
    let script = format!("touch {}; sleep 300", begun.display());
    harness.github.queue_job(REPOSITORY, "1", &["1"], &script);
    appears(&begun).await;
    let remove = || harness.github.remove_runner(&harness.name(1));
    let why = exit_after(&runner, &run, remove).await;
    assert!(why.contains("The runner no longer exists on the server."), "{why}");
    assert!(!runner.is_busy());
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &run, job).await;
    assert_eq!(done.runner_name, Some(harness.name(2)), "{done:?}");
    leave(&runner).await;
}

/// GitHub calls it busy, and refuses to remove it for longer than the runner itself tries.
#[tokio::test(flavor = "multi_thread")]
async fn a_runner_is_removed_some_seconds_after_its_job() {
    let busy_after_job = Duration::from_secs(8);
    let options = GitHubOptions { busy_after_job, ..GitHubOptions::default() };
    let harness = StandinHarness::with(options).await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    assert_eq!(harness.done(job).conclusion, Some(Conclusion::Success));
    leave(&runner).await;
    assert!(harness.github.runners().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_refused_at_a_registration_is_replaced() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    harness.github.deprecate(VERSION);
    harness.offer(NEWER).await;
    runner.register(&label("1")).await.unwrap();
    let versions: Vec<_> = harness.github.runners().into_iter().map(|it| it.version).collect();
    assert_eq!(versions, [NEWER], "the first registration is removed");
    let account = leave(&runner).await;
    assert!(account.contains("refused version 2.336.0"), "{account}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_refused_in_mid_run_is_replaced() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    let refuse = async { harness.github.deprecate(VERSION) };
    let (why, ()) = tokio::join!(runner.work(&run), refuse);
    assert_eq!(why, "this version of actions/runner is deprecated: 2.336.0");
    let why = runner.work(&run).await;
    assert!(why.ends_with("run ondeck refresh, or set actions-runner-version"), "{why}");
    harness.offer(NEWER).await;
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &run, job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    leave(&runner).await;
}

/// The version was served less than an hour ago, so the registration does not wait for a refusal.
#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_refused_between_two_runs_is_replaced() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    leave(&runner).await;
    harness.offer(NEWER).await;
    harness.github.deprecate(VERSION);
    let run = label("2");
    runner.register(&run).await.unwrap();
    let job = harness.github.queue_job(REPOSITORY, "2", &["2"], "true");
    let done = harness.work_until_done(&runner, &run, job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    leave(&runner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_whose_version_is_refused_is_not_for_the_pool() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    harness.github.deprecate(VERSION);
    let error = runner.register(&label("1")).await.unwrap_err();
    let reason = "this version of actions/runner is deprecated: 2.336.0; no newer one is known: \
                  run ondeck refresh, or set actions-runner-version";
    assert_eq!(error, reason);
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    assert!(harness.github.runners().is_empty());
    let error = runner.clean().await.unwrap_err();
    assert_eq!(error, "GitHub refuses its version of actions/runner: 2.336.0");
    let error = harness.runner().prepare().await.unwrap_err();
    assert!(error.starts_with("no newer one is known"), "after a restart of the agent: {error}");
}

/// The refused runner is on the image, and the new one elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn an_update_leaves_no_files_of_the_run_behind() {
    let harness = StandinHarness::new().await;
    let image = harness.dir.path().join("image/actions-runner");
    RunnerPackage { version: VERSION.to_owned(), ..RunnerPackage::default() }.lay_out(&image);
    let runner = harness.runner_with_image(vec![image.clone()]);
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "echo secret >left");
    assert_eq!(harness.done(job).conclusion, Some(Conclusion::Success));
    assert!(image.join("_work").exists() && image.join(".runner").exists(), "it is used");
    harness.offer(NEWER).await;
    exit_after(&runner, &label("1"), || harness.github.deprecate(VERSION)).await;
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &label("1"), job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    leave(&runner).await;
    let mut left: Vec<_> =
        fs::read_dir(&image).unwrap().map(|it| it.unwrap().file_name()).collect();
    left.sort();
    let software =
        ["bin", "config.sh", "env.sh", "restart-pause.sh", "run-helper.sh.template", "run.sh"];
    assert_eq!(left, software);
    assert!(harness.github.runners().is_empty());
}

/// The run ends before the agent has seen why the listener exited.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_at_the_end_of_a_run_is_noticed() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    harness.github.deprecate(VERSION);
    holds("the listener's exit", || harness.online().is_empty()).await;
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    let error = runner.clean().await.unwrap_err();
    assert_eq!(error, "GitHub refuses its version of actions/runner: 2.336.0");
}

/// The name of a job is no word of the runner about itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_a_job_does_not_retire_a_machine() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    for (number, name) in [
        "Runner version v2.336.0 is deprecated and cannot receive messages.",
        "The runner no longer exists on the server. Cleaning up local configuration.",
        "A session for this runner already exists.",
        "Not configured.",
    ]
    .into_iter()
    .enumerate()
    {
        let run = label(&number.to_string());
        runner.register(&run).await.unwrap();
        let id = run.run.as_str();
        let job = harness.github.queue_named_job(REPOSITORY, id, Some(name), &[id], "true");
        assert_eq!(harness.done(job).conclusion, Some(Conclusion::Success), "{name}");
        tokio::join!(runner.work(&run), runner.drain("it is to listen again"));
        let job = harness.github.queue_job(REPOSITORY, id, &[id], "true");
        let done = harness.work_until_done(&runner, &run, job).await;
        assert_eq!(done.runner_name, Some(harness.name(number as u32 + 1)), "{name}");
        leave(&runner).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_never_begins_does_not_keep_the_runner_busy() {
    let harness = StandinHarness::new().await;
    let timeouts = Timeouts { job_start: Duration::from_secs(2), ..Timeouts::default() };
    let runner = harness.runner().with_timeouts(timeouts);
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    harness.github.inject_runner_fault("*", RunnerFault::JobNeverBegins);
    harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    holds("the job is announced", || runner.is_busy()).await;
    runner.drain("the pool is closed").await;
    assert!(!runner.is_busy());
    leave(&runner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_is_busy_as_long_as_its_worker_runs() {
    let harness = StandinHarness::new().await;
    let timeouts = Timeouts { job_start: Duration::ZERO, ..Timeouts::default() };
    let runner = harness.runner().with_timeouts(timeouts);
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let (begun, go) = (harness.dir.path().join("begun"), harness.dir.path().join("go"));
    let script =
        format!("touch {}; until [ -e {} ]; do sleep 0.05; done", begun.display(), go.display());
    harness.github.queue_job(REPOSITORY, "1", &["1"], &script);
    appears(&begun).await;
    assert!(runner.is_busy());
    std::fs::write(&go, "").unwrap();
    holds("the end of the job", || !runner.is_busy()).await;
    leave(&runner).await;
}

/// Registrations and sessions take as long as GitHub's, a fifth of it each, as does the patience of the
/// agent. Two of the first eight sessions take longer than it waits at first: 2.3 and 4.5 s.
#[tokio::test(flavor = "multi_thread")]
async fn slow_registrations_succeed_on_every_machine() {
    const SCALE: f64 = 0.2;
    let registration_times = Some(RegistrationTimes { seed: 31, scale: SCALE });
    let options = GitHubOptions { registration_times, ..GitHubOptions::default() };
    let harness = StandinHarness::with(options).await;
    let timeouts = Timeouts { listen: Duration::from_secs(1), ..Timeouts::default() };
    let runners: Vec<_> =
        (0..8).map(|number| harness.machine(number).with_timeouts(timeouts)).collect();
    let serve = async |runner: &GitHubRunner| {
        runner.prepare().await.unwrap();
        runner.register(&label("1")).await.unwrap();
    };
    join_all(runners.iter().map(serve)).await;
    assert_eq!(harness.online().len(), runners.len());
    let attempts = harness.github.session_attempts();
    assert!(attempts > runners.len(), "no session took longer than the patience: {attempts}");
    for runner in &runners {
        leave(runner).await;
    }
    assert!(harness.github.runners().is_empty());
}

/// A burst is longer than the three attempts of the runner itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_server_errors_costs_no_machine() {
    let harness = StandinHarness::quick().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let burst = |method: &str, path: &str, length| {
        let rule = GitHubFaultRule::new(GitHubFault::Status(502)).on(method, path);
        harness.github.inject(rule.occurrence(Occurrence::First(length)))
    };
    let faults = [
        burst("POST", "/actions/runner-registration", 4),
        burst("POST", "/_standin/runners", 4),
        burst("POST", "/_standin/sessions", 4),
        burst("DELETE", "/repos/acme/web/actions/runners/*", 4),
    ];
    runner.register(&label("1")).await.unwrap();
    assert_eq!(harness.online(), [["1"]]);
    leave(&runner).await;
    assert!(harness.github.runners().is_empty());
    assert_eq!(faults.map(|fault| fault.fired()), [4; 4]);
}

/// The runner reports an error at the first poll that fails, and exits after ten.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_gives_up_polling_is_started_again() {
    let harness = StandinHarness::quick().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    let rule = GitHubFaultRule::new(GitHubFault::Status(502));
    let polls = harness.github.inject(rule.on("GET", "/_standin/sessions/*/message"));
    // It waits for a message at this moment.
    let wake = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let why = exit_after(&runner, &run, || drop(harness.done(wake))).await;
    assert!(why.starts_with("the listener met an error that may pass: "), "{why}");
    polls.stop();
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &run, job).await;
    assert_eq!(done.runner_name, Some(harness.name(1)), "{done:?}");
    leave(&runner).await;
}

/// The listener says that the job was cancelled, but GitHub has its result, and the account counts it.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ends_with_the_listener_keeps_its_result() {
    let package = RunnerPackage { closing_pause: SOON, ..RunnerPackage::default() };
    let harness = StandinHarness::with_package(package).await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.done(job);
    assert!(runner.is_busy(), "the listener has not said yet that the job is over");
    let account = leave(&runner).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success));
    assert_eq!(harness.github.job(job).unwrap().conclusion, Some(Conclusion::Success));
    assert!(account.starts_with("1 job, "), "{account}");
    assert!(!account.contains("cancel"), "{account}");
    assert!(harness.github.runners().is_empty());
}

/// GitHub answers an invalid token as a runner that does not exist. The machine is not at fault.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_removal_token_costs_no_machine() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    harness.set_removal_token("AREVOKED").await;
    leave(&runner).await;
    let listed = harness.github.runners();
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].online), (&*harness.name(1), false));

    // The next run has the machine, and one that is gone from the list is no error either.
    runner.register(&label("2")).await.unwrap();
    assert_eq!(harness.online(), [["2"]]);
    runner.stop().await.unwrap();
    harness.github.remove_runner(&harness.name(2));
    runner.deregister().await.unwrap();
    runner.clean().await.unwrap();
    assert_eq!(harness.github.runners().len(), 1);
}

/// `--disableupdate` does not keep a listener from updating itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_ends_to_be_updated_is_started_again() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    let tell = || harness.github.tell_to_update(&harness.name(1), NEWER);
    let why = exit_after(&runner, &run, tell).await;
    assert!(why.starts_with("the listener ended to be updated: "), "{why}");
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &run, job).await;
    assert_eq!(done.runner_name, Some(harness.name(1)), "{done:?}");
    leave(&runner).await;
}

/// The files of the software belong to root.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_its_own_cannot_update_the_runner() {
    let Some(user) = TemporaryUser::new("u") else { return };
    let harness = StandinHarness::new().await;
    let runner = harness.runner_as(&user.0);
    runner.prepare().await.unwrap();
    let run = label("1");
    runner.register(&run).await.unwrap();
    harness.github.tell_to_update(&harness.name(1), NEWER);
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    assert_eq!(harness.done(job).conclusion, Some(Conclusion::Success));
    assert_eq!(harness.online(), [["1"]], "the listener has gone on");
    leave(&runner).await;
    let root = harness.dir.path().join("ondeck/actions-runner");
    let left = walk(&root);
    assert!(!left.iter().any(|name| name.starts_with("bin.")), "{left:?}");
}

/// The names of the entries of a folder and of the folders in it.
fn walk(folder: &std::path::Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        names.push(entry.file_name().to_string_lossy().into_owned());
        if entry.file_type().unwrap().is_dir() && !names.last().unwrap().starts_with("bin") {
            names.extend(walk(&entry.path()));
        }
    }
    names
}

/// An administrator may give a runner any label, and it takes jobs that wait for it at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_is_added_over_rest_brings_no_job_of_another_run() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let foreign = harness.github.queue_job(REPOSITORY, "2", &["2"], "echo I am in");
    harness.github.add_label(&harness.name(1), "2");
    let foreign = harness.done(foreign);
    assert_eq!(foreign.conclusion, Some(Conclusion::Failure), "{foreign:?}");
    let refused = "was given to run 1 and takes no job of another: 2";
    assert!(foreign.annotations.concat().contains(refused), "{foreign:?}");
    leave(&runner).await;
}
