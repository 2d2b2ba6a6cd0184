//! The runner, driven as an agent does it. Most programs that it drives here are scripts in which
//! everything can be made to go wrong; in `standin` it is the stand-in's, at the stand-in's GitHub.

mod downloads;
mod harness;
mod isolation;
mod lifecycle;
mod registration;
mod secrets;
mod server;
mod standin;
mod user;
