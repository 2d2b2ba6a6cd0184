//! Records in DynamoDB, tickets in SQS, and machines that are processes of this computer.

use std::process::Command;

use ondeck_standin::Role;
use rustix::process::Signal;
use serde_json::json;

use super::harness::{AwsHarness, TIMES};
use crate::harness::{Background, Driven, ondeck, processes_naming, signal, until};

/// The access key of all commands. An agent on this computer has the key of the command that
/// launched it.
const KEY: &str = "this-computer";

/// A pool on AWS whose machines are launched here.
struct LocalMachines(AwsHarness);

impl LocalMachines {
    fn set_up() -> LocalMachines {
        let pool = LocalMachines(AwsHarness::bare());
        // Status asks as the operator.
        let roles = [Role::Refresh, Role::LocalMachine, Role::Operator];
        pool.0.grant(KEY, pool.0.pool(), &roles);
        pool.ondeck(&[&["refresh"], &TIMES[..]].concat()).succeeded();
        pool
    }

    /// The processes that are agents of this pool.
    fn agents(&self) -> Vec<i32> {
        let is_agent = |pid: &i32| arguments(*pid).get(1).is_some_and(|word| word == "agent");
        processes_naming(&self.0.home()).into_iter().filter(is_agent).collect()
    }
}

impl Driven for LocalMachines {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(arguments);
        command.env_remove("ONDECK_BACKEND");
        command.env("ONDECK_RECORDS", "aws").env("ONDECK_COMPUTE", "local");
        command.env("AWS_ACCESS_KEY_ID", KEY);
        command
    }
}

impl Drop for LocalMachines {
    /// A test that fails leaves no agents behind.
    fn drop(&mut self) {
        self.agents().into_iter().for_each(|pid| signal(pid, Signal::KILL));
    }
}

fn arguments(pid: i32) -> Vec<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

#[test]
fn processes_serve_a_pool_on_aws() {
    let pool = LocalMachines::set_up();
    let cold = pool.provision("1", 2).succeeded();
    assert_eq!(cold.sources(), ["cold", "cold"]);
    assert_eq!(pool.standings(), ["running 1", "running 1"]);
    assert!(pool.0.machines().is_empty(), "nothing was launched on EC2");
    let agents = pool.agents();
    assert_eq!(agents.len(), 2);

    let script = "echo $ONDECK_INSTANCE_ID; env";
    let job = pool.ondeck(&["run", "--run-id", "1", "--", "sh", "-c", script]).succeeded();
    let machine = job.stdout.lines().next().unwrap().to_owned();
    assert!(cold.ids().contains(&machine), "{job:?}");
    assert!(!job.stdout.contains("AWS_"), "credentials are the agent's alone: {job:?}");

    assert_eq!(pool.release("1").succeeded().ids(), cold.ids());
    assert_eq!(pool.standings(), ["idle", "idle"]);
    assert_eq!(pool.0.tickets(), 2);
    let warm = pool.provision("2", 2).succeeded();
    assert_eq!((warm.sources(), warm.ids()), (vec!["warm".to_owned(); 2], cold.ids()));
    assert_eq!(pool.agents(), agents);

    pool.ondeck(&["release", "--run-id=2", "--idle-time-sec=1"]).succeeded();
    until("refresh has reaped both machines", || {
        pool.refresh(&[]);
        pool.standings().is_empty() && pool.agents().is_empty()
    });
}

#[test]
fn no_secret_is_among_the_arguments_of_an_agent() {
    let pool = LocalMachines::set_up();
    let mut provision = pool.command(&["provision", "--run-id=1"]);
    provision.env("AWS_SECRET_ACCESS_KEY", "fedcba9876543210");
    Background::start(&mut provision).finish().succeeded();
    let [agent] = pool.agents()[..] else { panic!("one machine") };
    let words = arguments(agent);
    assert!(words.contains(&"--records=aws".to_owned()), "{words:?}");
    assert!(!words.iter().any(|word| word.contains("fedcba9876543210")), "{words:?}");
    pool.ondeck(&["release", "--run-id=1", "--idle-time-sec=0"]).succeeded();
    until("the machine is gone", || {
        pool.refresh(&[]);
        pool.agents().is_empty()
    });
}

#[test]
fn machines_on_ec2_cannot_have_records_on_this_computer() {
    let home = tempfile::tempdir().unwrap();
    for (command, chosen) in [
        ("provision", ["--records=local", "--compute=aws"]),
        ("refresh", ["--backend=local", "--compute=aws"]),
        ("agent", ["--backend=aws", "--records=local"]),
    ] {
        let mut refused = ondeck(&[command, chosen[0], chosen[1]]);
        refused.env("ONDECK_HOME", home.path()).env("ONDECK_RUN_ID", "1");
        let done = Background::start(&mut refused).finish().exited(2);
        assert!(done.stderr.contains("hint: give --records aws, or --compute local"), "{done:?}");
    }
    let mut refused = ondeck(&["provision", "--json", "--run-id=1", "--compute=aws"]);
    refused.env("ONDECK_HOME", home.path());
    let done = Background::start(&mut refused).finish();
    assert_eq!(done.exited(2).json()["error"]["kind"], json!("invalid-input"));
}
