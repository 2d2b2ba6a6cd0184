//! A home of its own for each test, and the program run in it.
//!
//! Tests wait for a condition by checking it again until it holds, with a limit that only a hang
//! reaches. When the home goes, so does every process of it, also of a test that failed.

mod program;
mod receiver;
mod terminal;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) use self::program::{Background, Done, begun_by};
pub(crate) use self::receiver::{Answer, Received, Receiver};
pub(crate) use self::terminal::{AtTerminal, OnScreen};

/// Longer than anything here takes on a busy computer.
const LIMIT: Duration = Duration::from_secs(90);

/// Deadlines that are short where a test waits for one to pass, and long where one must not pass
/// however busy the computer is. A test that wants another one gives it to `refresh`.
pub(crate) const TIMES: [&str; 16] = [
    "--heartbeat-period-sec=3",
    "--claim-registration-timeout-sec=20",
    "--claim-timeout-sec=90",
    "--created-timeout-sec=90",
    "--validation-timeout-sec=40",
    "--idle-time-sec=60",
    "--max-runtime-min=2",
    "--release-timeout-sec=40",
    "--self-termination-grace-sec=1",
    "--boot-deadline-sec=20",
    "--agent-poll-waiting-sec=0.05",
    "--agent-poll-running-sec=0.05",
    "--signal-poll-sec=0.02",
    "--ticket-hold-sec=10",
    "--pickup-patience-sec=0.3",
    "--retention-min=60",
];

/// Names the machine that a process belongs to.
const MARKER: &str = "ONDECK_INSTANCE_ID";

/// A home of the local backend, gone with the test.
pub(crate) struct Home {
    outside: tempfile::TempDir,
    dir: PathBuf,
}

impl Home {
    /// One that refresh has never seen.
    pub(crate) fn bare() -> Home {
        let outside = tempfile::tempdir().unwrap();
        let dir = outside.path().join("home");
        Home { outside, dir }
    }

    /// One that refresh has never seen, in a folder that the caller removes.
    pub(crate) fn at(dir: PathBuf) -> Home {
        Home { outside: tempfile::tempdir().unwrap(), dir }
    }

    /// One that is set up, with short times and the given inputs.
    pub(crate) fn with(inputs: &[&str]) -> Home {
        let home = Home::bare();
        home.ondeck(&[&["refresh"], &TIMES[..]].concat()).succeeded();
        if !inputs.is_empty() {
            home.refresh(inputs);
        }
        home
    }

    /// Where everything of the pool is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// A folder beside the home, for what the test itself needs.
    pub(crate) fn outside(&self) -> &Path {
        self.outside.path()
    }

    /// Machines for a run that gives them back at once: this many idle ones, in the order of
    /// their turn.
    pub(crate) fn warm_up(&self, count: u32) -> Vec<String> {
        self.provision("warm-up", count).succeeded();
        self.release("warm-up").succeeded();
        self.texts("SELECT json_extract(body, '$.instanceId') FROM tickets ORDER BY visible_at, id")
    }

    /// How many tickets of any class are in the pool, hidden ones included.
    pub(crate) fn tickets(&self) -> usize {
        self.number("SELECT count(*) FROM tickets")
    }

