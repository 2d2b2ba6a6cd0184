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
use super::storm::{self, Ground};
use super::tally::StormCounts;
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
    let site = AwsHarness::where_machines_run(MachineCommand {
        program: "/bin/sh".into(),
        args: ["-c"].iter().chain(&agent).map(|&word| word.to_owned()).collect(),
        env: Vec::new(),
    });
    site.set_up(&storm::TIMES);
    let stream = Stream::of(&site.table());
    storm::over(&Account { site, stream }, seed);
}

struct Account {
    site: AwsHarness,
    stream: Stream,
}

impl Account {
    /// Where one service is, for the control plane.
    fn door(&self, service: &str) -> Endpoint {
        self.site.gateway.endpoint(service)
    }

    /// Where all of them are, for machines.
    fn agents_door(&self) -> Endpoint {
        self.site.gateway.endpoint("agents")
    }

    fn doors(&self) -> Vec<Endpoint> {
        let services = SERVICES.iter().map(|(service, _)| self.door(service));
        services.chain([self.agents_door()]).collect()
    }

    /// A service that is gone for a while, for the control plane alone or for the agents too; or
    /// machines that reach nothing.
    fn refuse(&self, tally: &StormCounts, rng: &mut Rng) {
        let span = Duration::from_millis(match rng.u8(..10) {
            0..7 => rng.u64(200..2_000),
            _ => rng.u64(2_000..8_000),
        });
        let (kind, doors) = match rng.usize(..5) {
            0 => ("DynamoDB refused", vec![self.door("DynamoDB")]),
            1 => ("DynamoDB refused", vec![self.door("DynamoDB"), self.agents_door()]),
            2 => ("SQS refused", vec![self.door("SQS")]),
            3 => ("EC2 refused", vec![self.door("EC2")]),
            _ => ("machines cut off", vec![self.agents_door()]),
        };
        doors.iter().for_each(Endpoint::shut);
        tally.disturbed(kind, &format!(" at {} doors for {span:?}", doors.len()));
        tally.wait(span);
        doors.iter().for_each(Endpoint::reopen);
    }
}

impl Driven for Account {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.site.command(arguments);
        for (service, variable) in SERVICES {
            command.env(variable, self.door(service).url());
        }
        command
    }
}

impl Ground for Account {
    fn name(&self) -> &'static str {
        "aws"
    }

    fn agents(&self) -> Vec<(String, i32)> {
        let processes = processes_naming(&self.site.home());
        agents_among(processes, "ONDECK_STANDIN_INSTANCE").into_iter().collect()
    }

    fn proofs(&self) -> PathBuf {
        self.site.logs().with_file_name("proofs")
    }

    fn disturb(&self, tally: &StormCounts, mut rng: Rng) {
        for what in FAULTS {
            let which = Occurrence::Chance { probability: PROBABILITY, seed: rng.u64(..) };
            for door in self.doors() {
                door.inject(AwsFaultRule::new(what).occurrence(which));
            }
        }
        while !tally.is_over() {
            tally.wait(Duration::from_millis(rng.u64(1_000..5_000)));
            self.refuse(tally, &mut rng);
        }
        let faulty =
            |door: &Endpoint| door.log().iter().filter(|entry| entry.fault.is_some()).count();
        let faults: usize = self.doors().iter().map(faulty).sum();
        tally.disturbed_often("faulty calls", faults);
        self.doors().iter().for_each(Endpoint::clear_faults);
    }

    fn writes(&self) -> Vec<InstanceWrite> {
        self.stream.writes()
    }

    fn left(&self) -> Vec<String> {
        let machines = self.site.machines().into_iter().map(|id| format!("machine left: {id}"));
        let records = self.site.records().into_iter().map(|record| format!("left: {record:?}"));
        let intents = self.stream.open_intents().into_iter();
        let mut left: Vec<String> = machines.chain(records).chain(intents).collect();
        if self.site.tickets() > 0 {
            left.push(format!("tickets left: {}", self.site.tickets()));
        }
        let home = self.site.home();
        let processes = processes_naming(&home).into_iter();
        left.extend(processes.map(|pid| format!("process left: {pid}")));
        left.extend(audit::runners(&home).into_iter().map(|name| format!("runner left: {name}")));
        left
    }

    fn problems(&self) -> Vec<String> {
        let violations = self.site.gateway.violations();
        let mut problems: Vec<String> = violations.iter().map(ToString::to_string).collect();
        problems.extend(audit::said_in(&self.site.logs(), &["panicked"]));
        problems
    }
}
