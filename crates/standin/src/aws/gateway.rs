//! The one address behind which all of AWS is.

mod duplicates;
mod endpoint;
mod route;
mod serve;
mod upstream;

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::aws::ec2::{Capacity, Ec2};
use crate::aws::machines::{MachineCommand, Machines};
use crate::aws::models::{Models, Violation};
use crate::emulators::Emulators;
use crate::http::{self, listen};
use crate::sync::locked;

use duplicates::Duplicates;
pub use endpoint::{Endpoint, LogEntry};
use serve::EndpointHandler;
use upstream::Upstreams;

/// The door that machines are pointed to.
const AGENTS: &str = "agents";
/// The door that has the port of the options.
const CONTROL: &str = "control";

/// What a gateway is to stand in for, and how.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Where DynamoDB is.
    pub dynamodb: String,
    /// Where SQS and STS are.
    pub sqs: String,
    /// The folder with the API's models. Without it, requests are not checked.
    pub models: Option<PathBuf>,
    /// Whether what the models do not know is refused at once. Otherwise it is noted, and passed on.
    pub refuse_unknown: bool,
    /// The port of the door named `control`; 0 for any.
    pub port: u16,
    /// The region that machines say they are in.
    pub region: String,
    /// What a machine runs. Without it, machines are entries in a list and nothing else.
    pub command: Option<MachineCommand>,
    /// How long a machine takes from its launch to its command.
    pub boot: Duration,
    /// Where each machine's output goes, to `ID.log`. Without it, to a folder that goes with the
    /// gateway.
    pub logs: Option<PathBuf>,
    /// The subnets that exist, and the zone of each. Where there is none, all of them do.
    pub subnets: BTreeMap<String, String>,
    /// How many machines can be had.
    pub capacity: Capacity,
    /// How many entries a page has at the most, whatever was asked for.
    pub page: usize,
    /// How long terminated machines stay listed.
    pub terminated_stay: Duration,
    /// Who is told of every request.
    pub watch: Option<Sender<LogEntry>>,
}

impl GatewayOptions {
    /// In front of the emulators that tests have, with checks, and machines without a command.
    pub fn on(emulators: &Emulators) -> GatewayOptions {
        GatewayOptions {
            models: Some(emulators.models.clone()),
            ..GatewayOptions::at(&emulators.dynamodb, &emulators.ministack)
        }
    }

    /// In front of these two, without checks, and machines without a command.
    pub fn at(dynamodb: &str, sqs: &str) -> GatewayOptions {
        let zones = [("subnet-0a", "us-east-1a"), ("subnet-0b", "us-east-1b")];
        GatewayOptions {
            dynamodb: dynamodb.to_owned(),
            sqs: sqs.to_owned(),
            models: None,
            refuse_unknown: false,
            port: 0,
            region: "us-east-1".to_owned(),
            command: None,
            boot: Duration::ZERO,
            logs: None,
            subnets: zones.map(|(id, zone)| (id.to_owned(), zone.to_owned())).into(),
            capacity: Capacity::default(),
            page: 1_000,
            terminated_stay: Duration::from_secs(3_600),
            watch: None,
        }
    }
}

/// AWS on loopback, from here until it is dropped. Then every machine's processes are gone too.
///
/// All methods return at once, so that it can be used from any test, asynchronous or not.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

/// What all doors have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    upstreams: Upstreams,
    models: Option<Models>,
    refuse_unknown: bool,
    ec2: Ec2,
    duplicates: Duplicates,
    violations: Mutex<Vec<Violation>>,
    endpoints: Mutex<BTreeMap<String, Endpoint>>,
    watch: Option<Sender<LogEntry>>,
}

impl Gateway {
    /// Opens the doors `control` and `agents`.
    ///
    /// # Panics
    /// If the port is taken, an address is none, a model is missing, or the system refuses a
    /// thread, a listener or a folder.
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
            upstreams: Upstreams::new(&options.dynamodb, &options.sqs),
            models: options.models.as_deref().map(Models::new),
            refuse_unknown: options.refuse_unknown,
            ec2: Ec2::new(&options, machines),
            duplicates: Duplicates::default(),
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

    /// The door of this name, opened if it is new. Each counts and disturbs on its own.
    pub fn endpoint(&self, name: &str) -> Endpoint {
        let found = locked(&self.shared.endpoints).get(name).cloned();
        found.unwrap_or_else(|| {
            let listener = listen(0);
            self.open(Endpoint::new(name, &listener), listener)
        })
    }

    /// The machines, and what can be done to them without asking the API.
    pub fn ec2(&self) -> &Ec2 {
        &self.shared.ec2
    }

    /// What was sent, at any door, that the API's models do not know.
    pub fn violations(&self) -> Vec<Violation> {
        locked(&self.shared.violations).clone()
    }

    /// # Panics
    /// If any request was not as the API's models have it.
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
        // Waiting for the runtime's threads is forbidden where the gateway is dropped within
        // another runtime, and nothing of it is needed any more.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
