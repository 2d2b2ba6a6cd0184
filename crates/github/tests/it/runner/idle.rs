//! A runner that is registered with a label of its machine before a run is known.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::model::credentials::{Token, TokenPurpose};
use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::model::readiness::ReadinessNote;
use ondeck_core::model::record::Record;
use ondeck_core::model::signal::Report;
use ondeck_core::ports::{AgentStore, PortResult, Runner};
use ondeck_core::testkit::MemoryStore;
use ondeck_github::{GitHubRunner, Timeouts};
use ondeck_processes::{MARKER, Process};
use ondeck_standin::{Conclusion, GitHubFault, GitHubFaultRule, RunnerFault};

use crate::runner::harness::{contents, holds, label};
use crate::runner::standin::{REPOSITORY, StandinHarness, VERSION, leave};

fn own(digit: &str) -> MachineLabel {
    MachineLabel::new(format!("m{}", digit.repeat(32))).unwrap()
}

fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// A machine whose runner listens under this label, for no run yet.
async fn idle(label: &MachineLabel) -> (StandinHarness, GitHubRunner) {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    assert_eq!(runner.listen_as(label).await, Ok(1));
    assert_eq!(harness.online(), [[label.as_str()]], "it returns when the runner is online");
    (harness, runner)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_until_the_owner_is_named() {
    let label_of_machine = own("1");
    let (harness, runner) = idle(&label_of_machine).await;
    let labels = [label_of_machine.as_str()];
    let job = harness.github.queue_job(REPOSITORY, "7", &labels, "echo run $ONDECK_RUN_ID");
    holds("the runner has the job", || runner.is_busy()).await;
    runner.name_owner(&run("7")).await.unwrap();
    let done = harness.done(job);
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    assert!(done.log.contains("run 7\n"), "the listener did not know the run: {}", done.log);
    // The next job does not wait.
    let next = harness.github.queue_job(REPOSITORY, "7", &labels, "echo run $ONDECK_RUN_ID");
    assert!(harness.done(next).log.contains("run 7\n"));
    let account = leave(&runner).await;
    assert!(account.starts_with("2 jobs, "), "{account}");
    assert!(harness.github.runners().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_another_run_is_refused() {
    let (harness, runner) = idle(&own("1")).await;
    let foreign = harness.github.queue_job(REPOSITORY, "666", &[own("1").as_str()], "echo in");
    holds("the runner has the job", || runner.is_busy()).await;
    runner.name_owner(&run("7")).await.unwrap();
    let foreign = harness.done(foreign);
    assert_eq!(foreign.conclusion, Some(Conclusion::Failure));
    let refused = "was given to run 7 and takes no job of another: 666";
    assert!(foreign.annotations.concat().contains(refused), "{foreign:?}");
    assert_eq!(leave(&runner).await, "1 refused");
}

/// The last run must not let a job in on the registration of the next.
#[tokio::test(flavor = "multi_thread")]
async fn each_registration_has_an_owner_of_its_own() {
    let (harness, runner) = idle(&own("1")).await;
    let named = harness.dir.path().join("ondeck/hooks/run");
    assert!(!named.exists());
    runner.name_owner(&run("7")).await.unwrap();
    assert_eq!(fs::read_to_string(&named).unwrap(), "7\n");
    runner.stop().await.unwrap();
    assert!(!named.exists(), "no further job is let in once it leaves");
    runner.deregister().await.unwrap();
    runner.clean().await.unwrap();
    assert!(runner.name_owner(&run("8")).await.is_err(), "there is no registration");
    assert_eq!(runner.listen_as(&own("2")).await, Ok(2));
    assert!(!named.exists());
    assert_eq!(harness.online(), [[own("2").as_str()]]);
    leave(&runner).await;
    // And a run's own label is as it was.
    runner.register(&label("9")).await.unwrap();
    assert_eq!(fs::read_to_string(&named).unwrap(), "9\n");
    assert_eq!(harness.online(), [["9"]]);
    leave(&runner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_dies_is_started_under_the_same_registration() {
    let (harness, runner) = idle(&own("1")).await;
    let crash = async { harness.github.inject_runner_fault("*", RunnerFault::Crash) };
    let (why, ()) = tokio::join!(runner.lapse(), crash);
    assert!(why.starts_with("the listener was killed by signal 6"), "{why}");
    harness.github.clear_faults();
    // With a session that is still open, it would need another registration.
    holds("GitHub has seen the end of the session", || harness.online().is_empty()).await;
    assert_eq!(runner.listen_as(&own("1")).await, Ok(1), "the same registration");
    assert_eq!(runner.listen_as(&own("1")).await, Ok(1), "it listens already");
    assert_eq!(harness.online(), [[own("1").as_str()]]);
    leave(&runner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_runner_is_listed_again_under_its_label() {
    let (harness, runner) = idle(&own("1")).await;
    let delete = async { harness.github.remove_runner(&harness.name(1)) };
    let (why, ()) = tokio::join!(runner.lapse(), delete);
    assert!(why.contains("The runner no longer exists on the server."), "{why}");
    assert_eq!(runner.listen_as(&own("1")).await, Ok(2), "another registration");
    let runners = harness.github.runners();
    assert_eq!(runners.iter().map(|it| &it.name).collect::<Vec<_>>(), [&harness.name(2)]);
    // Also while a run owns the machine.
    runner.name_owner(&run("7")).await.unwrap();
    let delete = async { harness.github.remove_runner(&harness.name(2)) };
    let seven = label("7");
    tokio::join!(runner.work(&seven), delete);
    let job = harness.github.queue_job(REPOSITORY, "7", &[own("1").as_str()], "true");
    let done = harness.work_until_done(&runner, &label("7"), job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    leave(&runner).await;
    assert!(harness.github.runners().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_runner_has_lapsed() {
    let (harness, runner) = idle(&own("1")).await;
    tokio::join!(runner.lapse(), runner.drain("the machine expires"));
    assert!(harness.online().is_empty());
    leave(&runner).await;
    assert!(harness.github.runners().is_empty());
}

/// A line that is being written has no end yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_has_no_end_names_no_owner() {
    let (harness, runner) = idle(&own("1")).await;
    let named = harness.dir.path().join("ondeck/hooks/run");
    fs::write(&named, "7").unwrap();
    let labels = [own("1")];
    let labels = labels.each_ref().map(MachineLabel::as_str);
    // The run's id begins like that of the job, and would be taken for it.
    let job = harness.github.queue_job(REPOSITORY, "7", &labels, "echo in");
    holds("the runner has the job", || runner.is_busy()).await;
    runner.name_owner(&run("77")).await.unwrap();
    let done = harness.done(job);
    assert_eq!(done.conclusion, Some(Conclusion::Failure), "{done:?}");
    let refused = "was given to run 77 and takes no job of another: 7";
    assert!(done.annotations.concat().contains(refused), "{done:?}");
    leave(&runner).await;
}

/// A hook that reads while the owner is named reads the whole line or none.
#[tokio::test(flavor = "multi_thread")]
async fn the_owner_is_named_by_a_new_file() {
    use std::io::Read;

    let (harness, runner) = idle(&own("1")).await;
    let named = harness.dir.path().join("ondeck/hooks/run");
    runner.name_owner(&run("7")).await.unwrap();
    let mut open = fs::File::open(&named).unwrap();
    runner.name_owner(&run("8")).await.unwrap();
    let mut before = String::new();
    open.read_to_string(&mut before).unwrap();
    assert_eq!(before, "7\n", "what was open is as it was");
    assert_eq!(fs::read_to_string(&named).unwrap(), "8\n");
    leave(&runner).await;
}

/// The machine is idle, and some run has found its label.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_an_owner_is_refused_after_ten_seconds() {
    let (harness, runner) = idle(&own("1")).await;
    let job = harness.github.queue_job(REPOSITORY, "7", &[own("1").as_str()], "echo in");
    let done = harness.done(job);
    assert_eq!(done.conclusion, Some(Conclusion::Failure), "{done:?}");
    let refused = "was given to no run yet and takes no job: 7";
    assert!(done.annotations.concat().contains(refused), "{done:?}");
    assert_eq!(leave(&runner).await, "1 refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_refused_while_idle_is_replaced() {
    let (harness, runner) = idle(&own("1")).await;
    let deprecate = async { harness.github.deprecate(VERSION) };
    let (why, ()) = tokio::join!(runner.lapse(), deprecate);
    assert_eq!(why, "this version of actions/runner is deprecated: 2.336.0");
    let why = runner.listen_as(&own("1")).await.unwrap_err();
    assert!(why.ends_with("run ondeck refresh, or set actions-runner-version"), "{why}");
    harness.offer("2.337.0").await;
    let number = runner.listen_as(&own("1")).await.unwrap();
    assert_eq!(harness.online(), [[own("1").as_str()]]);
    let versions: Vec<_> = harness.github.runners().into_iter().map(|it| it.version).collect();
    assert_eq!((versions, number), (vec!["2.337.0".to_owned()], 2));
    leave(&runner).await;
    assert!(harness.github.runners().is_empty());
}

/// GitHub has kept the session of a listener that was killed.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_does_not_end_costs_the_name_and_keeps_the_label() {
    let (harness, runner) = idle(&own("1")).await;
    let crash = async { harness.github.inject_runner_fault("*", RunnerFault::Crash) };
    tokio::join!(runner.lapse(), crash);
    harness.github.clear_faults();
    harness.github.inject_runner_fault(&harness.name(1), RunnerFault::SessionConflict);
    assert_eq!(runner.listen_as(&own("1")).await, Ok(2), "another runner has no session");
    assert_eq!(harness.online(), [[own("1").as_str()]]);
    leave(&runner).await;
}

/// The listener has died and GitHub gives no session: the registration is as good as before.
#[tokio::test(flavor = "multi_thread")]
async fn a_forge_out_of_reach_costs_no_registration() {
    let harness = StandinHarness::quick().await;
    let timeouts = Timeouts { listen: Duration::from_millis(200), ..Timeouts::default() };
    let runner = harness.runner().with_timeouts(timeouts);
    runner.prepare().await.unwrap();
    runner.listen_as(&own("1")).await.unwrap();
    let crash = async { harness.github.inject_runner_fault("*", RunnerFault::Crash) };
    tokio::join!(runner.lapse(), crash);
    harness.github.clear_faults();
    holds("GitHub has seen the end of the session", || harness.online().is_empty()).await;
    harness.github.inject_runner_fault("*", RunnerFault::SessionUnavailable);
    let why = runner.listen_as(&own("1")).await.unwrap_err();
    assert!(why.starts_with("the runner does not listen for jobs after"), "{why}");
    let listed: Vec<_> = harness.github.runners().into_iter().map(|it| it.name).collect();
    assert_eq!(listed, [harness.name(1)], "it is still registered");
    harness.github.clear_faults();
    assert_eq!(runner.listen_as(&own("1")).await, Ok(1));
    leave(&runner).await;
}

/// The listener lives and polls in vain: GitHub gives it its next job when it answers again.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_that_cannot_reach_github_does_not_lapse() {
    let harness = StandinHarness::quick().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let polls =
        GitHubFaultRule::new(GitHubFault::Status(503)).on("GET", "/_standin/sessions/*/message");
    let polls = harness.github.inject(polls);
    assert_eq!(runner.listen_as(&own("1")).await, Ok(1));
    // It has said that it cannot connect after five, and has tried again since.
    let in_vain = holds("it has polled several times", || polls.fired() > 12);
    tokio::select! {
        why = runner.lapse() => panic!("it has lapsed: {why}"),
        () = in_vain => {}
    }
    assert_eq!(runner.listen_as(&own("1")).await, Ok(1), "and it is not started again");
    polls.stop();
    runner.name_owner(&run("7")).await.unwrap();
    let job = harness.github.queue_job(REPOSITORY, "7", &[own("1").as_str()], "true");
    assert_eq!(harness.done(job).conclusion, Some(Conclusion::Success));
    leave(&runner).await;
}

/// Who has copied the key of one registration cannot take the jobs of the next.
#[tokio::test(flavor = "multi_thread")]
async fn each_registration_has_a_key_of_its_own() {
    let (harness, runner) = idle(&own("1")).await;
    let key = || {
        let files = contents(harness.dir.path()).into_iter();
        let is_key = |path: &PathBuf| {
            path.ends_with(".credentials") && !path.to_string_lossy().contains("/state/")
        };
        let mut keys: Vec<_> = files.filter(|(path, _)| is_key(path)).collect();
        assert_eq!(keys.len(), 1, "{keys:?}");
        let text = String::from_utf8(keys.remove(0).1).unwrap();
        // The real runner writes a byte order mark as well.
        let text = text.trim_start_matches('\u{feff}');
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        json["data"]["clientId"].as_str().unwrap().to_owned()
    };
    let mut keys = BTreeSet::from([key()]);
    leave(&runner).await;
    runner.listen_as(&own("2")).await.unwrap();
    assert!(keys.insert(key()), "of the next idle state");
    let name = harness.github.runners().remove(0).name;
    let delete = async { harness.github.remove_runner(&name) };
    tokio::join!(runner.lapse(), delete);
    runner.listen_as(&own("2")).await.unwrap();
    assert!(keys.insert(key()), "of the same label");
    leave(&runner).await;
    runner.register(&label("7")).await.unwrap();
    assert!(keys.insert(key()), "of a run");
    leave(&runner).await;
}

/// The token in the store has expired, and refresh stores another.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_token_is_read_again() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    harness.set_registration_token("expired").await;
    let why = runner.listen_as(&own("1")).await.unwrap_err();
    assert!(why.starts_with("the registration failed: "), "{why}");
    assert!(harness.github.runners().is_empty());
    harness.set_registration_token(&harness.github.registration_token(REPOSITORY)).await;
    runner.listen_as(&own("1")).await.unwrap();
    assert_eq!(harness.online(), [[own("1").as_str()]]);
    leave(&runner).await;
}

/// Notes whether a process of a job is alive whenever a token is read.
struct WatchfulStore {
    store: Arc<MemoryStore>,
    process: Mutex<Option<Process>>,
    alive: Mutex<Vec<bool>>,
}

#[async_trait]
impl AgentStore for WatchfulStore {
    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        self.store.record(id).await
    }

    async fn settings(&self) -> PortResult<BTreeMap<String, String>> {
        AgentStore::settings(&*self.store).await
    }

    async fn token(&self, purpose: TokenPurpose) -> PortResult<Option<Token>> {
        let process = *self.process.lock().unwrap();
        self.alive.lock().unwrap().push(process.is_some_and(Process::is_alive));
        self.store.token(purpose).await
    }

    async fn beat(&self, id: &InstanceId, heartbeat: &Heartbeat) -> PortResult<()> {
        self.store.beat(id, heartbeat).await
    }

    async fn report(&self, id: &InstanceId, report: &Report) -> PortResult<()> {
        self.store.report(id, report).await
    }

    async fn note_readiness(&self, id: &InstanceId, note: &ReadinessNote) -> PortResult<bool> {
        self.store.note_readiness(id, note).await
    }
}

/// No job shares a machine with a token, also if a process of it has come back since the machine was
/// cleaned.
#[tokio::test(flavor = "multi_thread")]
async fn no_process_of_a_job_is_alive_when_a_token_is_read() {
    let harness = StandinHarness::new().await;
    let (store, process, alive) = (harness.store.clone(), Mutex::default(), Mutex::default());
    let store = Arc::new(WatchfulStore { store, process, alive });
    let runner = harness.runner_on(store.clone());
    runner.prepare().await.unwrap();
    let mut sleep = std::process::Command::new("sleep");
    let mut child = sleep.arg("300").env(MARKER, harness.id.as_str()).spawn().unwrap();
    let process = Process::of(i32::try_from(child.id()).unwrap()).unwrap();
    *store.process.lock().unwrap() = Some(process);
    runner.listen_as(&own("1")).await.unwrap();
    assert_eq!(*store.alive.lock().unwrap(), [false]);
    assert!(!child.wait().unwrap().success(), "it was killed");
    leave(&runner).await;
}
