//! The embedded backend against real files and real processes.

#![expect(clippy::unwrap_used, reason = "in a test, whatever is not as expected is a failure")]

mod compute;
mod contention;
mod contract;
mod corrupt_rows;
mod faults;
mod harness;
mod host;
mod runner;
