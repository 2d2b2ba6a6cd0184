use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, Runner, Store};
use ondeck_core::testkit::MemoryStore;
use ondeck_github::{GitHubRunner, RunnerOptions, URL_SETTING};
use ondeck_processes::{MachineProcesses, kill_all};

pub(crate) const REGISTRATION: &str = "AREGISTRATIONTOKEN";
pub(crate) const REMOVAL: &str = "AREMOVALTOKEN";
pub(crate) const URL: &str = "https://github.invalid/acme/web";

/// The system clock. Real processes do not follow a virtual one.
#[derive(Debug)]
pub(crate) struct RealClock;

#[async_trait]
impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::try_from(SystemTime::now()).unwrap()
    }

    fn steady(&self) -> Duration {
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        STARTED.elapsed()
    }

    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// A machine with its folder, and another folder that plays GitHub for `listener.sh`.
pub(crate) struct RunnerHarness {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) github: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) image: PathBuf,
    pub(crate) id: InstanceId,
    dir: tempfile::TempDir,
}

impl RunnerHarness {
    /// A machine with valid credentials and no runner on its image.
    pub(crate) async fn new() -> RunnerHarness {
        let dir = tempfile::tempdir().unwrap();
        // The runner's user must be able to enter the folder.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let name = dir.path().file_name().unwrap().to_string_lossy().replace('.', "");
        let harness = RunnerHarness {
            store: Arc::default(),
            github: dir.path().join("github"),
            folder: dir.path().join("ondeck"),
            image: dir.path().join("image/actions-runner"),
            id: InstanceId::new(format!("i-{name}")).unwrap(),
            dir,
        };
        for folder in ["", "list", "jobs", "faults"] {
            let path = harness.github.join(folder);
            fs::create_dir_all(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        for (name, text) in [("registration-token", REGISTRATION), ("removal-token", REMOVAL)] {
            fs::write(harness.github.join(name), text).unwrap();
        }
        fs::write(harness.github.join("log"), "").unwrap();
        let world_writable = fs::Permissions::from_mode(0o666);
        fs::set_permissions(harness.github.join("log"), world_writable).unwrap();
        harness.set(URL_SETTING, URL).await;
        // The disk of the computer that runs the tests may be full.
        harness.set("min-free-disk-percent", "0").await;
        harness.mint(Duration::from_secs(3600)).await;
        harness
    }

    /// A machine with a runner of this version on its image.
    pub(crate) async fn with_image(version: &str) -> RunnerHarness {
        let harness = RunnerHarness::new().await;
        harness.lay_out(&harness.image, version);
        harness
    }

    pub(crate) async fn set(&self, name: &str, value: &str) {
        let change = BTreeMap::from([(name.to_owned(), value.to_owned())]);
        self.store.put_settings(&change).await.unwrap();
    }

    /// Stores credentials that are valid for this long.
    pub(crate) async fn mint(&self, left: Duration) {
        let credentials = Credentials {
            registration: Secret::new(REGISTRATION),
            removal: Secret::new(REMOVAL),
            expires_at: RealClock.now() + left,
        };
        self.store.put_credentials(&credentials, &BTreeMap::new()).await.unwrap();
    }

    pub(crate) async fn expire(&self) -> Timestamp {
        let expires_at = RealClock.now().before(Duration::from_secs(60));
        let secret = || Secret::new(REGISTRATION);
        let credentials = Credentials { registration: secret(), removal: secret(), expires_at };
        self.store.put_credentials(&credentials, &BTreeMap::new()).await.unwrap();
        expires_at
    }

    /// A new runner on the same machine, as after a restart of the agent.
    pub(crate) fn runner(&self) -> GitHubRunner {
        self.runner_as(None)
    }

    pub(crate) fn runner_as(&self, user: Option<&str>) -> GitHubRunner {
        self.runner_with(user, vec![self.dir.path().join("nothing"), self.image.clone()])
    }

    pub(crate) fn runner_with(&self, user: Option<&str>, image: Vec<PathBuf>) -> GitHubRunner {
        let options = RunnerOptions {
            id: self.id.clone(),
            pool_tag: "a1b2c3".to_owned(),
            folder: self.folder.clone(),
            pool_folders: Vec::new(),
            image,
            user: user.map(str::to_owned),
        };
        GitHubRunner::new(options, self.store.clone(), Arc::new(RealClock))
            .with_docker("/nonexistent/docker")
    }

    /// Puts the scripts that stand in for the runner software into a folder.
    pub(crate) fn lay_out(&self, root: &Path, version: &str) {
        fs::create_dir_all(root.join("bin")).unwrap();
        let script = |text: &str| text.replace("@GITHUB@", &self.github.display().to_string());
        let settings = r#"{"runtimeOptions":{"configProperties":{"System.GC.Server":false}}}"#;
        for (name, text) in [
            ("config.sh", script(include_str!("config.sh"))),
            ("bin/Runner.Listener", script(include_str!("listener.sh"))),
            ("bin/installdependencies.sh", script(include_str!("installdependencies.sh"))),
            ("bin/Runner.Listener.runtimeconfig.json", settings.to_owned()),
            ("bin/Runner.Worker.runtimeconfig.json", settings.to_owned()),
            ("bin/Runner.PluginHost.runtimeconfig.json", settings.to_owned()),
            ("bin/version", format!("{version}\n")),
        ] {
            fs::write(root.join(name), text).unwrap();
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(root.join(name), mode).unwrap();
        }
    }

    /// Packs the same scripts as a release.
    pub(crate) fn package(&self, version: &str) -> Vec<u8> {
        let root = self.dir.path().join(format!("package-{version}"));
        self.lay_out(&root, version);
        let packed = Command::new("tar").arg("-czf-").arg("-C").arg(&root).arg(".").output();
        packed.unwrap().stdout
    }

    /// An empty folder that plays the root of a machine which belongs to the pool alone.
    pub(crate) fn machine(&self) -> PathBuf {
        let root = self.dir.path().join("machine");
        for place in ["tmp", "var/tmp", "etc"] {
            fs::create_dir_all(root.join(place)).unwrap();
        }
        root
    }

    /// Makes `listener.sh` fail in this way from now on.
    pub(crate) fn inject(&self, name: &str, text: &str) {
        fs::write(self.github.join("faults").join(name), text).unwrap();
    }

    /// Queues a job of a run. Returns the path of the file that will hold its result.
    pub(crate) fn queue(&self, label: &Label, number: u32, script: &str) -> PathBuf {
        let path = self.github.join(format!("jobs/{}.{number}.sh", label.run));
        let hidden = path.with_extension("new");
        fs::write(&hidden, script).unwrap();
        fs::rename(&hidden, &path).unwrap();
        path.with_extension("sh.done")
    }

    pub(crate) fn list(&self) -> Vec<String> {
        let entries = fs::read_dir(self.github.join("list")).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.unwrap().file_name().into_string().unwrap()
        };
        entries.map(name).collect()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.github.join("log")).unwrap()
    }

