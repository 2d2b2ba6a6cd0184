//! The runner as the agent drives it. Most tests replace actions/runner by scripts that can inject
//! faults; `standin` uses the stand-in's runner and its GitHub.

mod daemon;
mod disk;
mod docker;
mod downloads;
mod harness;
mod idle;
mod isolation;
mod lifecycle;
mod lost_jobs;
mod recovery;
mod registration;
mod secrets;
mod server;
mod sessions;
mod standin;
mod user;
