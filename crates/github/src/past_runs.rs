//! What the runs of a repository needed: for each completed run its start, how many of its jobs ran at
//! the same time, and for how long.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::try_join_all;
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::secret::Secret;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, PortError, Random};
use ondeck_core::runtime::retry::{Retry, retry};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::auth::Identity;
use crate::client::{Client, Purpose, Request, TokenKind, parse_time};
use crate::forge::{Addresses, check_repository};
use crate::inputs::PUBLIC_API;

/// The most runs whose jobs are read, the newest ones. Each takes a request, of which a token has 5,000
/// an hour.
pub const MOST_PAST_RUNS: usize = 3_000;
/// GitHub returns no more than this of one search.
const REACHABLE: u64 = 1_000;
/// The largest page of GitHub.
const PAGE: u64 = 100;
/// How many requests about jobs are under way at once. GitHub limits clients that send many.
const AT_ONCE: usize = 8;
/// The least time for each request about jobs: 800 a minute, of the 900 that GitHub answers.
const EACH: Duration = Duration::from_millis(75);
/// The shortest span that is searched by itself.
const SHORTEST: Duration = Duration::from_secs(2);

/// Which runs to read, and as whom.
#[derive(Debug, Clone)]
pub struct PastRunsOptions {
    /// The address of the web interface.
    pub server_url: String,
    /// The address of the API; by default derived from `server_url`.
    pub api_url: Option<String>,
    /// `OWNER/NAME`.
    pub repository: String,
    /// A token that may read runs.
    pub token: Option<Secret>,
}

/// A completed run, as the simulation of a history needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastRun {
    pub start: Timestamp,
    /// The most of its jobs that ran at the same time.
    pub machines: u32,
    /// From the start of its first job to the end of its last.
    pub length: Duration,
}

/// The runs of a time.
#[derive(Debug, Clone, Default)]
pub struct PastRuns {
    /// In the order of their starts. Runs in which no job ran are left out.
    pub runs: Vec<PastRun>,
    /// What these runs do not contain, if there were too many.
    pub warning: Option<String>,
}

/// Reads the runs that were created from `since` until `until`, with their jobs. `show` is told what is
/// being read. Fails if the options are invalid, if GitHub refuses a request, or if it does not answer
/// within the retries.
pub async fn past_runs(
    options: PastRunsOptions,
    clock: Arc<dyn Clock>,
    random: &dyn Random,
    (since, until): (Timestamp, Timestamp),
    show: &(dyn Fn(&str) + Sync),
) -> Result<PastRuns, Failure> {
    let PastRunsOptions { server_url, api_url, repository, token } = options;
    check_repository(&repository)?;
    let addresses = Addresses::new(&server_url, api_url.as_deref(), PUBLIC_API)?;
    let token = token.ok_or_else(|| {
        Failure::invalid("no token for GitHub given")
            .hint("set ONDECK_GITHUB_TOKEN to a token that may read Actions of the repository")
    })?;
    let client = Client::new(&addresses.api, clock.clone())?;
    let identity = Identity::of_token(client, "github-token", &token)?;
    let reader = Reader { identity, repository: &repository, clock: &*clock, random };
    show("reading the list of runs");
    let (found, is_partial) = reader.list(since, until).await?;
    let all = found.len();
    let read = AtomicUsize::new(0);
    let mut runs = Vec::new();
    let (mut due, began) = (Duration::ZERO, clock.steady());
    for part in found.chunks(AT_ONCE) {
        clock.sleep(due.saturating_sub(clock.steady().saturating_sub(began))).await;
        due += EACH * u32::try_from(part.len()).unwrap_or(u32::MAX);
        let (reader, read) = (&reader, &read);
        let jobs = part.iter().map(|(id, start)| async move {
            let jobs = reader.jobs(*id).await?;
            let count = read.fetch_add(1, Ordering::Relaxed) + 1;
            show(&format!("reading jobs of runs: {count} of {all}"));
            Ok::<_, Failure>(summary(*start, &jobs))
        });
        runs.extend(try_join_all(jobs).await?.into_iter().flatten());
    }
    runs.sort_by_key(|run| run.start);
    let warning = is_partial
        .then(|| format!("only the newest {MOST_PAST_RUNS} runs of {repository} are read"));
    Ok(PastRuns { runs, warning })
}

