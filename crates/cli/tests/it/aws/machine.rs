//! The agent on a machine, by what EC2 and the store see of it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ondeck_standin::{MachineState, Role, Service};
use serde_json::Value;

use super::direct_requests;
use super::harness::AwsHarness;
use crate::harness::{Background, Done, Driven, until};

#[test]
fn a_spot_machine_that_will_be_taken_away_is_given_to_no_run() {
    let harness = AwsHarness::with(&[]);
    let [machine] = &harness.warm_up(1)[..] else { panic!("one machine") };
    harness.gateway.ec2().interrupt(machine, Duration::from_secs(120));
    until("the agent has said so", || harness.status()["instances"][0]["signal"] == "UD_FAILED");
    let done = harness.provision("2", 1).succeeded();
    assert_eq!(done.sources(), ["cold"]);
    assert!(!done.ids().contains(machine));
}

/// A machine in the pool is terminated by the next refresh, one that a run has is reported by the
/// run's release.
#[test]
fn a_rebalance_recommendation_takes_machines_out_of_the_pool() {
    let harness = AwsHarness::with(&[]);
    let [machine] = &harness.warm_up(1)[..] else { panic!("one machine") };
    harness.gateway.ec2().recommend_rebalance(machine);
    until("the agent has said so", || harness.status()["instances"][0]["signal"] == "UD_FAILED");
    let refreshed = harness.refresh(&[]);
    assert_eq!(refreshed["interrupted"], serde_json::json!([machine]));
    harness.until_machines(0);

    let [machine] = &harness.provision("2", 1).succeeded().ids()[..] else { panic!("one machine") };
    harness.gateway.ec2().recommend_rebalance(machine);
    let interrupted = || {
        let again = harness.provision("2", 1).succeeded();
        again.sources() == ["cold"]
    };
    until("the run's next provision does not adopt it", interrupted);
    let released = harness.release("2").succeeded().json();
    let of_machine = |one: &&Value| one["instanceId"] == machine.as_str();
    let instances = released["instances"].as_array().unwrap();
    let reported = instances.iter().find(of_machine).unwrap();
    assert_eq!(reported["outcome"], "interrupted", "{released}");
    assert_eq!(reported["reason"], "its provider takes it away");
}

#[test]
fn a_machine_terminates_itself_by_shutting_down_and_asks_nothing_of_ec2() {
    let harness = AwsHarness::with(&["--idle-time-sec=1"]);
    let agents = harness.gateway.endpoint("agents");
    let [machine] = &harness.provision("1", 1).succeeded().ids()[..] else { panic!("one machine") };
    harness.release("1").succeeded();
    harness.until_machines(0);
    let asked: Vec<_> =
        agents.calls().into_keys().filter(|(service, _)| *service == Service::Ec2).collect();
    assert_eq!(asked, [], "its role has no permission on EC2");
    let reason = harness.gateway.ec2().machine(machine).unwrap();
    assert!(matches!(reason.state, MachineState::Terminated | MachineState::ShuttingDown));
}

/// Thirteen calls a minute: three long polls, six heartbeats and four looks. The times that decide how
/// often an agent looks have their defaults here.
#[test]
fn an_idle_agent_costs_what_it_is_said_to_cost() {
    let harness = AwsHarness::with(&[
        "--agent-poll-waiting-sec=0.25",
        "--heartbeat-period-sec=5",
        "--claim-registration-timeout-sec=60",
        "--claim-timeout-sec=300",
        "--release-timeout-sec=120",
        "--idle-time-sec=3600",
    ]);
    harness.warm_up(1);
    let agents = harness.gateway.endpoint("agents");
    let receives = || agents.count(Service::Sqs, "ReceiveMessage");
    until("it listens", || receives() >= 3);
    agents.reset();
    let since = Instant::now();
    until("half a minute has passed", || since.elapsed() >= Duration::from_secs(30));
    let calls = agents.calls();
    let beats = agents.count(Service::DynamoDb, "UpdateItem");
    let looks = agents.count(Service::DynamoDb, "GetItem");
    // Each may happen at the beginning and at the end of that time.
    assert!((2..=4).contains(&beats), "every 10 s: {calls:?}");
    assert!((1..=3).contains(&looks), "every 15 s: {calls:?}");
    assert!((1..=2).contains(&receives()), "every 20 s: {calls:?}");
    assert_eq!(agents.total(), beats + looks + receives(), "and nothing else: {calls:?}");
    // One for the long poll, one for what is said and looked at in turn, another for a beat that meets a
    // look.
    let connections = agents.connections();
    assert!(connections <= 3, "{connections} connections for {calls:?}");
}

/// The control plane's keys, in the file where AWS's own programs have them: there is then no
/// process that has them in its environment.
struct Keys {
    file: PathBuf,
    secrets: [String; 2],
}

