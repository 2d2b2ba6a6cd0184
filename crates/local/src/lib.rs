//! The embedded backend: one SQLite file for records, tickets and jobs, and processes of this
//! computer for machines.
//!
//! Nothing runs in between. Control plane and agents are separate processes that share the file,
//! so whatever must not happen twice is one transaction, and whatever may have been killed half
//! way is looked up in `/proc`, which knows better than any note.
//!
//! Everything lives under one directory, the [`Home`]. The ports want a tokio runtime with its
//! time and I/O drivers, because processes live in real time whatever the clock says.

#![cfg(target_os = "linux")]

mod compute;
mod error;
mod forge;
mod home;
mod host;
mod inputs;
mod pool;
mod runner;
mod store;

pub use compute::machines::{announce, boot_time, pid};
pub use compute::{AgentCommand, LocalCompute, identity};
pub use forge::LocalForge;
pub use forge::jobs::{Chunk, Job, JobId, JobState, Stream};
pub use home::Home;
pub use host::LocalHost;
pub use inputs::INPUTS;
pub use pool::LocalPool;
pub use runner::LocalRunner;
pub use store::LocalStore;
pub use store::db::Db;