#[derive(Deserialize)]
struct RunsPage {
    total_count: u64,
    workflow_runs: Vec<RunEntry>,
}

#[derive(Deserialize)]
struct RunEntry {
    id: u64,
    created_at: String,
    #[serde(default)]
    run_started_at: Option<String>,
}

#[derive(Deserialize)]
struct JobsPage {
    jobs: Vec<JobEntry>,
}

#[derive(Deserialize)]
struct JobEntry {
    #[serde(default)]
    conclusion: Option<String>,
    #[serde(default)]
    started_at: Option<String>,
    #[serde(default)]
    completed_at: Option<String>,
}

struct Reader<'a> {
    identity: Identity,
    repository: &'a str,
    clock: &'a dyn Clock,
    random: &'a dyn Random,
}

impl Reader<'_> {
    /// The completed runs of a time with their starts, the newest first, and whether there are more. A
    /// time with more runs than GitHub returns of one search is halved.
    async fn list(
        &self,
        since: Timestamp,
        until: Timestamp,
    ) -> Result<(Vec<(u64, Timestamp)>, bool), Failure> {
        let mut found: BTreeMap<u64, Timestamp> = BTreeMap::new();
        let mut spans = vec![(since, until)];
        while let Some((since, until)) = spans.pop() {
            if found.len() >= MOST_PAST_RUNS {
                break;
            }
            let (first, mut has_next) = self.page(since, until, 1).await?;
            let span = until.since(since);
            if first.total_count > REACHABLE && span >= SHORTEST {
                let middle = since + span / 2;
                spans.push((since, middle));
                spans.push((middle, until));
                continue;
            }
            let mut entries = first.workflow_runs;
            for number in 2..=REACHABLE / PAGE {
                if !has_next {
                    break;
                }
                let (page, more) = self.page(since, until, number).await?;
                entries.extend(page.workflow_runs);
                has_next = more;
            }
            for entry in entries {
                let start = entry.run_started_at.as_deref().and_then(parse_time);
                if let Some(start) = start.or_else(|| parse_time(&entry.created_at)) {
                    found.insert(entry.id, start);
                }
            }
        }
        let mut found: Vec<(u64, Timestamp)> = found.into_iter().collect();
        found.sort_by_key(|(id, start)| std::cmp::Reverse((*start, *id)));
        let is_partial = found.len() > MOST_PAST_RUNS || !spans.is_empty();
        found.truncate(MOST_PAST_RUNS);
        Ok((found, is_partial))
    }

    async fn page(
        &self,
        since: Timestamp,
        until: Timestamp,
        number: u64,
    ) -> Result<(RunsPage, bool), Failure> {
        let seconds = |at: Timestamp| format!("{}Z", &at.to_string()[..19]);
        let request = self
            .get("")
            .with("created", &format!("{}..{}", seconds(since), seconds(until)))
            .with("status", &"completed")
            .with("per_page", &PAGE)
            .with("page", &number);
        self.read(&request).await?.ok_or_else(|| {
            Failure::new(FailureKind::Forge, format!("no such repository: {}", self.repository))
                .hint(request.purpose.needs(TokenKind::Unknown))
        })
    }

    /// The jobs of a run's latest attempt. None if the run has been deleted meanwhile.
    async fn jobs(&self, run: u64) -> Result<Vec<JobEntry>, Failure> {
        let mut jobs = Vec::new();
        for number in 1_u64.. {
            let request = self
                .get(&format!("/{run}/jobs"))
                .with("filter", &"latest")
                .with("per_page", &PAGE)
                .with("page", &number);
            let Some((page, has_next)): Option<(JobsPage, bool)> = self.read(&request).await?
            else {
                break;
            };
            jobs.extend(page.jobs);
            if !has_next {
                break;
            }
        }
        Ok(jobs)
    }

    fn get(&self, path: &str) -> Request<'_> {
        let path = format!("repos/{}/actions/runs{path}", self.repository);
        Request::get(Purpose::Runs(self.repository), path)
    }

    /// Reads an answer, and whether another page follows. Asks again if that may help. `None` if GitHub
    /// answers 404.
    async fn read<T: DeserializeOwned>(
        &self,
        request: &Request<'_>,
    ) -> Result<Option<(T, bool)>, Failure> {
        let ask = |_| async {
            let answer = self.identity.ask(request).await?;
            match answer.status {
                404 => Ok(None),
                _ if answer.is_success() => Ok(Some((answer.read(request)?, answer.has_next()))),
                _ => Err(self.identity.error_for(request, &answer)),
            }
        };
        retry(self.clock, self.random, Retry::SHORT, ask).await.map_err(failure)
    }
}

