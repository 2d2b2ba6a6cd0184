//! One of the pools that are compared.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::State;
use ondeck_core::model::signal::Signal;
use ondeck_core::ports::{RecordScope, Store};
use ondeck_local::{Db, Home, LocalStore};
use ondeck_standin::{GitHub, GitHubOptions, GitHubRunner, Permission, RunnerPackage, RunnerTimes};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::local::LocalPool;
use crate::adapters::Adapters;
use crate::claims;
use crate::harness::{self, BenchHarness, HarnessOptions, REFRESH};
use crate::latency::operations;

/// What the gateway adds to each call of AWS. A round trip then takes about 10 ms.
const GATEWAY: Duration = Duration::from_millis(8);
/// How many machines are launched at once. Each of them unpacks its own runner.
const STEP: usize = 10;
/// Longer than anything here takes on a busy computer.
const LIMIT: Duration = Duration::from_secs(120);
/// The time between two looks at the notes of machines.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backend {
    Local,
    Aws,
}

impl Backend {
    pub(super) const ALL: [Backend; 2] = [Backend::Local, Backend::Aws];

    pub(super) fn name(self) -> &'static str {
        match self {
            Backend::Local => "local",
            Backend::Aws => "aws",
        }
    }
}

/// How the machines of a pool get their jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Way {
    /// From the local forge, which has no runner.
    LocalForge,
    /// From GitHub, and register while they are idle.
    Ready,
    /// From GitHub, and register for their run.
    OfRun,
    /// As [`Way::OfRun`], with this older program.
    Before(PathBuf),
}

enum Place {
    Local(LocalPool),
    Aws(Box<BenchHarness>),
}

/// Reads what the agents of a pool have written. It is opened for each use: a file that another process
/// keeps open may be slower, and not each pool has a reader.
struct Reader {
    store: Arc<dyn Store>,
    runtime: Runtime,
}

/// A pool with its machines, and the GitHub that it takes jobs of.
pub(super) struct Column {
    pub(super) github: Option<GitHub>,
    place: Place,
    /// Whether what its agents write is read.
    is_read: bool,
    /// Whether its machines register while they are idle.
    gets_ready: bool,
    machines: usize,
    runs: u32,
}

/// A warm provision and the release after it.
pub(super) struct HandOver {
    pub(super) provisioned: Duration,
    /// How much of that passed between the last registration and the look that found it. Looks become less
    /// frequent with time, which hides what registrations take.
    pub(super) unseen: Duration,
    /// The calls of AWS that the provision made, each with its start in milliseconds.
    pub(super) operations: Vec<String>,
    pub(super) released: Duration,
    /// From the start of the release until the last agent has said that its machine is free, where that
    /// is read. The release itself looks for that every 200 ms, which hides what it takes.
    pub(super) freed: Duration,
    /// From the start of the release until all machines were ready again, where they get ready.
    pub(super) ready_again: Duration,
}

impl Column {
    /// A pool with this number of idle machines, which are ready if they can be.
    pub(super) fn open(backend: Backend, way: &Way, machines: usize) -> Column {
        let github = (*way != Way::LocalForge).then(github);
        let forge = github.as_ref().map_or_else(Vec::new, claims::variables);
        let program = match way {
            Way::Before(program) => program.clone(),
            _ => harness::program(),
        };
        let place = match backend {
            Backend::Local => Place::Local(LocalPool::new(program, forge)),
            Backend::Aws => Place::Aws(Box::new(BenchHarness::new(HarnessOptions {
                agents: true,
                latency: GATEWAY,
                program: Some(program),
                forge,
                ..HarnessOptions::default()
            }))),
        };
        let gets_ready = *way == Way::Ready;
        let is_read = matches!(way, Way::Ready | Way::OfRun);
        let mut column = Column { github, place, is_read, gets_ready, machines, runs: 0 };
        column.refresh(way);
        column.fill();
        column
    }

    fn refresh(&self, way: &Way) {
        let mut line: Vec<String> = match self.place {
            Place::Local(_) => vec!["refresh".to_owned(), "--idle-time-sec=3600".to_owned()],
            Place::Aws(_) => REFRESH.map(str::to_owned).to_vec(),
        };
        if *way == Way::Ready {
            line.push("--runner-label=machine".to_owned());
        }
        self.run(&line);
    }

