//! The embedded backend against real files and real processes.

mod compute;
mod contention;
mod contract;
mod faults;
mod fixture;
mod host;
mod runner;
