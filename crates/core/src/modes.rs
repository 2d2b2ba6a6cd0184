//! The three modes of the control plane, and what they share: the ports they work with, the
//! handshake that returns a machine to the pool, and the watch on agents.

mod agent_watch;
pub mod handshake;
pub mod plane;
pub mod provision;
pub mod refresh;
pub mod release;
