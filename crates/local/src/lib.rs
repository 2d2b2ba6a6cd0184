//! The embedded backend: one SQLite file for records, tickets and jobs, and processes of this
//! computer for machines.
//!
//! There is no server. Control plane and agents are separate processes that share the file. What
//! must happen at most once is one transaction. Which processes run is read from `/proc`, because a
//! process may be killed before it can record anything.
//!
//! All files are under one directory, the [`Home`]. The ports need a tokio runtime with time and I/O
//! drivers, because processes run in real time even if the clock is virtual.

#![cfg(target_os = "linux")]

mod compute;
mod diagnosis;
mod error;
mod forge;
mod home;
mod host;
mod inputs;
mod pool;
mod runner;
mod store;
mod teardown;

pub use compute::machines::{announce, boot_time, pid};
pub use compute::{AgentCommand, LocalCompute, identity};
pub use diagnosis::LocalDiagnosis;
pub use forge::LocalForge;
pub use forge::jobs::{Chunk, Job, JobId, JobState, Stream};
pub use home::Home;
pub use host::LocalHost;
pub use inputs::INPUTS;
pub use ondeck_processes::{Process, adopt_orphans};
pub use pool::LocalPool;
pub use runner::LocalRunner;
pub use store::LocalStore;
pub use store::db::Db;
pub use teardown::LocalInfrastructure;
