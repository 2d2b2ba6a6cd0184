//! Reads the pool while a page is open: one batch of calls after the other, for all pages together.
//!
//! A reading is that of [`Reader`]. Machines that it no longer lists are read once more by their ids,
//! and calls of provision as often as hand-overs. The first reading also lists terminated machines.

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::plane::Plane;
use ondeck_core::ports::{Clock as _, Listing, RecordScope};
use rustix::time::{ClockId, clock_gettime};

use super::picture::{News, Picture};
use super::routes::App;
use super::wire::Call;
use super::{Connected, Pace};
use crate::control::reader::Reader;
use crate::surroundings::WallClock;

/// How many calls of provision the page shows.
const CALLS: usize = 100;
/// A reading is followed by a pause of so many times the CPU time that it took, so that a large pool
/// takes no more than a seventh of a core.
const REST: u32 = 6;
/// The longest pause after a reading that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Reads, and tells the pages, until the future is dropped.
pub(super) async fn run(app: &App, pace: Pace) {
    let mut feed: Option<Feed> = None;
    let mut failures = 0;
    loop {
        app.hub.until_watched().await;
        let before = cpu_time();
        let pause = match look(app, &mut feed, pace).await {
            Ok(()) => {
                failures = 0;
                pace.pause.max((cpu_time().saturating_sub(before)) * REST)
            }
            Err(failure) => {
                failures += 1;
                let pause = pause_after(failures, pace.pause);
                let now = WallClock.now();
                app.hub.change("trouble", |picture| picture.fail(&failure, now, now + pause));
                pause
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// The pause after so many failures in a row: each twice as long as the one before.
fn pause_after(failures: u32, pause: Duration) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.min(16));
    pause.saturating_mul(doubled).min(LONGEST_PAUSE.max(pause))
}

/// The CPU time that this process has used.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

struct Feed {
    reader: Reader,
    /// When the calls of provision were read, by steady time.
    calls_at: Option<Duration>,
}

async fn look(app: &App, feed: &mut Option<Feed>, pace: Pace) -> Result<(), Failure> {
    let pool = app.source.connected().await?;
    let feed = feed.get_or_insert_with(|| {
        let reader = Reader::new(pool.plane.clone(), RecordScope::Live);
        Feed { reader: reader.keeping_hand_overs_for(pace.history_kept), calls_at: None }
    });
    let judgement = match app.hub.look(Picture::is_empty) {
        true => feed.reader.read_all().await?,
        false => feed.reader.read().await?,
    };
    let absent = app.hub.look(|picture| picture.absent(&judgement));
    let found = match absent.as_slice() {
        [] => Listing::default(),
        ids => pool.plane.store.records(ids).await?,
    };
    let calls = feed.calls(pool, pace).await;
    let local = app.source.is_local();
    app.hub.change("change", |picture| {
        picture.learn(News { judgement: &judgement, absent: (&absent, found), calls, local })
    });
    Ok(())
}

impl Feed {
    /// The latest calls of provision, oldest first; `None` if it is not time to read them, or if they
    /// cannot be read.
    async fn calls(&mut self, pool: &Connected, pace: Pace) -> Option<Vec<Call>> {
        let now = steady(&pool.plane);
        if self.calls_at.is_some_and(|at| now.saturating_sub(at) < pace.history_kept) {
            return None;
        }
        self.calls_at = Some(now);
        let read = pool.history.recent_summaries(pool.plane.now(), CALLS).await;
        let read = read.inspect_err(|error| tracing::debug!("calls not read: {error}")).ok()?;
        let mut calls: Vec<Call> = read.iter().filter_map(Call::of).collect();
        calls.sort_by_key(|call| call.at);
        Some(calls)
    }
}

fn steady(plane: &Plane) -> Duration {
    plane.clock.steady()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_after_failures_grow_and_end_at_a_minute() {
        let pause = Duration::from_secs(2);
        let seconds = |failures| pause_after(failures, pause).as_secs();
        assert_eq!([1, 2, 3, 4, 5, 99].map(seconds), [4, 8, 16, 32, 60, 60]);
        let slow = Duration::from_secs(3600);
        assert_eq!(pause_after(3, slow), slow);
    }
}