    fn fill(&mut self) {
        let mut left = self.machines;
        let mut runs = Vec::new();
        while left > 0 {
            let run = self.next_run();
            let count = left.min(STEP);
            self.run(&provision(&run, count));
            runs.push(run);
            left -= count;
        }
        let listed = self.listed();
        for run in &runs {
            self.run(&release(run));
        }
        self.until_ready(&listed);
    }

    /// A run id that was not used before.
    pub(super) fn next_run(&mut self) -> String {
        self.runs += 1;
        self.runs.to_string()
    }

    pub(super) fn run(&self, arguments: &[String]) -> (Duration, Value) {
        match &self.place {
            Place::Local(pool) => pool.run(arguments),
            Place::Aws(harness) => {
                // Their logs would grow with each call.
                harness.agents.reset();
                harness.control.reset();
                harness.run(arguments, 0)
            }
        }
    }

    /// The calls of AWS since the last run of the program, as far as this is a pool there.
    fn operations(&self) -> Vec<String> {
        match &self.place {
            Place::Local(_) => Vec::new(),
            Place::Aws(harness) => operations(harness.control.log()),
        }
    }

    pub(super) fn set_latency(&self, latency: Duration) {
        if let Some(github) = &self.github {
            github.set_latency(latency);
        }
    }

    /// A provision of idle machines, and its release. Returns when all machines are as they were before.
    /// The provision took the mean of this one and of `more` others before it: an agent looks every 40 ms on
    /// the local backend, which a single machine meets by chance.
    pub(super) fn hand_over(&mut self, count: usize, more: u32) -> HandOver {
        let before = self.provision_and_release(count, more);
        let run = self.next_run();
        let (took, outcome) = self.run(&provision(&run, count));
        assert_warm(&outcome, count);
        let provisioned = (before + took) / (more + 1);
        let last = |field| {
            outcome["instances"].as_array()?.iter().filter_map(|it| it[field].as_u64()).max()
        };
        let (ready, registered) = (last("readyMs"), last("registeredMs"));
        let unseen = ready.unwrap_or_default().saturating_sub(registered.unwrap_or_default());
        let unseen = Duration::from_millis(unseen);
        let operations = self.operations();
        let listed = self.listed();
        let (began, began_at) = (Instant::now(), SystemTime::now());
        let (released, outcome) = self.run(&release(&run));
        assert_pooled(&outcome, count);
        let left = self.of_claimed(&listed, &outcome);
        self.until_ready(&left);
        let ready_again = began.elapsed();
        let freed = self.is_read.then(|| self.place.reader().freed(&outcome)).flatten();
        let freed = freed.and_then(|at| at.duration_since(began_at).ok()).unwrap_or_default();
        HandOver { provisioned, unseen, operations, released, freed, ready_again }
    }

    /// Provisions for several runs in a row, and releases all of them. Returns how long the provisions took
    /// together.
    fn provision_and_release(&mut self, count: usize, runs: u32) -> Duration {
        let runs: Vec<String> = (0..runs).map(|_| self.next_run()).collect();
        let provision = |run: &String| {
            let (took, outcome) = self.run(&provision(run, count));
            assert_warm(&outcome, count);
            took
        };
        let took = runs.iter().map(provision).sum();
        let listed = self.listed();
        let mut left = BTreeSet::new();
        for run in &runs {
            let (_, outcome) = self.run(&release(run));
            assert_pooled(&outcome, count);
            left.append(&mut self.of_claimed(&listed, &outcome));
        }
        self.until_ready(&left);
        took
    }

    /// The names of all runners.
    pub(super) fn listed(&self) -> BTreeSet<String> {
        let runners = self.github.as_ref().map(GitHub::runners).unwrap_or_default();
        runners.into_iter().map(|runner| runner.name).collect()
    }

    /// Those of these runners that belong to the machines of an outcome.
    fn of_claimed(&self, listed: &BTreeSet<String>, outcome: &Value) -> BTreeSet<String> {
        let ids: Vec<&str> = texts(outcome, "instanceId").collect();
        let is_theirs = |name: &&String| ids.iter().any(|id| name.contains(id));
        listed.iter().filter(is_theirs).cloned().collect()
    }

