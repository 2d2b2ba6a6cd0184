//! A runner that behaves as GitHub's own does towards whoever drives it: its scripts, flags,
//! files, words, hooks, signals and exit codes.

mod command;
mod configure;
mod job;
mod listen;
mod package;
mod server;
mod settings;
mod terminal;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio::runtime::Builder;

use command::Command;
use configure::{configure, unconfigure};
use server::ServerError;
use terminal::{complain, say};

pub use package::{RunnerPackage, runner_package};

/// Names the listener's own program, where it is not beside the test's.
pub const LISTENER_VARIABLE: &str = "ONDECK_TEST_RUNNER";

/// How the listener ends. `run.sh` hides most of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum End {
    Done = 0,
    Terminated = 1,
    Retryable = 2,
    SessionConflict = 5,
    Deprecated = 7,
}

/// What `Runner.Listener` does: `configure`, `remove`, `run`, or to say its version.
#[doc(hidden)]
pub fn run_listener() -> ExitCode {
    let root = root();
    load_environment(&root);
    if let Err(problem) = look_above(&root) {
        complain(&format!("An error occurred: {problem}"));
        return ExitCode::from(End::Terminated as u8);
    }
    let command = Command::of_this_process();
    if command.has("version") {
        say(&version(&root));
        return ExitCode::SUCCESS;
    }
    complain_of(&command);
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("An error occurred: {error}"));
            return ExitCode::from(End::Terminated as u8);
        }
    };
    let end = runtime.block_on(async {
        match command.name() {
            "configure" => ended(configure(&root, &command).await),
            "remove" => ended(unconfigure(&root, &command).await),
            "run" => listen::listen(&root).await,
            _ => End::Done,
        }
    });
    ExitCode::from(end as u8)
}

/// Nothing is done, and not even the version said, unless every folder above can be listed.
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

/// Errors of `config.sh` are all alike.
fn ended(result: Result<(), ServerError>) -> End {
    match result {
        Ok(()) => End::Done,
        Err(error) => {
            complain(&error.to_string());
            End::Terminated
        }
    }
}

/// Unknown flags are complained of, and that is all.
fn complain_of(command: &Command) {
    let unknown = command.unknown();
    if !unknown.is_empty() {
        complain(&format!(
            "Unrecognized command-line input arguments for command {}: '{}'. For usage refer to: \
             .\\config.cmd --help or ./config.sh --help",
            command.name(),
            unknown.join(", ")
        ));
    }
}

/// The folder above `bin`, by the name that this program was called.
fn root() -> PathBuf {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let called = std::path::absolute(called).unwrap_or_default();
    called.ancestors().nth(2).unwrap_or(Path::new("/")).to_owned()
}

fn version(root: &Path) -> String {
    let text = std::fs::read_to_string(root.join("bin").join("version")).unwrap_or_default();
    text.trim().to_owned()
}

/// What stands in `.env` is in the environment of the listener and of every job.
fn load_environment(root: &Path) {
    let text = std::fs::read_to_string(root.join(".env")).unwrap_or_default();
    settings::remember(text.lines().filter_map(|line| line.split_once('=')));
}
