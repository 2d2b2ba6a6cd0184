//! Reading what past runs needed, by pages and parts of a time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::secret::Secret;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Clock;
use ondeck_core::testkit::SeededRandom;
use ondeck_github::{PastRuns, PastRunsOptions, past_runs};
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{GitHubFault, GitHubFaultRule, GitHubOptions, Occurrence, RequestLimits};

use super::harness::{ForgeHarness, TOKEN};

const RUNS: &str = "/repos/acme/web/actions/runs";

fn minutes(minutes: u64) -> Duration {
    Duration::from_secs(60 * minutes)
}

/// The runs since so long ago, and what was shown meanwhile.
async fn read(
    harness: &ForgeHarness,
    token: Option<&str>,
    ago: Duration,
) -> (Result<PastRuns, Failure>, Vec<String>) {
    let until = harness.clock.now();
    let options = PastRunsOptions {
        server_url: harness.options().server_url,
        api_url: None,
        repository: "acme/web".to_owned(),
        token: token.map(Secret::new),
    };
    let shown = Mutex::new(Vec::new());
    let show = |doing: &str| shown.lock().unwrap().push(doing.to_owned());
    let span = (until.before(ago), until);
    let clock: Arc<dyn Clock> = harness.clock.clone();
    let found = past_runs(options, clock, &SeededRandom::new(1), span, &show).await;
    (found, shown.into_inner().unwrap())
}

#[tokio::test]
async fn completed_runs_are_read_with_their_jobs() {
    let harness = ForgeHarness::with(GitHubOptions { page: 2, ..GitHubOptions::default() });
    let github = &harness.github;
    // Two jobs side by side, then one.
    let jobs = [(1, 10), (2, 5), (12, 3)].map(|(after, took)| (minutes(after), minutes(took)));
    github.add_past_run("acme/web", "101", minutes(180), &jobs);
    github.add_past_run("acme/web", "102", minutes(120), &[(minutes(0), minutes(7))]);
    github.add_past_run("acme/web", "103", minutes(60), &[(minutes(0), minutes(1))]);
    github.add_past_run("acme/web", "104", minutes(60), &[]);
    github.add_past_run("acme/web", "105", minutes(9_000), &[(minutes(0), minutes(1))]);
    github.add_past_run("acme/api", "106", minutes(60), &[(minutes(0), minutes(1))]);
    github.queue_job("acme/web", "107", &["107"], "true");
    let (found, shown) = read(&harness, Some(TOKEN), minutes(1_000)).await;
    let found = found.unwrap();
    let needed: Vec<(u32, u64)> =
        found.runs.iter().map(|run| (run.machines, run.length.as_secs() / 60)).collect();
    assert_eq!(needed, [(2, 14), (1, 7), (1, 1)], "the oldest first");
    assert_eq!(found.warning, None);
    assert!(found.runs[0].start < found.runs[1].start);
    assert!(shown.iter().any(|line| line == "reading jobs of runs: 4 of 4"), "{shown:?}");
    let pages = |of: &str| harness.github.requests().iter().filter(|it| it.path == of).count();
    assert_eq!(pages(RUNS), 2, "four runs in pages of two");
    assert_eq!(pages(&format!("{RUNS}/101/jobs")), 2, "three jobs in pages of two");
}

#[tokio::test]
async fn the_requests_conform_to_githubs_description() {
    let harness = ForgeHarness::with(GitHubOptions::on(&Emulators::running()));
    harness.github.add_past_run("acme/web", "101", minutes(60), &[(minutes(0), minutes(1))]);
    let (found, _) = read(&harness, Some(TOKEN), minutes(100)).await;
    assert_eq!(found.unwrap().runs.len(), 1);
    harness.github.assert_requests_valid();
}

#[tokio::test]
async fn a_time_with_more_runs_than_a_search_returns_is_halved_and_requests_are_paced() {
    // Our clock moves without waiting, GitHub's does not.
    let limits = RequestLimits { points: 10_000, ..RequestLimits::default() };
    let harness = ForgeHarness::with(GitHubOptions { limits, ..GitHubOptions::default() });
    let began = harness.clock.steady();
    for number in 0..1_300_u64 {
        let (run, ago) = (number.to_string(), Duration::from_secs(60 + number * 10));
        harness.github.add_past_run("acme/web", &run, ago, &[(minutes(0), minutes(1))]);
    }
    let (found, _) = read(&harness, Some(TOKEN), minutes(300)).await;
    assert_eq!(found.unwrap().runs.len(), 1_300);
    let took = harness.clock.steady().saturating_sub(began);
    assert!(took > Duration::from_secs(95), "900 requests a minute are too many: {took:?}");
    let created: Vec<String> = harness
        .github
        .requests()
        .iter()
        .filter(|it| it.path == RUNS)
        .filter_map(|it| it.query.iter().find(|(name, _)| name == "created").cloned())
        .map(|(_, value)| value)
        .collect();
    let spans = |text: &str| text.split("..").map(|at| Timestamp::parse(at).unwrap()).collect();
    let first: Vec<Timestamp> = spans(&created[0]);
    assert!(first[1].since(first[0]) >= minutes(299), "{created:?}");
    assert!(created.iter().any(|text| *text != created[0]), "{created:?}");
}

#[tokio::test]
async fn what_may_pass_is_repeated_and_a_long_limit_is_told() {
    let harness = ForgeHarness::new();
    harness.github.add_past_run("acme/web", "101", minutes(60), &[(minutes(0), minutes(1))]);
    for fault in [GitHubFault::Status(502), GitHubFault::CutBody] {
        let rule = GitHubFaultRule::new(fault).occurrence(Occurrence::First(1));
        harness.github.inject(rule);
    }
    let (found, _) = read(&harness, Some(TOKEN), minutes(100)).await;
    assert_eq!(found.unwrap().runs.len(), 1);

    let hour = Duration::from_secs(3_600);
    let limit = GitHubFault::SecondaryLimit { retry_after: hour };
    harness.github.inject(GitHubFaultRule::new(limit));
    let (found, _) = read(&harness, Some(TOKEN), minutes(100)).await;
    let failure = found.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Forge);
    assert!(failure.message.starts_with("GitHub limits requests until"), "{failure}");
    assert_eq!(failure.hint, "repeat it after that time, or with a later --since");
}

#[tokio::test]
async fn a_token_that_may_not_read_and_a_missing_one_are_told() {
    let harness = ForgeHarness::new();
    let (found, _) = read(&harness, None, minutes(10)).await;
    let failure = found.unwrap_err();
    assert_eq!(failure.kind, FailureKind::InvalidInput);
    assert_eq!(failure.message, "no token for GitHub given");
    let (found, _) = read(&harness, Some("ghp_unknown"), minutes(10)).await;
    assert_eq!(found.unwrap_err().kind, FailureKind::Forge);
}
