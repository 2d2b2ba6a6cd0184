//! A bounded load on all cores of this computer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Condition;
use crate::cpu::LOAD_THREAD;

/// How long each core works, and then rests.
const SLICE: Duration = Duration::from_millis(5);

/// Keeps every core busy for half of the time, until it is dropped.
pub(super) struct Load(Arc<AtomicBool>);

impl Load {
    /// Starts the load of a condition, which is none on a quiet computer.
    pub(super) fn start(condition: Condition) -> Load {
        let goes_on = Arc::new(AtomicBool::new(condition == Condition::Loaded));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores {
            let goes_on = goes_on.clone();
            let works = move || {
                while goes_on.load(Ordering::Relaxed) {
                    work();
                }
            };
            // Not waited for: it ends by itself.
            drop(std::thread::Builder::new().name(LOAD_THREAD.to_owned()).spawn(works).unwrap());
        }
        Load(goes_on)
    }
}

#[expect(clippy::disallowed_methods, reason = "the load is bounded by its rests")]
fn work() {
    let began = Instant::now();
    while began.elapsed() < SLICE {
        std::hint::spin_loop();
    }
    std::thread::sleep(SLICE);
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
