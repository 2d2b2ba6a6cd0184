//! Judges the recorded history of a pool: its event log, the writes to its instance records, and
//! where its jobs ran. The demo and the chaos tests share these invariants.
//!
//! The rules restate the design. They use nothing of [`lifecycle`](crate::lifecycle), so that a
//! wrong guard or a wrong transition there is found here. Every function returns one line of
//! text for each violation, and an empty list if the history is sound.

mod events;
mod jobs;
mod ownership;
mod writes;

pub use events::{illegal_events, not_terminated};
pub use jobs::{JobSighting, jobs_outside_ownership, jobs_with_another_owner};
pub use ownership::{Ownership, never_given};
pub use writes::{InstanceWrite, RecordedState, illegal_writes};
