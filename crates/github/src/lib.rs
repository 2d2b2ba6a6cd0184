//! GitHub: the API that refresh calls (`forge`), and actions/runner as an agent drives it (`runner`).
//!
//! The API client retries nothing. It reports what may pass as unavailable, and core's retry decides.

#[cfg(feature = "control")]
mod auth;
#[cfg(feature = "control")]
mod client;
#[cfg(feature = "control")]
mod forge;
pub mod http;
pub mod inputs;
mod names;
mod packages;
#[cfg(feature = "control")]
mod past_runs;
mod pool_tag;
#[cfg(target_os = "linux")]
mod runner;
#[cfg(any(feature = "control", target_os = "linux"))]
mod version;

#[cfg(feature = "control")]
pub use auth::Auth;
#[cfg(feature = "fuzzing")]
pub use forge::fuzzing;
#[cfg(feature = "control")]
pub use forge::{GitHubForge, GitHubOptions, OnSecret, RunnerScope};
pub use inputs::{INPUTS, REPOSITORY};
pub use names::{instance_of, runner_name};
pub use packages::{PACKAGES_SETTING, Package, Packages, URL_SETTING, VERSION_SETTING};
#[cfg(feature = "control")]
pub use past_runs::{MOST_PAST_RUNS, PastRun, PastRuns, PastRunsOptions, past_runs};
pub use pool_tag::pool_tag;
#[cfg(target_os = "linux")]
pub use runner::{GROUP_SETTING, GitHubRunner, RunnerOptions, Timeouts};
