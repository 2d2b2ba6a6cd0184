//! Runners, runs and jobs, page by page.

use std::time::Duration;

use ondeck_standin::{Conclusion, GitHub, GitHubOptions, GitHubRunner, Permission, RunState};
use serde_json::Value;

use super::runner::RunnerHarness;
use super::{Answer, Caller, REPOSITORY, RUNNERS, TOKEN, github};
use crate::harness::SOON;

fn names(answer: &Answer, list: &str, field: &str) -> Vec<String> {
    let body = answer.json();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    body[list].as_array().unwrap().iter().map(|entry| text(&entry[field])).collect()
}

#[tokio::test]
async fn runners_come_in_pages_with_links() {
    let github = github();
    for number in 0..5 {
        github.add_runner(GitHubRunner::new(REPOSITORY, &format!("runner-{number}")));
    }
    github.add_runner(GitHubRunner::new("acme/other", "elsewhere"));
    let caller = Caller::new(&github, TOKEN);
    let mut next = format!("{}{RUNNERS}?per_page=2", github.api_url());
    let mut seen = Vec::new();
    let mut pages = 0;
    while !next.is_empty() {
        let path = next.strip_prefix(&github.api_url()).unwrap();
        let answer = caller.ask(&format!("GET {path}")).await;
        assert_eq!(answer.json()["total_count"], 5);
        seen.extend(names(&answer, "runners", "name"));
        pages += 1;
        let links = answer.header("link").split(", ");
        let found = links.filter_map(|link| link.strip_suffix(">; rel=\"next\"")).next();
        next = found.map_or_else(String::new, |link| link.trim_start_matches('<').to_owned());
        let is_last = pages == 3;
        assert_eq!(answer.header("link").contains("page=3>; rel=\"last\""), !is_last);
    }
    assert_eq!(pages, 3);
    assert_eq!(seen, ["runner-0", "runner-1", "runner-2", "runner-3", "runner-4"]);
    let one = caller.ask(&format!("GET {RUNNERS}?name=runner-3")).await;
    assert_eq!(names(&one, "runners", "name"), ["runner-3"]);
    assert_eq!(one.header("link"), "");
}

#[tokio::test]
async fn runners_are_shown_and_removed_unless_they_are_busy() {
    let github = github();
    let idle = GitHubRunner { online: true, ..GitHubRunner::new(REPOSITORY, "idle") };
    let busy = GitHubRunner { online: true, busy: true, ..GitHubRunner::new(REPOSITORY, "busy") };
    let idle = github.add_runner(idle);
    let busy = github.add_runner(GitHubRunner { labels: vec!["4711".into()], ..busy });
    let caller = Caller::new(&github, TOKEN);
    let shown = caller.ask(&format!("GET {RUNNERS}/{busy}")).await.json();
    assert_eq!((&shown["status"], &shown["busy"]), (&"online".into(), &true.into()));
    assert_eq!(shown["labels"][0]["name"], "4711");
    assert_eq!(shown["labels"][0]["type"], "custom");
    let refused = caller.ask(&format!("DELETE {RUNNERS}/{busy}")).await;
    assert_eq!(refused.status, 422);
    assert!(refused.message().contains("Runner \"busy\" is still running a job"));
    let done = caller.ask(&format!("DELETE {RUNNERS}/{idle}")).await;
    assert_eq!((done.status, done.body.len()), (204, 0));
    assert_eq!(caller.ask(&format!("DELETE {RUNNERS}/{idle}")).await.status, 404);
    assert_eq!(caller.ask(&format!("GET {RUNNERS}/{idle}")).await.status, 404);
    assert_eq!(github.runners().len(), 1);
}

#[tokio::test]
async fn a_runner_is_listed_as_busy_for_a_while_after_its_job() {
    let busy_after_job = Duration::from_secs(600);
    let options = GitHubOptions { busy_after_job, ..GitHubOptions::default() };
    let github = GitHub::start(options);
    github.allow(TOKEN, REPOSITORY, &[Permission::Administration]);
    let harness = RunnerHarness::on(github);
    harness.register();
    let running = harness.run();
    let job = harness.github.queue_job(REPOSITORY, "4711", &["4711"], "true");
    harness.github.wait_for_job(job, SOON);
    let caller = Caller::new(&harness.github, TOKEN);
    let listed = caller.ask(&format!("GET {RUNNERS}")).await.json();
    assert_eq!(listed["runners"][0]["busy"], true, "{listed}");
    let id = &listed["runners"][0]["id"];
    assert_eq!(caller.ask(&format!("DELETE {RUNNERS}/{id}")).await.status, 422);
    drop(running);
}

