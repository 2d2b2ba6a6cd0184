//! The agent on a machine, by what EC2 and the store see of it.

use std::time::Duration;

use ondeck_standin::{MachineState, Service};

use super::site::Site;
use crate::harness::{Driven, until};

#[test]
fn a_spot_machine_that_will_be_taken_away_is_given_to_nobody() {
    let site = Site::with(&[]);
    let [machine] = &site.warm_up(1)[..] else { panic!("one machine") };
    site.gateway.ec2().interrupt(machine, Duration::from_secs(120));
    until("the agent has said so", || site.status()["instances"][0]["signal"] == "UD_FAILED");
    let done = site.provision("2", 1).succeeded();
    assert_eq!(done.sources(), ["cold"]);
    assert!(!done.ids().contains(machine));
}

#[test]
fn a_machine_ends_itself_by_shutdown_where_ec2_refuses() {
    use ondeck_standin::{Rule, What};
    let site = Site::with(&["--idle-time-sec=1"]);
    let agents = site.gateway.door("agents");
    let refused =
        agents.disturb(Rule::new(What::Status(503)).on(Service::Ec2).of("TerminateInstances"));
    let [machine] = &site.provision("1", 1).succeeded().ids()[..] else { panic!("one machine") };
    site.release("1").succeeded();
    site.until_machines(0);
    assert!(refused.fired() > 0);
    let reason = site.gateway.ec2().machine(machine).unwrap();
    assert!(matches!(reason.state, MachineState::Terminated | MachineState::ShuttingDown));
}

#[test]
fn an_idle_agent_costs_what_it_is_said_to_cost() {
    let site = Site::with(&[
        "--agent-poll-waiting-sec=0.25",
        "--heartbeat-period-sec=5",
        "--idle-time-sec=120",
    ]);
    site.warm_up(1);
    let agents = site.gateway.door("agents");
    agents.reset();
    until("it has looked forty times", || agents.count(Service::DynamoDb, "GetItem") >= 40);
    let calls = agents.calls();
    let beats =
        agents.count(Service::DynamoDb, "UpdateItem") + agents.count(Service::DynamoDb, "PutItem");
    let rest = agents.total() - agents.count(Service::DynamoDb, "GetItem") - beats;
    assert!(beats <= 5, "{calls:?}");
    assert!(rest <= 6, "settings now and then, and nothing else: {calls:?}");
}

#[test]
fn no_key_is_in_a_log_a_record_or_the_process_list() {
    let site = Site::with(&["-vv"]);
    let [machine] = &site.provision("1", 1).succeeded().ids()[..] else { panic!("one machine") };
    let pid = site.gateway.ec2().pid(machine).unwrap();
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environ = String::from_utf8_lossy(&environ);
    assert!(!environ.contains("AWS_SECRET_ACCESS_KEY"), "machines have no keys of their own");
    site.release("1").succeeded();
    for log in std::fs::read_dir(site.logs()).unwrap() {
        let text = std::fs::read_to_string(log.unwrap().path()).unwrap();
        for secret in ["SecretAccessKey", "Signature=", "aws_session_token"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}
