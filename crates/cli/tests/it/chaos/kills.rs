//! Provisions killed at random moments, among runs that know nothing of it. Afterwards nothing
//! may be left, and no run may ever have had a machine that another run had.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;

use super::{audit, pause, say_how_to_replay, seed};
use crate::harness::{Done, Driven, Home, say, until};

const KILLS: usize = 50;
const WORKERS: usize = 3;

/// The settings that all runs share. Unclaimed machines are gone within seconds, and there
/// are few enough of them that some launches are refused. Tickets come twice, because otherwise
/// hardly two runs would ever want the same machine.
const SETTINGS: [&str; 10] = [
    "--local-duplicate-tickets=true",
    "--local-boot-ms=200",
    "--local-capacity=32",
    "--claim-registration-timeout-sec=3",
    "--validation-timeout-sec=8",
    "--idle-time-sec=4",
    "--release-timeout-sec=5",
    "--self-termination-grace-sec=2",
    "--boot-deadline-sec=5",
    "--ticket-hold-sec=2",
];
/// What a provision leaves that is going to be killed ends soon by itself.
const SHORT: [&str; 5] = [
    "--claim-registration-timeout-sec=2",
    "--claim-timeout-sec=5",
    "--created-timeout-sec=5",
    "--validation-timeout-sec=2.5",
    "--max-runtime-min=0.08",
];
/// What an uninterrupted run has does not end before the run does.
const LONG: [&str; 3] =
    ["--claim-timeout-sec=60", "--created-timeout-sec=60", "--max-runtime-min=1"];

const OPEN_INTENTS: &str = "SELECT count(*) FROM intents WHERE outcome = ''";

/// Writes down where it ran, and when: beside the home, where the program has no hand in it.
const JOB: &str = r#"
    proof() { echo "$1 $ONDECK_RUN_ID $ONDECK_INSTANCE_ID $(date -u +%FT%T.%3NZ)" >> "$0"; }
    proof began; sleep 0.05; proof ended
"#;

#[test]
fn after_kills_at_any_moment_no_machine_was_shared_and_nothing_is_left() {
    let seed = seed();
    let test = KillTest {
        home: Home::with(&SETTINGS),
        over: AtomicBool::new(false),
        provision_takes: AtomicU64::new(500),
        cycles: Mutex::default(),
        states_left: Mutex::default(),
        seed,
    };
    let mut rng = Rng::with_seed(seed);
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (test, rng) = (&test, rng.fork());
            scope.spawn(move || test.work(worker, rng));
        }
        let end = EndOnDrop(&test.over);
        (0..KILLS).for_each(|nth| test.kill_one(nth, &mut rng));
        drop(end);
    });
    say(&format!("killed with: {:?}", test.states_left.lock().unwrap()));
    let home = &test.home;
    until("every deadline has passed, and refresh has seen it", || {
        home.refresh(&[]);
        home.processes().is_empty() && home.records().is_empty() && home.number(OPEN_INTENTS) == 0
    });
    home.refresh(&[]);
    audit::audit(home, &test.cycles.lock().unwrap());
}

struct KillTest {
    home: Home,
    /// No more processes will be killed.
    over: AtomicBool,
    /// How many milliseconds uninterrupted provisions take at the most of late, so that kills meet
    /// all of one.
    provision_takes: AtomicU64,
    cycles: Mutex<Vec<Cycle>>,
    /// How often a kill left what.
    states_left: Mutex<BTreeMap<String, usize>>,
    seed: u64,
}

/// An uninterrupted run: what its commands came to.
pub(super) struct Cycle {
    pub(super) run: String,
    pub(super) machines: Vec<String>,
    /// `None` where nothing was provisioned.
    pub(super) job: Option<i32>,
    pub(super) codes: Vec<i32>,
}

impl KillTest {
    /// Starts a provision, kills it, and clears up after it or does not; clearing up may be
    /// killed as well.
    fn kill_one(&self, nth: usize, rng: &mut Rng) {
        let run = format!("killed-{nth}");
        let count = rng.u32(1..=3).to_string();
        let longest = self.provision_takes.load(Ordering::Relaxed) * 6 / 5;
        let provision = ["provision", "--run-id", &run, "--instance-count", &count];
        let killed = self.kill_within(longest, &[&provision[..], &SHORT].concat(), rng);
        check(&killed, &[-9, 0, 4, 5]);
        let state_left = self.state_left(&run, killed.code);
        *self.states_left.lock().unwrap().entry(state_left).or_default() += 1;
        match rng.u8(0..6) {
            0..3 => {}
            3 => check(&self.kill_within(150, &["release", "--run-id", &run], rng), &[-9, 0, 8]),
            _ => check(&self.home.release(&run), &[0, 8]),
        }
    }

