//! GitHub, as ondeck uses it: the interface that refresh calls, and the runner that an agent
//! drives.

pub mod http;
mod names;
mod packages;
#[cfg(target_os = "linux")]
mod runner;

pub use names::{instance_of, runner_name};
pub use packages::{PACKAGES_SETTING, Package, Packages, URL_SETTING, VERSION_SETTING};
#[cfg(target_os = "linux")]
pub use runner::{Bounds, GROUP_SETTING, GitHubRunner, RunnerOptions};
