//! Finding open runs, their waiting jobs and completed runs, within a budget of requests.

use std::collections::BTreeMap;

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::secret::Secret;
use ondeck_core::ports::{
    FailedJob, Forge, OpenRuns, RequestBudget, Rerun, RunStatus, WaitingJobs,
};
use ondeck_github::{GitHubOptions, runner_name};
use ondeck_standin::{Conclusion, JobId, Permission, RunState};

use super::harness::{ForgeHarness, POOL_TAG, TOKEN, refusal};
use super::secrets::Log;

const RUNS: &str = "/repos/acme/web/actions/runs";
const JOBS: &str = "/repos/acme/web/actions/runs/*/jobs";

fn run(text: &str) -> RunId {
    RunId::new(text).unwrap()
}

fn many() -> RequestBudget {
    RequestBudget::new(1_000)
}

fn ids(open: &OpenRuns) -> Vec<&str> {
    let mut ids: Vec<&str> = open.runs.iter().map(|open| open.run.as_str()).collect();
    ids.sort_unstable_by_key(|id| id.parse::<u64>().unwrap());
    ids
}

/// How many jobs of the run wait, by label.
async fn waiting(forge: &dyn Forge, of: &str) -> BTreeMap<String, u32> {
    let waiting = forge.waiting_jobs(&run(of), &many()).await.unwrap();
    let own = waiting.machine_labels.into_iter();
    let own = own.map(|(label, count)| (label.to_string(), count));
    let labels = waiting.labels.into_iter();
    own.chain(labels.map(|(label, count)| (label.to_string(), count))).collect()
}

fn counts(counts: &[(&str, u32)]) -> BTreeMap<String, u32> {
    counts.iter().map(|(label, count)| ((*label).to_owned(), *count)).collect()
}

#[tokio::test]
async fn queued_jobs_are_counted_by_the_labels_of_the_run() {
    let harness = ForgeHarness::new();
    let queue =
        |run: &str, labels: &[&str]| harness.github.queue_job("acme/web", run, labels, "true");
    queue("101", &["101"]);
    queue("101", &["self-hosted", "101"]);
    queue("101", &["101-large"]);
    queue("101", &["ubuntu-latest"]);
    queue("101", &["1012", "102-large"]);
    queue("102", &["ubuntu-latest"]);
    queue("103", &["101"]);
    harness.github.add_run("acme/web", "105", RunState::InProgress);
    harness.github.add_run("acme/web", "106", RunState::Waiting);
    harness.github.add_run("acme/web", "107", RunState::Completed(Conclusion::Success));
    let forge = harness.forge();
    let open = forge.open_runs(0, &many()).await.unwrap();
    assert_eq!(ids(&open), ["101", "102", "103", "105"]);
    assert!(!open.is_partial && open.runs.iter().all(|open| open.waiting.is_none()));
    assert_eq!(waiting(&forge, "101").await, counts(&[("101", 2), ("101-large", 1)]));
    for none in ["102", "103", "105", "999"] {
        assert_eq!(waiting(&forge, none).await, counts(&[]), "{none}");
    }
}

#[tokio::test]
async fn jobs_of_a_re_run_are_found() {
    let harness = ForgeHarness::new();
    harness.github.queue_job("acme/web", "7", &["7"], "false");
    harness.github.cancel_run("acme/web", "7");
    let forge = harness.forge();
    assert!(forge.open_runs(0, &many()).await.unwrap().runs.is_empty());
    assert_eq!(forge.run_status(&run("7"), &many()).await, Ok(RunStatus::Completed));
    harness.github.rerun_failed("acme/web", "7");
    assert_eq!(ids(&forge.open_runs(0, &many()).await.unwrap()), ["7"]);
    assert_eq!(forge.run_status(&run("7"), &many()).await, Ok(RunStatus::Open));
    assert_eq!(waiting(&forge, "7").await, counts(&[("7", 1)]));
    let jobs =
        harness.github.requests().into_iter().filter(|request| request.path.ends_with("/jobs"));
    let latest = ("filter".to_owned(), "latest".to_owned());
    assert!(jobs.clone().count() > 0 && jobs.clone().all(|jobs| jobs.query.contains(&latest)));
}

