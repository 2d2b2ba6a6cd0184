//! Processes of jobs that try to outlive their run: none is left when the run or the machine ends.

use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, geteuid, getpid, kill_process};

use crate::harness::{Driven, Home, until};

/// A process that a job has hidden. It is killed with the test.
struct Hidden(i32);

impl Hidden {
    /// Runs a job that hides a process, and waits for the end of the job.
    fn by(home: &Home, run: &str, way: &str) -> Hidden {
        // No other process has this argument.
        let time = format!("1000.{}{run}", getpid().as_raw_nonzero());
        let script = way.replace("STAY", &format!("sleep {time} >/dev/null 2>&1"));
        home.ondeck(&["run", "--run-id", run, "--", "sh", "-c", &script]).succeeded();
        let mut found = None;
        until(way, || {
            found = process_with(&[b"sleep", time.as_bytes()]);
            found.is_some()
        });
        Hidden(found.unwrap())
    }

    fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if self.is_alive() {
            kill_process(Pid::from_raw(self.0).unwrap(), Signal::KILL).ok();
        }
    }
}

/// The process with exactly these arguments.
fn process_with(arguments: &[&[u8]]) -> Option<i32> {
    let line = [arguments.join(&0), vec![0]].concat();
    fs::read_dir("/proc").unwrap().find_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        (fs::read(format!("/proc/{pid}/cmdline")).ok()? == line).then_some(pid)
    })
}

/// Ways to hide a process. Each leaves nothing to recognise it by but its ancestors.
fn ways() -> Vec<&'static str> {
    let mut ways = vec![
        "env -i setsid -f STAY",
        "env -i setsid sh -c '(STAY &) & exit' &",
        "(cd / && (env -i setsid nohup STAY &))",
        "env -i sh -c 'trap \"\" TERM HUP INT; setsid STAY & exit' &",
    ];
    if geteuid().is_root() {
        ways.push("env -i setsid -f setpriv --reuid=54321 --regid=54321 --clear-groups STAY");
        ways.push("su -s /bin/sh - nobody -c 'setsid -f STAY'");
    }
    ways
}

#[test]
fn a_process_that_a_job_hides_ends_with_the_run_and_the_machine_is_used_again() {
    let home = Home::with(&[]);
    let machine = home.provision("0", 1).succeeded().ids();
    for (n, way) in ways().into_iter().enumerate() {
        let hidden = Hidden::by(&home, &n.to_string(), way);
        home.release(&n.to_string()).succeeded();
        assert!(!hidden.is_alive(), "{way}");
        let next = home.provision(&(n + 1).to_string(), 1).succeeded();
        assert_eq!((next.sources(), next.ids()), (vec!["warm".to_owned()], machine.clone()));
    }
}

#[test]
fn a_process_that_a_job_hides_ends_with_the_machine() {
    let home = Home::with(&[]);
    for (n, way) in ways().into_iter().enumerate() {
        let run = n.to_string();
        home.provision(&run, 1).succeeded();
        let hidden = Hidden::by(&home, &run, way);
        home.ondeck(&["release", "--run-id", &run, "--idle-time-sec=0"]).succeeded();
        home.refresh(&[]);
        until("the machine is gone", || home.agents().is_empty());
        assert!(!hidden.is_alive(), "{way}");
    }
}

#[test]
fn a_process_that_a_job_hides_ends_with_a_machine_that_refresh_terminates() {
    let home = Home::with(&["--self-termination-grace-sec=60", "--heartbeat-period-sec=60"]);
    let way = "env -i setsid -f STAY";
    home.provision("1", 1).succeeded();
    let hidden = Hidden::by(&home, "1", way);
    // The record is gone, so the machine is an orphan; its agent does not know yet.
    let agents = home.agents();
    let agent = *agents.values().next().unwrap();
    kill_process(Pid::from_raw(agent).unwrap(), Signal::STOP).unwrap();
    home.file()
        .execute_batch("UPDATE instances SET threshold = '2001-01-01T00:00:00.000Z'")
        .unwrap();
    home.refresh(&[]);
    assert!(home.agents().is_empty());
    assert!(!hidden.is_alive());
}

#[test]
fn orphans_of_a_job_are_reaped_while_it_runs_and_exit_codes_are_right() {
    let home = Home::with(&[]);
    home.provision("1", 1).succeeded();
    let agent = *home.agents().values().next().unwrap();
    let go_on = home.outside().join("go-on");
    let script = format!(
        "for i in $(seq 300); do (true &); done; echo made; until [ -e {} ]; do sleep 0.05; done; exit 23",
        go_on.display()
    );
    let job = home.start(&["run", "--run-id", "1", "--", "sh", "-c", &script]);
    job.until_it_says("made");
    until("no exited process is left below the agent", || zombies_below(agent) == 0);
    fs::write(go_on, "").unwrap();
    job.finish().exited(23);
    for code in [0, 1, 42] {
        let script = format!("(true &); (sleep 0.01 &); exit {code}");
        home.ondeck(&["run", "--run-id", "1", "--", "sh", "-c", &script]).exited(code);
    }
}

/// How many children of a process have exited and are not reaped.
fn zombies_below(parent: i32) -> usize {
    assert_ne!(parent, getpid().as_raw_nonzero().get());
    let is_zombie = |stat: String| {
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace();
        Some(fields.next()? == "Z" && fields.next()?.parse() == Ok(parent))
    };
    let stats = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    stats.filter_map(is_zombie).filter(|zombie| *zombie).count()
}

/// With agents that scan all of `/proc` on their runtime's thread, 48 of them read twice what 4,000
/// processes show. At 25 µs each, measured for two files, that is 4.8 s on two quiet cores: longer than
/// the 3 s for which a heartbeat is healthy here.
#[test]
fn machines_beside_many_other_processes_keep_their_heartbeat_while_they_are_cleaned() {
    const MACHINES: u32 = 48;
    let home = Home::with(&[]);
    let _others = Others::start(4_000);
    let machines = home.provision("1", MACHINES).succeeded().ids();
    for (run, next) in [("1", "2"), ("2", "3")] {
        home.release(run).succeeded();
        home.refresh(&[]);
        let next = home.provision(next, MACHINES).succeeded();
        assert_eq!(next.ids(), machines, "none was lost");
    }
}

/// Processes that have nothing to do with the pool.
struct Others(Child);

impl Others {
    fn start(count: usize) -> Others {
        let work = "for _ in $(seq $0); do sleep 1000 & done; echo started; read -r _; trap '' TERM; kill 0";
        let mut shell = Command::new("sh");
        shell.args(["-c", work, &count.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.process_group(0).spawn().unwrap();
        shell.stdout.as_mut().unwrap().read_exact(&mut [0; 8]).unwrap();
        Others(shell)
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}
