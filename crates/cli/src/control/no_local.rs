//! The commands that need the local backend, in a build without it. Each ends with exit code 2.

use ondeck_core::model::failure::Failure;

use crate::control::report::deliver;
use crate::inputs::Common;

pub(super) mod run {
    use super::{Common, refuse};

    pub(crate) async fn run(common: &Common, _job: &[String]) -> u8 {
        refuse("run", common)
    }
}

pub(super) mod demo {
    use super::{Common, refuse};

    pub(crate) async fn demo(common: &Common) -> u8 {
        refuse("demo", common)
    }
}

fn refuse(command: &'static str, common: &Common) -> u8 {
    let message =
        format!("this build of ondeck has no local backend, which it needs for: {command}");
    let hint = "build it on Linux with --features local";
    deliver(command, Err(Failure::invalid(message).hint(hint)), common)
}