fn failure(error: PortError) -> Failure {
    match error {
        PortError::Limited { reason, .. } => Failure::new(FailureKind::Forge, reason)
            .hint("repeat it after that time, or with a later --since"),
        PortError::Unavailable { .. } => {
            let failure = Failure::from(error);
            Failure { hint: "repeat it; nothing was changed".to_owned(), ..failure }
        }
        error => error.into(),
    }
}

/// What a run needed. `None` if no job of it ran.
fn summary(start: Timestamp, jobs: &[JobEntry]) -> Option<PastRun> {
    let time = |text: &Option<String>| text.as_deref().and_then(parse_time);
    let spans: Vec<(Timestamp, Timestamp)> = jobs
        .iter()
        .filter(|job| job.conclusion.as_deref() != Some("skipped"))
        .filter_map(|job| Some((time(&job.started_at)?, time(&job.completed_at)?)))
        .filter(|(from, to)| from < to)
        .collect();
    let first = spans.iter().map(|(from, _)| *from).min()?;
    let last = spans.iter().map(|(_, to)| *to).max()?;
    let at_once = |at: Timestamp| spans.iter().filter(|(from, to)| *from <= at && at < *to).count();
    let most = spans.iter().map(|(from, _)| at_once(*from)).max()?;
    let machines = u32::try_from(most).unwrap_or(u32::MAX);
    Some(PastRun { start, machines, length: last.since(first) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(conclusion: &str, from: &str, to: &str) -> JobEntry {
        let at = |time: &str| Some(format!("2026-11-02T{time}:00Z")).filter(|_| !time.is_empty());
        JobEntry {
            conclusion: Some(conclusion.to_owned()).filter(|it| !it.is_empty()),
            started_at: at(from),
            completed_at: at(to),
        }
    }

    #[test]
    fn a_run_needs_as_many_machines_as_its_jobs_ran_at_the_same_time() {
        let start = Timestamp::parse("2026-11-02T08:00:00Z").unwrap();
        let jobs = [
            job("success", "08:01", "08:05"),
            job("failure", "08:02", "08:10"),
            // It begins when the first has ended.
            job("success", "08:05", "08:20"),
            job("cancelled", "08:06", "08:07"),
            job("skipped", "08:06", "09:00"),
            job("success", "08:30", "08:30"),
            job("", "08:30", ""),
        ];
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        let expected = PastRun { start, machines: 3, length: minutes(19) };
        assert_eq!(summary(start, &jobs), Some(expected));
        let one = PastRun { start, machines: 1, length: minutes(4) };
        assert_eq!(summary(start, &jobs[..1]), Some(one));
        assert_eq!(summary(start, &jobs[4..]), None);
        assert_eq!(summary(start, &[]), None);
    }
}
