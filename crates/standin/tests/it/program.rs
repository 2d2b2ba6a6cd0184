//! The program `ondeck-standin`, for use by hand.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use ondeck_standin::emulators::Emulators;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::harness::{Ec2, SOON, fleet};
use crate::machines::{is_alive, line};

struct Program {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    ec2: Ec2,
}

/// Starts the program with an agent that writes its process id and waits.
async fn start(folder: &Path) -> Program {
    let agent = folder.join("agent");
    std::fs::write(&agent, "#!/bin/sh\necho pid $$ $@\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
    let emulators = Emulators::running();
    let mut child = Command::new(env!("CARGO_BIN_EXE_ondeck-standin"))
        .args(["--dynamodb", &emulators.dynamodb, "--sqs", &emulators.ministack])
        .args(["--port", "0", "-v"])
        .arg("--models")
        .arg(&emulators.models)
        .arg("--agent-program")
        .arg(&agent)
        .arg("--logs")
        .arg(folder.join("logs"))
        // A killed program cannot remove its temporary files.
        .env("TMPDIR", folder)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = out.next_line().await.unwrap().unwrap();
    let url = first.strip_prefix("export AWS_ENDPOINT_URL=").unwrap().trim_matches('\'');
    let ec2 = Ec2::to(url);
    Program { child, out, ec2 }
}

/// Launches a machine, and returns the process id of its agent.
async fn launch(program: &Program, folder: &Path) -> String {
    program.ec2.template("by-hand").await;
    // For use by hand, every subnet exists.
    let query = fleet("by-hand", 1, "spot").replace("subnet-0", "subnet-of-mine-");
    let id = program.ec2.ask(&query).await.launched().remove(0);
    let text = line(&folder.join(format!("logs/{id}.log")), "pid").await;
    let words: Vec<&str> = text.split_whitespace().collect();
    assert_eq!(words[2..], ["agent", "--backend", "aws"]);
    assert!(is_alive(words[1]));
    words[1].to_owned()
}

#[tokio::test]
async fn an_interrupt_stops_the_program_and_its_machines() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = start(folder.path()).await;
    let pid = launch(&program, folder.path()).await;
    let own = Pid::from_raw(program.child.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(own, Signal::INT).unwrap();
    let status = tokio::time::timeout(SOON, program.child.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
    assert!(!is_alive(&pid));
    let mut lines = Vec::new();
    while let Some(line) = program.out.next_line().await.unwrap() {
        lines.push(line);
    }
    assert!(lines.contains(&"export AWS_ACCESS_KEY_ID='test'".to_owned()), "{lines:?}");
    let told = |line: &String| line.starts_with("control: EC2 CreateFleet: 200 in ");
    assert!(lines.iter().any(told), "{lines:?}");
}

#[tokio::test]
async fn a_killed_program_leaves_no_machines() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = start(folder.path()).await;
    let pid = launch(&program, folder.path()).await;
    program.child.kill().await.unwrap();
    let gone = async {
        while is_alive(&pid) {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, gone).await.expect("the warden has killed it");
}
