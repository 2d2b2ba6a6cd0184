//! 1,000 warm claims on emulated AWS with the runner's double, and a GitHub that takes as long as
//! GitHub is known to take. All machines are healthy, so none of them may be lost.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use ondeck_standin::{
    GitHub, GitHubOptions, Machine, Permission, RegistrationTimes, runner_package,
};
use serde_json::Value;

use crate::harness::BenchHarness;

const CLAIMS: usize = 1_000;
/// How many machines one run claims.
const BATCH: usize = 50;
/// How many machines there are. Those that a run does not need are for second claims.
const MACHINES: usize = 60;
/// The factor of all registration times.
const SCALE: f64 = 1.0;
/// How long GitHub keeps the session of a listener that is gone.
const SESSION: Duration = Duration::from_secs(45);
pub(crate) const REPOSITORY: &str = "acme/web";
pub(crate) const TOKEN: &str = "github_pat_claims";
const VERSION: &str = "2.336.0";

/// Makes the claims and prints how long they took. Returns the exit code: 1 if a machine was lost.
pub(crate) fn run() -> i32 {
    let began = Instant::now();
    let github = GitHub::start(GitHubOptions {
        session_timeout: SESSION,
        registration_times: Some(RegistrationTimes { seed: 1, scale: SCALE }),
        ..GitHubOptions::default()
    });
    github.allow(TOKEN, REPOSITORY, &[Permission::Administration, Permission::ActionsRead]);
    github.publish_runner(VERSION, runner_package(VERSION));
    let harness = BenchHarness::with_jobs_of(&github);
    harness.refresh();
    let machines = fill(&harness);

    let (mut ready, mut hedges, mut cold) = (Vec::new(), 0, 0);
    for batch in 1..=CLAIMS / BATCH {
        let run = batch.to_string();
        let done = harness.ondeck(&provision(&run, BATCH));
        let instances = done["instances"].as_array().unwrap();
        ready.extend(instances.iter().map(|it| it["readyMs"].as_u64().unwrap()));
        cold += texts(&done, "source").filter(|source| *source != "warm").count();
        hedges += done["search"]["hedges"].as_u64().unwrap_or_default();
        harness.ondeck(&["release", &format!("--run-id={run}")]);
        let slowest = ready[ready.len() - BATCH..].iter().max().unwrap();
        let mut out = std::io::stderr().lock();
        writeln!(out, "batch {batch}: the slowest ready after {slowest} ms").unwrap();
    }
    let is_lost = |it: &Machine| machines.contains(&it.id) && !it.reason.is_empty();
    let all = harness.gateway.ec2().machines();
    let lost: Vec<&Machine> = all.iter().filter(|it| is_lost(it)).collect();

    ready.sort_unstable();
    let of =
        |share: usize| ready[(ready.len() * share / 1_000).min(ready.len() - 1)] as f64 / 1_000.0;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{} warm claims in batches of {BATCH}, registration times x {SCALE}: median {:.1} s, p90 {:.1} s, \
         p99 {:.1} s, slowest {:.1} s; {hedges} hedged, {cold} new machines, {} of {MACHINES} \
         machines lost; {:.0} s in all",
        ready.len() - cold,
        of(500),
        of(900),
        of(990),
        of(1_000),
        lost.len(),
        began.elapsed().as_secs_f64(),
    )
    .unwrap();
    for machine in &lost {
        writeln!(out, "lost: {}: {}", machine.id, machine.reason).unwrap();
    }
    i32::from(!lost.is_empty())
}

/// Puts the machines into the pool, a few at a time: each of them unpacks its own runner.
fn fill(harness: &BenchHarness) -> BTreeSet<String> {
    const STEP: usize = 10;
    let runs: Vec<String> = (0..MACHINES / STEP).map(|number| format!("fill-{number}")).collect();
    let mut machines = BTreeSet::new();
    for run in &runs {
        let filled = harness.ondeck(&provision(run, STEP));
        machines.extend(texts(&filled, "instanceId").map(str::to_owned));
    }
    for run in &runs {
        harness.ondeck(&["release", &format!("--run-id={run}")]);
    }
    assert_eq!(machines.len(), MACHINES);
    machines
}

/// The variables with which the program takes its jobs from this GitHub.
pub(crate) fn variables(github: &GitHub) -> Vec<(&'static str, String)> {
    let user = Command::new("id").arg("-un").output().unwrap().stdout;
    vec![
        ("ONDECK_FORGE", "github".to_owned()),
        ("ONDECK_GITHUB_URL", github.url().to_owned()),
        ("ONDECK_REPOSITORY", REPOSITORY.to_owned()),
        ("ONDECK_GITHUB_TOKEN", TOKEN.to_owned()),
        // Machines are processes of one computer, and each clears up after its user.
        ("ONDECK_RUNNER_USER", String::from_utf8(user).unwrap().trim().to_owned()),
    ]
}

fn provision(run: &str, count: usize) -> [String; 4] {
    let [run, count] = [format!("--run-id={run}"), format!("--instance-count={count}")];
    ["provision".to_owned(), run, count, "--json".to_owned()]
}

fn texts<'a>(outcome: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
    let instances = outcome["instances"].as_array().unwrap();
    instances.iter().map(move |instance| instance[field].as_str().unwrap())
}
