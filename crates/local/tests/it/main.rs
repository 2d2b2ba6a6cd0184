//! The embedded backend against real files and real processes.

#![expect(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod compute;
mod contention;
mod contract;
mod corrupt_rows;
mod faults;
mod harness;
mod host;
mod runner;
