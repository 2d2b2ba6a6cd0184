//! Machines are processes, and are killed with all their descendants.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ondeck_standin::{Gateway, GatewayOptions, Machine, MachineCommand, MachineState};

use crate::harness::{Ec2, SOON, fleet, options, unique};

fn shell(script: &str) -> GatewayOptions {
    let command = MachineCommand {
        program: PathBuf::from("/bin/sh"),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: vec![("EXTRA".to_owned(), "given".to_owned())],
    };
    GatewayOptions { command: Some(command), ..options() }
}

async fn launch(gateway: &Gateway, count: usize) -> Vec<String> {
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let template = unique("template");
    ec2.template(&template).await;
    ec2.ask(&fleet(&template, count, "on-demand")).await.launched()
}

/// Waits on another thread, because blocking here would block the runtime.
fn wait(gateway: &Gateway, until: impl FnMut(&[Machine]) -> bool) -> Vec<Machine> {
    tokio::task::block_in_place(|| gateway.ec2().wait(SOON, until)).unwrap()
}

fn started(machines: &[Machine]) -> bool {
    machines.iter().all(|machine| machine.pid.is_some())
}

fn terminated(machines: &[Machine]) -> bool {
    machines.iter().all(|machine| machine.state == MachineState::Terminated)
}

/// Waits until a script has written a certain line to its log.
pub(crate) async fn line(log: &Path, wanted: &str) -> String {
    let look = async {
        loop {
            let text = std::fs::read_to_string(log).unwrap_or_default();
            if text.lines().any(|line| line.starts_with(wanted)) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, look).await.unwrap_or_else(|_| panic!("no line {wanted}"))
}

/// Whether a process is running. A zombie is not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_knows_where_aws_is_and_has_no_keys() {
    let gateway = Gateway::start(shell("env; echo done; exec sleep 600"));
    let ids = launch(&gateway, 1).await;
    let machine = wait(&gateway, started).remove(0);
    assert_eq!(machine.state, MachineState::Running);
    let text = line(&machine.log, "done").await;
    let lines: Vec<&str> = text.lines().collect();
    let agents = gateway.endpoint("agents");
    assert!(lines.contains(&&*format!("AWS_ENDPOINT_URL={}", agents.url())), "{text}");
    let metadata = machine.metadata.unwrap();
    assert!(lines.contains(&&*format!("AWS_EC2_METADATA_SERVICE_ENDPOINT={metadata}")), "{text}");
    assert!(lines.contains(&&*format!("ONDECK_STANDIN_INSTANCE={}", ids[0])), "{text}");
    assert!(lines.contains(&"EXTRA=given"), "{text}");
    let of_aws = lines.iter().filter(|line| line.starts_with("AWS_")).count();
    assert_eq!(of_aws, 2, "nothing else of AWS is inherited: {text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn termination_reaches_what_has_left_the_group() {
    // The second process is in its own session, as a runner's jobs may be.
    let script =
        "sleep 600 & echo inside $!; setsid sh -c 'echo outside $$; exec sleep 600' & wait";
    let gateway = Gateway::start(shell(script));
    let ids = launch(&gateway, 2).await;
    let machines = wait(&gateway, started);
    let mut pids = Vec::new();
    for machine in &machines {
        line(&machine.log, "inside").await;
        let text = line(&machine.log, "outside").await;
        pids.extend(text.lines().map(|line| line.split(' ').nth(1).unwrap().to_owned()));
    }
    assert_eq!(pids.len(), 4);
    assert!(pids.iter().all(|pid| is_alive(pid)));
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let query =
        format!("Action=TerminateInstances&InstanceId.1={}&InstanceId.2={}", ids[0], ids[1]);
    assert_eq!(ec2.ask(&query).await.status, 200);
    let machines = wait(&gateway, terminated);
    assert!(machines.iter().all(|machine| machine.pid.is_none()));
    assert!(!pids.iter().any(|pid| is_alive(pid)), "{pids:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_shuts_itself_down_is_terminated() {
    let gateway = Gateway::start(shell("$ONDECK_SHUTDOWN_COMMAND; exec sleep 600"));
    launch(&gateway, 1).await;
    let machine = wait(&gateway, terminated).remove(0);
    assert!(machine.reason.starts_with("Client.InstanceInitiatedShutdown"), "{}", machine.reason);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_was_not_told_to_terminate_is_only_stopped() {
    let gateway = Gateway::start(shell("$ONDECK_SHUTDOWN_COMMAND; exec sleep 600"));
    let ec2 = Ec2::at(&gateway.endpoint("control"));
    let name = unique("template");
    let query = format!(
        "Action=CreateLaunchTemplate&LaunchTemplateName={name}&LaunchTemplateData.ImageId=ami-1"
    );
    ec2.ask(&query).await;
    ec2.ask(&fleet(&name, 1, "on-demand")).await;
    let stopped = |machines: &[Machine]| machines[0].state == MachineState::Stopped;
    let machine = wait(&gateway, stopped).remove(0);
    gateway.ec2().terminate(&machine.id);
    wait(&gateway, terminated);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_agent_leaves_its_machine() {
    let gateway = Gateway::start(shell("exec sleep 600"));
    let id = launch(&gateway, 1).await.remove(0);
    wait(&gateway, started);
    assert!(gateway.ec2().kill_agent(&id));
    let machine = wait(&gateway, |machines| machines[0].pid.is_none()).remove(0);
    assert_eq!(machine.state, MachineState::Running);
    assert!(!gateway.ec2().kill_agent(&id), "there is none any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_boot_takes_its_time_and_can_be_cut_short() {
    let boot = Duration::from_secs(600);
    let gateway = Gateway::start(GatewayOptions { boot, ..shell("exec sleep 600") });
    let id = launch(&gateway, 1).await.remove(0);
    assert_eq!(gateway.ec2().machine(&id).unwrap().state, MachineState::Pending);
    gateway.ec2().terminate(&id);
    let machine = wait(&gateway, terminated).remove(0);
    assert_eq!(machine.metadata, None, "it has never run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_not_there_ends_the_machine_and_says_so() {
    let command =
        MachineCommand { program: "/no/such/program".into(), ..MachineCommand::default() };
    let gateway = Gateway::start(GatewayOptions { command: Some(command), ..options() });
    launch(&gateway, 1).await;
    let machine = wait(&gateway, terminated).remove(0);
    let log = std::fs::read_to_string(&machine.log).unwrap();
    assert!(log.starts_with("cannot start /no/such/program: "), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_the_gateway() {
    let gateway = Gateway::start(shell("setsid sh -c 'echo outside $$; exec sleep 600' & wait"));
    launch(&gateway, 2).await;
    let machines = wait(&gateway, started);
    let mut pids: Vec<String> = machines.iter().map(|it| it.pid.unwrap().to_string()).collect();
    for machine in &machines {
        let text = line(&machine.log, "outside").await;
        pids.push(text.trim().rsplit_once(' ').unwrap().1.to_owned());
    }
    assert!(pids.iter().all(|pid| is_alive(pid)));
    let logs = machines[0].log.parent().unwrap();
    assert!(logs.is_dir());
    drop(gateway);
    assert!(!pids.iter().any(|pid| is_alive(pid)), "{pids:?}");
    assert!(!logs.exists(), "logs without a place of their own go too");
}
