//! The built program, driven as a user would: real processes, a real SQLite file, real signals.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod act;
mod actions;
mod anything;
mod aws;
mod cancel;
mod chaos;
mod crash;
mod demo;
mod documented_commands;
mod failure;
mod github;
mod harness;
mod help;
mod input;
mod jobs;
mod life;
mod seen;
mod signals;
mod spoilt;
