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
mod config;
mod corrupt;
mod cost;
mod crash;
mod demo;
mod documented_commands;
mod erased;
mod escape;
mod explain;
mod failure;
mod full_disk;
mod getting_started;
mod github;
mod github_actions;
mod harness;
mod help;
mod init;
mod input;
mod install;
mod jobs;
mod json;
mod keep_warm;
mod lifecycle;
mod operate;
mod output;
mod preserved;
mod reset;
mod reuse;
mod shell;
mod signals;
mod teardown;
mod terminal;
mod versions;
mod watch;
