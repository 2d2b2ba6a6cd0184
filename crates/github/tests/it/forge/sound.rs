//! Every request against GitHub's own description of its interface.

use std::collections::BTreeSet;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::ports::Forge;
use ondeck_github::{Auth, GitHubForge, GitHubOptions, Scope, VERSION_SETTING, runner_name};
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{GitHubRunner, Permission};

use super::keys::Keys;
use super::site::{MARK, Site, settings};

#[tokio::test]
async fn nothing_is_sent_that_github_does_not_describe() {
    let site = Site::with(ondeck_standin::GitHubOptions::on(&Emulators::running()));
    let keys = Keys::generate();
    let all =
        [Permission::Administration, Permission::ActionsRead, Permission::OrganisationRunners];
    site.github.add_app("12345", &keys.public, "acme", &all);
    site.github.publish_runner("2.335.0", "old");
    site.github.publish_runner("2.336.0", "new");
    site.github.queue_job("acme/web", "7", &["7"], "true");
    let auth = Auth::App { id: "12345".to_owned(), private_key: keys.private };
    let organisation = Scope::Organisation { owner: "acme".to_owned() };
    for scope in [site.options().scope, organisation] {
        for auth in [site.options().auth, auth.clone()] {
            let options = GitHubOptions { auth, scope: scope.clone(), ..site.options() };
            everything(&site, &site.forge_with(options)).await;
        }
    }
    let paths: BTreeSet<String> = site
        .github
        .requests()
        .into_iter()
        .map(|request| request.path.split('/').map(placeholder).collect::<Vec<_>>().join("/"))
        .collect();
    assert_eq!(paths.len(), 16, "{paths:?}");
    site.github.assert_requests_valid();
}

async fn everything(site: &Site, forge: &GitHubForge) {
    let [one, other] =
        [1, 2].map(|count| runner_name(&InstanceId::new("i-1").unwrap(), count, MARK));
    let place = forge.target().unwrap().replace(&format!("{}/", site.github.url()), "");
    for name in [&one, &other] {
        site.github.add_runner(GitHubRunner::new(&place, name));
    }
    forge.set_up(&settings(&[])).await.unwrap();
    forge.set_up(&settings(&[(VERSION_SETTING, "2.335.0")])).await.unwrap();
    forge.mint().await.unwrap();
    forge.remove_runner(&one).await.unwrap();
    assert_eq!(forge.runners().await.unwrap().len(), 1);
    forge.remove_runner(&other).await.unwrap();
    assert_eq!(forge.waiting_runs(&BTreeSet::new()).await.unwrap().len(), 1);
}

fn placeholder(part: &str) -> &str {
    if part.chars().all(|c| c.is_ascii_digit()) && !part.is_empty() { "*" } else { part }
}
