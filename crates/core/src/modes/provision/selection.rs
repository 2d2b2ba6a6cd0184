//! Selection: serving the run from the pool.
//!
//! One pickup manager takes tickets and filters them; as many claim workers as machines are
//! wanted take turns at it, all at once.

mod checks;
mod claim;
mod duplicates;
mod pickup;

use futures_util::future::join_all;

use self::pickup::Pickup;
use super::Attempt;
use crate::model::failure::Failure;
use crate::modes::agent_watch::AgentWatch;
use crate::runtime::poll::PollInterval;

/// Claims up to `wanted` idle machines. Fewer is no failure: creation makes up for it.
pub(super) async fn select(attempt: &Attempt<'_>, wanted: u32) -> Result<(), Failure> {
    attempt.holdings.searching(|search| search.asked = true);
    let pickup = Pickup::new(attempt, wanted);
    // Warm means now; but registering with GitHub takes seconds, and is not found sooner by
    // looking twenty times in each of them.
    let watch =
        AgentWatch::new(attempt.plane, PollInterval::backing_off(attempt.times.signal_poll, 8));
    let workers = (0..wanted).map(|_| claim::worker(attempt, &pickup, &watch));
    let results = join_all(workers).await;
    pickup.close().await;
    results.into_iter().collect()
}