#[tokio::test]
async fn a_run_has_completed_only_if_github_says_so() {
    let harness = ForgeHarness::new();
    for (id, state, completed) in [
        ("1", RunState::Queued, false),
        ("2", RunState::InProgress, false),
        ("3", RunState::Waiting, false),
        ("4", RunState::Pending, false),
        ("5", RunState::Completed(Conclusion::Cancelled), true),
        ("6", RunState::Completed(Conclusion::Failure), true),
    ] {
        harness.github.add_run("acme/web", id, state);
        let found = harness.forge().run_status(&run(id), &many()).await;
        let status = if completed { RunStatus::Completed } else { RunStatus::Open };
        assert_eq!(found, Ok(status), "{id}");
    }
    harness.github.add_run("acme/other", "8", RunState::Completed(Conclusion::Success));
    assert_eq!(harness.forge().run_status(&run("8"), &many()).await, Ok(RunStatus::Unknown));
    harness.github.forget_requests();
    for other in ["local-1", "7-large", "ondeck-warm-1"] {
        assert_eq!(harness.forge().run_status(&run(other), &many()).await, Ok(RunStatus::Unknown));
        assert_eq!(waiting(&harness.forge(), other).await, counts(&[]));
    }
    assert!(harness.github.requests().is_empty(), "these are no ids of GitHub");
}

#[tokio::test]
async fn every_page_of_jobs_is_read() {
    let options = ondeck_standin::GitHubOptions { page: 2, ..Default::default() };
    let harness = ForgeHarness::with(options);
    for _ in 0..5 {
        harness.github.queue_job("acme/web", "7", &["7"], "true");
    }
    assert_eq!(waiting(&harness.forge(), "7").await, counts(&[("7", 5)]));
    assert_eq!(harness.github.count("GET", JOBS), 3);
}

/// The newest runs are always on the list, and the others have their turn.
#[tokio::test]
async fn a_long_list_of_runs_is_read_in_turns() {
    let options = ondeck_standin::GitHubOptions { page: 10, ..Default::default() };
    let harness = ForgeHarness::with(options);
    for run in 1..=45 {
        harness.github.add_run("acme/web", &run.to_string(), RunState::Queued);
    }
    let forge = harness.forge();
    let mut seen = std::collections::BTreeSet::new();
    for turn in 7..11 {
        harness.github.forget_requests();
        let open = forge.open_runs(turn, &many()).await.unwrap();
        assert!(open.is_partial);
        assert_eq!(harness.github.count("GET", RUNS), 2 + 1);
        for newest in 36..=45 {
            assert!(ids(&open).contains(&newest.to_string().as_str()), "{newest}");
        }
        seen.extend(ids(&open).into_iter().map(str::to_owned));
    }
    assert_eq!(seen.len(), 45, "in four turns");
}

#[tokio::test]
async fn no_request_is_sent_without_a_budget() {
    let options = ondeck_standin::GitHubOptions { page: 2, ..Default::default() };
    let harness = ForgeHarness::with(options);
    for _ in 0..9 {
        harness.github.queue_job("acme/web", "7", &["7"], "true");
    }
    let forge = harness.forge();
    for budget in [0, 1, 3] {
        harness.github.forget_requests();
        let left = RequestBudget::new(budget);
        let found = forge.waiting_jobs(&run("7"), &left).await.unwrap();
        let label = Label::from(&run("7"));
        assert_eq!(found.labels.get(&label).copied().unwrap_or(0), budget * 2, "what it has found");
        forge.open_runs(0, &left).await.unwrap();
        assert_eq!(forge.run_status(&run("7"), &left).await, Ok(RunStatus::Untold));
        assert_eq!(harness.github.requests().len(), budget as usize);
        assert_eq!(left.left(), 0);
    }
}

