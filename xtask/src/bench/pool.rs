//! A pool in a temporary home, and the calls of the program on it.

use std::cell::Cell;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::console::log;

/// How long one call took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spent {
    /// From the start of the process to its exit.
    pub(super) process: Duration,
    /// The total that the program itself reports.
    pub(super) inside: Duration,
}

/// The result of a successful call.
#[derive(Debug)]
pub(super) struct Done {
    spent: Spent,
    pub(super) instances: Vec<String>,
    /// When the last machine was ready, since the start of the call.
    pub(super) ready: Duration,
    /// How often a second machine was claimed.
    pub(super) hedges: u64,
}

impl From<Done> for Spent {
    fn from(done: Done) -> Spent {
        done.spent
    }
}

pub(super) struct Pool {
    program: PathBuf,
    home: PathBuf,
    runs: Cell<u32>,
    since: Instant,
    cleaner: Cleaner,
}

impl Pool {
    pub(super) fn open() -> Result<Pool, String> {
        let program = program()?;
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        let name = format!("ondeck-bench-{}-{number}", std::process::id());
        let home = std::env::temp_dir().join(name);
        fs::create_dir(&home).map_err(|error| format!("{}: {error}", home.display()))?;
        let cleaner = Cleaner::start(&home)?;
        Ok(Pool { program, home, runs: Cell::new(0), since: Instant::now(), cleaner })
    }

    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// A run id that was not used before.
    pub(super) fn next_run(&self) -> String {
        self.runs.set(self.runs.get() + 1);
        self.runs.get().to_string()
    }

    pub(super) fn refresh(&self, more: &[&str]) -> Result<(), String> {
        self.ondeck(&[&["refresh"], more].concat(), 0).map(drop)
    }

    /// Provisions machines. Fails unless all of them come from `source`, since the figure would
    /// otherwise not be what the table says.
    pub(super) fn provision(
        &self,
        run: &str,
        count: usize,
        source: &str,
        more: &[&str],
    ) -> Result<Done, String> {
        let count_text = count.to_string();
        let line = ["provision", "--run-id", run, "--instance-count", &count_text];
        let (done, json) = self.ondeck(&[&line, more].concat(), 0)?;
        let sources = words(&json, "source");
        if sources.len() != count || sources.iter().any(|word| word != source) {
            return Err(format!("run {run} was to get {count} {source} machines: {sources:?}"));
        }
        Ok(done)
    }

    pub(super) fn release(&self, run: &str, count: usize, more: &[&str]) -> Result<Done, String> {
        let (done, json) = self.ondeck(&[&["release", "--run-id", run], more].concat(), 0)?;
        let outcomes = words(&json, "outcome");
        let expected = if more.is_empty() { "pooled" } else { "terminated" };
        if outcomes.len() != count || outcomes.iter().any(|outcome| outcome != expected) {
            return Err(format!("run {run} was to see {count} machines {expected}: {outcomes:?}"));
        }
        Ok(done)
    }

    /// Provisions where the pool has no suitable machine and launches fail.
    pub(super) fn search(&self) -> Result<Done, String> {
        const NO_CAPACITY: i32 = 4;
        let (done, _) = self.ondeck(&["provision", "--run-id", &self.next_run()], NO_CAPACITY)?;
        Ok(done)
    }

    /// Terminates the `count` machines that wait in the pool.
    pub(super) fn empty(&self, count: usize) -> Result<(), String> {
        let run = self.next_run();
        self.provision(&run, count, "warm", &[])?;
        self.release(&run, count, &["--idle-time-sec=0"]).map(drop)
    }

    /// The process ids of this home's agents.
    pub(super) fn agents(&self) -> Result<Vec<u32>, String> {
        let home = self.home.to_string_lossy().into_owned();
        Ok(processes()?.filter(|(_, args)| args.contains(&home)).map(|(pid, _)| pid).collect())
    }

    /// Kills the processes of these machines. Fails unless each of them was found.
    pub(super) fn kill(&self, instances: &[String]) -> Result<(), String> {
        let theirs = |args: &[String]| args.iter().any(|arg| instances.contains(arg));
        let pids: Vec<String> =
            processes()?.filter(|(_, args)| theirs(args)).map(|(pid, _)| pid.to_string()).collect();
        let status = Command::new("kill").arg("-9").args(&pids).status();
        match status {
            Ok(status) if status.success() && pids.len() == instances.len() => Ok(()),
            _ => Err(format!("{} of {} machines killed: {status:?}", pids.len(), instances.len())),
        }
    }

