//! The built program with GitHub: a loopback one, and the runner's stand-in on the machines. On
//! both backends.

mod clock;
mod doctor;
mod faults;
mod function;
pub(crate) mod harness;
mod lifecycle;
mod machine_labels;
mod refused;
mod runner_user;
mod runs;
mod secrets;
