//! CPU time and memory of idle agents, from `/proc`.

use std::fs;
use std::time::{Duration, Instant};

/// The time to measure. The kernel counts in hundredths of a second, so a single agent would have
/// to be measured for minutes; several at once give the same precision sooner.
const WATCH: Duration = Duration::from_secs(5);
/// The unit of the times in `/proc/<pid>/stat`. It is the same on all Linux platforms that Rust
/// supports.
const TICKS_PER_SECOND: f64 = 100.0;

/// The mean of several agents.
#[derive(Debug)]
pub(super) struct Cost {
    pub(super) cpu_percent: f64,
    pub(super) resident_mb: f64,
    pub(super) watched: Duration,
}

/// Measures these processes for [`WATCH`]. Fails if one of them ends meanwhile.
#[expect(
    clippy::disallowed_methods,
    reason = "the measurement is what idle agents use in a fixed time"
)]
pub(super) fn watch(pids: &[u32]) -> Result<Cost, String> {
    let (before, since) = (ticks(pids)?, Instant::now());
    std::thread::sleep(WATCH);
    let (after, watched) = (ticks(pids)?, since.elapsed());
    let used = (after - before) as f64 / TICKS_PER_SECOND;
    let resident: u64 =
        pids.iter().map(|pid| read(*pid, "status", resident_kib)).sum::<Result<_, _>>()?;
    Ok(Cost {
        cpu_percent: 100.0 * used / watched.as_secs_f64() / pids.len() as f64,
        resident_mb: resident as f64 * 1.024 / 1000.0 / pids.len() as f64,
        watched,
    })
}

fn ticks(pids: &[u32]) -> Result<u64, String> {
    pids.iter().map(|pid| read(*pid, "stat", cpu_ticks)).sum()
}

fn read(pid: u32, file: &str, parse: fn(&str) -> Option<u64>) -> Result<u64, String> {
    let file = format!("/proc/{pid}/{file}");
    let text = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
    parse(&text).ok_or_else(|| format!("{file} cannot be read: {text}"))
}

/// User and system time: fields 14 and 15. The process name before them may contain spaces and
/// parentheses.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        let stat = "42 (a (b) c) S 1 42 42 0 -1 4194560 1 2 3 4 17 5 0 0 20 0 2 0 99 1 2";
        assert_eq!(cpu_ticks(stat), Some(22));
        assert_eq!(resident_kib("Name:\tx\nVmRSS:\t    5120 kB\n"), Some(5120));
        assert_eq!((cpu_ticks("42"), resident_kib("Name:\tx\n")), (None, None));
    }

    #[test]
    fn this_process_can_be_read() {
        let me = [std::process::id()];
        assert!(ticks(&me).is_ok());
        assert!(read(me[0], "status", resident_kib).unwrap() > 0);
    }
}
