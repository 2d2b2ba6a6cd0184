//! The `ondeck` program: reads the inputs, chooses the adapters, calls a mode, and reports its
//! outcome. Data goes to stdout, everything else to stderr.
//!
//! The agent is in every build. Everything else is behind the feature `control`, in the module of
//! that name; a build without it has a module in its place that offers no other command.

mod agent;
mod backend;
#[cfg(feature = "control")]
mod control;
#[cfg(not(feature = "control"))]
#[path = "no_control.rs"]
mod control;
mod inputs;
mod logging;
mod output;
mod surroundings;

use std::process::ExitCode;

use ondeck_core::inputs::Mode;
use ondeck_core::model::failure::{Failure, FailureKind};

use crate::inputs::Invocation;

fn main() -> ExitCode {
    #[cfg(feature = "aws")]
    if backend::aws::is_probe() {
        return run(backend::aws::probe());
    }
    #[cfg(all(feature = "aws", feature = "control"))]
    if control::function::is_function() {
        return run(control::function::serve(inputs::read_variables()));
    }
    let invocation = inputs::read();
    run(dispatch(&invocation))
}

/// Runs the program's one task and returns its exit code.
fn run(task: impl Future<Output = u8>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let message = format!("the runtime does not start: {error}");
            let failure = Failure::new(FailureKind::Unexpected, message);
            let reported = control::report_early(&failure);
            return ExitCode::from(reported.unwrap_or_else(|| logging::fail(&failure)));
        }
    };
    let code = runtime.block_on(task);
    // A blocked store call must not keep the process from ending.
    runtime.shutdown_background();
    ExitCode::from(code)
}

async fn dispatch(invocation: &Invocation) -> u8 {
    if invocation.command == Mode::Agent.name() {
        return agent::live(&invocation.common).await;
    }
    control::dispatch(invocation).await
}
