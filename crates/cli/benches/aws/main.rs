//! What the modes cost on AWS, in time, calls and units: measured at a gateway between the built
//! program and the emulators.
//!
//! Without arguments, everything is measured. Arguments select rows by their names or by the first
//! words of these, such as `warm-10` or `release`. After the word `github`, the rows are those of a
//! GitHub whose runners take their time, on both backends.

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should say where")]

mod adapters;
mod calls;
mod claims;
mod cpu;
mod fakes;
mod github;
mod harness;
mod latency;
mod selection;
mod units;

use latency::local_claims;

fn main() {
    // Cargo adds this.
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let succeeded = match arguments.first().map(String::as_str) {
        Some("github") => {
            github::run(&arguments[1..]);
            true
        }
        Some("claims") => std::process::exit(claims::run()),
        Some(local_claims::WORKER) => return local_claims::work(&arguments[1..]),
        _ => latency::run(&arguments),
    };
    std::process::exit(i32::from(!succeeded));
}
