//! Selection: serving the run from the pool.
//!
//! One pickup manager receives and filters tickets. It serves as many concurrent claim workers as
//! machines are wanted.

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

/// Claims up to `wanted` idle machines. Fewer are no failure: creation launches the rest. Fails if
/// the store or the pool does not answer.
pub(super) async fn select(attempt: &Attempt<'_>, wanted: u32) -> Result<(), Failure> {
    attempt.holdings.searching(|search| search.asked = true);
    let pickup = Pickup::new(attempt, wanted);
    // Registering with GitHub takes seconds, so the interval grows: polling twenty times a second
    // for all that time would find it hardly any sooner.
    let watch =
        AgentWatch::new(attempt.plane, PollInterval::backing_off(attempt.times.signal_poll, 8));
    let workers = (0..wanted).map(|_| claim::worker(attempt, &pickup, &watch));
    let results = join_all(workers).await;
    pickup.close().await;
    results.into_iter().collect()
}
