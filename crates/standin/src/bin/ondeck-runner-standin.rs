//! Stands in for `Runner.Listener` of GitHub's runner. It talks to the stand-in's GitHub only.

use std::process::ExitCode;

fn main() -> ExitCode {
    ondeck_standin::run_listener()
}
