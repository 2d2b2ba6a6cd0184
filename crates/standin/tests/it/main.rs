//! Tests of the stand-ins with the clients that ondeck uses: AWS's SDK, and plain HTTP
//! for EC2 and GitHub.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod faults;
mod fleet;
mod github;
mod harness;
mod listing;
mod machines;
mod metadata;
mod policies;
mod program;
mod request_checks;
mod routing;
mod sqs;
mod templates;
mod units;
