//! The forge, as refresh uses it.

#![expect(clippy::unwrap_used, reason = "in a test, whatever is not as expected is a failure")]

mod app;
mod arbitrary_answers;
mod clock;
mod faults;
mod harness;
mod keys;
mod limits;
mod proxy;
mod refusals;
mod runners;
mod runs;
mod scripted;
mod secrets;
mod software;
mod sound;
mod tokens;
