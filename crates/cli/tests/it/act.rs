//! The Action in a workflow, as a user meets it.

mod examples;
mod getting;
mod harness;
mod lint;
mod page;
mod running;

use std::time::Duration;

/// Longer than any workflow here takes on a busy computer.
const LIMIT: Duration = Duration::from_secs(120);
