//! The processes of a machine and the folders they write to: how both are found, and how they are
//! got rid of when a run is over.
//!
//! Both kinds of runner need this, the local one and GitHub's, and neither decides anything here.

#![cfg(target_os = "linux")]

mod ending;
pub mod folder;
mod process;

pub use ending::{Ending, MARKER, Sign, Undying, end_all};
pub use process::{Boot, Process, is_group_gone, kill_group};
