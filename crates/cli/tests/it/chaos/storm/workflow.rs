//! What users do meanwhile: provision, jobs, release, one run after the other, some of them
//! cancelled half-way.

use std::time::Duration;

use fastrand::Rng;

use super::{Storm, StormTarget, victims};
use crate::harness::Done;

/// Says again and again where it is: beside the pool, where the program has no hand in it.
const JOB: &str = r#"
    nth=0
    while [ $nth -lt "$2" ]; do
        echo "$1 $ONDECK_RUN_ID $ONDECK_INSTANCE_ID $(date -u +%FT%T.%3NZ)" >>"$0"
        nth=$((nth + 1)); sleep 0.05
    done
"#;
/// How long a job may take before its caller gives up, as a workflow does.
const JOB_PATIENCE: Duration = Duration::from_secs(12);

/// What one run is going to be like.
struct Plan {
    machines: u32,
    /// How often each of its jobs says where it is.
    jobs: Vec<u32>,
    /// The workflow retries a provision that failed.
    provision_again: bool,
    /// The workflow retries a release that failed.
    release_again: bool,
    /// It is cancelled so long after its jobs have begun, and released while they still run.
    cancelled_after: Option<Duration>,
    /// One of its machines does not answer at that very moment, for so long.
    silence: Option<Duration>,
}

impl Plan {
    fn draw(rng: &mut Rng) -> Plan {
        let machines = rng.u32(1..=3);
        let cancelled = rng.u8(..3) == 0;
        let longest = if cancelled { 120 } else { 24 };
        Plan {
            machines,
            jobs: (0..rng.u32(1..=machines)).map(|_| rng.u32(longest / 8..=longest)).collect(),
            provision_again: rng.bool(),
            release_again: rng.bool(),
            cancelled_after: cancelled.then(|| Duration::from_millis(rng.u64(100..900))),
            silence: rng.bool().then(|| victims::how_long(rng)),
        }
    }
}

impl<G: StormTarget> Storm<'_, G> {
    /// Whole workflows, one after the other.
    pub(super) fn work(&self, worker: usize, mut rng: Rng) {
        let mut nth = 0;
        while !self.log.is_over() {
            nth += 1;
            self.workflow(&format!("run-{worker}-{nth}"), &Plan::draw(&mut rng));
        }
    }

    fn workflow(&self, run: &str, plan: &Plan) {
        let mut provisioned = self.provision(run, plan.machines);
        // Once the storm is over, a run that still goes on only releases its machines.
        let goes_on = || !self.log.is_over();
        if provisioned.code != 0 && plan.provision_again && goes_on() {
            provisioned = self.provision(run, plan.machines);
        }
        if provisioned.code == 0 && goes_on() {
            self.do_jobs(run, plan, &provisioned);
        } else {
            // A run that has just failed does not come back at once.
            self.log.wait(Duration::from_millis(300));
        }
        // As a workflow would, also after a failure.
        let released = self.release(run);
        if !matches!(released.code, 0 | 8) && plan.release_again {
            self.release(run);
        }
    }

    fn do_jobs(&self, run: &str, plan: &Plan, provisioned: &Done) {
        let (machines, labels) = (provisioned.ids(), labels(provisioned));
        std::thread::scope(|scope| {
            for (nth, (rounds, label)) in plan.jobs.iter().zip(&labels).enumerate() {
                let job = format!("{run}-job-{nth}");
                scope.spawn(move || self.job(run, label, &job, *rounds));
            }
            let Some(cancelled_after) = plan.cancelled_after else { return };
            self.log.wait(cancelled_after);
            if let Some(silence) = plan.silence
                && let Some(silent) = victims::stop(self.target, &self.log, &machines[0], silence)
            {
                scope.spawn(move || silent.until_over(&self.log));
            }
            self.release(run);
        });
    }

    pub(super) fn provision(&self, run: &str, count: u32) -> Done {
        let count = count.to_string();
        let ask = ["provision", "--json", "--run-id", run, "--instance-count", &count];
        let done = self.call(&ask, None);
        if done.code == 0 {
            let machines = done.ids();
            if machines.len().to_string() != count {
                self.log.problem(&format!("{count} machines wanted: {done:?}"));
            }
            self.log.reported(run, machines);
        }
        done
    }

    pub(super) fn job(&self, run: &str, label: &str, job: &str, rounds: u32) -> Done {
        let proofs = self.target.proofs();
        let (proofs, rounds) = (proofs.to_str().unwrap(), rounds.to_string());
        let ask = ["run", "--run-id", run, "--label", label, "--queue-timeout-sec=10"];
        let ask = [&ask[..], &["--", "sh", "-c", JOB]].concat();
        self.call(&[&ask[..], &[proofs, job, &rounds]].concat(), Some(JOB_PATIENCE))
    }

    pub(super) fn release(&self, run: &str) -> Done {
        self.call(&["release", "--json", "--run-id", run], None)
    }
}

/// The label of each machine that a provision gave its run.
pub(super) fn labels(provisioned: &Done) -> Vec<String> {
    let json = provisioned.json();
    let labels = json["labels"].as_array().unwrap().iter();
    labels.map(|label| label.as_str().unwrap().to_owned()).collect()
}
