//! The Action in a workflow, as a user meets it.

mod getting;
mod lint;
mod page;
mod quickstart;
mod running;
mod workshop;
