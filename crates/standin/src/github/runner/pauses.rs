//! How long the runner waits before it tries again.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use super::package::{CLOSING_PAUSE, SESSION_PAUSE};

/// The pauses of one package. Those of the real runner are shortened in the proportion in which the
/// package shortens the longest of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pauses {
    /// Between two requests for a session.
    pub(super) session: Duration,
    /// Between the end of a job and the line about it.
    pub(super) closing: Duration,
}

impl Pauses {
    pub(super) fn of(root: &Path) -> Pauses {
        let read = |name, otherwise| {
            let text = std::fs::read_to_string(root.join("bin").join(name)).unwrap_or_default();
            text.trim().parse().map_or(otherwise, Duration::from_secs_f64)
        };
        Pauses {
            session: read(SESSION_PAUSE, Duration::from_secs(30)),
            closing: read(CLOSING_PAUSE, Duration::from_millis(40)),
        }
    }

    /// A pause of the real runner that is chosen at random from a range, in seconds.
    pub(super) fn between(self, seconds: Range<f64>) -> Duration {
        let drawn = seconds.start + fastrand::f64() * (seconds.end - seconds.start);
        self.session.mul_f64(drawn / 30.0)
    }
}
