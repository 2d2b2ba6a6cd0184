//! The gateway: endpoints that stand for all of AWS, in front of the emulators and our EC2.

mod critical_path;
mod duplicates;
mod endpoint;
mod enforce;
mod long_polls;
mod meter;
mod route;
mod serve;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::aws::ec2::{Capacity, Ec2};
use crate::aws::iam::{PolicyPool, Role};
use crate::aws::machines::{MachineCommand, Machines};
use crate::aws::models::{Models, Violation};
use crate::aws::sqs::Sqs;
use crate::emulators::Emulators;
use crate::http::{self, listen};
use crate::sync::locked;

pub use critical_path::critical_path;
use duplicates::Duplicates;
pub use endpoint::{Endpoint, LogEntry};
use enforce::Enforcement;
pub use enforce::{Denial, IamDecision};
use long_polls::LongPolls;
use meter::Meter;
use serve::EndpointHandler;
use upstream::Upstreams;

/// The endpoint that machines use.
const AGENTS: &str = "agents";
/// The endpoint that listens on [`GatewayOptions::port`].
const CONTROL: &str = "control";

/// How a [`Gateway`] behaves.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// The URL of a DynamoDB emulator.
    pub dynamodb: String,
    /// The URL of an emulator for SQS, STS, SSM, Secrets Manager and CloudWatch Logs.
    pub sqs: String,
    /// Whether SQS is in this process and in memory, rather than the emulator's. It takes far less processor
    /// time, and refuses what ondeck does not use.
    pub sqs_in_process: bool,
    /// The folder with the API's models. Without it, requests are not checked.
    pub models: Option<PathBuf>,
    /// The folder with the policies of the roles. Without it, every caller may do everything. With
    /// it, a caller may do what [`Gateway::grant`] gives it, and a machine what its role allows.
    pub policies: Option<PathBuf>,
    /// Whether the units that DynamoDB would bill are measured, see [`Endpoint::consumed`]. Each write
    /// then reads its items before and after, so writes take longer.
    pub measure_units: bool,
    /// Whether [`Gateway::decisions`] keeps each answer of IAM.
    pub record_decisions: bool,
    /// Whether the log keeps the bodies of requests, see [`LogEntry::body`].
    pub record_bodies: bool,
    /// Whether requests that violate the models are refused. Otherwise they
    /// are recorded and forwarded.
    pub refuse_unknown: bool,
    /// The port of the endpoint named `control`; 0 for any free one.
    pub port: u16,
    /// The region that the metadata service reports.
    pub region: String,
    /// The command that a machine runs. Without it, machines are listed but have no processes.
    pub command: Option<MachineCommand>,
    /// The time from a machine's launch to the start of its command.
    pub boot: Duration,
    /// How long the command of a machine that goes down has after SIGTERM, as a service of systemd has
    /// it. Zero kills it at once.
    pub shutdown: Duration,
    /// The folder for each machine's output, `ID.log`. Without it, the logs are in a temporary
    /// folder that the gateway removes.
    pub logs: Option<PathBuf>,
    /// The subnets that exist, with their zones. If empty, every subnet exists.
    pub subnets: BTreeMap<String, String>,
    /// How many machines can be launched.
    pub capacity: Capacity,
    /// The largest page of a list, even if a request asks for more.
    pub page: usize,
    /// How long EC2 lists terminated machines.
    pub terminated_stay: Duration,
    /// Receives an entry for every finished request.
    pub watch: Option<Sender<LogEntry>>,
}

impl GatewayOptions {
    /// Uses the emulators of the tests, checks requests, and enforces the project's policies.
    /// Machines have no command.
    pub fn on(emulators: &Emulators) -> GatewayOptions {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        GatewayOptions {
            models: Some(emulators.models.clone()),
            policies: Some(project.join("policies")),
            ..GatewayOptions::at(&emulators.dynamodb, &emulators.ministack)
        }
    }

