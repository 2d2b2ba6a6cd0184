//! What the three modes cost on AWS, in calls and in units of DynamoDB: counted at a gateway between
//! the built program and the emulators, with real agents on the machines. Each call costs a round
//! trip, and units cost money and are limited for each partition key.
//!
//! Counts vary with load: a mode polls until its agents have answered, so a busy computer adds
//! polls. The limits leave room for that. Measure on a quiet computer.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should say where")]

mod claims;
mod units;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ondeck_aws::{Cloud, DynamoStore, Ec2Compute, Options, PoolName, SqsPool};
use ondeck_core::lifecycle::{Created, Instance};
use ondeck_core::model::ids::{IntentId, ResourceClass, RunId};
use ondeck_core::model::requirements::{ClassSize, Requirements, UsageClass};
use ondeck_core::model::settings::Settings;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Compute, Order, Pool, Random, Store};
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{
    Capacity, Endpoint, Gateway, GatewayOptions, GitHub, MachineCommand, PolicyPool, Role,
};
use serde_json::Value;

use units::{MeasuredUnits, Workload};

/// How long idle agents are watched.
const IDLE: Duration = Duration::from_secs(30);

/// Nothing here depends on chance.
struct Coin;

impl Random for Coin {
    fn number(&self) -> u64 {
        0
    }
}

/// The most calls that each may take, and what the best program of this design takes.
const LIMITS: [(&str, usize, Option<usize>); 5] = [
    ("warm provision of 10", 40, Some(66)),
    ("warm provision of 50", 150, Some(306)),
    ("release of 10", 25, Some(33)),
    ("refresh that reaps 500", 600, Some(1_520)),
    ("refresh that reaps 500 idle ones and drops their tickets", 600, None),
];

fn main() {
    if std::env::args().any(|argument| argument == "claims") {
        std::process::exit(claims::run());
    }
    let mut figures = Figures::default();
    modes(&mut figures);
    for idle in [false, true] {
        reaping(&mut figures, idle);
    }
    std::process::exit(figures.print());
}

/// Warm provisions and releases, with default settings.
fn modes(figures: &mut Figures) {
    let harness = BenchHarness::new(Duration::from_secs(2), true);
    harness.refresh();
    let cold = harness.timed(&["provision", "--run-id=fill", "--instance-count=10"]);
    harness.ondeck(&["release", "--run-id=fill"]);
    let mut warm = Duration::MAX;
    for round in 0..8 {
        warm = warm.min(hand_over(figures, &harness, 10, round));
    }
    figures.ratio = cold.as_secs_f64() / warm.as_secs_f64();
    idle(figures, &harness);
    let took = harness.timed(&["refresh"]);
    figures.add("refresh with nothing to do", &harness.control);
    let workload = Workload { machines: 10, transitions: 0, agents: true };
    let units = MeasuredUnits::new(workload, took, [harness.control.consumed()]);
    figures.add_units("refresh with nothing to do, 10 machines", units);

    harness.ondeck(&["provision", "--run-id=more", "--instance-count=50"]);
    harness.ondeck(&["release", "--run-id=more"]);
    for round in 0..3 {
        hand_over(figures, &harness, 50, round);
    }
    harness.timed(&["provision", "--run-id=none", "--resource-class=xlarge"]);
    figures.add("cold provision of 1", &harness.control);
    harness.gateway.assert_requests_valid();
    harness.gateway.assert_nothing_denied();
    harness.gateway.assert_all_measured();
}

/// A warm provision and its release. Returns how long the provision took.
fn hand_over(figures: &mut Figures, harness: &BenchHarness, count: u32, round: u32) -> Duration {
    let run = format!("--run-id={count}-{round}");
    let names = match count {
        10 => ["warm provision of 10", "release of 10", "warm provision of 10 and release"],
        _ => ["warm provision of 50", "release of 50", "warm provision of 50 and release"],
    };
    harness.agents.reset();
    let begun = Instant::now();
    let provision = harness.timed(&["provision", &run, &format!("--instance-count={count}")]);
    figures.add(names[0], &harness.control);
    let provisioned = harness.control.consumed();
    harness.timed(&["release", &run]);
    figures.add(names[1], &harness.control);
    let consumed = [provisioned, harness.control.consumed(), harness.agents.consumed()];
    // Claim, commit and release.
    let workload = Workload { machines: count, transitions: 3, agents: true };
    figures.add_units(names[2], MeasuredUnits::new(workload, begun.elapsed(), consumed));
    provision
}

/// Ten agents that wait for work, and nothing else.
fn idle(figures: &mut Figures, harness: &BenchHarness) {
    harness.agents.reset();
    let begun = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "what is measured is that nothing happens")]
    std::thread::sleep(IDLE);
    let workload = Workload { machines: 10, transitions: 0, agents: true };
    let units = MeasuredUnits::new(workload, begun.elapsed(), [harness.agents.consumed()]);
    figures.add_units("10 idle agents", units);
}

