use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::label::Label;
use ondeck_core::model::secret::Secret;
use ondeck_core::ports::{AgentStore, Clock, Runner, Store};
use ondeck_core::testkit::MemoryStore;
use ondeck_github::{
    GitHubRunner, PACKAGES_SETTING, Package, Packages, RunnerOptions, Timeouts, URL_SETTING,
};
use ondeck_processes::Process;
use ondeck_standin::{Conclusion, GitHub, GitHubOptions, Job, JobId, RunnerFault, RunnerPackage};

use crate::runner::harness::{RealClock, appears, exit_after, label};

pub(crate) const REPOSITORY: &str = "acme/web";
pub(crate) const VERSION: &str = "2.336.0";
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A stand-in for GitHub, and a machine that downloads its runner from there.
pub(crate) struct StandinHarness {
    pub(crate) github: Arc<GitHub>,
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) id: InstanceId,
    package: RunnerPackage,
}

impl StandinHarness {
    pub(crate) async fn new() -> StandinHarness {
        StandinHarness::with(GitHubOptions::default()).await
    }

    pub(crate) async fn with(options: GitHubOptions) -> StandinHarness {
        StandinHarness::start(options, RunnerPackage::default()).await
    }

    /// A machine whose runner waits a hundredth of the real time before it tries something again.
    pub(crate) async fn quick() -> StandinHarness {
        let session_pause = Duration::from_millis(300);
        StandinHarness::with_package(RunnerPackage { session_pause, ..RunnerPackage::default() })
            .await
    }

    pub(crate) async fn with_package(package: RunnerPackage) -> StandinHarness {
        StandinHarness::start(GitHubOptions::default(), package).await
    }

    async fn start(options: GitHubOptions, package: RunnerPackage) -> StandinHarness {
        let dir = tempfile::tempdir().unwrap();
        // A runner's user must be able to enter the folder.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let name = dir.path().file_name().unwrap().to_string_lossy().replace('.', "");
        let github = Arc::new(GitHub::start(options));
        let store = Arc::new(MemoryStore::default());
        let url = format!("{}/{REPOSITORY}", github.url());
        let settings = BTreeMap::from([(URL_SETTING.to_owned(), url)]);
        let credentials = Credentials {
            registration: Secret::new(github.registration_token(REPOSITORY)),
            removal: Secret::new(github.remove_token(REPOSITORY)),
            expires_at: RealClock.now() + Duration::from_secs(3600),
        };
        store.put_credentials(&credentials, &settings).await.unwrap();
        let id = InstanceId::new(format!("i-{name}")).unwrap();
        let harness = StandinHarness { github, store, dir, id, package };
        harness.offer(VERSION).await;
        harness
    }

    /// Publishes a version of the runner, and stores it as the newest, as refresh does.
    pub(crate) async fn offer(&self, version: &str) {
        let package = RunnerPackage { version: version.to_owned(), ..self.package.clone() };
        let sha256 = self.github.publish_runner(version, package.build());
        let path = format!("actions/runner/releases/download/v{version}");
        let package = |platform: &str| {
            let file = format!("actions-runner-{platform}-{version}.tar.gz");
            let url = format!("{}/{path}/{file}", self.github.url());
            (platform.to_owned(), Package { url, sha256: sha256.clone() })
        };
        let packages = ["linux-x64", "linux-arm64"].map(package).into();
        let packages = Packages { version: version.to_owned(), packages };
        let packages = serde_json::to_string(&packages).unwrap();
        let change = BTreeMap::from([(PACKAGES_SETTING.to_owned(), packages)]);
        self.store.put_settings(&change).await.unwrap();
    }

    /// Has the store give out another token to register runners with.
    pub(crate) async fn set_registration_token(&self, token: &str) {
        let credentials = Credentials {
            registration: Secret::new(token),
            removal: Secret::new(self.github.remove_token(REPOSITORY)),
            expires_at: RealClock.now() + Duration::from_secs(3600),
        };
        self.store.put_credentials(&credentials, &BTreeMap::new()).await.unwrap();
    }

    /// Has the store give out another token to remove runners with.
    pub(crate) async fn set_removal_token(&self, token: &str) {
        let credentials = Credentials {
            registration: Secret::new(self.github.registration_token(REPOSITORY)),
            removal: Secret::new(token),
            expires_at: RealClock.now() + Duration::from_secs(3600),
        };
        self.store.put_credentials(&credentials, &BTreeMap::new()).await.unwrap();
    }

    /// The name of the machine's runner at this registration.
    pub(crate) fn name(&self, registration: u32) -> String {
        format!("{}-{registration}-a1b2c3", self.id)
    }