    /// Waits until all machines are idle and ready, with other runners than those that have left. Does
    /// nothing where machines do not register while they are idle.
    pub(super) fn until_ready(&self, left: &BTreeSet<String>) {
        let (Some(github), true) = (&self.github, self.gets_ready) else { return };
        // Waiting for this event costs nothing, while each look at the store takes processor time from
        // what is measured.
        let are_online = |runners: &[GitHubRunner]| {
            let online = runners.iter().filter(|it| it.online && !left.contains(&it.name));
            online.count() == self.machines
        };
        assert!(github.wait_for_runners(LIMIT, are_online).is_some(), "{:?}", github.runners());
        let (began, reader) = (Instant::now(), self.place.reader());
        while reader.ready() < self.machines {
            assert!(began.elapsed() < LIMIT, "not all machines are ready: {}", reader.ready());
            std::thread::park_timeout(LOOK);
        }
    }
}

impl Place {
    fn reader(&self) -> Reader {
        match self {
            Place::Local(pool) => {
                let builder = &mut tokio::runtime::Builder::new_current_thread();
                let runtime = builder.enable_all().build().unwrap();
                let db = Db::open(&Home::new(pool.home())).unwrap();
                Reader { store: Arc::new(LocalStore::new(db)), runtime }
            }
            Place::Aws(harness) => {
                let Adapters { runtime, store, .. } = harness.behind_gateway();
                Reader { store, runtime }
            }
        }
    }
}

impl Reader {
    /// How many machines are idle and have a registration for this idle state.
    fn ready(&self) -> usize {
        self.runtime.block_on(async {
            let records = self.store.list(RecordScope::Live).await.unwrap().records;
            let ids: Vec<_> = records.iter().map(|record| record.id.clone()).collect();
            let status = self.store.agent_status(&ids).await.unwrap();
            let pairs = records.iter().zip(&status);
            let is_ready = pairs.filter(|(record, status)| {
                let note = status.readiness.as_ref();
                record.state == State::Idle
                    && note.is_some_and(|it| it.registration(record.counts.generation).is_some())
            });
            is_ready.count()
        })
    }

    /// When the last agent of these machines has said that its machine is free.
    fn freed(&self, outcome: &Value) -> Option<SystemTime> {
        let ids = texts(outcome, "instanceId").map(|id| InstanceId::new(id).unwrap());
        let ids: Vec<InstanceId> = ids.collect();
        let status = self.runtime.block_on(self.store.agent_status(&ids)).unwrap();
        let reports = status.into_iter().filter_map(|status| status.report);
        let freed = reports.filter(|report| report.signal == Signal::Deregistered);
        let at = freed.map(|report| report.at).max()?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_millis(at.millis()))
    }
}

/// GitHub, with a runner that takes as long as the real one.
fn github() -> GitHub {
    let github = GitHub::start(GitHubOptions::default());
    let permissions = [Permission::Administration, Permission::ActionsRead];
    github.allow(claims::TOKEN, claims::REPOSITORY, &permissions);
    let package = RunnerPackage { times: Some(RunnerTimes::REAL), ..RunnerPackage::default() };
    github.publish_runner(&package.version, package.build());
    github
}

pub(super) fn provision(run: &str, count: usize) -> Vec<String> {
    let count = format!("--instance-count={count}");
    vec!["provision".to_owned(), format!("--run-id={run}"), count, "--json".to_owned()]
}

pub(super) fn release(run: &str) -> Vec<String> {
    vec!["release".to_owned(), format!("--run-id={run}"), "--json".to_owned()]
}

pub(super) fn assert_warm(outcome: &Value, count: usize) {
    let warm = texts(outcome, "source").filter(|source| *source == "warm").count();
    assert_eq!(warm, count, "not all machines were in the pool: {outcome}");
}

fn assert_pooled(outcome: &Value, count: usize) {
    let pooled = texts(outcome, "outcome").filter(|outcome| *outcome == "pooled").count();
    assert_eq!(pooled, count, "not all machines are back in the pool: {outcome}");
}

pub(super) fn texts<'a>(outcome: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
    let instances = outcome["instances"].as_array().into_iter().flatten();
    instances.filter_map(move |instance| instance[field].as_str())
}
