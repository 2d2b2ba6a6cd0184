//! `cargo xtask cloud`: AWS on loopback, and GitHub on request, for trying the aws backend by hand.

use std::path::Path;
use std::process::Command;

use crate::child;
use crate::console::log;
use crate::emulators::Emulators;
use crate::step::{Step, exit_code_of};

const STANDIN: &str = "ondeck-standin";

/// Builds ondeck and the stand-ins, starts the emulators and the stand-ins, and runs until it is
/// stopped. The stand-ins print their own addresses. Returns the exit code.
pub(crate) fn run(root: &Path, port: Option<u16>, github: bool) -> u8 {
    let exit_code = build(github).run(root);
    if exit_code != 0 {
        return exit_code;
    }
    let emulators = match Emulators::start(root) {
        Ok(emulators) => emulators,
        Err(error) => {
            error.report();
            return 1;
        }
    };
    let me = match std::env::current_exe() {
        Ok(me) => me,
        Err(error) => {
            log(&format!("error: own program not found: {error}"));
            return 1;
        }
    };
    // Cargo puts the programs it has just built beside this one.
    let mut standin = Command::new(me.with_file_name(STANDIN));
    standin
        .args(["--dynamodb", &emulators.dynamodb(), "--sqs", &emulators.sqs(), "--agent-program"])
        .arg(me.with_file_name("ondeck"))
        .arg("--logs")
        .arg(emulators.folder.join("machines"))
        .arg("--models")
        .arg(&emulators.models)
        .arg("--policies")
        .arg(root.join("policies"));
    if let Some(port) = port {
        standin.args(["--port", &port.to_string()]);
    }
    if github {
        standin.arg("--github");
    }
    emulators.environment.apply(&mut standin);
    log("\npaste the lines below into another terminal, in this folder; then:");
    log("  target/debug/ondeck refresh");
    log("  target/debug/ondeck provision --run-id 1 --instance-count 3");
    log("  target/debug/ondeck status");
    if github {
        log("  curl --data 'echo hello' \"$ONDECK_GITHUB_URL/_standin/queue/acme/web/1\"");
        log("  target/debug/ondeck release --run-id 1");
    }
    log("Ctrl-C here ends all of it\n");
    exit_code_of(child::run(&mut standin), STANDIN)
}

fn build(github: bool) -> Step {
    let forge = if github { ",ondeck/github,ondeck/init" } else { "" };
    let line = format!("build --package ondeck --package {STANDIN} --features ondeck/aws{forge}");
    Step::new("build", &line)
}