    /// Uses these two emulators, and neither checks requests nor enforces policies. Machines have no
    /// command.
    pub fn at(dynamodb: &str, sqs: &str) -> GatewayOptions {
        let zones = [("subnet-0a", "us-east-1a"), ("subnet-0b", "us-east-1b")];
        GatewayOptions {
            dynamodb: dynamodb.to_owned(),
            sqs: sqs.to_owned(),
            sqs_in_process: false,
            models: None,
            policies: None,
            measure_units: false,
            record_decisions: false,
            record_bodies: false,
            refuse_unknown: false,
            port: 0,
            region: "us-east-1".to_owned(),
            command: None,
            boot: Duration::ZERO,
            shutdown: Duration::ZERO,
            logs: None,
            subnets: zones.map(|(id, zone)| (id.to_owned(), zone.to_owned())).into(),
            capacity: Capacity::default(),
            page: 1_000,
            terminated_stay: Duration::from_secs(3_600),
            watch: None,
        }
    }
}

/// AWS on loopback. Dropping it kills every machine's processes.
///
/// No method blocks, so asynchronous tests can call them too.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

/// The state that all endpoints share.
#[derive(Debug)]
pub(crate) struct Shared {
    upstreams: Upstreams,
    models: Option<Models>,
    enforcement: Option<Enforcement>,
    meter: Option<Meter>,
    record_bodies: bool,
    refuse_unknown: bool,
    ec2: Ec2,
    duplicates: Duplicates,
    long_polls: LongPolls,
    violations: Mutex<Vec<Violation>>,
    endpoints: Mutex<BTreeMap<String, Endpoint>>,
    watch: Option<Sender<LogEntry>>,
}

impl Gateway {
    /// Starts the gateway with the endpoints `control` and `agents`.
    ///
    /// # Panics
    /// If the port is taken, a URL is invalid, a model is missing, or the system refuses a thread,
    /// a listener or a folder.
    pub fn start(options: GatewayOptions) -> Gateway {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("standin")
            .enable_all()
            .build()
            .expect("the system has threads");
        let control = listen(options.port);
        let agents = listen(0);
        let agents_endpoint = Endpoint::new(AGENTS, &agents);
        let machines = Machines::new(&options, agents_endpoint.url(), runtime.handle().clone());
        let shared = Arc::new(Shared {
            upstreams: Upstreams::new(
                &options.dynamodb,
                &options.sqs,
                options.sqs_in_process.then(|| Sqs::new(&options.region, options.page)),
            ),
            models: options.models.as_deref().map(Models::new),
            enforcement: options
                .policies
                .as_deref()
                .map(|folder| Enforcement::new(folder, &options.region, options.record_decisions)),
            meter: options.measure_units.then(Meter::default),
            record_bodies: options.record_bodies,
            refuse_unknown: options.refuse_unknown,
            ec2: Ec2::new(&options, machines),
            duplicates: Duplicates::default(),
            long_polls: LongPolls::default(),
            violations: Mutex::default(),
            endpoints: Mutex::default(),
            watch: options.watch,
        });
        let gateway = Gateway { shared, runtime: Some(runtime) };
        gateway.open(Endpoint::new(CONTROL, &control), control);
        gateway.open(agents_endpoint, agents);
        gateway.shared.ec2.watch_shutdowns();
        gateway
    }

    /// The endpoint of this name, created if it is new. Each has its own counters and fault rules.
    pub fn endpoint(&self, name: &str) -> Endpoint {
        let found = locked(&self.shared.endpoints).get(name).cloned();
        found.unwrap_or_else(|| {
            let listener = listen(0);
            self.open(Endpoint::new(name, &listener), listener)
        })
    }

    /// Direct access to the machines, without the API.
    pub fn ec2(&self) -> &Ec2 {
        &self.shared.ec2
    }

    /// Every violation of the API's models so far, at any endpoint.
    pub fn violations(&self) -> Vec<Violation> {
        locked(&self.shared.violations).clone()
    }

    /// Asserts that all requests so far were valid by the API's models.
    ///
    /// # Panics
    /// If any request violated them.
    pub fn assert_requests_valid(&self) {
        let mut violations: Vec<String> =
            self.violations().iter().map(ToString::to_string).collect();
        violations.sort();
        violations.dedup();
        assert!(
            violations.is_empty(),
            "requests that the API's models do not know:\n{}",
            violations.join("\n")
        );
    }

