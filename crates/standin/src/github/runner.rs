//! The runner double. It has the same scripts, flags, files, messages, hooks, signals and exit
//! codes as GitHub's own runner.

mod command;
mod configure;
mod job;
mod listen;
mod package;
mod pauses;
mod server;
mod settings;
mod terminal;
mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio::runtime::Builder;

use command::Command;
use configure::{configure, unconfigure};
use server::ServerError;
use terminal::{print_error, print_line};

pub use package::{RunnerPackage, runner_package};
pub use pauses::RunnerTimes;

/// The variable with the path of the listener's program, if that is not beside the test's.
pub const LISTENER_VARIABLE: &str = "ONDECK_TEST_RUNNER";

/// Exit code of the listener. `run.sh` hides most of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum ListenerExit {
    Done = 0,
    Terminated = 1,
    Retryable = 2,
    Updating = 3,
    SessionConflict = 5,
    Deprecated = 7,
}

/// Runs `Runner.Listener`: `configure`, `remove`, `run` or `--version`; or, under the name
/// `Runner.Worker`, the job that its listener passes to it. Returns its exit code.
#[doc(hidden)]
pub fn run_listener() -> ExitCode {
    let root = root();
    load_environment(&root);
    if worker::is_this_process() {
        return worker::run(&root);
    }
    if let Err(problem) = look_above(&root) {
        print_error(&format!("An error occurred: {problem}"));
        return ExitCode::from(ListenerExit::Terminated as u8);
    }
    let command = Command::of_this_process();
    if command.has("version") {
        print_line(&version(&root));
        return ExitCode::SUCCESS;
    }
    complain_of(&command);
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            print_error(&format!("An error occurred: {error}"));
            return ExitCode::from(ListenerExit::Terminated as u8);
        }
    };
    let end = runtime.block_on(async {
        match command.name() {
            "configure" => ended(configure(&root, &command).await),
            "remove" => ended(unconfigure(&root, &command).await),
            "run" => listen::listen(&root).await,
            _ => ListenerExit::Done,
        }
    });
    ExitCode::from(end as u8)
}

/// Fails if a folder above cannot be listed. The real runner then does not even print its version.
fn look_above(root: &Path) -> Result<(), String> {
    for folder in root.ancestors() {
        std::fs::read_dir(folder).map_err(|error| {
            format!(
                "Permission to read the directory contents is required for '{}' and each \
                 directory up the hierarchy. {error}",
                root.display()
            )
        })?;
    }
    Ok(())
}

/// The exit code of `config.sh`, which is the same for all errors.
fn ended(result: Result<(), ServerError>) -> ListenerExit {
    match result {
        Ok(()) => ListenerExit::Done,
        Err(error) => {
            print_error(&error.to_string());
            ListenerExit::Terminated
        }
    }
}

/// Prints an error about unknown flags, which are otherwise ignored.
fn complain_of(command: &Command) {
    let unknown = command.unknown();
    if !unknown.is_empty() {
        print_error(&format!(
            "Unrecognized command-line input arguments for command {}: '{}'. For usage refer to: \
             .\\config.cmd --help or ./config.sh --help",
            command.name(),
            unknown.join(", ")
        ));
    }
}

/// The folder above `bin`, by the path with which this program was started.
fn root() -> PathBuf {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let called = std::path::absolute(called).unwrap_or_default();
    called.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned()
}

fn version(root: &Path) -> String {
    let text = std::fs::read_to_string(root.join("bin").join("version")).unwrap_or_default();
    text.trim().to_owned()
}

/// Adds the variables in `.env` to the environment of the listener and of every job.
fn load_environment(root: &Path) {
    let text = std::fs::read_to_string(root.join(".env")).unwrap_or_default();
    settings::remember(text.lines().filter_map(|line| line.split_once('=')));
}
