use std::collections::BTreeMap;
use std::ffi::OsString;
use std::future::Future;
use std::process::{Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::label::Label;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, Compute, Launched, Order, PortError, PortResult, Store};
use ondeck_local::{AgentCommand, Db, Home, LocalCompute, LocalForge, LocalStore};

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

/// A home in a temporary directory, with the ports on it.
pub(crate) struct LocalHarness {
    pub(crate) home: Home,
    pub(crate) db: Db,
    _dir: tempfile::TempDir,
}

/// A compute port whose agents run this shell script.
pub(crate) fn compute(db: &Db, home: &Home, script: &str) -> LocalCompute {
    let args = ["-c", script, "agent"].map(OsString::from).to_vec();
    let agent = AgentCommand { program: "sh".into(), args, variables: &[] };
    LocalCompute::new(db.clone(), home.clone(), Arc::new(RealClock), agent)
}

impl LocalHarness {
    pub(crate) fn new() -> LocalHarness {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().join("home"));
        let db = Db::create(&home).unwrap();
        LocalHarness { home, db, _dir: dir }
    }

    pub(crate) fn store(&self) -> LocalStore {
        LocalStore::new(self.db.clone())
    }

    pub(crate) fn forge(&self) -> LocalForge {
        LocalForge::new(self.db.clone(), Arc::new(RealClock))
    }

    pub(crate) fn compute(&self, script: &str) -> LocalCompute {
        compute(&self.db, &self.home, script)
    }

    /// Launches by the settings that the store has, as provision does.
    pub(crate) async fn launch(
        &self,
        compute: &LocalCompute,
        order: &Order,
    ) -> PortResult<Launched> {
        let settings = match self.store().settings().await {
            Ok(map) => Settings::from_map(&map).unwrap(),
            Err(PortError::NotSetUp { .. }) => Settings::default(),
            Err(error) => panic!("{error}"),
        };
        compute.launch(order, &settings).await
    }

    pub(crate) async fn set(&self, settings: &[(&str, &str)]) {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let map: BTreeMap<String, String> = settings.iter().map(own).collect();
        self.store().put_settings(&map).await.unwrap();
    }

    /// Executes SQL on the file by a connection of its own.
    pub(crate) fn sql(&self, sql: &str) {
        let connection = rusqlite::Connection::open(self.home.database()).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection.execute_batch(sql).unwrap();
    }
}

pub(crate) fn instance(name: &str) -> InstanceId {
    InstanceId::new(name).unwrap()
}

/// A name that is unique among concurrent runs of these tests, because a machine's processes are
/// searched by name in all of `/proc`.
pub(crate) fn unique(name: &str) -> InstanceId {
    instance(&format!("i-{name}-{}", std::process::id()))
}

pub(crate) fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

/// The label of a run without a suffix.
pub(crate) fn label(name: &str) -> Label {
    Label::from(&run(name))
}

/// Counts the processes that carry a machine's marker.
pub(crate) fn processes_of(id: &InstanceId) -> usize {
    let mark = format!("ONDECK_INSTANCE_ID={id}").into_bytes();
    let is_marked = |entry: std::io::Result<std::fs::DirEntry>| {
        let environ = std::fs::read(entry.unwrap().path().join("environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry == mark)
    };
    std::fs::read_dir("/proc").unwrap().filter_map(|e| is_marked(e).then_some(())).count()
}

/// A job's command that leaves a process without the marker in the job's group and prints its pid.
pub(crate) const UNMARKED: &str = "env -i sleep 966 >/dev/null 2>&1 & echo $!";

/// Whether a process runs. A zombie does not.
pub(crate) fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Polls until there is an answer. Panics if none comes in time.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(20) {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came: {what}");
}

const HOME: &str = "PROCESS_TEST_HOME";
const NAME: &str = "PROCESS_TEST_NAME";
/// The name of a secret variable that no deny list would contain.
pub(crate) const SECRET: &str = "NPM_TOKEN";

/// Starts this test binary again to run one of its tests as a separate process, with a secret in its
/// environment.
pub(crate) fn spawn(test: &str, home: &Home, name: &str) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1", "--nocapture"])
        .env(HOME, home.dir())
        .env(NAME, name)
        .env(SECRET, "hush")
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Shell commands that pass the arguments on to the process they start, because machines inherit no
/// variables.
pub(crate) fn telling(home: &Home, name: &str) -> String {
    format!("export {HOME}='{}' {NAME}='{name}'", home.dir().display())
}

/// The arguments of a child process of a test. `None` in an ordinary run of the tests.
pub(crate) fn child_arguments() -> Option<(Home, String)> {
    let home = std::env::var_os(HOME)?;
    Some((Home::new(home.into()), std::env::var(NAME).unwrap()))
}