    /// Keeps the runner working, as the agent does, until the job is completed. Returns the job.
    pub(crate) async fn work_until_done(
        &self,
        runner: &GitHubRunner,
        run: &Label,
        job: JobId,
    ) -> Job {
        let github = self.github.clone();
        let waiting = tokio::task::spawn_blocking(move || github.wait_for_job(job, SOON));
        let working = async {
            loop {
                runner.work(run).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            done = waiting => done.unwrap(),
            () = working => unreachable!("it works for ever"),
        }
    }

    pub(crate) fn runner(&self) -> GitHubRunner {
        self.runner_with_image(Vec::new())
    }

    /// A machine whose image may have a runner in these folders.
    pub(crate) fn runner_with_image(&self, image: Vec<PathBuf>) -> GitHubRunner {
        self.runner_with(RunnerOptions { image, ..self.options() })
    }

    /// A machine whose jobs run as this user.
    pub(crate) fn runner_as(&self, user: &str) -> GitHubRunner {
        self.runner_with(RunnerOptions { user: Some(user.to_owned()), ..self.options() })
    }

    /// One of several machines.
    pub(crate) fn machine(&self, number: u32) -> GitHubRunner {
        let id = InstanceId::new(format!("{}-{number}", self.id)).unwrap();
        let folder = self.dir.path().join(format!("machine-{number}"));
        self.runner_with(RunnerOptions { id, folder, ..self.options() })
    }

    fn options(&self) -> RunnerOptions {
        RunnerOptions {
            id: self.id.clone(),
            pool_tag: "a1b2c3".to_owned(),
            folder: self.dir.path().join("ondeck"),
            pool_folders: Vec::new(),
            image: Vec::new(),
            user: None,
        }
    }

    /// A machine whose agent uses this store.
    pub(crate) fn runner_on(&self, store: Arc<dyn AgentStore>) -> GitHubRunner {
        GitHubRunner::new(self.options(), store, Arc::new(RealClock))
            .with_docker("/nonexistent/docker")
    }

    fn runner_with(&self, options: RunnerOptions) -> GitHubRunner {
        GitHubRunner::new(options, self.store.clone(), Arc::new(RealClock))
            .with_docker("/nonexistent/docker")
    }

    /// The labels of each online runner.
    pub(crate) fn online(&self) -> Vec<Vec<String>> {
        let runners = self.github.runners().into_iter().filter(|runner| runner.online);
        runners.map(|runner| runner.labels).collect()
    }

    pub(crate) fn done(&self, job: JobId) -> Job {
        self.github.wait_for_job(job, SOON)
    }
}

pub(crate) async fn leave(runner: &GitHubRunner) -> String {
    runner.stop().await.unwrap();
    runner.deregister().await.unwrap();
    let account = runner.account().await;
    runner.clean().await.unwrap();
    account
}

#[tokio::test(flavor = "multi_thread")]
async fn successive_runs_use_the_same_machine() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    for name in ["4711", "4712"] {
        runner.register(&label(name)).await.unwrap();
        assert_eq!(harness.online(), [[name]], "register returns when the runner is online");
        let foreign = harness.github.queue_job(REPOSITORY, "666", &[name], "echo I am in");
        let foreign = harness.done(foreign);
        assert_eq!(foreign.conclusion, Some(Conclusion::Failure));
        let refused = format!("was given to run {name} and takes no job of another: 666");
        assert!(foreign.annotations.concat().contains(&refused), "{foreign:?}");
        assert_eq!(foreign.log, "", "a worker that is killed uploads none");
        let script = "test ! -e ~/left && touch ~/left ./left && echo ok";
        let own = harness.github.queue_job(REPOSITORY, name, &[name], script);
        let own = harness.done(own);
        assert_eq!(own.conclusion, Some(Conclusion::Success), "{}", own.log);
        let account = leave(&runner).await;
        assert!(account.starts_with("1 job, ") && account.ends_with(", 1 refused"), "{account}");
        assert!(harness.github.runners().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_is_stopped() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let pid = harness.dir.path().join("pid");
    let script = format!("echo $$ >{0}.new; mv {0}.new {0}; sleep 300", pid.display());
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], &script);
    appears(&pid).await;
    let shell = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let shell = Process::of(shell).unwrap();
    let account = leave(&runner).await;
    assert!(account.starts_with("1 job, "), "{account}");
    assert!(!shell.is_alive());
    // The real runner lets a job fail that ends with its listener.
    assert_eq!(harness.done(job).conclusion, Some(Conclusion::Failure));
    assert!(harness.github.runners().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_has_its_reason_and_leaves_no_runner() {
    let harness = StandinHarness::new().await;
    let timeouts = Timeouts {
        configure: Duration::from_secs(5),
        listen: Duration::from_millis(600),
        ..Timeouts::default()
    };
    let runner = harness.runner().with_timeouts(timeouts);
    runner.prepare().await.unwrap();
    for (fault, reason) in [
        (RunnerFault::SessionConflict, "another listener has this runner's session: "),
        (RunnerFault::Retryable, "the listener met an error that may pass: "),
        (RunnerFault::Deleted, "the listener gave up: "),
        (RunnerFault::NeverConnects, "the runner does not listen for jobs after 9 s"),
        (RunnerFault::RegistrationRefused, "the registration failed: exit status: 1: "),
        (RunnerFault::RegistrationHangs, "the registration failed: "),
    ] {
        harness.github.inject_runner_fault("*", fault);
        let error = runner.register(&label("1")).await.unwrap_err();
        assert!(error.starts_with(reason), "{fault:?}: {error}");
        harness.github.clear_faults();
        leave(&runner).await;
        assert!(harness.github.runners().is_empty(), "{fault:?}");
    }
    runner.register(&label("1")).await.unwrap();
    assert_eq!(leave(&runner).await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crashed_listener_is_restarted() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let crash = || harness.github.inject_runner_fault("*", RunnerFault::Crash);
    let why = exit_after(&runner, &label("1"), crash).await;
    assert!(why.starts_with("the listener was killed by signal 6"), "{why}");
    harness.github.clear_faults();
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    let done = harness.work_until_done(&runner, &label("1"), job).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success));
    leave(&runner).await;
}

/// The second job is queued while the first one runs, and waits for another machine.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_runner_finishes_its_job_and_takes_no_other() {
    let pause_after_job = Duration::from_secs(5);
    let options = GitHubOptions { pause_after_job, ..GitHubOptions::default() };
    let harness = StandinHarness::with(options).await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    let (begun, go) = (harness.dir.path().join("begun"), harness.dir.path().join("go"));
    let script = format!(
        "touch {}; until [ -e {} ]; do sleep 0.1; done; echo finished",
        begun.display(),
        go.display()
    );
    let first = harness.github.queue_job(REPOSITORY, "1", &["1"], &script);
    let second = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    appears(&begun).await;
    let drained = runner.drain("EC2 will terminate this spot machine at noon");
    let finish = async {
        appears(&harness.dir.path().join("ondeck/hooks/end")).await;
        assert!(runner.is_busy(), "the job goes on");
        std::fs::write(&go, "").unwrap();
    };
    tokio::join!(drained, finish);
    let first = harness.done(first);
    assert_eq!(first.conclusion, Some(Conclusion::Success), "{}", first.log);
    assert!(first.log.contains("finished"), "{}", first.log);
    let said = "this machine takes no further job::EC2 will terminate this spot machine at noon";
    assert!(first.log.contains(said), "{}", first.log);
    assert!(!runner.is_busy());
    assert_eq!(harness.online(), Vec::<Vec<String>>::new());
    assert_eq!(harness.github.job(second).unwrap().conclusion, None);

