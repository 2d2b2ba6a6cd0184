//! Selection: serving the run from the pool.
//!
//! One pickup manager receives and filters tickets. It serves as many concurrent claim workers as
//! machines are wanted.

mod checks;
mod claim;
mod deletes;
mod duplicates;
mod hedging;
mod pickup;
mod queue;
mod returns;

pub(in crate::modes) use hedging::usable_delay;

use futures_util::future::{join, join_all};
use tokio::sync::mpsc;

use self::claim::Workers;
pub(super) use self::deletes::{Deletes, beside_deletes};
use self::hedging::Hedging;
use self::pickup::{Pickup, put_back_all};
use super::Attempt;
use crate::model::failure::Failure;
use crate::modes::agent_watch::AgentWatch;
use crate::runtime::poll::PollInterval;

/// Claims up to `wanted` idle machines, and sends their tickets to `deletes`. Fewer are no failure:
/// creation launches the rest. Fails if the store or the pool does not answer.
pub(super) async fn select(
    attempt: &Attempt<'_>,
    wanted: u32,
    deletes: Deletes,
) -> Result<(), Failure> {
    attempt.holdings.searching(|search| search.asked = true);
    // Registering with GitHub takes seconds, so the interval grows: polling twenty times a second
    // for all that time would find it hardly any sooner.
    let interval = PollInterval::backing_off(attempt.times.signal_poll, 6);
    let expected = usize::try_from(wanted).unwrap_or(usize::MAX);
    let watch = AgentWatch::new(attempt.plane, interval, expected);
    let (returns, unused) = mpsc::unbounded_channel();
    let (put_backs, set_aside) = mpsc::unbounded_channel();
    let workers = Workers {
        attempt,
        pickup: Pickup::new(attempt, wanted, deletes, put_backs),
        watch,
        hedging: Hedging::new(attempt, wanted),
        returns,
    };
    let claims = async {
        let workers = workers;
        let results = join_all((0..wanted).map(|_| workers.work())).await;
        workers.pickup.close().await;
        results.into_iter().collect()
    };
    let beside = join(returns::give_back_all(attempt, unused), put_back_all(attempt, set_aside));
    join(claims, beside).await.0
}
