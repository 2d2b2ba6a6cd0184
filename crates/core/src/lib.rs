//! The decisions of ondeck.
//!
//! This crate holds the life of an instance, the three modes that drive it, and the ports
//! through which they meet the world. It knows no database, no cloud, no environment and no wall
//! clock. Read `provision` first: it is the story that everything else serves.

pub mod credentials;
pub mod demand;
pub mod excerpt;
pub mod failure;
pub mod handshake;
pub mod ids;
pub mod intent;
pub mod lifecycle;
pub mod plane;
pub mod ports;
pub mod provision;
pub mod record;
pub mod refresh;
pub mod release;
pub mod requirements;
pub mod secret;
pub mod settings;
pub mod signal;
mod signs;
pub mod stop;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
pub mod ticket;
pub mod time;
pub mod times;
pub mod together;
pub mod wait;