    /// A connection to the file, behind the program's back.
    pub(crate) fn file(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.dir.join("ondeck.db")).unwrap();
        connection.busy_timeout(LIMIT).unwrap();
        connection
    }

    /// The number that a query gives.
    pub(crate) fn number(&self, sql: &str) -> usize {
        let number: i64 = self.file().query_row(sql, [], |row| row.get(0)).unwrap();
        usize::try_from(number).unwrap()
    }

    /// The texts that a query gives.
    pub(crate) fn texts(&self, sql: &str) -> Vec<String> {
        let file = self.file();
        let mut statement = file.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// The machines that are up, and the process that is the agent of each.
    pub(crate) fn agents(&self) -> BTreeMap<String, i32> {
        agents_among(self.processes(), MARKER)
    }

    /// Every process of the home: agents, what runs on machines, and the program itself.
    pub(crate) fn processes(&self) -> Vec<i32> {
        processes_naming(&self.dir)
    }

    /// Every process of one machine.
    pub(crate) fn processes_of(&self, machine: &str) -> Vec<i32> {
        let of = |pid: &i32| variable(*pid, MARKER).as_deref() == Some(machine);
        self.processes().into_iter().filter(of).collect()
    }

    /// Nothing of the pool is alive: no record, no ticket, no process.
    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.standings(), Vec::<String>::new());
        assert_eq!(self.tickets(), 0);
        assert_eq!(self.agents(), BTreeMap::new());
        assert_eq!(self.processes(), Vec::<i32>::new());
    }
}

/// A pool of any backend that the program is run on.
pub(crate) trait Driven {
    /// The program with these arguments, on this pool and in no workflow.
    fn command(&self, arguments: &[&str]) -> Command;

    /// Runs it to its end.
    fn ondeck(&self, arguments: &[&str]) -> Done {
        self.start(arguments).finish()
    }

    /// Starts the program and does not wait for it.
    fn start(&self, arguments: &[&str]) -> Background {
        Background::start(&mut self.command(arguments))
    }

    /// Starts it, and waits until it holds before this port call.
    fn hold_before(&self, call: &str, arguments: &[&str]) -> Background {
        let held = Background::start(self.command(arguments).env("ONDECK_HOLD_BEFORE", call));
        held.until_it_says(&format!("held before {call}"));
        held
    }

    /// Runs it, has it hold before this port call, and kills it there for real.
    fn kill_before(&self, call: &str, arguments: &[&str]) {
        self.hold_before(call, arguments).kill();
    }

    fn refresh(&self, inputs: &[&str]) -> Value {
        self.ondeck(&[&["refresh", "--json"], inputs].concat()).succeeded().json()
    }

    fn provision(&self, run: &str, count: u32) -> Done {
        let count = count.to_string();
        self.ondeck(&["provision", "--json", "--run-id", run, "--instance-count", &count])
    }

    fn release(&self, run: &str) -> Done {
        self.ondeck(&["release", "--json", "--run-id", run])
    }

    fn status(&self) -> Value {
        self.ondeck(&["status", "--json"]).succeeded().json()
    }

    /// The live records, each as `state run`.
    fn records(&self) -> BTreeMap<String, String> {
        let status = self.status();
        let entry = |instance: &Value| {
            let word = |name: &str| instance[name].as_str().unwrap().to_owned();
            let standing = format!("{} {}", word("state"), word("runId"));
            (word("instanceId"), standing.trim_end().to_owned())
        };
        status["instances"].as_array().unwrap().iter().map(entry).collect()
    }

    /// The standings of the live records, without their ids.
    fn standings(&self) -> Vec<String> {
        let mut standings: Vec<String> = self.records().into_values().collect();
        standings.sort();
        standings
    }
}

impl Driven for Home {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = ondeck(arguments);
        command.env("ONDECK_HOME", &self.dir);
        command
    }
}

/// So many runs at once want one machine each, and these are idle. Gives the machines that there
/// must be in the end.
pub(crate) fn race(pool: &impl Driven, runs: usize, warm: &BTreeSet<String>) -> BTreeSet<String> {
    let racers: Vec<Background> = (0..runs)
        .map(|run| pool.start(&["provision", "--json", "--run-id", &format!("racer-{run}")]))
        .collect();
    let mut ids = BTreeSet::new();
    let mut warm_ones = BTreeSet::new();
    for racer in racers {
        let done = racer.finish().succeeded();
        let id = done.ids().concat();
        assert!(ids.insert(id.clone()), "shared: {id}");
        if done.sources() == ["warm"] {
            warm_ones.insert(id);
        }
    }
    assert_eq!(warm_ones, *warm);
    let mut owners = pool.standings();
    owners.dedup();
    assert_eq!(owners.len(), runs);
    ids
}

