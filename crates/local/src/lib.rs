//! The embedded backend: one SQLite file for records, tickets and jobs, and processes of this
//! computer for machines.
//!
//! Nothing runs in between. Control plane and agents are separate processes that share the file,
//! so whatever must not happen twice is one transaction, and whatever may have been killed half
//! way is looked up in `/proc`, which knows better than any note.
//!
//! Everything lives under one directory, the [`Home`].

#![cfg(target_os = "linux")]

mod column;
mod db;
mod fault;
mod guard;
mod home;
mod pool;
mod rows;
mod schema;
mod store;

pub use db::Db;
pub use home::Home;
pub use pool::LocalPool;
pub use store::{EventRow, LocalStore};
