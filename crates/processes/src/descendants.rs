//! The descendants of a process, and the calling process as the parent of orphans.
//!
//! A process can change its group, session, user and environment, but not its ancestors: if its
//! parent exits, the nearest ancestor that adopts orphans becomes its parent. An agent that adopts
//! orphans therefore has everything below it that its machine runs.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{
    Pid, WaitId, WaitIdOptions, WaitOptions, child_subreaper, getpid, set_child_subreaper, waitid,
    waitpid,
};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use crate::process::{Process, Stat};

/// How long the reaper waits between two passes, so that a job that starts and orphans processes
/// all the time costs little.
const REAP_INTERVAL: Duration = Duration::from_millis(100);

/// The children whose exit status is awaited. The reaper leaves them alone.
static AWAITED: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn awaited() -> MutexGuard<'static, BTreeSet<i32>> {
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the calling process adopt the orphans among its descendants, and reaps them as long as the
/// runtime lives. From here on children must be started by [`spawn`] or [`output`]: the exit status
/// of another one may be lost. Must be called within a tokio runtime, before the first child is
/// started. Fails if the kernel refuses, or if signals cannot be received.
pub fn adopt_orphans() -> io::Result<()> {
    let mut exits = signal(SignalKind::child())?;
    set_child_subreaper(Some(getpid()))?;
    tokio::spawn(async move {
        while exits.recv().await.is_some() {
            if let Err(error) = blocking(reap).await {
                tracing::warn!("cannot reap orphaned processes: {error}");
            }
            tokio::time::sleep(REAP_INTERVAL).await;
        }
    });
    Ok(())
}

/// Whether the calling process adopts orphans.
pub(crate) fn adopts_orphans() -> bool {
    child_subreaper().is_ok_and(|set| set.is_some())
}

/// A child whose exit status is awaited by its holder. If it is dropped, the reaper may collect the
/// status.
#[derive(Debug)]
pub struct Awaited(i32);

impl Drop for Awaited {
    fn drop(&mut self) {
        awaited().remove(&self.0);
    }
}

/// Starts a child. Keep the second part of the answer as long as the child is waited for.
pub fn spawn(command: &mut Command) -> io::Result<(Child, Awaited)> {
    start(|| command.spawn(), |child| child.id().unwrap_or_default())
}

/// Runs a command to its end, with its output, on the calling thread.
pub fn output(command: &mut std::process::Command) -> io::Result<std::process::Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let (child, _awaited) = start(|| command.spawn(), std::process::Child::id)?;
    child.wait_with_output()
}

/// The lock is held during the start, because the child may exit before its pid is known.
fn start<C>(
    spawn: impl FnOnce() -> io::Result<C>,
    pid: impl FnOnce(&C) -> u32,
) -> io::Result<(C, Awaited)> {
    let mut awaited = awaited();
    let child = spawn()?;
    let pid = pid(&child).try_into().map_err(io::Error::other)?;
    awaited.insert(pid);
    Ok((child, Awaited(pid)))
}

/// Collects the exit statuses of the adopted children that have exited.
fn reap() -> io::Result<()> {
    let awaited = awaited();
    for pid in children_of(own_pid())? {
        let has_exited = Stat::read(pid).is_some_and(|stat| !stat.is_alive());
        if has_exited && !awaited.contains(&pid) {
            // An error means that it is gone already.
            waitpid(Pid::from_raw(pid), WaitOptions::NOHANG).ok();
        }
    }
    Ok(())
}

/// Kills every descendant of the calling process until none is left, and reaps them. Returns the
/// pids of those that are still alive after `timeout`. The calling process must adopt orphans.
pub(crate) async fn kill_descendants(timeout: Duration) -> io::Result<Vec<i32>> {
    /// A list of children that is read while one of them exits may lack others.
    const EMPTY_PASSES: u32 = 3;
    let since = Instant::now();
    let mut empty_passes = 0;
    loop {
        let pass = blocking(|| {
            let alive = kill_below(&[own_pid()])?;
            reap()?;
            Ok((alive, has_no_child()))
        });
        let (alive, childless) = pass.await?;
        empty_passes = if alive.is_empty() { empty_passes + 1 } else { 0 };
        if alive.is_empty() && (childless || empty_passes >= EMPTY_PASSES) {
            return Ok(Vec::new());
        }
        if !alive.is_empty() && since.elapsed() > timeout {
            return Ok(alive);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Sends `SIGKILL` to every descendant of these processes. Returns those that were alive.
pub(crate) fn kill_below(roots: &[i32]) -> io::Result<Vec<i32>> {
    let found = descendants(roots)?;
    found.iter().for_each(|process| process.kill());
    Ok(found.into_iter().map(|process| process.pid).collect())
}

/// The live descendants of a process, without itself. None if it is gone.
pub async fn descendants_of(process: Process) -> io::Result<Vec<Process>> {
    blocking(move || if process.is_alive() { descendants(&[process.pid]) } else { Ok(Vec::new()) })
        .await
}

/// Runs a task outside of the runtime's threads, which heartbeats need.
pub(crate) async fn blocking<T: Send + 'static>(
    task: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(task).await.map_err(io::Error::other)?
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// Whether the calling process has no child, not even one whose status is not collected. The answer
/// comes from the kernel at once and misses none.
fn has_no_child() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::All, options), Err(Errno::CHILD))
}

/// The live descendants of these processes, without themselves, parents first.
fn descendants(roots: &[i32]) -> io::Result<Vec<Process>> {
    let mut seen: BTreeSet<i32> = roots.iter().copied().collect();
    let mut parents = roots.to_vec();
    let mut found = Vec::new();
    while let Some(parent) = parents.pop() {
        for child in children_of(parent)? {
            if seen.insert(child) {
                parents.push(child);
                let alive = Stat::read(child).filter(Stat::is_alive);
                found.extend(alive.map(|stat| stat.process));
            }
        }
    }
    Ok(found)
}

