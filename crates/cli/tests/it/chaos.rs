//! Chaos on real processes: nothing may ever be shared, and nothing may be left.
//!
//! `kills` kills provisions at random moments among runs that know nothing of it. The storms of
//! `local` and `aws` disturb everything that there is, for a while, and then look at what the
//! store itself has kept of it.
//!
//! A seed decides what is asked for and how it is disturbed; the operating system decides the
//! rest. So a seed replays the same storm, but not the same weather.

mod audit;
mod aws;
mod kills;
mod local;
mod small_disk;
mod storm;
mod tally;

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

#[expect(clippy::disallowed_methods, reason = "a disturbance comes at any moment, and lasts")]
fn pause(span: Duration) {
    std::thread::sleep(span);
}
