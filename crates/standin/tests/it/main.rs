//! The stand-in, asked as the program asks it: through AWS's own SDK, and for EC2 and GitHub by
//! hand.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod faults;
mod fleet;
mod github;
mod harness;
mod listing;
mod machines;
mod metadata;
mod program;
mod request_checks;
mod routing;
mod templates;
