//! GitHub on loopback, and its runner as real processes.

#![expect(clippy::unwrap_used, reason = "in a test, whatever is not as expected is a failure")]

#[cfg(feature = "control")]
mod forge;
mod runner;
