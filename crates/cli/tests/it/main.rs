//! The built program, driven as a user would: real processes, a real SQLite file, real signals.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod act;
mod any_input;
mod aws;
mod cancel;
mod ceiling;
mod chaos;
mod clock;
mod cloud;
mod colour;
mod corrupt;
mod crash;
mod demo;
mod documented_commands;
mod erased;
mod escape;
mod failure;
mod full_disk;
mod github;
mod github_actions;
mod harness;
mod help;
mod input;
mod jobs;
mod json;
mod keep_warm;
mod lifecycle;
mod output;
mod preserved;
mod reset;
mod reuse;
mod shell;
mod signals;
mod terminal;
mod versions;
