//! Everything but the agent: the three modes as commands, and the commands that operators use.

pub(crate) mod applied;
pub(crate) mod backend;
#[cfg(feature = "config")]
pub(crate) mod config;
#[cfg(not(feature = "config"))]
#[path = "control/no_config.rs"]
mod config;
#[cfg(feature = "aws")]
mod connect;
mod cost;
#[cfg(feature = "dashboard")]
mod dashboard;
#[cfg(not(feature = "dashboard"))]
#[path = "control/no_dashboard.rs"]
mod dashboard;
#[cfg(feature = "local")]
mod demo;
#[cfg(all(test, feature = "aws", feature = "github"))]
mod docs;
pub(crate) mod doctor;
#[cfg(feature = "drill")]
mod drill;
#[cfg(not(feature = "drill"))]
#[path = "control/no_drill.rs"]
mod drill;
mod explain;
#[cfg(feature = "aws")]
pub(crate) mod function;
pub(crate) mod github_actions;
#[cfg(feature = "holds")]
pub(crate) mod hold_points;
#[cfg(feature = "init")]
mod init;
pub(crate) mod inputs;
mod machines;
mod metrics;
mod modes;
#[cfg(not(feature = "local"))]
mod no_local;
#[cfg(feature = "github")]
mod notices;
#[cfg(not(feature = "github"))]
#[path = "control/no_notices.rs"]
mod notices;
mod observation;
#[cfg(feature = "github")]
mod outbound;
#[cfg(feature = "aws")]
mod permissions;
mod pool;
pub(crate) mod progress;
#[cfg(any(feature = "dashboard", feature = "watch"))]
mod reader;
pub(crate) mod report;
#[cfg(feature = "local")]
mod run;
mod screen;
mod shell;
#[cfg(feature = "simulate")]
mod simulate;
#[cfg(not(feature = "simulate"))]
#[path = "control/no_simulate.rs"]
mod simulate;
mod status;
mod teardown;
#[cfg(feature = "github")]
mod traces;
#[cfg(not(feature = "github"))]
#[path = "control/no_traces.rs"]
mod traces;
#[cfg(feature = "watch")]
mod watch;
#[cfg(not(feature = "watch"))]
#[path = "control/no_watch.rs"]
mod watch;

use ondeck_core::inputs::Mode;
use ondeck_core::modes::operate::Command;

pub(crate) use self::config::TASKS as CONFIG_TASKS;
pub(crate) use self::github_actions::is_own_action;
#[cfg(not(feature = "local"))]
use self::no_local::{demo, run};
pub(crate) use self::report::report_early;
use crate::inputs::Invocation;

/// Whether this build has the command.
pub(crate) fn has(mode: Mode) -> bool {
    let of_aws = matches!(mode, Mode::Permissions | Mode::Connect);
    (!of_aws || cfg!(feature = "aws")) && (mode != Mode::Init || cfg!(feature = "init"))
}

/// The commands that take no inputs from the tables.
pub(crate) fn other_commands() -> Vec<clap::Command> {
    shell::commands()
}

/// Runs a command of the control plane and returns its exit code.
pub(crate) async fn dispatch(invocation: &Invocation) -> u8 {
    let Invocation { command, common, arguments } = invocation;
    match Mode::ALL.into_iter().find(|mode| mode.name() == command) {
        Some(Mode::Refresh) => modes::refresh(common).await,
        Some(Mode::Provision) => modes::provision(common).await,
        Some(Mode::Release) => modes::release(common).await,
        Some(Mode::Run) => run::run(common, arguments).await,
        Some(Mode::Status) => status::status(common).await,
        Some(Mode::Explain) => explain::explain(common, arguments).await,
        Some(Mode::Doctor) => doctor::doctor(common).await,
        Some(Mode::Drill) => drill::drill(common).await,
        Some(Mode::Cost) => cost::cost(common).await,
        Some(Mode::Simulate) => simulate::simulate(common).await,
        Some(Mode::Watch) => watch::watch(common).await,
        Some(Mode::Dashboard) => dashboard::dashboard(common).await,
        #[cfg(feature = "aws")]
        Some(Mode::Connect) => connect::connect(common, arguments).await,
        #[cfg(feature = "aws")]
        Some(Mode::Permissions) => permissions::check(common).await,
        #[cfg(feature = "init")]
        Some(Mode::Init) => init::init(common).await,
        Some(Mode::Config) => config::config(common, arguments).await,
        Some(Mode::Apply) => config::apply(common).await,
        Some(Mode::Drain) => machines::change(Command::Drain, common, arguments).await,
        Some(Mode::Retire) => machines::change(Command::Retire, common, arguments).await,
        Some(Mode::Terminate) => machines::change(Command::Terminate, common, arguments).await,
        Some(Mode::Pool) => pool::pool(common, arguments).await,
        Some(Mode::Teardown) => teardown::teardown(common).await,
        Some(Mode::Demo) => demo::demo(common).await,
        Some(Mode::Agent) => crate::agent::live(common).await,
        // The command line of a build without the feature does not have them.
        #[cfg(not(feature = "aws"))]
        Some(Mode::Permissions | Mode::Connect) => 2,
        #[cfg(not(feature = "init"))]
        Some(Mode::Init) => 2,
        None => shell::run(command, arguments.first().map_or("", String::as_str)),
    }
}
