//! The crate against a GitHub on loopback.

#[cfg(feature = "control")]
mod forge;
