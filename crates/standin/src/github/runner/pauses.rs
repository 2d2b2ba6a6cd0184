//! How long the runner takes by itself, and waits before it tries again.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use super::package::{CLOSING_PAUSE, SESSION_PAUSE, TIMES};

/// How long each command of the runner takes by itself, besides its round trips to GitHub. It waits
/// for that time at its start and does not work, as a real one would.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunnerTimes {
    /// `config.sh`.
    pub configure: Duration,
    /// The listener, until it says that it is listening.
    pub listen: Duration,
    /// `config.sh remove`.
    pub remove: Duration,
    /// The listener, from the signal to its exit.
    pub end: Duration,
}

impl RunnerTimes {
    /// Those of actions/runner 2.336.0 on two cores, with a server that answers at once.
    pub const REAL: RunnerTimes = RunnerTimes {
        configure: Duration::from_millis(550),
        listen: Duration::from_millis(390),
        remove: Duration::from_millis(300),
        end: Duration::from_millis(30),
    };
    /// The requests of `config.sh`, one after the other: the exchange of its token, the groups, the name,
    /// the registration.
    pub const ROUND_TRIPS_TO_REGISTER: u32 = 4;
    /// The requests of a listener until it says that it is listening.
    pub const ROUND_TRIPS_TO_LISTEN: u32 = 3;

    pub(super) fn to_text(self) -> String {
        let RunnerTimes { configure, listen, remove, end } = self;
        let seconds = [configure, listen, remove, end].map(|it| it.as_secs_f64().to_string());
        seconds.join(" ")
    }

    /// The times of the package in this folder; `None` if it has none.
    pub(super) fn of(root: &Path) -> Option<RunnerTimes> {
        let text = std::fs::read_to_string(root.join("bin").join(TIMES)).ok()?;
        let mut seconds = text.split_whitespace().map(str::parse);
        let mut next = || seconds.next()?.ok().map(Duration::from_secs_f64);
        Some(RunnerTimes { configure: next()?, listen: next()?, remove: next()?, end: next()? })
    }
}

/// Waits for as long as the real runner takes for something, if the package is to take its time.
pub(super) async fn wait_as_real(root: &Path, which: impl FnOnce(RunnerTimes) -> Duration) {
    tokio::time::sleep(RunnerTimes::of(root).map(which).unwrap_or_default()).await;
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_keeps_the_times_of_its_runner() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(RunnerTimes::of(folder.path()), None);
        std::fs::create_dir(folder.path().join("bin")).unwrap();
        std::fs::write(folder.path().join("bin").join(TIMES), RunnerTimes::REAL.to_text()).unwrap();
        assert_eq!(RunnerTimes::of(folder.path()), Some(RunnerTimes::REAL));
    }
}
