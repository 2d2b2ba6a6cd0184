//! A pool on the local backend in a temporary home.

use std::io::Write;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A home of the local backend. Its processes end with it, also if this process is killed.
pub(super) struct LocalPool {
    program: PathBuf,
    forge: Vec<(&'static str, String)>,
    home: TempDir,
    cleaner: Child,
}

impl LocalPool {
    pub(super) fn new(program: PathBuf, forge: Vec<(&'static str, String)>) -> LocalPool {
        let home = tempfile::tempdir().unwrap();
        let cleaner = start_cleaner(home.path());
        LocalPool { program, forge, home, cleaner }
    }

    pub(super) fn home(&self) -> PathBuf {
        self.home.path().to_owned()
    }

    /// Runs the program and expects that it succeeds. Returns how long the process took, and what it
    /// printed.
    pub(super) fn run(&self, arguments: &[String]) -> (Duration, Value) {
        let mut command = Command::new(&self.program);
        for (name, _) in std::env::vars_os() {
            // The user's own settings must not change the defaults.
            if name.to_string_lossy().starts_with("ONDECK_") {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .arg("--home")
            .arg(self.home.path())
            .envs(self.forge.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        let started = Instant::now();
        let done = command.output().unwrap();
        let took = started.elapsed();
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(0), "{arguments:?}: {stderr}");
        (took, serde_json::from_slice(&done.stdout).unwrap_or_default())
    }
}

impl Drop for LocalPool {
    fn drop(&mut self) {
        drop(self.cleaner.stdin.take());
        if let Err(error) = self.cleaner.wait() {
            writeln!(std::io::stderr(), "warning: processes may be left: {error}").ok();
        }
    }
}

/// Starts a shell that kills every process with the home among its arguments once this process has
/// closed the pipe between them. It is in a process group of its own, which Ctrl-C does not reach.
fn start_cleaner(home: &Path) -> Child {
    /// The home is a variable, since a process that names it among its arguments is killed.
    const WORK: &str = r#"
        read -r _
        for _ in 1 2 3 4 5; do
            found=$(grep -lazF -e "$BENCH_HOME/" /proc/[0-9]*/cmdline 2>/dev/null
                printf %s "$BENCH_HOME" | grep -lsxzF -f - /proc/[0-9]*/cmdline)
            [ "$found" ] || break
            for file in $found; do
                pid=${file#/proc/}
                kill -9 "${pid%/cmdline}" 2>/dev/null
            done
        done
    "#;
    Command::new("sh")
        .args(["-c", WORK])
        .env("BENCH_HOME", home)
        .process_group(0)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}
