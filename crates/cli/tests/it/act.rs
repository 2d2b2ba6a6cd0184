//! The Action in a workflow, as a user meets it.

mod examples;
mod getting;
pub(crate) mod harness;
pub(crate) mod lint;
pub(crate) mod page;
mod running;
mod trust;

use std::time::Duration;

/// Longer than any workflow here takes on a busy computer.
const LIMIT: Duration = Duration::from_secs(120);
