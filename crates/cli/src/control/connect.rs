//! `ondeck connect`: opens a shell on a machine of EC2 through AWS Session Manager.

use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use ondeck_aws::{CONNECT, Cloud, SSM};
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::Record;
use ondeck_core::model::signal::Pulse;
use ondeck_core::modes::plane::Plane;

use crate::backend::aws::{named_pool, options};
use crate::control::backend;
use crate::control::progress::NoProgress;
use crate::control::report::deliver;
use crate::inputs::{Backend, Common};
use crate::logging;
use crate::surroundings::Entropy;

/// The programs that a session needs, each with where to get it.
const PROGRAMS: [(&str, &str); 2] = [
    ("aws", "install the AWS CLI, version 2"),
    ("session-manager-plugin", "install the Session Manager plugin of the AWS CLI"),
];

/// Replaces this process by a session on the machine. Returns the exit code if that fails.
pub(crate) async fn connect(common: &Common, arguments: &[String]) -> u8 {
    logging::start(common, std::io::stderr);
    let machine = arguments.first().map_or("", String::as_str);
    match session(common, machine).await {
        Ok(never) => match never {},
        Err(failure) => deliver("connect", Err(failure), common),
    }
}

async fn session(common: &Common, machine: &str) -> Result<Infallible, Failure> {
    if common.compute != Backend::Aws {
        return Err(Failure::invalid("machines on this computer need no connection").hint(
            "their files and logs are below --home; for machines of EC2 give --backend aws",
        ));
    }
    let id = InstanceId::new(machine).map_err(|error| Failure::invalid(error.to_string()))?;
    let cloud = Cloud::connect(options(common, named_pool(common)?), Arc::new(Entropy)).await?;
    let plane = backend::plane(common, Arc::new(NoProgress)).await?;
    let settings = plane.settings().await?;
    if settings.backend.get(CONNECT.name).map(String::as_str) != Some(SSM) {
        return Err(Failure::invalid("this pool admits no connections to its machines").hint(
            "run ondeck refresh --connect ssm, and give the role of the machines \
             policies/optional/machine-connect.json",
        ));
    }
    check_alive(&plane, &id).await?;
    for (program, hint) in PROGRAMS {
        if !is_on_path(program) {
            let message = format!("a session needs a program that is not on PATH: {program}");
            return Err(Failure::invalid(message).hint(hint));
        }
    }
    let target = ["ssm", "start-session", "--target", id.as_str(), "--region", cloud.region()];
    // Returns only if the program cannot be started.
    let error = Command::new(PROGRAMS[0].0).args(target).exec();
    let message = format!("a session cannot be started: {error}");
    Err(Failure::new(FailureKind::Unexpected, message))
}

/// Fails if the machine is not one of the pool, or is gone. A machine whose agent is silent may still
/// admit a session, and that may show why.
async fn check_alive(plane: &Plane, id: &InstanceId) -> Result<(), Failure> {
    let ids = std::slice::from_ref(id);
    let found = plane.retried(|| plane.store.records(ids)).await?;
    let record: &Record = found.records.first().ok_or_else(|| {
        Failure::invalid(format!("the pool has no such machine: {id}"))
            .hint("ondeck status lists the machines")
    })?;
    if !record.state.is_live() {
        return Err(Failure::invalid(format!("the machine is terminated: {id}"))
            .hint("machine-logs keeps the logs of machines that are gone"));
    }
    let status = plane.retried(|| plane.store.agent_status(ids)).await?;
    if status.iter().any(|status| status.pulse(plane.now()) != Pulse::Healthy) {
        tracing::warn!("the agent of {id} sends no heartbeats, so the machine may be gone");
    }
    Ok(())
}

/// Whether a program can be started by its name.
fn is_on_path(program: &str) -> bool {
    let is_program = |file: std::path::PathBuf| {
        file.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| is_program(folder.join(program)))
}
