//! GitHub, as ondeck uses it: the interface that refresh calls, and the runner that an agent
//! drives.
//!
//! Nothing here repeats a call. What did not answer is said to be unavailable, and core's one
//! retry does the rest.

#[cfg(feature = "control")]
mod auth;
#[cfg(feature = "control")]
mod client;
#[cfg(feature = "control")]
mod forge;
pub mod http;
pub mod inputs;
mod mark;
mod names;
mod packages;
#[cfg(target_os = "linux")]
mod runner;

#[cfg(feature = "control")]
pub use auth::Auth;
#[cfg(feature = "fuzzing")]
pub use forge::fuzzing;
#[cfg(feature = "control")]
pub use forge::{GitHubForge, GitHubOptions, OnSecret, Scope};
pub use inputs::INPUTS;
pub use mark::mark;
pub use names::{instance_of, runner_name};
pub use packages::{PACKAGES_SETTING, Package, Packages, URL_SETTING, VERSION_SETTING};
#[cfg(target_os = "linux")]
pub use runner::{Bounds, GROUP_SETTING, GitHubRunner, RunnerOptions};
