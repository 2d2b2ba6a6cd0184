//! The real time, real chance, and real signals that core is given.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ondeck_core::ports::{Clock, Dice};
use ondeck_core::time::Timestamp;

/// The machine's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock;

#[async_trait]
impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        // A clock before 1970 is no clock; everything would count as unexpired.
        Timestamp::try_from(SystemTime::now()).unwrap_or(Timestamp::from_millis(0))
    }

    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// Numbers that nobody can foretell, seeded by the operating system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entropy;

impl Dice for Entropy {
    fn roll(&self) -> u64 {
        fastrand::u64(..)
    }
}

/// Turns SIGINT and SIGTERM into a stop signal. A second one ends the process where it stands:
/// whoever sends it does not want to wait for the clear-up.
#[cfg(feature = "control")]
pub(crate) fn stop_on_signals() -> ondeck_core::stop::StopSignal {
    use ondeck_core::failure::Failure;
    use ondeck_core::stop::{Stop, StopSignal};
    use tokio::signal::unix::{SignalKind, signal};

    let (switch, stop) = StopSignal::new();
    // Caught from here on, and not only once the task below has its first turn.
    let (Ok(mut interrupt), Ok(mut terminate)) =
        (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        tracing::warn!("signals cannot be caught; a stopped process will not clear up");
        return stop;
    };
    tokio::spawn(async move {
        let mut stopping = false;
        loop {
            let stop = tokio::select! {
                _ = interrupt.recv() => Stop::Interrupted,
                _ = terminate.recv() => Stop::Terminated,
            };
            if stopping {
                let code = Failure::from(stop).kind.exit_code();
                std::process::exit(i32::from(code));
            }
            stopping = true;
            switch.raise(stop);
        }
    });
    stop
}
