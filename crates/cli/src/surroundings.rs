//! The time, the randomness and the signals of the operating system, as core is given them.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, Random};

/// The clock of this computer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock;

#[async_trait]
impl Clock for WallClock {
    fn now(&self) -> Timestamp {
        // By a clock that shows a time before 1970, nothing has expired.
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

/// Random numbers from the operating system. Launches are named by them, and machines that start
/// from one image at the same moment must not choose the same name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entropy;

impl Random for Entropy {
    fn number(&self) -> u64 {
        // It fails only if the system has no source of randomness; the time is the next best.
        getrandom::u64().unwrap_or_else(|_| WallClock.now().millis())
    }
}

/// How long a clean-up takes at the most, the last events included. Until then, another signal would
/// only cost machines.
#[cfg(feature = "control")]
const CLEAN_UP: Duration = Duration::from_secs(7);

/// Turns SIGINT, SIGTERM, SIGHUP and SIGQUIT into a stop signal; the last two count as SIGTERM. Another SIGINT ends the process at once if
/// the clean-up should be over by then. A SIGTERM after a SIGINT is how GitHub cancels a job; it
/// changes nothing, so that the clean-up has the seconds until the kill.
#[cfg(feature = "control")]
pub(crate) fn stop_on_signals() -> ondeck_core::runtime::stop::StopSignal {
    use ondeck_core::model::failure::Failure;
    use ondeck_core::runtime::stop::{Stop, StopSignal};
    use tokio::signal::unix::{SignalKind, signal};

    let (switch, stop) = StopSignal::new();
    // Catches them from here on, not only once the task below has its first turn.
    let caught = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ];
    let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup), Ok(mut quit)] = caught.map(signal)
    else {
        tracing::warn!("signals cannot be caught; a stopped process will not clean up");
        return stop;
    };
    tokio::spawn(async move {
        let mut stopping: Option<Instant> = None;
        loop {
            let stop = tokio::select! {
                _ = interrupt.recv() => Stop::Interrupted,
                _ = terminate.recv() => Stop::Terminated,
                _ = hangup.recv() => Stop::Terminated,
                _ = quit.recv() => Stop::Terminated,
            };
            match stopping {
                None => switch.raise(stop),
                Some(since) if stop == Stop::Interrupted && since.elapsed() > CLEAN_UP => {
                    let code = Failure::from(stop).kind.exit_code();
                    std::process::exit(i32::from(code));
                }
                Some(_) => {}
            }
            stopping.get_or_insert_with(Instant::now);
        }
    });
    stop
}

#[cfg(test)]
mod tests {
    use ondeck_core::testkit::contract::clock_suite;

    use super::*;

    // No test may step the clock of this computer.
    #[tokio::test]
    async fn the_wall_clock_keeps_the_contract_of_clocks() {
        clock_suite(&WallClock, None).await;
    }
}
