//! Finding runs that wait for machines.

use std::collections::BTreeSet;

use ondeck_core::model::ids::RunId;
use ondeck_core::model::secret::Secret;
use ondeck_core::ports::{Forge, WaitingRun};
use ondeck_github::GitHubOptions;
use ondeck_standin::{Permission, RunState};

use super::harness::{ForgeHarness, TOKEN};
use super::secrets::Log;

const RUNS: &str = "/repos/acme/web/actions/runs";
const JOBS: &str = "/repos/acme/web/actions/runs/*/jobs";

fn waiting(runs: &[(&str, u32)]) -> Vec<WaitingRun> {
    let run =
        |(run, jobs): &(&str, u32)| WaitingRun { run: RunId::new(*run).unwrap(), jobs: *jobs };
    runs.iter().map(run).collect()
}

fn none() -> BTreeSet<RunId> {
    BTreeSet::new()
}

#[tokio::test]
async fn queued_jobs_with_the_runs_label_are_counted() {
    let harness = ForgeHarness::new();
    let queue =
        |run: &str, labels: &[&str]| harness.github.queue_job("acme/web", run, labels, "true");
    queue("101", &["101"]);
    queue("101", &["101", "self-hosted"]);
    queue("101", &["ubuntu-latest"]);
    queue("102", &["ubuntu-latest"]);
    queue("103", &["101"]);
    queue("104", &["104"]);
    queue("105", &["105"]);
    harness.github.add_run("acme/web", "105", RunState::InProgress);
    harness.github.add_run("acme/web", "106", RunState::InProgress);
    let served = BTreeSet::from([RunId::new("104").unwrap()]);
    let found = harness.forge().waiting_runs(&served).await.unwrap();
    assert_eq!(found, waiting(&[("105", 1), ("101", 2)]));
    assert_eq!(harness.github.count("GET", "/repos/acme/web/actions/runs/104/jobs"), 0, "served");
}

#[tokio::test]
async fn jobs_of_a_re_run_are_found() {
    let harness = ForgeHarness::new();
    harness.github.queue_job("acme/web", "7", &["7"], "false");
    harness.github.cancel_run("acme/web", "7");
    let forge = harness.forge();
    assert_eq!(forge.waiting_runs(&none()).await, Ok(vec![]));
    harness.github.rerun_failed("acme/web", "7");
    assert_eq!(forge.waiting_runs(&none()).await, Ok(waiting(&[("7", 1)])));
    let jobs =
        harness.github.requests().into_iter().filter(|request| request.path.ends_with("/jobs"));
    let latest = ("filter".to_owned(), "latest".to_owned());
    assert!(jobs.clone().count() > 0 && jobs.clone().all(|jobs| jobs.query.contains(&latest)));
}

#[tokio::test]
async fn every_page_is_read() {
    let options = ondeck_standin::GitHubOptions { page: 2, ..Default::default() };
    let harness = ForgeHarness::with(options);
    for run in ["1", "2", "3", "4", "5"] {
        for _ in 0..5 {
            harness.github.queue_job("acme/web", run, &[run], "true");
        }
    }
    let found = harness.forge().waiting_runs(&none()).await.unwrap();
    assert_eq!(found, waiting(&[("5", 5), ("4", 5), ("3", 5), ("2", 5), ("1", 5)]));
    assert_eq!(harness.github.count("GET", RUNS), 3 + 1);
    assert_eq!(harness.github.count("GET", JOBS), 5 * 3);
}

#[tokio::test]
async fn only_the_newest_runs_are_examined_and_that_is_logged() {
    let harness = ForgeHarness::new();
    for run in 1..=405 {
        harness.github.add_run("acme/web", &run.to_string(), RunState::Queued);
    }
    let log = Log::start();
    assert_eq!(harness.forge().waiting_runs(&none()).await, Ok(vec![]));
    assert_eq!(harness.github.count("GET", JOBS), 200);
    assert_eq!(harness.github.count("GET", RUNS), 3 + 1, "the rest is not even listed");
    assert_eq!(harness.github.count("GET", "/repos/acme/web/actions/runs/205/jobs"), 0);
    assert_eq!(harness.github.count("GET", "/repos/acme/web/actions/runs/206/jobs"), 1);
    assert_eq!(log.text().matches("only the newest 200 open runs").count(), 1, "{}", log.text());
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
        assert_eq!(forge.waiting_runs(&none()).await, Ok(vec![]), "{token}");
        assert_eq!(forge.waiting_runs(&none()).await, Ok(vec![]), "{token}");
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
    let found = harness.forge_with(options).waiting_runs(&none()).await;
    assert_eq!(found, Ok(waiting(&[("7", 1)])));
}

#[tokio::test]
async fn without_a_repository_no_request_is_sent() {
    let harness = ForgeHarness::new();
    let forge = harness.forge_with(GitHubOptions { jobs_repository: None, ..harness.options() });
    assert_eq!(forge.waiting_runs(&none()).await, Ok(vec![]));
    assert!(harness.github.requests().is_empty());
}
