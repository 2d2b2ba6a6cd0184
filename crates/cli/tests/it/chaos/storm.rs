//! A storm: runs of different sizes come and go, refresh beside them, while processes are killed
//! and stopped, and faults are injected into the resources that they share. Then the faults stop,
//! every deadline passes, and the audit follows.
//!
//! Machines register for their run in one half of each storm, and while they are idle in the other. The seed
//! decides which comes first.

mod processes;
mod victims;
mod workflow;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fastrand::Rng;
use ondeck_core::audit::{
    InstanceWrite, JobSighting, Ownership, illegal_writes, jobs_with_another_owner, never_given,
};

use self::processes::StormProcesses;
use super::storm_log::StormLog;
use super::{audit, pause, say_how_to_replay};
use crate::harness::{Done, Driven, say};

/// How many seconds a storm lasts.
const SECONDS: &str = "ONDECK_CHAOS_SECONDS";
const DEFAULT_SECONDS: u64 = 40;
const WORKERS: usize = 4;

/// How long everything may take to be gone, once the storm is over: the longest deadline and the
/// grace after it, on a busy computer.
const DRAIN: Duration = Duration::from_secs(40);

/// What lasts long enough for a run on a busy computer, and is over soon after the storm.
pub(super) const TIMES: [&str; 11] = [
    "--claim-registration-timeout-sec=4",
    "--claim-timeout-sec=15",
    "--created-timeout-sec=14",
    "--validation-timeout-sec=10",
    "--idle-time-sec=7",
    "--max-runtime-min=0.2",
    "--release-timeout-sec=5",
    "--self-termination-grace-sec=2",
    "--boot-deadline-sec=8",
    "--ticket-hold-sec=2",
    "--rescue=off",
];

const LABELS: [&str; 2] = ["--runner-label=run", "--runner-label=machine"];

/// What storms on different backends do differently.
pub(super) trait StormTarget: Driven + Sync {
    /// What the test is called.
    fn name(&self) -> &'static str;
    /// Machines that have an agent, and its process.
    fn agents(&self) -> Vec<(String, i32)>;
    /// Where jobs write down where they are.
    fn proofs(&self) -> PathBuf;
    /// Injects faults into what processes share, until the storm is over. Removes them before it
    /// returns.
    fn inject_faults(&self, log: &StormLog, rng: Rng);
    /// Every write to an instance's row, by what the store itself has kept.
    fn writes(&self) -> Vec<InstanceWrite>;
    /// What is there of machines, records, tickets, runners and processes.
    fn left(&self) -> Vec<String>;
    /// What else must hold at the end.
    fn problems(&self) -> Vec<String>;
}

/// Lets a storm pass over a pool, and fails with everything that does not hold.
pub(super) fn over(target: &impl StormTarget, seed: u64) {
    let seconds = std::env::var(SECONDS).map_or(DEFAULT_SECONDS, |text| text.parse().unwrap());
    let mut rng = Rng::with_seed(seed);
    let half = Duration::from_secs(seconds) / 2;
    let [before, after] = if rng.bool() { LABELS } else { [LABELS[1], LABELS[0]] };
    target.refresh(&[before]);
    let log = StormLog::over(Duration::from_secs(seconds));
    let storm = Storm { target, log, processes: StormProcesses::default(), after, seed };
    let storm = &storm;
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let rng = rng.fork();
            scope.spawn(move || storm.work(worker, rng));
        }
        let [refresh_rng, shared_rng, mut process_rng] = [rng.fork(), rng.fork(), rng.fork()];
        scope.spawn(move || storm.refresh_now_and_then(refresh_rng, half));
        scope.spawn(move || target.inject_faults(&storm.log, shared_rng));
        victims::inject_faults(target, &storm.processes, &storm.log, &mut process_rng);
    });
    storm.calm();
    storm.log.sum_up();
    storm.audit();
}

struct Storm<'a, G: StormTarget> {
    target: &'a G,
    log: StormLog,
    processes: StormProcesses,
    /// How machines register in the second half.
    after: &'static str,
    seed: u64,
}

