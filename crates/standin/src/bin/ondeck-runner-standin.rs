//! Stands in for the listener of GitHub's runner, towards the stand-in's GitHub.

use std::process::ExitCode;

fn main() -> ExitCode {
    ondeck_standin::run_listener()
}
