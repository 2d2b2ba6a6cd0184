//! Provisions of ready machines while GitHub answers 503 to everything for a minute.

use std::time::{Duration, Instant};

use ondeck_standin::{Conclusion, GitHubFault, GitHubFaultRule};
use serde_json::{Value, json};

use super::column::{Backend, Column, Way, assert_warm, provision, release, texts};
use super::{Bench, millis};
use crate::claims;

/// How long the outage lasts.
const OUTAGE: Duration = Duration::from_secs(60);
/// When runs ask for machines, since the beginning of the outage: before the listeners have noticed it,
/// and when all of them have.
const MOMENTS: [Duration; 5] = [
    Duration::from_secs(2),
    Duration::from_secs(12),
    Duration::from_secs(25),
    Duration::from_secs(40),
    Duration::from_secs(52),
];
/// How many machines each run asks for.
const COUNT: usize = 10;
/// How long a job may wait after the outage, at most.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn measure(bench: &mut Bench) {
    for backend in Backend::ALL {
        let row = format!("{}-outage-{COUNT}", backend.name());
        if bench.wants(&row) {
            let figures = of_backend(bench, backend);
            bench.add(&row, figures);
        }
    }
}

/// The provisions of one outage, each beside one of the local forge.
fn of_backend(bench: &Bench, backend: Backend) -> Value {
    let machines = COUNT * MOMENTS.len();
    let mut local = Column::open(backend, &Way::LocalForge, machines);
    let mut ready = Column::open(backend, &Way::Ready, machines);
    bench.note(&format!("{machines} machines are ready, and the outage begins"));
    for column in [&mut local, &mut ready] {
        column.hand_over(COUNT, 0);
    }
    let github = ready.github.as_ref().expect("its machines register with it");
    // Also of listeners.
    let everything = GitHubFaultRule {
        path: Some("/**".to_owned()),
        ..GitHubFaultRule::new(GitHubFault::Status(503))
    };
    github.inject(everything);
    let began = Instant::now();
    let (mut rounds, mut runs) = (Vec::new(), Vec::new());
    for (number, moment) in MOMENTS.into_iter().enumerate() {
        wait_until(began + moment);
        let mut took = [Duration::ZERO; 2];
        let columns = [&mut ready, &mut local];
        for step in 0..2 {
            let which = (number + step) % 2;
            let run = columns[which].next_run();
            let (provisioned, outcome) = columns[which].run(&provision(&run, COUNT));
            assert_warm(&outcome, COUNT);
            took[which] = provisioned;
            if which == 0 {
                runs.push((run, outcome));
            }
        }
        let [ms, beside] = took.map(millis);
        rounds.push(json!({ "ms": ms, "besideMs": beside }));
    }
    wait_until(began + OUTAGE);
    let first_job = first_jobs(&ready, &runs);
    bench.note(&format!(
        "the first jobs have run {:.1} s after the outage",
        first_job.as_secs_f64()
    ));
    let mut pooled = 0;
    for (run, _) in &runs {
        let (_, outcome) = ready.run(&release(run));
        pooled += texts(&outcome, "outcome").filter(|outcome| *outcome == "pooled").count();
    }
    let lost = machines - pooled;
    json!({ "latencyMs": 0, "rounds": rounds, "lost": lost, "firstJobMs": millis(first_job) })
}

/// Ends the outage and has each run's first job run. Returns when all of them were over, since then.
fn first_jobs(ready: &Column, runs: &[(String, Value)]) -> Duration {
    let github = ready.github.as_ref().expect("its machines register with it");
    github.clear_faults();
    let began = Instant::now();
    let queued = runs.iter().map(|(run, outcome)| {
        let labels = outcome["labels"].as_array().expect("a provision names labels");
        let label = labels[0].as_str().expect("a label is a text");
        github.queue_job(claims::REPOSITORY, run, &[label], "true")
    });
    for job in queued.collect::<Vec<_>>() {
        let done = github.wait_for_job(job, LIMIT);
        assert_eq!(done.conclusion, Some(Conclusion::Success), "{done:?}");
    }
    began.elapsed()
}

#[expect(clippy::disallowed_methods, reason = "the outage lasts as long as it is said to last")]
fn wait_until(moment: Instant) {
    std::thread::sleep(moment.saturating_duration_since(Instant::now()));
}
