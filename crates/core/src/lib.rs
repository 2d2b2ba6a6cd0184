//! The decisions of ondeck.
//!
//! This crate holds the lifecycle of an instance, the three modes that drive it, and the ports
//! through which they reach stores, clouds and GitHub. It knows no database, no cloud, no
//! environment and no wall clock. Start with [`modes::provision`]: everything else serves it.

pub mod audit;
pub mod inputs;
pub mod lifecycle;
pub mod model;
pub mod modes;
pub mod ports;
pub mod runtime;
#[cfg(any(test, feature = "testkit"))]
pub mod testkit;
