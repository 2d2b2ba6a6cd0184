//! The running processes of the control plane, from which a storm chooses some to kill or stop.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::chaos::pause;
use crate::harness::{Background, Done};

/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// The running calls, by process id.
#[derive(Default)]
pub(super) struct StormProcesses(Mutex<BTreeMap<i32, RunningCall>>);

struct RunningCall {
    mode: String,
    killed: bool,
}

impl StormProcesses {
    /// Waits until a process has ended, and says whether it was killed on purpose. One that takes
    /// longer than the caller's patience is asked to end.
    pub(super) fn wait_for(
        &self,
        mode: &str,
        mut process: Background,
        patience: Option<Duration>,
    ) -> (Done, bool) {
        let (pid, since) = (process.pid(), Instant::now());
        let call = RunningCall { mode: mode.to_owned(), killed: false };
        self.0.lock().unwrap().insert(pid, call);
        let mut asked = false;
        let killed = loop {
            {
                // Other threads signal only under this lock. So none of them signals a process id
                // that another process has by then.
                let mut at_work = self.0.lock().unwrap();
                if process.has_ended() {
                    break at_work.remove(&pid).is_some_and(|call| call.killed);
                }
            }
            if !asked && patience.is_some_and(|patience| since.elapsed() > patience) {
                process.signal(Signal::TERM);
                asked = true;
            }
            pause(LOOK);
        };
        (process.finish(), killed)
    }

    /// Calls `act` with one of the running calls, chosen by its place among them, from 0 to 1. Notes
    /// that it is killed on purpose if `fatal`.
    pub(super) fn with_one<T>(
        &self,
        place: f64,
        fatal: bool,
        act: impl FnOnce(i32, &str) -> Option<T>,
    ) -> Option<T> {
        let mut at_work = self.0.lock().unwrap();
        let nth = super::victims::nth(place, at_work.len())?;
        let (pid, call) = at_work.iter_mut().nth(nth)?;
        call.killed |= fatal;
        act(*pid, &call.mode)
    }
}
