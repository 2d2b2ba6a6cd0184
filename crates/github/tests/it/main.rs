//! Tests of the forge against a stand-in for GitHub, and of the runner with real processes.

#![expect(clippy::unwrap_used, reason = "a test may fail by a panic")]

#[cfg(feature = "control")]
mod forge;
mod runner;