    /// Gives an access key the policies of these roles for a pool. Machines of the pool that have an
    /// instance profile get the policy of [`Role::Machine`] by the keys of their metadata service.
    /// Has no effect without [`GatewayOptions::policies`].
    ///
    /// # Panics
    /// If a policy has elements that the stand-in does not know.
    pub fn grant(&self, access_key: &str, pool: &PolicyPool, roles: &[Role]) {
        if let Some(enforcement) = &self.shared.enforcement {
            enforcement.grant(access_key, pool, roles);
        }
    }

    /// Adds a role with this trust policy, in which `ACCOUNT` stands for the account, and the policies of
    /// these roles for a pool. Returns its ARN, which is empty without [`GatewayOptions::policies`].
    ///
    /// # Panics
    /// If the trust policy has elements that the stand-in does not know.
    pub fn add_role(&self, name: &str, trust: &str, pool: &PolicyPool, roles: &[Role]) -> String {
        let Some(enforcement) = &self.shared.enforcement else { return String::new() };
        let added = enforcement.add_role(name, trust, pool, roles);
        added.unwrap_or_else(|problem| panic!("trust policy of {name}: {problem}"))
    }

    /// A token with these claims, as GitHub issues it to a job. STS exchanges it for the credentials of
    /// a role that trusts it. Empty without [`GatewayOptions::policies`].
    pub fn issue_token(&self, claims: &[(&str, &str)]) -> String {
        let enforcement = self.shared.enforcement.as_ref();
        enforcement.map(|it| it.issue_token(claims)).unwrap_or_default()
    }

    /// Replaces the policies of an access key, a machine's included, by one policy without
    /// placeholders. Has no effect without [`GatewayOptions::policies`].
    ///
    /// # Panics
    /// If the key is unknown, or the policy has elements that the stand-in does not know.
    pub fn replace_policy(&self, access_key: &str, policy: &str) {
        if let Some(enforcement) = &self.shared.enforcement {
            enforcement
                .replace(access_key, policy, &self.shared.ec2)
                .unwrap_or_else(|problem| panic!("policy of {access_key}: {problem}"));
        }
    }

    /// Every call so far that the caller's policies did not allow, at any endpoint.
    pub fn denials(&self) -> Vec<Denial> {
        self.shared.enforcement.as_ref().map(Enforcement::denials).unwrap_or_default()
    }

    /// Each answer of IAM so far, if the options say that they are kept.
    pub fn decisions(&self) -> Vec<IamDecision> {
        self.shared.enforcement.as_ref().map(Enforcement::decisions).unwrap_or_default()
    }

    /// Asserts that the policies allowed all calls so far.
    ///
    /// # Panics
    /// If any call was denied.
    pub fn assert_nothing_denied(&self) {
        let mut denials: Vec<String> = self.denials().iter().map(ToString::to_string).collect();
        denials.sort();
        denials.dedup();
        assert!(denials.is_empty(), "calls that the policies deny:\n{}", denials.join("\n"));
    }

    /// The operations on items, at any endpoint, whose units are missing in [`Endpoint::consumed`],
    /// each with the reason.
    pub fn unmeasured(&self) -> BTreeSet<String> {
        self.shared.meter.as_ref().map(Meter::unmeasured).unwrap_or_default()
    }

    /// Asserts that the units of all calls so far are known.
    ///
    /// # Panics
    /// If those of any call are not.
    pub fn assert_all_measured(&self) {
        let unmeasured = self.unmeasured();
        assert!(unmeasured.is_empty(), "calls whose units are unknown: {unmeasured:?}");
    }

    fn open(&self, endpoint: Endpoint, listener: TcpListener) -> Endpoint {
        if let Some(runtime) = &self.runtime {
            let gate = endpoint.state().gate();
            let at = EndpointHandler { endpoint: endpoint.state(), shared: self.shared.clone() };
            runtime.spawn(http::serve_at(listener, Arc::new(at), gate));
        }
        locked(&self.shared.endpoints).insert(endpoint.name().to_owned(), endpoint.clone());
        endpoint
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.shared.ec2.terminate_all();
        // A gateway that is dropped within another runtime must not wait for this one's threads,
        // and no task of it is needed any more.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
