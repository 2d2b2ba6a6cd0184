//! Finds and kills the processes of a machine, and creates and removes the folders they write to.
//!
//! Both runners use this crate: the local one and GitHub's. It makes no decisions.

#![cfg(target_os = "linux")]

mod descendants;
pub mod folder;
mod process;
mod termination;

pub use descendants::{Awaited, adopt_orphans, descendants_of, output, spawn};
pub use process::{Boot, Process, is_group_gone, kill_group};
pub use termination::{FoundBy, MARKER, MachineProcesses, Survivors, kill_all, kill_others};
