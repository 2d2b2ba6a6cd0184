//! The three modes of the control plane, what operators do, teardown, explain, cost, doctor, drill,
//! notices, and what they share: the ports they work with, the handshake that returns a machine to the pool,
//! and the watch on agents.

mod agent_watch;
pub mod cost;
pub mod doctor;
pub mod drill;
pub mod explain;
pub mod handshake;
pub mod notices;
pub mod operate;
pub mod plane;
pub mod provision;
pub mod refresh;
pub mod release;
pub mod status;
pub(crate) mod tariff;
pub mod teardown;
