//! Checks every request against GitHub's published description of its API.

use std::collections::BTreeSet;

use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::ports::{Forge, RequestBudget, Rerun, RunStatus};
use ondeck_github::{Auth, GitHubForge, GitHubOptions, RunnerScope, VERSION_SETTING, runner_name};
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{GitHubRunner, Permission};

use super::harness::{ForgeHarness, POOL_TAG, TOKEN, settings};
use super::keys::Keys;

#[tokio::test]
async fn every_request_conforms_to_githubs_description() {
    let harness = ForgeHarness::with(ondeck_standin::GitHubOptions::on(&Emulators::running()));
    let keys = Keys::generate();
    let all =
        [Permission::Administration, Permission::ActionsRead, Permission::OrganisationRunners];
    harness.github.allow(TOKEN, "acme/web", &[Permission::ActionsWrite]);
    harness.github.add_app("12345", &keys.public, "acme", &all);
    harness.github.publish_runner("2.335.0", "old");
    harness.github.publish_runner("2.336.0", "new");
    harness.github.queue_job("acme/web", "7", &["7"], "true");
    let auth = Auth::App { id: "12345".to_owned(), private_key: keys.private };
    let organisation = RunnerScope::Organisation { owner: "acme".to_owned() };
    for scope in [harness.options().scope, organisation] {
        for auth in [harness.options().auth, auth.clone()] {
            let options = GitHubOptions { auth, scope: scope.clone(), ..harness.options() };
            everything(&harness, &harness.forge_with(options)).await;
        }
    }
    let paths: BTreeSet<String> = harness
        .github
        .requests()
        .into_iter()
        .map(|request| request.path.split('/').map(placeholder).collect::<Vec<_>>().join("/"))
        .collect();
    assert_eq!(paths.len(), 21, "{paths:?}");
    harness.github.assert_requests_valid();
}

async fn everything(harness: &ForgeHarness, forge: &GitHubForge) {
    let [one, other] =
        [1, 2].map(|count| runner_name(&InstanceId::new("i-1").unwrap(), count, POOL_TAG));
    let place = forge.target().unwrap().replace(&format!("{}/", harness.github.url()), "");
    for name in [&one, &other] {
        harness.github.add_runner(GitHubRunner::new(&place, name));
    }
    forge.set_up(&settings(&[])).await.unwrap();
    forge.set_up(&settings(&[(VERSION_SETTING, "2.335.0")])).await.unwrap();
    forge.mint().await.unwrap();
    forge.remove_runner(&one).await.unwrap();
    assert_eq!(forge.runners().await.unwrap().len(), 1);
    forge.remove_runner(&other).await.unwrap();
    let (run, budget) = (RunId::new("7").unwrap(), RequestBudget::new(100));
    assert_eq!(forge.open_runs(0, &budget).await.unwrap().runs.len(), 1);
    assert_eq!(forge.waiting_jobs(&run, &budget).await.unwrap().labels.len(), 1);
    assert_ne!(forge.run_status(&run, &budget).await.unwrap(), RunStatus::Completed);
    assert_eq!(forge.failed_jobs(&run, &budget).await.unwrap(), Some(Vec::new()));
    for what in [Rerun::Job(1), Rerun::FailedJobs] {
        assert!(forge.rerun(&run, what).await.is_err(), "it has not completed");
    }
}

fn placeholder(part: &str) -> &str {
    if part.chars().all(|c| c.is_ascii_digit()) && !part.is_empty() { "*" } else { part }
}
