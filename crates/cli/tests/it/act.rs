//! The Action in a workflow, as a user meets it.

mod getting;
mod lint;
mod page;
mod running;
mod workshop;