/// The children of a process, exited ones included. None if the process is gone.
fn children_of(pid: i32) -> io::Result<Vec<i32>> {
    let threads = match fs::read_dir(format!("/proc/{pid}/task")) {
        Ok(threads) => threads,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut children = Vec::new();
    for thread in threads {
        let Ok(thread) = thread else { continue };
        match fs::read_to_string(thread.path().join("children")) {
            Ok(pids) => {
                children
                    .extend(pids.split_ascii_whitespace().filter_map(|p| p.parse::<i32>().ok()));
            }
            // The thread has exited, or the kernel was built without this list.
            Err(error) if is_gone(&error) && thread.path().exists() => return by_parent(pid),
            Err(_) => {}
        }
    }
    Ok(children)
}

/// Whether a file of `/proc` or of a cgroup vanished, also after it was opened.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    let gone = [Errno::SRCH, Errno::NODEV].map(|errno| Some(errno.raw_os_error()));
    error.kind() == ErrorKind::NotFound || gone.contains(&error.raw_os_error())
}

/// The same by looking at every process.
fn by_parent(parent: i32) -> io::Result<Vec<i32>> {
    let pids =
        fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(pids.filter(|pid| Stat::read(*pid).is_some_and(|stat| stat.parent == parent)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    /// What a test does within a process of its own, because it kills every descendant.
    const CHILD: &str = "DESCENDANTS_TEST";

    fn in_its_own_process(test: &str) -> bool {
        if std::env::var_os(CHILD).is_some() {
            return true;
        }
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("descendants::tests::{test}"), "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
        false
    }

    fn runs(pid: i32) -> bool {
        Stat::read(pid).is_some_and(|stat| stat.is_alive())
    }

    /// Waits until a file has a line, and returns the number in it.
    async fn number_in(file: &std::path::Path) -> i32 {
        loop {
            let text = fs::read_to_string(file).unwrap_or_default();
            if text.ends_with('\n') {
                return text.trim().parse().unwrap();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    #[tokio::test]
    async fn processes_that_hide_in_every_way_are_killed() {
        if !in_its_own_process("processes_that_hide_in_every_way_are_killed") {
            return;
        }
        adopt_orphans().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let mut hidden = Vec::new();
        for (n, way) in [
            "env -i setsid -f sh -c 'echo $$ >FILE; exec sleep 60'",
            "(env -i setsid sh -c '(sh -c \"echo \\$\\$ >FILE; exec sleep 60\") &' &)",
            "env -i sh -c 'trap \"\" TERM INT HUP; echo $$ >FILE; while :; do sleep 60; done' &",
        ]
        .into_iter()
        .enumerate()
        {
            let file = dir.path().join(n.to_string());
            let script = way.replace("FILE", &file.display().to_string());
            let mut shell = Command::new("sh");
            // The test that started this one reads its output to the end.
            shell.args(["-c", &script]).stdout(Stdio::null()).stderr(Stdio::null());
            let (mut child, awaited) = spawn(shell.process_group(0)).unwrap();
            assert!(child.wait().await.unwrap().success());
            drop(awaited);
            hidden.push(number_in(&file).await);
        }
        assert!(hidden.iter().all(|pid| runs(*pid)), "{hidden:?}");
        assert_eq!(kill_descendants(Duration::from_secs(10)).await.unwrap(), Vec::<i32>::new());
        assert!(!hidden.iter().any(|pid| runs(*pid)), "{hidden:?}");
        assert!(has_no_child());
    }

    #[tokio::test]
    async fn processes_that_fork_while_they_are_killed_are_killed() {
        if !in_its_own_process("processes_that_fork_while_they_are_killed_are_killed") {
            return;
        }
        adopt_orphans().unwrap();
        // Each process starts the next one and exits.
        let script = "f() { if [ $1 -gt 0 ]; then (f $(($1 - 1)) &) ; else sleep 60; fi; }
            while :; do f 3; done";
        let mut bombs = Vec::new();
        for _ in 0..3 {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
            bombs.push(spawn(&mut shell).unwrap());
        }
        while descendants(&[own_pid()]).unwrap().len() < 50 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        drop(bombs);
        assert_eq!(kill_descendants(Duration::from_secs(10)).await.unwrap(), Vec::<i32>::new());
        assert_eq!(descendants(&[own_pid()]).unwrap(), []);
    }

    #[tokio::test]
    async fn orphans_are_reaped_and_awaited_children_are_not() {
        if !in_its_own_process("orphans_are_reaped_and_awaited_children_are_not") {
            return;
        }
        adopt_orphans().unwrap();
        for code in 0..30 {
            let script = format!("for i in 1 2 3 4 5; do (true &); done; exit {code}");
            let (mut child, _awaited) = spawn(Command::new("sh").args(["-c", &script])).unwrap();
            // Its status stays uncollected for a while, in which orphans are reaped.
            if code % 10 == 0 {
                tokio::time::sleep(REAP_INTERVAL * 2).await;
            }
            assert_eq!(child.wait().await.unwrap().code(), Some(code));
            let echo = output(std::process::Command::new("echo").arg("said").process_group(0));
            assert_eq!(echo.unwrap().stdout, b"said\n");
        }
        while !has_no_child() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    #[test]
    fn both_ways_find_the_same_children() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id().try_into().unwrap();
        assert!(children_of(own_pid()).unwrap().contains(&pid));
        assert!(by_parent(own_pid()).unwrap().contains(&pid));
        assert_eq!(children_of(i32::MAX).unwrap(), Vec::<i32>::new());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
