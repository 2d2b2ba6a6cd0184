//! An account of its own for each test, and the program run against it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ondeck_aws::PoolName;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_standin::emulators::Emulators;
use ondeck_standin::{
    Denial, Endpoint, Gateway, GatewayOptions, Machine, MachineCommand, MachineState, PolicyPool,
    Role,
};
use serde_json::Value;

use crate::harness::{Background, Driven, ondeck, until};

/// As long as anything may take on a busy computer.
const LIMIT: Duration = Duration::from_secs(90);

/// Short where a test waits for one to pass, long where one must not pass, as on the local
/// backend. Polls are slower, because every one of them is a request.
pub(crate) const TIMES: [&str; 16] = [
    "--heartbeat-period-sec=3",
    "--claim-registration-timeout-sec=20",
    "--claim-timeout-sec=90",
    "--created-timeout-sec=90",
    "--validation-timeout-sec=40",
    "--idle-time-sec=60",
    "--max-runtime-min=2",
    "--release-timeout-sec=40",
    "--self-termination-grace-sec=1",
    "--boot-deadline-sec=20",
    "--agent-poll-waiting-sec=0.1",
    "--agent-poll-running-sec=0.1",
    "--signal-poll-sec=0.05",
    "--ticket-hold-sec=10",
    "--pickup-patience-sec=0.3",
    "--retention-min=60",
];

/// The inputs for AWS that every test needs.
pub(crate) const LAUNCH: [&str; 4] = [
    "--ami=ami-0123456789abcdef0",
    "--subnet-ids=subnet-0a subnet-0b",
    "--security-group-ids=sg-0123456789abcdef0",
    "--iam-instance-profile=ondeck-machine",
];

/// The role in the machines' instance profile.
const MACHINE_ROLE: &str = "ondeck-machine";

/// An account with one pool, gone with the test, and every machine with it. A test that has sent
/// anything that AWS's own models do not know fails at its end.
pub(crate) struct AwsHarness {
    pub(crate) gateway: Gateway,
    /// What the control plane calls.
    pub(crate) control: Endpoint,
    pool: String,
    folder: tempfile::TempDir,
    /// Whether the test makes calls that the policies deny.
    expects_denials: bool,
}

impl AwsHarness {
    /// One that refresh has never seen.
    pub(crate) fn bare() -> AwsHarness {
        AwsHarness::whose_agents_say("-v")
    }

    /// One whose agents say this much.
    pub(crate) fn whose_agents_say(much: &str) -> AwsHarness {
        AwsHarness::where_machines_run(agent(much))
    }

    /// One that refresh has never seen, whose roles have the policies in this folder. The test may
    /// make calls that they deny.
    pub(crate) fn with_policies(policies: PathBuf) -> AwsHarness {
        let mut harness = AwsHarness::start(agent("-v"), Some(policies));
        harness.expects_denials = true;
        harness
    }

    /// Lets the test make calls that the policies deny.
    pub(crate) fn expect_denials(&mut self) {
        self.expects_denials = true;
    }

    /// One whose machines run something else.
    pub(crate) fn where_machines_run(command: MachineCommand) -> AwsHarness {
        AwsHarness::start(command, None)
    }

    fn start(command: MachineCommand, policies: Option<PathBuf>) -> AwsHarness {
        AwsHarness::start_on(command, policies, Duration::ZERO)
    }

    /// One whose machines run this, under these policies in place of the project's, and have so much time
    /// to shut down.
    pub(crate) fn start_on(
        mut command: MachineCommand,
        policies: Option<PathBuf>,
        shutdown: Duration,
    ) -> AwsHarness {
        static POOLS: AtomicU32 = AtomicU32::new(0);
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().join("home").display().to_string();
        command.env.push(("ONDECK_HOME".to_owned(), home));
        let mut options = GatewayOptions {
            command: Some(command),
            shutdown,
            logs: Some(folder.path().join("logs")),
            ..GatewayOptions::on(&Emulators::running())
        };
        options.policies = policies.or(options.policies);
        // Those that the examples name.
        for (id, zone) in [("0123456789abcdef0", "a"), ("0fedcba9876543210", "b")] {
            options.subnets.insert(format!("subnet-{id}"), format!("us-east-1{zone}"));
        }
        for zone in ["c", "d", "e", "f"] {
            options.subnets.insert(format!("subnet-0{zone}"), format!("us-east-1{zone}"));
        }
        let gateway = Gateway::start(options);
        let number = POOLS.fetch_add(1, Ordering::Relaxed);
        let pool = format!("test/p{}-{number}", std::process::id());
        let control = gateway.endpoint("control");
        let harness = AwsHarness { control, gateway, pool, folder, expects_denials: false };
        for role in Role::ALL {
            harness.grant(role.name(), &harness.pool, &[role]);
        }
        harness
    }

    /// Gives an access key the policies of these roles for a pool.
    pub(crate) fn grant(&self, key: &str, pool: &str, roles: &[Role]) {
        let name = pool.parse::<PoolName>().unwrap().resource_name();
        let machine_role = MACHINE_ROLE.to_owned();
        let pool = PolicyPool { pool: pool.to_ascii_lowercase(), name, machine_role };
        self.gateway.grant(key, &pool, roles);
    }

    /// The calls that the policies denied.
    pub(crate) fn denials(&self) -> Vec<Denial> {
        self.gateway.denials()
    }