/// A refresh that finds 500 machines past their threshold, as runs that were never released have
/// left them, or waiting in the pool for longer than they may.
fn reaping(figures: &mut Figures, idle: bool) {
    let harness = BenchHarness::new(Duration::ZERO, false);
    harness.refresh();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(harness.launch_expired(500, idle));
    let took = harness.timed(&["refresh"]);
    let name = LIMITS[if idle { 4 } else { 3 }].0;
    figures.add(name, &harness.control);
    let workload = Workload { machines: 500, transitions: 1, agents: false };
    figures.add_units(name, MeasuredUnits::new(workload, took, [harness.control.consumed()]));
    let machines = harness.gateway.ec2().machines();
    let is_terminated = |m: &ondeck_standin::Machine| !m.reason.is_empty();
    assert_eq!(machines.iter().filter(|m| is_terminated(m)).count(), 500, "all of them are gone");
    harness.gateway.assert_requests_valid();
    harness.gateway.assert_nothing_denied();
    harness.gateway.assert_all_measured();
}

struct BenchHarness {
    gateway: Gateway,
    control: Endpoint,
    agents: Endpoint,
    pool: String,
    home: tempfile::TempDir,
    forge: Vec<(&'static str, String)>,
}

impl BenchHarness {
    fn new(boot: Duration, agents: bool) -> BenchHarness {
        let home = tempfile::tempdir().unwrap();
        let command = MachineCommand {
            program: env!("CARGO_BIN_EXE_ondeck").into(),
            args: ["agent", "--backend", "aws"].map(str::to_owned).to_vec(),
            env: vec![("ONDECK_HOME".to_owned(), home.path().display().to_string())],
        };
        let gateway = Gateway::start(GatewayOptions {
            command: agents.then_some(command),
            boot,
            capacity: Capacity::default(),
            measure_units: true,
            ..GatewayOptions::on(&Emulators::running())
        });
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let pool = format!("bench/p{}", now.as_nanos());
        let policy_pool = PolicyPool {
            pool: pool.clone(),
            name: pool.parse::<PoolName>().unwrap().resource_name(),
            machine_role: "ondeck-machine".to_owned(),
        };
        for role in Role::ALL {
            gateway.grant(role.name(), &policy_pool, &[role]);
        }
        // The adapters in this process use the access key of the environment.
        gateway.grant("test", &policy_pool, &[Role::Refresh]);
        let (control, agents) = (gateway.endpoint("control"), gateway.endpoint("agents"));
        let forge = vec![("ONDECK_FORGE", "local".to_owned())];
        BenchHarness { control, agents, gateway, pool, home, forge }
    }

    /// Machines that boot at once and take their jobs from this GitHub.
    fn with_jobs_of(github: &GitHub) -> BenchHarness {
        let harness = BenchHarness::new(Duration::ZERO, true);
        BenchHarness { forge: claims::variables(github), ..harness }
    }

    fn refresh(&self) {
        self.ondeck(&[
            "refresh",
            "--ami=ami-0123456789abcdef0",
            "--subnet-ids=subnet-0a subnet-0b",
            "--iam-instance-profile=ondeck-machine",
            // Long enough for a benchmark on a busy computer; costs nothing.
            "--idle-time-sec=3600",
        ]);
    }