    /// The folder of the runner software on the image.
    pub(crate) fn root(&self) -> &Path {
        &self.image
    }
}

impl Drop for RunnerHarness {
    /// Kills the machine's processes, also if the test failed.
    fn drop(&mut self) {
        kill_now(MachineProcesses::of(&self.id));
    }
}

/// Kills processes synchronously, for use in `drop`.
pub(crate) fn kill_now(machine: MachineProcesses) {
    let kill = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(kill_all(&[machine]))
    };
    std::thread::spawn(kill).join().unwrap().unwrap();
}

/// The label of a run without a suffix.
pub(crate) fn label(run: &str) -> Label {
    Label::from(&RunId::new(run).unwrap())
}

/// Waits until the path exists. Panics after a minute.
pub(crate) async fn appears(path: &Path) {
    holds(&path.display().to_string(), || path.exists()).await;
}

/// Has something end the listener while the agent waits for its exit. Returns the reason that the agent
/// is told. If the listener died before that, `work` would start another.
pub(crate) async fn exit_after(runner: &impl Runner, run: &Label, cause: impl FnOnce()) -> String {
    // The first is polled, and waits, before the second begins.
    tokio::join!(runner.work(run), async { cause() }).0
}

/// Waits until the condition holds. Panics after a minute.
pub(crate) async fn holds(what: &str, mut is: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is() {
        assert!(since.elapsed() < Duration::from_secs(60), "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns every regular file under a folder with its content.
pub(crate) fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let kind = fs::symlink_metadata(&path).unwrap();
        if kind.is_dir() {
            found.extend(contents(&path));
        } else if kind.is_file() {
            let content = fs::read(&path).unwrap();
            found.push((path, content));
        }
    }
    found
}