impl Drop for Home {
    fn drop(&mut self) {
        let since = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() || since.elapsed() > LIMIT {
                return;
            }
            left.into_iter().for_each(|pid| signal(pid, Signal::KILL));
            look_again_soon();
        }
    }
}

/// The program with these arguments, in no home, no workflow and no account.
///
/// Removes every variable of the caller's environment that changes what the program does or
/// prints. `CI` is one: anstyle-query takes it for a terminal with colours.
pub(crate) fn ondeck(arguments: &[&str]) -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_ondeck")), arguments)
}

/// Another build of the program, without variables that configure it.
pub(crate) fn program(path: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is = |prefix: &&str| text.starts_with(*prefix);
        let removed = ["CI", "NO_COLOR", "COLUMNS"].contains(&&*text)
            || ["ONDECK_", "GITHUB_", "AWS_", "OTEL_", "TRACEPARENT", "CLICOLOR"].iter().any(is);
        if removed {
            command.env_remove(name);
        }
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Every process that has the folder in its arguments or its environment.
pub(crate) fn processes_naming(folder: &Path) -> Vec<i32> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let names = |file: String| {
        let bytes = fs::read(file).unwrap_or_default();
        bytes.windows(folder.len()).any(|window| window == folder)
    };
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        entry.ok()?.file_name().to_str()?.parse().ok().filter(|pid: &i32| {
            names(format!("/proc/{pid}/cmdline")) || names(format!("/proc/{pid}/environ"))
        })
    });
    pids.collect()
}

/// The agents among these processes, by the machine that a variable names.
pub(crate) fn agents_among(processes: Vec<i32>, marker: &str) -> BTreeMap<String, i32> {
    let is_agent = |pid: &i32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).nth(1) == Some(b"agent")
    };
    let agents = processes.into_iter().filter(is_agent);
    agents.filter_map(|pid| Some((variable(pid, marker)?, pid))).collect()
}

/// A variable in the environment of a process.
fn variable(pid: i32, name: &str) -> Option<String> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut entries = environ.split(|byte| *byte == 0);
    let value =
        entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(String::from_utf8_lossy(value).into_owned())
}

/// Sends a signal to a process that may be gone.
pub(crate) fn signal(pid: i32, which: Signal) {
    let sent = kill_process(Pid::from_raw(pid).unwrap(), which);
    assert!(matches!(sent, Ok(()) | Err(rustix::io::Errno::SRCH)), "{sent:?}");
}

/// Runs a test on two pools side by side: one whose machines register for their run, and one whose
/// machines register while they are idle. The test gets the input of its pool.
pub(crate) fn with_both_labels(test: impl Fn(&'static str) + Sync) {
    std::thread::scope(|scope| {
        for label in ["--runner-label=run", "--runner-label=machine"] {
            let test = &test;
            // A panic tells the name of its thread.
            let thread = std::thread::Builder::new().name(label.to_owned());
            thread.spawn_scoped(scope, move || test(label)).unwrap();
        }
    });
}

/// Shown where the test fails.
#[expect(clippy::print_stdout, reason = "the test's own account, which the test runner keeps")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Waits until it is so.
#[track_caller]
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        look_again_soon();
    }
}

/// Waits until it is so, or until the time is up. Gives whether it is.
pub(crate) fn within(limit: Duration, mut so: impl FnMut() -> bool) -> bool {
    let since = Instant::now();
    while !so() {
        if since.elapsed() >= limit {
            return false;
        }
        look_again_soon();
    }
    true
}

#[expect(clippy::disallowed_methods, reason = "between two looks at what other processes do")]
fn look_again_soon() {
    std::thread::sleep(Duration::from_millis(15));
}