#[tokio::test]
async fn labels_are_read_added_replaced_and_removed() {
    let github = github();
    let labels = ["self-hosted", "a"].map(str::to_owned).into();
    let runner = GitHubRunner { labels, ..GitHubRunner::new(REPOSITORY, "one") };
    let id = github.add_runner(runner);
    let caller = Caller::new(&github, TOKEN);
    for (request, body, expected) in [
        ("GET labels", "", "self-hosted a"),
        ("POST labels", r#"{"labels":["b","A"]}"#, "self-hosted a b"),
        ("DELETE labels/a", "", "self-hosted b"),
        ("PUT labels", r#"{"labels":["c","d"]}"#, "self-hosted c d"),
        ("DELETE labels", "", "self-hosted"),
    ] {
        let (method, path) = request.split_once(' ').unwrap();
        let answer =
            caller.try_ask(&format!("{method} {RUNNERS}/{id}/{path}"), body).await.unwrap();
        assert_eq!(answer.status, 200, "{request}: {answer:?}");
        assert_eq!(names(&answer, "labels", "name").join(" "), expected, "{request}");
        assert_eq!(github.runners()[0].labels.join(" "), expected, "{request}");
    }
    for (path, status) in [("labels/self-hosted", 422), ("labels/none", 404)] {
        let answer = caller.ask(&format!("DELETE {RUNNERS}/{id}/{path}")).await;
        assert_eq!(answer.status, status, "{path}");
    }
    assert_eq!(caller.ask(&format!("GET {RUNNERS}/999/labels")).await.status, 404);
}

#[tokio::test]
async fn runs_come_newest_first_and_by_status() {
    let github = github();
    github.add_run(REPOSITORY, "1", RunState::Completed(Conclusion::Failure));
    github.queue_job(REPOSITORY, "2", &["2"], "true");
    github.add_run(REPOSITORY, "3", RunState::InProgress);
    github.queue_job(REPOSITORY, "4", &["4"], "true");
    github.queue_job("acme/other", "5", &["5"], "true");
    let caller = Caller::new(&github, TOKEN);
    let cases = [
        ("", vec!["4", "3", "2", "1"]),
        ("?status=queued", vec!["4", "2"]),
        ("?status=queued&per_page=1&page=2", vec!["2"]),
        ("?status=in_progress", vec!["3"]),
        ("?status=completed", vec!["1"]),
        ("?status=failure", vec!["1"]),
        ("?status=success", vec![]),
    ];
    for (query, expected) in cases {
        let answer = caller.ask(&format!("GET /repos/acme/web/actions/runs{query}")).await;
        assert_eq!(names(&answer, "workflow_runs", "id"), expected, "{query}");
    }
}

#[tokio::test]
async fn jobs_that_failed_are_queued_again_in_the_next_attempt() {
    let github = github();
    let first = github.queue_job(REPOSITORY, "7", &["7"], "true");
    let caller = Caller::new(&github, TOKEN);
    let jobs = "/repos/acme/web/actions/runs/7/jobs";
    let answer = caller.ask(&format!("GET {jobs}?filter=latest")).await.json();
    let job = &answer["jobs"][0];
    assert_eq!((&job["status"], &job["run_attempt"]), (&"queued".into(), &1.into()));
    assert_eq!((&job["run_id"], &job["labels"][0]), (&7.into(), &"7".into()));
    assert_eq!(job["runner_name"], Value::Null);
    github.cancel_run(REPOSITORY, "7");
    assert_eq!(github.job(first).unwrap().conclusion, Some(Conclusion::Cancelled));
    let again = github.rerun_failed(REPOSITORY, "7");
    assert_eq!(again.len(), 1);
    let latest = caller.ask(&format!("GET {jobs}?filter=latest")).await.json();
    assert_eq!((&latest["total_count"], &latest["jobs"][0]["run_attempt"]), (&1.into(), &2.into()));
    let all = caller.ask(&format!("GET {jobs}?filter=all")).await.json();
    assert_eq!(all["total_count"], 2);
    let queued = caller.ask("GET /repos/acme/web/actions/runs?status=queued").await;
    assert_eq!(names(&queued, "workflow_runs", "run_attempt"), ["2"]);
    assert_eq!(caller.ask("GET /repos/acme/web/actions/runs/8/jobs").await.status, 404);
    github.cancel_run(REPOSITORY, "7");
    assert_eq!(github.rerun_failed(REPOSITORY, "7").len(), 1, "not once for each attempt");
}

#[tokio::test]
async fn a_release_says_where_its_package_is_and_what_it_is() {
    let github = github();
    let digest = github.publish_runner("2.336.0", "a package");
    let caller = Caller { token: None, ..Caller::new(&github, "") };
    let release = caller.ask("GET /repos/actions/runner/releases/tags/v2.336.0").await.json();
    assert_eq!(release, caller.ask("GET /repos/actions/runner/releases/latest").await.json());
    let asset = &release["assets"][0];
    assert_eq!(asset["name"], "actions-runner-linux-x64-2.336.0.tar.gz");
    assert_eq!(asset["digest"], format!("sha256:{digest}"));
    let missing = caller.ask("GET /repos/actions/runner/releases/tags/v1.0.0").await;
    assert_eq!(missing.status, 404);
    let url = asset["browser_download_url"].as_str().unwrap();
    let web = Caller { root: String::new(), token: None, ..Caller::new(&github, "") };
    let elsewhere = web.ask(&format!("GET {url}")).await;
    assert_eq!(elsewhere.status, 302);
    let package = web.ask(&format!("GET {}", elsewhere.header("location"))).await;
    assert_eq!((package.status, &package.body[..]), (200, &b"a package"[..]));
    let downloads = Caller::new(&github, TOKEN).ask(&format!("GET {RUNNERS}/downloads")).await;
    let download = &downloads.json()[0];
    assert_eq!((&download["os"], &download["architecture"]), (&"linux".into(), &"x64".into()));
    assert_eq!(
        (&download["sha256_checksum"], &download["download_url"]),
        (&digest.into(), &asset["browser_download_url"])
    );
}
