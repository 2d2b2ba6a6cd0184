//! Deletes the tickets whose claims are decided, beside what the run waits for. A ticket that stays is
//! harmless: the next claim by it is refused, and deletes it.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::Attempt;
use crate::model::failure::Failure;
use crate::ports::Receipt;

/// How long a run that is served waits for the deletes that are left.
const PATIENCE: Duration = Duration::from_secs(2);

/// Where tickets go that are to be deleted. They must be among the holdings' spent ones, from which the
/// clean-up after a failure deletes those that are left.
pub(in crate::modes::provision) type Deletes = UnboundedSender<Vec<Receipt>>;

/// Serves the run, and deletes the tickets that arrive meanwhile.
pub(in crate::modes::provision) async fn beside_deletes(
    attempt: &Attempt<'_>,
    serving: impl Future<Output = Result<(), Failure>>,
    spent: UnboundedReceiver<Vec<Receipt>>,
) -> Result<(), Failure> {
    // On the heap: it holds most of what a provision does, and would be in each frame above this one.
    let serving = Box::pin(serving);
    match select(serving, pin!(delete_all(attempt, spent))).await {
        Either::Left((Err(failure), _)) => Err(failure),
        Either::Left((Ok(()), deleting)) => {
            let patience = pin!(attempt.plane.clock.sleep(PATIENCE));
            if let Either::Right(_) = select(deleting, patience).await {
                tracing::warn!("tickets not deleted yet: the pool is slow");
            }
            Ok(())
        }
        Either::Right(((), serving)) => serving.await,
    }
}

/// Deletes what arrives, until the senders are gone. What arrives during a call is deleted together
/// after it. A failure is only logged.
async fn delete_all(attempt: &Attempt<'_>, mut spent: UnboundedReceiver<Vec<Receipt>>) {
    let (plane, class) = (attempt.plane, &attempt.requirements.class);
    while let Some(mut receipts) = spent.recv().await {
        while let Ok(others) = spent.try_recv() {
            receipts.extend(others);
        }
        let deleted = plane.retried(|| plane.pool.delete(class, &receipts)).await;
        attempt.holdings.deleted(&receipts);
        if let Err(error) = deleted {
            tracing::warn!("tickets not deleted: {error}");
        }
    }
}