    /// Starts the program and kills it at some moment of so many milliseconds.
    fn kill_within(&self, longest: u64, arguments: &[&str], rng: &mut Rng) -> Done {
        let running = self.home.start(arguments);
        pause(Duration::from_millis(rng.u64(0..=longest)));
        running.signal(Signal::KILL);
        running.finish()
    }

    /// What stands in the store for a run.
    fn state_left(&self, run: &str, code: i32) -> String {
        if code != -9 {
            return format!("nothing: it had exited with {code}");
        }
        let states = self.home.texts(&format!(
            "SELECT DISTINCT state FROM instances WHERE run = '{run}' ORDER BY state"
        ));
        let machines =
            self.home.number(&format!("SELECT count(*) FROM machines WHERE run = '{run}'"));
        let intents =
            self.home.number(&format!("SELECT count(*) FROM intents WHERE run = '{run}'"));
        match (states.is_empty(), machines, intents) {
            (false, _, _) => states.join("+"),
            (true, 1.., _) => "machines without records".to_owned(),
            (true, 0, 1..) => "an intent".to_owned(),
            (true, 0, 0) => "nothing".to_owned(),
        }
    }

    /// Whole cycles, one after the other, while others are killed; now and then a refresh.
    fn work(&self, worker: usize, mut rng: Rng) {
        let mut nth = 0;
        while !self.over.load(Ordering::Relaxed) {
            nth += 1;
            let cycle = self.cycle(format!("worker-{worker}-{nth}"), &mut rng);
            self.cycles.lock().unwrap().push(cycle);
            let boot = format!("--local-boot-ms={}", rng.u32(100..=300));
            match rng.u8(0..12) {
                0..3 => check(&self.home.ondeck(&["refresh", &boot]), &[0]),
                3 => check(&self.kill_within(100, &["refresh", &boot], &mut rng), &[-9, 0]),
                _ => {}
            }
        }
    }

    fn cycle(&self, run: String, rng: &mut Rng) -> Cycle {
        let home = &self.home;
        let count = rng.u32(1..=2).to_string();
        let provision = ["provision", "--json", "--run-id", &run, "--instance-count", &count];
        let since = Instant::now();
        let provisioned = home.ondeck(&[&provision[..], &LONG].concat());
        check(&provisioned, &[0, 4, 5]);
        let (mut job, mut machines) = (None, Vec::new());
        if provisioned.code == 0 {
            let took = u64::try_from(since.elapsed().as_millis()).unwrap();
            // A warm one in between does not make the next cold one shorter.
            let before = self.provision_takes.load(Ordering::Relaxed);
            self.provision_takes.store(took.max(before * 9 / 10), Ordering::Relaxed);
            machines = provisioned.ids();
            let proofs = audit::proofs(home);
            let run = ["run", "--run-id", &run, "--queue-timeout-sec=20", "--", "sh", "-c", JOB];
            let done = home.ondeck(&[&run[..], &[proofs.to_str().unwrap()]].concat());
            check(&done, &[0]);
            job = Some(done.code);
        }
        // As a workflow would, also after a failure.
        let released = home.release(&run);
        check(&released, &[0, 8]);
        Cycle { run, machines, job, codes: vec![provisioned.code, released.code] }
    }
}

impl Drop for KillTest {
    fn drop(&mut self) {
        if std::thread::panicking() {
            say_how_to_replay(self.seed, "kills");
            say(&format!("the last events:\n{}", audit::tail(&self.home)));
        }
    }
}

/// Tells the workers, also when the killing ends in a failed assertion.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Nothing but these codes, and nothing that only a person with the source could understand.
#[track_caller]
fn check(done: &Done, codes: &[i32]) {
    assert!(codes.contains(&done.code), "{done:?}");
    for word in ["database is locked", "panicked"] {
        assert!(!done.stderr.contains(word), "{done:?}");
    }
}
