//! The `ondeck` program: reads the inputs, chooses the adapters, calls a mode, and reports its
//! outcome. Data goes to stdout, everything else to stderr.
//!
//! The agent is in every build. Everything else is behind the feature `control`, in the module of
//! that name.

mod agent;
mod backend;
#[cfg(feature = "control")]
mod control;
mod inputs;
mod logging;
mod surroundings;

use std::process::ExitCode;

use crate::inputs::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::read();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            logging::error(&format!("the runtime does not start: {error}"), "");
            return ExitCode::from(10);
        }
    };
    let code = runtime.block_on(dispatch(cli));
    // A blocked store call must not keep the process from ending.
    runtime.shutdown_background();
    ExitCode::from(code)
}

async fn dispatch(cli: Cli) -> u8 {
    match cli.command {
        Command::Agent(inputs) => agent::live(&cli.common, &inputs).await,
        #[cfg(feature = "control")]
        command => control::dispatch(&cli.common, command).await,
    }
}
