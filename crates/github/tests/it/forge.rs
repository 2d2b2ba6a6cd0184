//! The forge as refresh uses it, against a stand-in for GitHub and scripted answers.

#![expect(clippy::unwrap_used, reason = "a test may fail by a panic")]

mod api_description;
mod app;
mod arbitrary_answers;
mod clock;
mod faults;
mod harness;
mod keys;
mod limits;
mod past_runs;
mod proxy;
mod refusals;
mod runners;
mod runs;
mod scripted;
mod secrets;
mod software;

mod tokens;
