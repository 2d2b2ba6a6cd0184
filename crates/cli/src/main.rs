//! The `ondeck` program: reads the inputs, chooses the adapters, calls a mode, and tells what
//! came of it. Data goes to stdout, everything else to stderr.

mod agent;
mod backend;
mod inputs;
mod logging;
mod surroundings;

#[cfg(feature = "control")]
mod actions;
#[cfg(feature = "control")]
mod demo;
#[cfg(all(test, feature = "control"))]
mod docs;
#[cfg(feature = "holds")]
mod holds;
#[cfg(feature = "control")]
mod modes;
#[cfg(feature = "control")]
mod output;
#[cfg(feature = "control")]
mod progress;
#[cfg(feature = "control")]
mod run;
#[cfg(feature = "control")]
mod status;

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
    let common = cli.common;
    match cli.command {
        Command::Agent(inputs) => agent::live(&common, &inputs).await,
        #[cfg(feature = "control")]
        Command::Refresh(inputs) => modes::refresh(&common, &inputs).await,
        #[cfg(feature = "control")]
        Command::Provision(inputs) => modes::provision(&common, &inputs).await,
        #[cfg(feature = "control")]
        Command::Release(inputs) => modes::release(&common, &inputs).await,
        #[cfg(feature = "control")]
        Command::Run(inputs) => run::run(&common, &inputs).await,
        #[cfg(feature = "control")]
        Command::Status(inputs) => status::status(&common, &inputs).await,
        #[cfg(feature = "control")]
        Command::Demo(inputs) => demo::demo(&inputs).await,
    }
}
