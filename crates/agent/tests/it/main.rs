//! The three modes and the agent together, over ports in memory and a virtual clock: what takes
//! minutes in life takes milliseconds here.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod agents;
mod pause;
mod provision;
mod refresh;
mod release;
mod selection;
mod told;
mod world;
