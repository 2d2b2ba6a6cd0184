//! The runner against programs that behave like actions/runner, as real processes.

mod downloads;
mod fixture;
mod isolation;
mod lifecycle;
mod registration;
mod secrets;
mod server;
mod user;
