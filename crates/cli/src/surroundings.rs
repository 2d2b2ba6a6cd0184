//! The real time, real chance, and real signals that core is given.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, Random};

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock;

#[async_trait]
impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        // A clock before 1970 is no clock; everything would count as unexpired.
        Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::from_millis(0))
    }

    fn steady(&self) -> Duration {
        static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
        STARTED.elapsed()
    }

    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// Numbers from the operating system. Launches are named with them, and machines that were
/// started from one image at one moment must not arrive at the same name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entropy;

impl Random for Entropy {
    fn number(&self) -> u64 {
        // It fails only where the system has no source at all; time is the next best.
        getrandom::u64().unwrap_or_else(|_| WallClock.now().millis())
    }
}

/// Turns SIGINT, SIGTERM and SIGHUP into a stop signal. A second SIGINT is a person who does not
/// want to wait for the clear-up, and ends the process where it stands. A SIGTERM that follows is
/// GitHub's way of cancelling, and leaves the clear-up the seconds until the kill.
#[cfg(feature = "control")]
pub(crate) fn stop_on_signals() -> ondeck_core::runtime::stop::StopSignal {
    use ondeck_core::model::failure::Failure;
    use ondeck_core::runtime::stop::{Stop, StopSignal};
    use tokio::signal::unix::{SignalKind, signal};

    let (switch, stop) = StopSignal::new();
    // Caught from here on, and not only once the task below has its first turn.
    let caught = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = caught.map(signal) else {
        tracing::warn!("signals cannot be caught; a stopped process will not clear up");
        return stop;
    };
    tokio::spawn(async move {
        let mut stopping = false;
        loop {
            let stop = tokio::select! {
                _ = interrupt.recv() => Stop::Interrupted,
                _ = terminate.recv() => Stop::Terminated,
                _ = hangup.recv() => Stop::Terminated,
            };
            match (stopping, stop) {
                (false, _) => switch.raise(stop),
                (true, Stop::Interrupted) => {
                    let code = Failure::from(stop).kind.exit_code();
                    std::process::exit(i32::from(code));
                }
                (true, Stop::Terminated) => {}
            }
            stopping = true;
        }
    });
    stop
}
