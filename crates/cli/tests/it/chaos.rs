//! Chaos on real processes: no machine may ever be shared by two runs, and nothing may be left.
//!
//! `kills` kills provisions at random moments while other runs go on. The storms of `local` and
//! `aws` inject faults into processes, stores and services for a while, and then audit the writes
//! that the store has recorded.
//!
//! A seed decides the requests and the faults; the operating system decides the rest. So a seed
//! replays the same storm, but not the same timing.

mod audit;
mod aws;
mod kills;
mod local;
pub(crate) mod small_disk;
mod storm;
mod storm_log;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::harness::say;

const SEED: &str = "ONDECK_CHAOS_SEED";

/// The seed that is given, or a new one. Said at once, for a test that never gets to its end.
fn seed() -> u64 {
    let seed = match std::env::var(SEED) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            u64::from(now.subsec_nanos()) ^ now.as_secs().rotate_left(20)
        }
    };
    say(&format!("{SEED}={seed}"));
    seed
}

/// How to run a test once more with the same choices.
fn say_how_to_replay(seed: u64, test: &str) {
    let replay = format!("cargo nextest run -p ondeck --all-features chaos::{test}");
    say(&format!("to replay: {SEED}={seed} {replay}"));
}

#[expect(clippy::disallowed_methods, reason = "a fault comes at any moment, and lasts")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}