    /// One that is set up, with short times and the given inputs.
    pub(crate) fn with(inputs: &[&str]) -> AwsHarness {
        let harness = AwsHarness::bare();
        harness.set_up(inputs);
        harness
    }

    pub(crate) fn set_up(&self, inputs: &[&str]) {
        self.ondeck(&[&["refresh"], &TIMES[..], &LAUNCH[..]].concat()).succeeded();
        if !inputs.is_empty() {
            self.refresh(inputs);
        }
    }

    /// What leads to the account and its pool. The access key is refresh's, whose policy covers
    /// the other modes as well.
    pub(crate) fn account(&self) -> [(&'static str, String); 5] {
        [
            ("ONDECK_POOL", self.pool.clone()),
            ("AWS_ENDPOINT_URL", self.control.url().to_owned()),
            ("AWS_ACCESS_KEY_ID", Role::Refresh.name().to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ]
    }

    /// What the pool is called.
    pub(crate) fn pool(&self) -> &str {
        &self.pool
    }

    /// What its table is called, but for the digest at the end.
    pub(crate) fn table(&self) -> String {
        format!("ondeck-{}-", self.pool.replace('/', "-"))
    }

    /// Where the local forge is.
    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// What machines have said.
    pub(crate) fn logs(&self) -> PathBuf {
        self.folder.path().join("logs")
    }

    /// So many idle machines.
    pub(crate) fn warm_up(&self, count: u32) -> Vec<String> {
        let machines = self.provision("warm-up", count).succeeded().ids();
        self.release("warm-up").succeeded();
        machines
    }

    /// How many tickets are in the pool of the class that tests use, hidden ones included.
    pub(crate) fn tickets(&self) -> u64 {
        self.status()["pool"]["large"].as_u64().unwrap()
    }

    /// The machines that EC2 has and has not terminated.
    pub(crate) fn machines(&self) -> BTreeSet<String> {
        let alive = self.gateway.ec2().machines().into_iter().filter(is_alive);
        alive.map(|machine| machine.id).collect()
    }

    /// Waits until EC2 has so many machines.
    #[track_caller]
    pub(crate) fn until_machines(&self, count: usize) {
        let so = |machines: &[Machine]| machines.iter().filter(|m| is_alive(m)).count() == count;
        if let Err(machines) = self.gateway.ec2().wait(LIMIT, so) {
            panic!("not {count} machines: {machines:#?}");
        }
    }

    /// Waits until the time of these machines is up.
    #[track_caller]
    pub(crate) fn until_expired(&self, machines: &[String]) {
        until("their time is up", || {
            let (status, now) = (self.status(), now().to_string());
            let instances = status["instances"].as_array().unwrap();
            let is_over = |id: &String| {
                let mut found = instances.iter().filter(|instance| instance["instanceId"] == **id);
                found.all(|instance| instance["threshold"].as_str().unwrap() < &*now)
            };
            machines.iter().all(is_over)
        });
    }

    /// Waits until refresh has seen to it that nothing of the pool is alive.
    #[track_caller]
    pub(crate) fn until_empty(&self) {
        let since = Instant::now();
        loop {
            let refreshed = self.refresh(&[]);
            // A ticket may be hidden for a while, and is dropped by the refresh that meets it.
            let left = (self.standings(), self.machines(), self.tickets());
            if left == (Vec::new(), BTreeSet::new(), 0) {
                break;
            }
            assert!(since.elapsed() < LIMIT, "still left: {left:?}, after {refreshed}");
        }
    }
}

impl Driven for AwsHarness {
    fn command(&self, arguments: &[&str]) -> Command {
        let role = Role::of_command(arguments.first().copied().unwrap_or_default());
        let mut command = ondeck(arguments);
        command
            .envs(self.account())
            .env("AWS_ACCESS_KEY_ID", role.name())
            .env("ONDECK_BACKEND", "aws")
            .env("ONDECK_FORGE", "local")
            .env("ONDECK_HOME", self.home())
            .env("AWS_REGION", "us-east-1");
        command
    }

    /// Uses an endpoint of its own, which injects no faults and is not counted.
    fn status(&self) -> Value {
        let observer = self.gateway.endpoint("observer");
        let mut command = self.command(&["status", "--json"]);
        command.env("AWS_ENDPOINT_URL", observer.url());
        Background::start(&mut command).finish().succeeded().json()
    }
}

impl Drop for AwsHarness {
    fn drop(&mut self) {
        // One that fails already has said why.
        if !std::thread::panicking() {
            self.gateway.assert_requests_valid();
            let denials: Vec<String> = self.denials().iter().map(ToString::to_string).collect();
            let fits = self.expects_denials || denials.is_empty();
            assert!(fits, "calls that the policies deny:\n{}", denials.join("\n"));
        }
    }
}

/// The command of a machine whose agent says this much.
fn agent(much: &str) -> MachineCommand {
    MachineCommand {
        program: env!("CARGO_BIN_EXE_ondeck").into(),
        args: ["agent", "--backend", "aws", much].map(str::to_owned).to_vec(),
        env: Vec::new(),
    }
}

fn is_alive(machine: &Machine) -> bool {
    !matches!(machine.state, MachineState::ShuttingDown | MachineState::Terminated)
}

pub(crate) fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap()
}
