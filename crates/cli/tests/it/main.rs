//! The built program, driven as a user would: real processes, a real SQLite file, real signals.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod chaos;
mod crash;
mod failure;
mod harness;
mod jobs;
mod life;
mod signals;