    // A machine that gets more time listens again, and says no more that it does not.
    let done = harness.work_until_done(&runner, &label("1"), second).await;
    assert_eq!(done.conclusion, Some(Conclusion::Success));
    assert!(!done.log.contains("takes no further job"), "{}", done.log);
    leave(&runner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_runner_that_is_drained_closes_its_session() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    runner.register(&label("1")).await.unwrap();
    runner.drain("past its threshold").await;
    assert_eq!(harness.online(), Vec::<Vec<String>>::new());
    runner.drain("past its threshold").await;
    let job = harness.github.queue_job(REPOSITORY, "1", &["1"], "true");
    leave(&runner).await;
    assert_eq!(harness.github.job(job).unwrap().conclusion, None);
}

/// The hook compares the run of a job with that of the label, not with the label.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_with_a_suffix_takes_the_jobs_of_its_run() {
    let harness = StandinHarness::new().await;
    let runner = harness.runner();
    runner.prepare().await.unwrap();
    let large = Label { suffix: "large".parse().ok(), ..label("4711") };
    runner.register(&large).await.unwrap();
    assert_eq!(harness.online(), [["4711-large"]]);
    let own = harness.github.queue_job(REPOSITORY, "4711", &["4711-large"], "echo in");
    let own = harness.done(own);
    assert_eq!(own.conclusion, Some(Conclusion::Success), "{}", own.log);
    let foreign = harness.github.queue_job(REPOSITORY, "666", &["4711-large"], "echo in");
    let foreign = harness.done(foreign);
    assert_eq!(foreign.conclusion, Some(Conclusion::Failure));
    assert!(foreign.annotations.concat().contains("was given to run 4711"), "{foreign:?}");
    leave(&runner).await;
}