impl Keys {
    fn beside(harness: &AwsHarness) -> Keys {
        let secrets = ["secret", "token"].map(|kind| format!("control-{kind}-{}", harness.table()));
        let [secret, token] = &secrets;
        let file = harness.logs().with_file_name("credentials");
        let profile = |role: Role| {
            format!(
                "[{role}]\naws_access_key_id = {role}\naws_secret_access_key = {secret}\n\
                 aws_session_token = {token}\n"
            )
        };
        std::fs::write(&file, Role::ALL.map(profile).concat()).unwrap();
        Keys { file, secrets }
    }

    /// Runs the program with them, and with all that it can say.
    fn run(&self, harness: &AwsHarness, arguments: &[&str]) -> Done {
        let (mode, rest) = arguments.split_first().unwrap();
        let mut command = harness.command(&[&[*mode, "-vv"], rest].concat());
        command
            .env_remove("AWS_ACCESS_KEY_ID")
            .env_remove("AWS_SECRET_ACCESS_KEY")
            .env("AWS_SHARED_CREDENTIALS_FILE", &self.file)
            .env("AWS_PROFILE", Role::of_command(mode).name());
        Background::start(&mut command).finish().succeeded()
    }
}

/// The command line and the environment of every process that there was until told to stop.
fn processes(stop: &AtomicBool) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    while !stop.load(Ordering::Relaxed) {
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            for name in ["cmdline", "environ"] {
                let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
                seen.insert(String::from_utf8_lossy(&bytes).replace('\0', " "));
            }
        }
        std::thread::park_timeout(Duration::from_millis(2));
    }
    seen
}

/// Sets the flag when dropped, also when a test fails: the watching thread would never end.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_key_is_in_a_log_a_record_or_the_process_list() {
    let harness = AwsHarness::whose_agents_say("-vv");
    let keys = Keys::beside(&harness);
    harness.set_up(&[]);
    let stop = AtomicBool::new(false);
    let (said, machine, seen) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| processes(&stop));
        let until_then = Until(&stop);
        let refreshed = keys.run(&harness, &["refresh"]);
        let provisioned = keys.run(&harness, &["provision", "--json", "--run-id=1"]);
        let [machine] = &provisioned.ids()[..] else { panic!("one machine") };
        let job = keys.run(&harness, &["run", "--run-id=1", "--", "env"]);
        assert!(job.stdout.contains(machine), "a job knows where it is: {}", job.stdout);
        let pid = harness.gateway.ec2().pid(machine).unwrap();
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environ = String::from_utf8_lossy(&environ);
        assert!(!environ.contains("AWS_SECRET_ACCESS_KEY"), "machines have no keys of their own");
        let released = keys.run(&harness, &["release", "--json", "--run-id=1"]);
        let machine = machine.clone();
        let told = keys.run(&harness, &["status", "--json"]);
        drop(until_then);
        let said = [refreshed, provisioned, job, released, told];
        (said, machine, watching.join().unwrap())
    });
    let metadata = harness.gateway.ec2().machine(&machine).unwrap().metadata.unwrap();
    let machine_keys = direct_requests::machine_keys(&metadata, "ondeck-machine");
    let of_machine = ["SecretAccessKey", "Token"].map(|name| machine_keys[name].as_str().unwrap());
    assert!(of_machine.iter().all(|secret| secret.len() > 20), "{machine_keys}");
    let secrets: Vec<&str> =
        of_machine.into_iter().chain(keys.secrets.iter().map(String::as_str)).collect();

    let log = harness.logs().join(format!("{machine}.log"));
    let mut places: Vec<(&str, String)> = vec![
        ("the process list", seen.into_iter().collect::<Vec<_>>().join("\n")),
        ("the table", Value::from(direct_requests::items(&harness.table())).to_string()),
        ("the tickets", Value::from(direct_requests::messages(&harness.table())).to_string()),
        ("the agent's log", std::fs::read_to_string(log).unwrap()),
    ];
    // All of it was looked at, or else nothing would be found.
    for (place, text) in &places[..3] {
        assert!(text.contains(&machine), "this is not {place}: {text}");
    }
    for program in ["agent --backend aws -vv", "provision -vv", "release -vv"] {
        assert!(places[0].1.contains(program), "never seen: {program}");
    }
    assert!(places[3].1.contains("DEBUG"), "this is not all that it can say: {}", places[3].1);
    for done in &said {
        places.push(("what is said", done.stdout.clone()));
        places.push(("the control plane's log", done.stderr.clone()));
    }
    assert!(said.iter().any(|done| done.stderr.contains("DEBUG")), "{said:?}");
    for (place, text) in &places {
        for secret in &secrets {
            assert!(!text.contains(secret), "{secret} in {place}");
        }
    }
    // Nor are the names of the fields that carry them.
    for (place, text) in &places[3..] {
        for name in ["SecretAccessKey", "Signature=", "aws_session_token"] {
            assert!(!text.contains(name), "{name} in {place}");
        }
    }
}
