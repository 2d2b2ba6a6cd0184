//! A storm over the aws backend: processes, and services that are gone for a while or fail. An
//! agent that is killed comes back, as on a real machine.

mod stream;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use fastrand::Rng;
use ondeck_core::audit::InstanceWrite;
use ondeck_standin::{AwsFault, AwsFaultRule, Endpoint, MachineCommand, Occurrence};

use self::stream::Stream;
use super::storm::{self, StormTarget};
use super::storm_log::StormLog;
use super::{audit, seed};
use crate::aws::harness::AwsHarness;
use crate::harness::{Driven, agents_among, processes_naming};

/// One call in fifty goes wrong in one of these ways, all the time.
const FAULTS: [AwsFault; 5] = [
    AwsFault::Reset,
    AwsFault::LostAnswer,
    AwsFault::CutBody,
    AwsFault::Status(500),
    AwsFault::Throttle,
];
const PROBABILITY: f64 = 0.004;

/// The services, and the variable that leads to each.
const SERVICES: [(&str, &str); 3] = [
    ("DynamoDB", "AWS_ENDPOINT_URL_DYNAMODB"),
    ("SQS", "AWS_ENDPOINT_URL_SQS"),
    ("EC2", "AWS_ENDPOINT_URL_EC2"),
];

/// What the service of a real machine does: an agent that has died is started again, once nothing
/// is left of what it had started.
const SERVICE: &str = r#"
    while :; do
        "$0" "$@"
        for found in $(grep -lzxF "ONDECK_INSTANCE_ID=$ONDECK_STANDIN_INSTANCE" \
            /proc/[0-9]*/environ 2>/dev/null); do
            pid=${found#/proc/}
            kill -s KILL "${pid%/environ}" 2>/dev/null
        done
        sleep 0.5
    done
"#;

#[test]
fn a_storm_over_three_services_and_many_processes() {
    let seed = seed();
    let agent = [SERVICE, env!("CARGO_BIN_EXE_ondeck"), "agent", "--backend", "aws", "-v"];
    let harness = AwsHarness::where_machines_run(MachineCommand {
        program: "/bin/sh".into(),
        args: ["-c"].iter().chain(&agent).map(|&word| word.to_owned()).collect(),
        env: Vec::new(),
    });
    harness.set_up(&storm::TIMES);
    let stream = Stream::of(&harness.table());
    storm::over(&AwsTarget { harness, stream }, seed);
}

struct AwsTarget {
    harness: AwsHarness,
    stream: Stream,
}

impl AwsTarget {
    /// The control plane's endpoint of one service.
    fn endpoint(&self, service: &str) -> Endpoint {
        self.harness.gateway.endpoint(service)
    }

    /// The machines' endpoint of all services.
    fn agents_endpoint(&self) -> Endpoint {
        self.harness.gateway.endpoint("agents")
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        let services = SERVICES.iter().map(|(service, _)| self.endpoint(service));
        services.chain([self.agents_endpoint()]).collect()
    }

    /// Refuses connections for a while: to one service for the control plane, for the agents too,
    /// or to all services for the agents alone.
    fn refuse(&self, log: &StormLog, rng: &mut Rng) {
        let span = Duration::from_millis(match rng.u8(..10) {
            0..7 => rng.u64(200..2_000),
            _ => rng.u64(2_000..8_000),
        });
        let (kind, endpoints) = match rng.usize(..5) {
            0 => ("DynamoDB refused", vec![self.endpoint("DynamoDB")]),
            1 => ("DynamoDB refused", vec![self.endpoint("DynamoDB"), self.agents_endpoint()]),
            2 => ("SQS refused", vec![self.endpoint("SQS")]),
            3 => ("EC2 refused", vec![self.endpoint("EC2")]),
            _ => ("machines cut off", vec![self.agents_endpoint()]),
        };
        endpoints.iter().for_each(Endpoint::shut);
        log.injected(kind, &format!(" at {} endpoints for {span:?}", endpoints.len()));
        log.wait(span);
        endpoints.iter().for_each(Endpoint::reopen);
    }
}

impl Driven for AwsTarget {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.harness.command(arguments);
        for (service, variable) in SERVICES {
            command.env(variable, self.endpoint(service).url());
        }
        command
    }
}

impl StormTarget for AwsTarget {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn agents(&self) -> Vec<(String, i32)> {
        let processes = processes_naming(&self.harness.home());
        agents_among(processes, "ONDECK_STANDIN_INSTANCE").into_iter().collect()
    }

    fn proofs(&self) -> PathBuf {
        self.harness.logs().with_file_name("proofs")
    }

    fn inject_faults(&self, log: &StormLog, mut rng: Rng) {
        for what in FAULTS {
            let which = Occurrence::Chance { probability: PROBABILITY, seed: rng.u64(..) };
            for endpoint in self.endpoints() {
                endpoint.inject(AwsFaultRule::new(what).occurrence(which));
            }
        }
        while !log.is_over() {
            log.wait(Duration::from_millis(rng.u64(1_000..5_000)));
            self.refuse(log, &mut rng);
        }
        let faulty = |endpoint: &Endpoint| {
            endpoint.log().iter().filter(|entry| entry.fault.is_some()).count()
        };
        let faults: usize = self.endpoints().iter().map(faulty).sum();
        log.count_injected("faulty calls", faults);
        self.endpoints().iter().for_each(Endpoint::clear_faults);
    }

    fn writes(&self) -> Vec<InstanceWrite> {
        self.stream.writes()
    }

    fn left(&self) -> Vec<String> {
        let machines = self.harness.machines().into_iter().map(|id| format!("machine left: {id}"));
        let records = self.harness.records().into_iter().map(|record| format!("left: {record:?}"));
        let intents = self.stream.open_intents().into_iter();
        let mut left: Vec<String> = machines.chain(records).chain(intents).collect();
        if self.harness.tickets() > 0 {
            left.push(format!("tickets left: {}", self.harness.tickets()));
        }
        let home = self.harness.home();
        let processes = processes_naming(&home).into_iter();
        left.extend(processes.map(|pid| format!("process left: {pid}")));
        left.extend(audit::runners(&home).into_iter().map(|name| format!("runner left: {name}")));
        left
    }

    fn problems(&self) -> Vec<String> {
        let violations = self.harness.gateway.violations();
        let mut problems: Vec<String> = violations.iter().map(ToString::to_string).collect();
        problems.extend(self.harness.denials().iter().map(ToString::to_string));
        problems.extend(audit::said_in(&self.harness.logs(), &["panicked"]));
        problems
    }
}
