//! The agent by itself, over in-memory ports and a virtual clock.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test and names the line")]

mod deadlines;
mod drain;
mod harness;
mod idle;
mod idle_restarts;
mod notes;
mod pause;
mod refused;
mod restarts;
mod runs;
mod wake_ups;