#[tokio::test]
async fn without_permission_no_runs_are_found_and_that_is_logged_once() {
    let harness = ForgeHarness::new();
    harness.github.queue_job("acme/web", "7", &["7"], "true");
    harness.github.allow("ghs_workflow", "acme/web", &[Permission::Metadata]);
    harness.github.allow("ghs_stranger", "umbrella/web", &[Permission::ActionsRead]);
    for token in ["ghs_workflow", "ghs_stranger"] {
        let options = GitHubOptions { jobs_token: Some(Secret::new(token)), ..harness.options() };
        let forge = harness.forge_with(options);
        let log = Log::start();
        for _ in 0..2 {
            assert_eq!(forge.open_runs(0, &many()).await, Ok(OpenRuns::default()), "{token}");
            assert_eq!(forge.waiting_jobs(&run("7"), &many()).await, Ok(WaitingJobs::new()));
            let status = forge.run_status(&run("7"), &many()).await;
            assert_eq!(status, Ok(RunStatus::Untold), "{token}: it may be there");
        }
        let text = log.text();
        assert_eq!(text.matches("the token needs actions: read").count(), 1, "{text}");
        assert!(text.contains("INFO") && !text.contains("WARN"), "{text}");
    }
}

#[tokio::test]
async fn runs_are_read_with_the_jobs_token() {
    let harness = ForgeHarness::new();
    harness.github.queue_job("acme/web", "7", &["7"], "true");
    harness.github.revoke(TOKEN);
    harness.github.allow("ghs_workflow", "acme/web", &[Permission::ActionsRead]);
    let options =
        GitHubOptions { jobs_token: Some(Secret::new("ghs_workflow")), ..harness.options() };
    let forge = harness.forge_with(options);
    assert_eq!(ids(&forge.open_runs(0, &many()).await.unwrap()), ["7"]);
    assert_eq!(waiting(&forge, "7").await, counts(&[("7", 1)]));
}

#[tokio::test]
async fn without_a_repository_no_request_is_sent() {
    let harness = ForgeHarness::new();
    let forge = harness.forge_with(GitHubOptions { jobs_repository: None, ..harness.options() });
    assert_eq!(forge.open_runs(0, &many()).await, Ok(OpenRuns::default()));
    assert!(harness.github.requests().is_empty());
}

/// The names of this pool's runners tell which machine a job ran on.
#[tokio::test]
async fn failed_jobs_are_found_with_their_machines_and_re_run_after_the_run() {
    let harness = ForgeHarness::new();
    let forge = harness.forge();
    let ran_on = |conclusion, runner: Option<&str>| {
        let id = harness.github.queue_job("acme/web", "7", &["7"], "true");
        harness.github.conclude(id, conclusion, runner);
        id
    };
    let machine = |text: &str| InstanceId::new(text).unwrap();
    let lost = ran_on(Conclusion::Failure, Some(&runner_name(&machine("i-1"), 3, POOL_TAG)));
    ran_on(Conclusion::Success, Some(&runner_name(&machine("i-2"), 1, POOL_TAG)));
    let elsewhere = ran_on(Conclusion::Cancelled, Some("another-runner"));
    let never = ran_on(Conclusion::Cancelled, None);
    let failed = |id: JobId, on: Option<&str>| FailedJob { id: id.0, instance: on.map(machine) };
    let expected = vec![failed(lost, Some("i-1")), failed(elsewhere, None), failed(never, None)];
    assert_eq!(forge.failed_jobs(&run("7"), &many()).await, Ok(Some(expected)));
    assert_eq!(forge.failed_jobs(&run("7"), &RequestBudget::new(0)).await, Ok(None));

    let (reason, hint) = refusal(forge.rerun(&run("7"), Rerun::Job(lost.0)).await);
    assert!(reason.contains("may not re-run jobs of acme/web"), "{reason}");
    assert!(hint.contains("the scope repo"), "{hint}");
    harness.github.allow(TOKEN, "acme/web", &[Permission::ActionsWrite]);
    forge.rerun(&run("7"), Rerun::Job(lost.0)).await.unwrap();
    assert_eq!(waiting(&forge, "7").await, counts(&[("7", 1)]), "that job only");
    refusal(forge.rerun(&run("7"), Rerun::FailedJobs).await);
    harness.github.cancel_run("acme/web", "7");
    forge.rerun(&run("7"), Rerun::FailedJobs).await.unwrap();
    assert_eq!(waiting(&forge, "7").await, counts(&[("7", 3)]));
}