    /// Runs the program. Fails if its exit code is not the expected one.
    fn ondeck(&self, args: &[&str], expected: i32) -> Result<(Done, Value), String> {
        let mut command = Command::new(&self.program);
        command.args(args).args(["--json", "--home"]).arg(&self.home).stdin(Stdio::null());
        // The user's own settings must not change the defaults.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ONDECK_") {
                command.env_remove(name);
            }
        }
        let line = args.join(" ");
        let since = Instant::now();
        let output = command.output().map_err(|error| format!("ondeck {line}: {error}"))?;
        let process = since.elapsed();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.code() != Some(expected) {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!("ondeck {line}: {}\n{}", output.status, stderr.trim_end()));
        }
        let millis = json["timings"]["totalMs"].as_u64().unwrap_or_default();
        let spent = Spent { process, inside: Duration::from_millis(millis) };
        let instances = json["instances"].as_array().into_iter().flatten();
        let ready = instances.filter_map(|instance| instance["readyMs"].as_u64()).max();
        let ready = Duration::from_millis(ready.unwrap_or_default());
        let hedges = json["search"]["hedges"].as_u64().unwrap_or_default();
        Ok((Done { spent, instances: words(&json, "instanceId"), ready, hedges }, json))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.cleaner.finish();
    }
}

/// Processes that have nothing to do with a pool. They end when this is dropped, or when this process
/// is gone.
pub(super) struct Others(Child);

impl Others {
    pub(super) fn start(count: usize) -> Result<Others, String> {
        // `read` ends with the pipe that this process holds.
        const WORK: &str = "for _ in $(seq \"$1\"); do sleep 1000 & done; echo started; read -r _
            trap '' TERM; kill 0";
        let mut shell = Command::new("sh");
        shell.args(["-c", WORK, "others", &count.to_string()]).process_group(0);
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut shell = shell.map_err(|error| format!("sh: {error}"))?;
        let mut said = [0; 8];
        let stdout = shell.stdout.as_mut().ok_or("no output of sh")?;
        stdout.read_exact(&mut said).map_err(|error| format!("sh did not start them: {error}"))?;
        Ok(Others(shell))
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        if let Err(error) = self.0.wait() {
            log(&format!("warning: processes may be left: {error}"));
        }
    }
}

/// The release build, which is in the same target folder as this program.
fn program() -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|error| format!("own program not found: {error}"))?;
    let target = me.ancestors().nth(2).ok_or("own program has no target directory")?;
    Ok(target.join("release").join("ondeck"))
}

/// The values of a field, one for each instance.
fn words(json: &Value, field: &str) -> Vec<String> {
    let instances = json["instances"].as_array().into_iter().flatten();
    instances.filter_map(|instance| instance[field].as_str()).map(str::to_owned).collect()
}

/// Every process that this user may inspect, with its arguments.
fn processes() -> Result<impl Iterator<Item = (u32, Vec<String>)>, String> {
    let proc = fs::read_dir("/proc").map_err(|error| format!("/proc: {error}"))?;
    let pids = proc.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Ok(pids.filter_map(|pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, line.split(|byte| *byte == 0).map(lossy).collect()))
    }))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A shell that kills the machines and deletes the home when this process is gone, even if it was
/// interrupted: machines would otherwise run for half an hour. It is in a process group of its
/// own, which Ctrl-C does not reach, and waits until the pipe that this process holds is closed.
struct Cleaner(Child);

impl Cleaner {
    /// The home is passed as a variable: a process that names the home in its arguments is killed.
    const WORK: &str = "
        read -r _
        of_home() { printf %s \"$BENCH_HOME\" | grep -lsxzF -f - /proc/[0-9]*/cmdline; }
        for _ in 1 2 3 4 5; do
            files=$(of_home)
            [ \"$files\" ] || break
            for file in $files; do
                pid=${file#/proc/}
                kill -9 \"${pid%/cmdline}\" 2>/dev/null
            done
        done
        rm -rf \"$BENCH_HOME\"
    ";

    fn start(home: &std::path::Path) -> Result<Cleaner, String> {
        Command::new("sh")
            .args(["-c", Cleaner::WORK])
            .env("BENCH_HOME", home)
            .process_group(0)
            .stdin(Stdio::piped())
            .spawn()
            .map(Cleaner)
            .map_err(|error| format!("sh: {error}"))
    }

    fn finish(&mut self) {
        drop(self.0.stdin.take());
        match self.0.wait() {
            Ok(status) if status.success() => {}
            other => log(&format!("warning: the temporary home was not deleted: {other:?}")),
        }
    }
}