    /// Runs it. Returns what it printed, if that is JSON.
    fn ondeck(&self, arguments: &[impl AsRef<OsStr>]) -> Value {
        let mode = arguments[0].as_ref().to_string_lossy();
        let done = Command::new(env!("CARGO_BIN_EXE_ondeck"))
            .args(arguments)
            .env("ONDECK_BACKEND", "aws")
            .envs(self.forge.iter().map(|(name, value)| (name, value)))
            .env("ONDECK_POOL", &self.pool)
            .env("ONDECK_HOME", self.home.path())
            .env("AWS_ENDPOINT_URL", self.control.url())
            .env("AWS_ACCESS_KEY_ID", Role::of_command(&mode).name())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(done.status.success(), "{mode}: {}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&done.stdout).unwrap_or_default()
    }

    /// Runs it, with calls counted from here on.
    fn timed(&self, arguments: &[&str]) -> Duration {
        self.control.reset();
        let started = Instant::now();
        self.ondeck(arguments);
        started.elapsed()
    }

    /// Launches and registers machines by the adapters themselves, with a threshold in the past.
    async fn launch_expired(&self, count: u32, idle: bool) {
        let endpoint = self.gateway.endpoint("launching");
        let options = Options {
            pool: self.pool.parse().unwrap(),
            region: None,
            endpoint_url: Some(endpoint.url().to_owned()),
        };
        let cloud = Cloud::connect(options, Arc::new(Coin)).await.unwrap();
        let store = Arc::new(DynamoStore::new(&cloud));
        let compute = Ec2Compute::new(&cloud);
        let run = RunId::new("gone").unwrap();
        let order = Order {
            intent: IntentId::new("0123456789abcdef").unwrap(),
            run: run.clone(),
            count,
            requirements: Requirements {
                class: ResourceClass::new("large").unwrap(),
                size: ClassSize { cpu: 2, mem: 4096 },
                usage: UsageClass::Spot,
                types: "c* m*".parse().unwrap(),
            },
        };
        let settings = Settings::from_map(&store.settings().await.unwrap()).unwrap();
        let launched = compute.launch(&order, &settings).await.unwrap();
        let past = Timestamp::try_from(SystemTime::now() - Duration::from_secs(60)).unwrap();
        let second = Duration::from_secs(1);
        let mut tickets = Vec::new();
        for machine in &launched.machines {
            let pending =
                Instance::<Created>::register(&machine.id, &machine.spec, &run, past, second);
            let verdict = store.write(pending.change()).await.unwrap();
            let created = pending.settle(verdict).unwrap();
            if idle {
                let pending = created.activate(past, second);
                let verdict = store.write(pending.change()).await.unwrap();
                let running = pending.settle(verdict).unwrap();
                let pending = running.release(past, second);
                let verdict = store.write(pending.change()).await.unwrap();
                tickets.push(pending.settle(verdict).unwrap().ticket());
            }
        }
        let pool = SqsPool::new(&cloud);
        pool.send(&tickets, Duration::ZERO).await.unwrap();
        store.mark_ticketed(&tickets, past).await.unwrap();
        store.finish().await.unwrap();
    }
}

/// What was counted, by name.
#[derive(Default)]
struct Figures {
    rounds: BTreeMap<&'static str, Vec<usize>>,
    last: BTreeMap<&'static str, String>,
    units: BTreeMap<&'static str, MeasuredUnits>,
    overloaded: Vec<String>,
    ratio: f64,
}

impl Figures {
    fn add(&mut self, name: &'static str, endpoint: &Endpoint) {
        self.rounds.entry(name).or_default().push(endpoint.total());
        let calls = endpoint.calls();
        let words = calls.iter().map(|((_, operation), count)| format!("{count} {operation}"));
        self.last.insert(name, words.collect::<Vec<_>>().join(", "));
    }

    fn add_units(&mut self, name: &'static str, units: MeasuredUnits) {
        self.overloaded.extend(units.overloaded().iter().map(|key| format!("{name}: {key}")));
        self.units.insert(name, units);
    }

    /// Prints them, and gives the exit code: whether every limit was kept in every round.
    fn print(&mut self) -> i32 {
        let mut out = std::io::stdout().lock();
        let mut broken = 0;
        writeln!(out, "\nAWS calls, by the built program with real agents, counted at a gateway\n")
            .unwrap();
        writeln!(out, "| | fewest | median | most | limit | ec2-runner-pool-manager | ratio |")
            .unwrap();
        writeln!(out, "| --- | --: | --: | --: | --: | --: | --: |").unwrap();
        for (name, counts) in &mut self.rounds {
            counts.sort_unstable();
            let (fewest, most) = (counts[0], counts[counts.len() - 1]);
            let median = counts[counts.len() / 2];
            let limit = LIMITS.iter().find(|(limited, ..)| limited == name);
            broken += usize::from(limit.is_some_and(|(_, limit, _)| most > *limit));
            let cell = |number: Option<usize>| number.map(|n| n.to_string()).unwrap_or_default();
            let best = limit.and_then(|(.., best)| *best);
            let ratio = best.map(|best| format!("{:.1}", best as f64 / median as f64));
            let (limit, best) = (cell(limit.map(|(_, limit, _)| *limit)), cell(best));
            let ratio = ratio.unwrap_or_default();
            writeln!(out, "| {name} | {fewest} | {median} | {most} | {limit} | {best} | {ratio} |")
                .unwrap();
        }
        writeln!(out, "\nof the last round of each:").unwrap();
        for (name, calls) in &self.last {
            writeln!(out, "  {name}: {calls}").unwrap();
        }
        writeln!(out, "\nunits of DynamoDB in the last round of each, by kind of partition key")
            .unwrap();
        for (name, units) in &self.units {
            units.print(name, &mut out).unwrap();
        }
        let ratio = self.ratio;
        writeln!(out, "\nwarm was {ratio:.0} times as fast as cold with a boot of 2 s").unwrap();
        for key in &self.overloaded {
            writeln!(out, "a key carries more than its machine or run needs: {key}").unwrap();
        }
        broken += self.overloaded.len();
        if broken > 0 {
            writeln!(out, "limits broken: {broken}").unwrap();
        }
        i32::from(broken > 0)
    }
}