/// What a call may end with, other than by being killed. A job's own code passes through `run`:
/// 127 where it could not be started, 143 where its machine was taken away or we lost patience.
fn documented(mode: &str) -> &'static [i32] {
    match mode {
        "refresh" => &[0, 6],
        "provision" => &[0, 4, 5, 6, 10],
        "release" => &[0, 6, 8],
        _ => &[0, 4, 6, 127, 143],
    }
}

impl<G: StormTarget> Storm<'_, G> {
    /// Also changes how machines register, when `half` of the storm is left.
    fn refresh_now_and_then(&self, mut rng: Rng, half: Duration) {
        let mut is_changed = false;
        while !self.log.is_over() {
            self.log.wait(Duration::from_millis(rng.u64(500..3_000)));
            if is_changed || self.log.left() > half {
                self.call(&["refresh", "--json"], None);
            } else {
                is_changed = self.call(&["refresh", "--json", self.after], None).code == 0;
            }
        }
    }

    /// Runs the program to its end, and holds it to what is documented.
    fn call(&self, arguments: &[&str], patience: Option<Duration>) -> Done {
        let mode = arguments[0];
        let started = self.target.start(arguments);
        let (done, killed) = self.processes.wait_for(mode, started, patience);
        self.log.called(mode, done.code);
        let said = format!("{} {}: {}{}", arguments.join(" "), done.code, done.stdout, done.stderr);
        let expected = documented(mode).contains(&done.code) || (killed && done.code == -9);
        if !expected || done.stderr.contains("panicked") {
            self.log.problem(&format!("not a documented end: {said}"));
        }
        let told = done.stderr.contains("error: ") && done.stderr.contains("hint: ");
        if mode != "run" && done.code > 0 && !told {
            self.log.problem(&format!("an error without a hint: {said}"));
        }
        done
    }

    /// One refresh, and all works again; then every deadline passes.
    fn calm(&self) {
        let succeeds = |what: &str, done: Done| {
            if done.code != 0 {
                self.log.problem(&format!("{what} failed after the storm: {done:?}"));
            }
        };
        succeeds("refresh", self.call(&["refresh", "--json", self.after], None));
        let provisioned = self.provision("calm", 2);
        if provisioned.code == 0 {
            let labels = workflow::labels(&provisioned);
            succeeds("a job", self.job("calm", &labels[0], "calm-job", 2));
        }
        succeeds("provision", provisioned);
        succeeds("release", self.release("calm"));
        let since = Instant::now();
        let left = loop {
            succeeds("refresh", self.call(&["refresh", "--json"], None));
            let left = self.target.left();
            if left.is_empty() || since.elapsed() > DRAIN {
                break left;
            }
            pause(Duration::from_millis(300));
        };
        left.iter().for_each(|left| self.log.problem(left));
    }

    fn audit(&self) {
        let writes = self.target.writes();
        let text = fs::read_to_string(self.target.proofs()).unwrap_or_default();
        // A disk that fails may have cut a line; none that is whole may be wrong.
        let proofs: Vec<JobSighting> = text.lines().filter_map(JobSighting::parse).collect();
        let served = self.log.count("provision", 0);
        say(&format!(
            "{} writes, {served} provisions served, {} proofs",
            writes.len(),
            proofs.len()
        ));
        let mut problems = self.log.problems();
        problems.extend(illegal_writes(&writes));
        let ownership = Ownership::from_writes(&writes);
        problems.extend(jobs_with_another_owner(&ownership, &proofs));
        let reports = audit::reported(&self.log.reported_machines());
        problems.extend(never_given(&ownership, reports.iter().map(|(run, id)| (run, id))));
        problems.extend(self.target.problems());
        // A storm in which nothing happens shows nothing.
        if self.log.faults() < 20 || served < 2 || proofs.is_empty() {
            problems.push("hardly anything happened".to_owned());
        }
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

impl<G: StormTarget> Drop for Storm<'_, G> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say("injected faults:");
            self.log.recount();
            say_how_to_replay(self.seed, self.target.name());
        }
    }
}
