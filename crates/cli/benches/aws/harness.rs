//! A pool on emulated AWS behind a gateway, and the built program as its user starts it.

use std::ffi::OsStr;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant, SystemTime};

use ondeck_aws::PoolName;
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{
    AwsFault, AwsFaultRule, Capacity, Endpoint, Gateway, GatewayOptions, GitHub, LogEntry,
    MachineCommand, PolicyPool, Role,
};
use serde_json::Value;

use crate::adapters::Adapters;
use crate::claims;
use crate::cpu::{self, Cpu};

/// The program to measure instead of the one that was built with the benchmark.
const PROGRAM: &str = "ONDECK_BENCH_PROGRAM";

#[derive(Debug, Default)]
pub(crate) struct HarnessOptions {
    /// The time from a machine's launch to the start of its agent.
    pub(crate) boot: Duration,
    /// Whether machines run agents.
    pub(crate) agents: bool,
    /// Whether requests are checked, policies enforced and units measured. All three take time.
    pub(crate) checked: bool,
    /// What the gateway adds to each call, of the control plane and of agents.
    pub(crate) latency: Duration,
    /// Whether EC2 forgets terminated machines after a second, and not after an hour as AWS does.
    pub(crate) forgets: bool,
    /// Receives each finished request.
    pub(crate) watch: Option<Sender<LogEntry>>,
    /// The program of the control plane and of agents, if not [`program`].
    pub(crate) program: Option<PathBuf>,
    /// The variables that say where jobs come from; those of the local forge if there are none.
    pub(crate) forge: Vec<(&'static str, String)>,
}

pub(crate) struct BenchHarness {
    pub(crate) gateway: Gateway,
    pub(crate) control: Endpoint,
    pub(crate) agents: Endpoint,
    pool: String,
    home: tempfile::TempDir,
    forge: Vec<(&'static str, String)>,
    program: PathBuf,
}

impl BenchHarness {
    pub(crate) fn new(options: HarnessOptions) -> BenchHarness {
        let home = tempfile::tempdir().unwrap();
        let program = options.program.unwrap_or_else(program);
        let command = MachineCommand {
            program: program.clone(),
            args: ["agent", "--backend", "aws"].map(str::to_owned).to_vec(),
            env: vec![("ONDECK_HOME".to_owned(), home.path().display().to_string())],
        };
        let emulators = Emulators::running();
        let base = match options.checked {
            true => GatewayOptions::on(&emulators),
            false => GatewayOptions::at(&emulators.dynamodb, &emulators.ministack),
        };
        let terminated_stay = match options.forgets {
            true => Duration::from_secs(1),
            false => base.terminated_stay,
        };
        let gateway = Gateway::start(GatewayOptions {
            terminated_stay,
            // The processor time of an emulator in Python would be most of that of a round.
            sqs_in_process: true,
            command: options.agents.then_some(command),
            boot: options.boot,
            capacity: Capacity::default(),
            measure_units: options.checked,
            record_bodies: true,
            watch: options.watch,
            ..base
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
        let forge = match options.forge {
            none if none.is_empty() => vec![("ONDECK_FORGE", "local".to_owned())],
            given => given,
        };
        let harness = BenchHarness { control, agents, gateway, pool, home, forge, program };
        if !options.latency.is_zero() {
            for endpoint in [&harness.control, &harness.agents, &harness.gateway.endpoint(PROBE)] {
                endpoint.inject(AwsFaultRule::new(AwsFault::Delay(options.latency)));
            }
        }
        harness
    }

    /// Machines that boot at once and take their jobs from this GitHub.
    pub(crate) fn with_jobs_of(github: &GitHub) -> BenchHarness {
        let forge = claims::variables(github);
        let options =
            HarnessOptions { agents: true, checked: true, forge, ..HarnessOptions::default() };
        BenchHarness::new(options)
    }

    /// The adapters in this process, at an endpoint with the latency of the program's.
    pub(crate) fn probe(&self) -> Adapters {
        Adapters::at(self.gateway.endpoint(PROBE).url(), &self.pool)
    }

    /// The adapters in this process, at an endpoint without any added latency.
    pub(crate) fn adapters(&self) -> Adapters {
        Adapters::at(self.gateway.endpoint("launching").url(), &self.pool)
    }

    /// The adapters in this process, at the emulator of DynamoDB itself.
    pub(crate) fn behind_gateway(&self) -> Adapters {
        Adapters::at(&Emulators::running().dynamodb, &self.pool)
    }

    pub(crate) fn refresh(&self) {
        self.ondeck(&REFRESH);
    }

    /// Runs it. Returns what it printed, if that is JSON.
    pub(crate) fn ondeck(&self, arguments: &[impl AsRef<OsStr>]) -> Value {
        self.run(arguments, 0).1
    }

    /// Runs it, with calls counted from here on.
    pub(crate) fn timed(&self, arguments: &[&str]) -> Duration {
        self.control.reset();
        self.run(arguments, 0).0
    }

    /// Runs it and expects this exit code. Returns how long the process took, and what it printed.
    pub(crate) fn run(&self, arguments: &[impl AsRef<OsStr>], code: i32) -> (Duration, Value) {
        let Ran { took, printed, .. } = self.measured(arguments, code);
        (took, printed)
    }

    /// Like [`BenchHarness::run`], with the processor time of all that took part.
    pub(crate) fn measured(&self, arguments: &[impl AsRef<OsStr>], code: i32) -> Ran {
        let mode = arguments[0].as_ref().to_string_lossy();
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("ONDECK_BACKEND", "aws")
            .envs(self.forge.iter().map(|(name, value)| (name, value)))
            .env("ONDECK_POOL", &self.pool)
            .env("ONDECK_HOME", self.home.path())
            .env("AWS_ENDPOINT_URL", self.control.url())
            .env("AWS_ACCESS_KEY_ID", Role::of_command(&mode).name())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let before = Cpu::now(&self.gateway);
        let started = Instant::now();
        let mut child = command.spawn().unwrap();
        let stderr = cpu::read_beside(child.stderr.take().unwrap());
        let mut stdout = Vec::new();
        child.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        let (status, program) = cpu::wait(&mut child);
        let took = started.elapsed();
        let cpu = Cpu::now(&self.gateway).since(before, program);
        let stderr = stderr.join().unwrap();
        assert_eq!(status.code(), Some(code), "{mode}: {}", String::from_utf8_lossy(&stderr));
        Ran { took, cpu, printed: serde_json::from_slice(&stdout).unwrap_or_default() }
    }
}

/// What a process of the program has done.
pub(crate) struct Ran {
    pub(crate) took: Duration,
    pub(crate) cpu: Cpu,
    /// What it printed, if that is JSON.
    pub(crate) printed: Value,
}

/// The call that sets a pool up.
pub(crate) const REFRESH: [&str; 5] = [
    "refresh",
    "--ami=ami-0123456789abcdef0",
    "--subnet-ids=subnet-0a subnet-0b",
    "--iam-instance-profile=ondeck-machine",
    // Long enough for a benchmark on a busy computer; costs nothing.
    "--idle-time-sec=3600",
];

/// The endpoint of calls that measure a round trip.
const PROBE: &str = "probe";

/// The program that is measured.
pub(crate) fn program() -> PathBuf {
    let given = std::env::var_os(PROGRAM).map(PathBuf::from);
    given.unwrap_or_else(|| env!("CARGO_BIN_EXE_ondeck").into())
}
