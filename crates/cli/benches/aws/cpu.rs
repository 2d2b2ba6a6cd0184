//! Processor time, by the processes that take part in a round. Unlike times on the wall, it hardly
//! depends on what else the computer does.

use std::fs;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::Duration;

use ondeck_standin::Gateway;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde_json::{Value, json};

/// The variable with the process id of DynamoDB Local. Without it, that is not measured.
const DYNAMODB: &str = "ONDECK_TEST_DYNAMODB_PID";
/// The unit of the times in `/proc/stat`.
const TICK: Duration = Duration::from_millis(10);
/// The name of the threads that load the computer, whose time is not the gateway's.
pub(crate) const LOAD_THREAD: &str = "load";

/// Processor time of a round, or until a moment.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Cpu {
    /// The measured process itself.
    pub(crate) program: Duration,
    /// The gateway, with what plays agents, EC2 and SQS.
    gateway: Duration,
    dynamodb: Duration,
    /// Agents that are processes.
    agents: Duration,
    /// All processes of the computer.
    computer: Duration,
}

impl Cpu {
    /// What all of them have used until now, but for the measured process.
    pub(crate) fn now(gateway: &Gateway) -> Cpu {
        let dynamodb = std::env::var(DYNAMODB).ok().and_then(|pid| pid.parse().ok());
        let dynamodb = dynamodb.map(of_process).unwrap_or_default();
        let machines = gateway.ec2().machines();
        let agents = machines.iter().filter_map(|machine| machine.pid).map(of_process).sum();
        let (gateway, computer) = (of_process(std::process::id()), of_computer());
        Cpu { program: Duration::ZERO, gateway, dynamodb, agents, computer }
    }

    /// What has been used since an earlier moment, with the time of the process that has run meanwhile.
    pub(crate) fn since(self, before: Cpu, program: Duration) -> Cpu {
        Cpu {
            program,
            gateway: self.gateway.saturating_sub(before.gateway),
            dynamodb: self.dynamodb.saturating_sub(before.dynamodb),
            agents: self.agents.saturating_sub(before.agents),
            computer: self.computer.saturating_sub(before.computer),
        }
    }

    /// In milliseconds. `others` is what no process of the benchmark has used, to about 20 ms.
    pub(crate) fn to_json(self) -> Value {
        let Cpu { program, gateway, dynamodb, agents, computer } = self;
        let ours = program + gateway + dynamodb + agents;
        let millis = |span: Duration| (span.as_secs_f64() * 1e5).round() / 1e2;
        json!({
            "program": millis(program),
            "gateway": millis(gateway),
            "dynamodb": millis(dynamodb),
            "agents": millis(agents),
            "others": millis(computer.saturating_sub(ours)),
        })
    }
}

/// Waits for a process whose output has ended. Returns its processor time, that of its main thread, on
/// which the program does everything.
pub(crate) fn wait(child: &mut Child) -> (ExitStatus, Duration) {
    let pid = Pid::from_child(child);
    // The process stays until it is waited for without this.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), options).unwrap();
    let spent = of_thread(Path::new("/proc").join(child.id().to_string()).as_path());
    (child.wait().unwrap(), spent.unwrap_or_default())
}

/// Of the threads that a process has now.
fn of_process(pid: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.filter_map(|thread| of_thread(&thread.path())).sum()
}

/// The first number of `schedstat`, in nanoseconds; `None` if the thread has ended.
fn of_thread(folder: &Path) -> Option<Duration> {
    let name = fs::read_to_string(folder.join("comm")).ok()?;
    if name.trim_end() == LOAD_THREAD {
        return None;
    }
    let text = fs::read_to_string(folder.join("schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// All but the fourth and the fifth number of the first line of `/proc/stat`: idle, and idle because of
/// a disk. The numbers after the eighth are part of others.
fn of_computer() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers = stat.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1).take(8);
    let busy = numbers.enumerate().filter(|(index, _)| ![3, 4].contains(index));
    let ticks: u32 = busy.filter_map(|(_, ticks)| ticks.parse::<u32>().ok()).sum();
    TICK * ticks
}

/// Reads an output to its end, beside another.
pub(crate) fn read_beside(
    mut output: impl std::io::Read + Send + 'static,
) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut text = Vec::new();
        output.read_to_end(&mut text).unwrap();
        text
    })
}
