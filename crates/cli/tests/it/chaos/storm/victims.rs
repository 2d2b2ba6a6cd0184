//! Processes killed, and stopped for a while: of the control plane, and agents.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::StormTarget;
use super::processes::StormProcesses;
use crate::chaos::storm_log::StormLog;

/// How often to check whether a stopped process may go on.
const LOOK: Duration = Duration::from_millis(20);

/// Kills and stops processes until the storm is over. Leaves no process stopped.
pub(super) fn inject_faults(
    target: &impl StormTarget,
    processes: &StormProcesses,
    log: &StormLog,
    rng: &mut Rng,
) {
    let mut stopped: Vec<Stopped> = Vec::new();
    let mut next = Instant::now();
    while !log.is_over() {
        stopped.retain(|stopped| Instant::now() < stopped.until);
        if Instant::now() < next {
            log.wait(LOOK);
            continue;
        }
        next = Instant::now() + Duration::from_millis(rng.u64(100..1_300));
        let agent = rng.u8(..5) < 3;
        let (fatal, place, span) = (rng.u8(..4) == 0, rng.f64(), how_long(rng));
        let victim =
            if agent { an_agent(target, place) } else { a_caller(processes, place, fatal) };
        let Some((process, name)) = victim else { continue };
        // The process may have ended already; then no fault is logged.
        let which = if fatal { Signal::KILL } else { Signal::STOP };
        if pidfd_send_signal(&process, which).is_err() {
            continue;
        }
        match (agent, fatal) {
            (true, true) => log.injected("killed agent", &format!(" of {name}")),
            (false, true) => log.injected("killed call", &format!(" of {name}")),
            (true, false) => log.injected("stopped agent", &format!(" of {name} for {span:?}")),
            (false, false) => log.injected("stopped call", &format!(" of {name} for {span:?}")),
        }
        if !fatal {
            stopped.push(Stopped { process, until: Instant::now() + span });
        }
    }
}

/// Stops the agent of one machine at the moment at which its answer matters most.
pub(super) fn stop(
    target: &impl StormTarget,
    log: &StormLog,
    machine: &str,
    span: Duration,
) -> Option<Stopped> {
    let (_, pid) = target.agents().into_iter().find(|(id, _)| id == machine)?;
    let process = open(pid)?;
    pidfd_send_signal(&process, Signal::STOP).ok()?;
    log.injected("stopped agent at release", &format!(" of {machine} for {span:?}"));
    Some(Stopped { process, until: Instant::now() + span })
}

/// Mostly too short to be noticed, sometimes longer than a heartbeat may be missing, now and then
/// longer than anything lasts.
pub(super) fn how_long(rng: &mut Rng) -> Duration {
    let millis = match rng.u8(..10) {
        0..6 => rng.u64(100..1_500),
        6..9 => rng.u64(1_500..7_000),
        _ => rng.u64(7_000..20_000),
    };
    Duration::from_millis(millis)
}

/// The index that a place from 0 to 1 has among so many.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "there are dozens of them"
)]
pub(super) fn nth(place: f64, of: usize) -> Option<usize> {
    of.checked_sub(1).map(|last| last.min((place * of as f64) as usize))
}

fn a_caller(processes: &StormProcesses, place: f64, fatal: bool) -> Option<(OwnedFd, String)> {
    processes.with_one(place, fatal, |pid, mode| Some((open(pid)?, mode.to_owned())))
}

fn an_agent(target: &impl StormTarget, place: f64) -> Option<(OwnedFd, String)> {
    let mut agents = target.agents();
    let agent = agents.swap_remove(nth(place, agents.len())?);
    let process = open(agent.1)?;
    // Looked at once more: what was opened may be another process with the same id.
    target.agents().contains(&agent).then_some((process, agent.0))
}

fn open(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// A process that stands still until this is dropped.
pub(super) struct Stopped {
    process: OwnedFd,
    until: Instant,
}

impl Stopped {
    /// Lets it stand still as long as it is to, or until the storm is over.
    pub(super) fn until_over(self, log: &StormLog) {
        log.wait(self.until.saturating_duration_since(Instant::now()));
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        pidfd_send_signal(&self.process, Signal::CONT).ok();
    }
}
