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

mod catalogue;
mod column;
mod compute;
mod db;
mod environment;
mod fault;
mod folder;
mod forge;
mod groups;
mod guard;
mod home;
mod host;
mod inputs;
mod jobs;
mod machines;
mod options;
mod pool;
mod rows;
mod runner;
mod schema;
mod store;

pub use compute::{AgentCommand, LocalCompute};
pub use db::Db;
pub use forge::LocalForge;
pub use home::Home;
pub use host::LocalHost;
pub use inputs::INPUTS;
pub use jobs::{Chunk, Job, JobId, JobState, Stream};
pub use machines::{announce, boot_time, pid};
pub use pool::LocalPool;
pub use runner::LocalRunner;
pub use store::LocalStore;
