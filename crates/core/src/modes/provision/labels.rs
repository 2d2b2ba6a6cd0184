//! The labels of machines that a run has been given. They are stored with its demand before the machines
//! are handed over: a run must not get a label that refresh does not know.

use super::{Attempt, MachineLabel};
use crate::model::demand::Demand;
use crate::model::failure::Failure;
use crate::ports::PortResult;

/// How many of a run's labels are kept: the latest.
const MOST: usize = 2_000;

/// Stores the labels of the machines that this attempt holds. Does nothing if they are registered with the
/// label of the run. Fails if the store does not answer.
pub(super) async fn store(attempt: &Attempt<'_>) -> Result<(), Failure> {
    let labels = attempt.holdings.machine_labels();
    if labels.is_empty() || attempt.request.is_of_refresh() {
        return Ok(());
    }
    let noted = attempt.note_demand().await.cloned();
    let asked = Demand::of(attempt.request, attempt.journal.began());
    let change = |found: Option<&Demand>| Some(with(found.unwrap_or(&asked).clone(), &labels));
    attempt.plane.change_demand(&asked, noted, change).await.map(drop).map_err(Failure::from)
}

/// Stores what the run asks for now, and keeps the labels that it was given before, also if machines have
/// the label of their run by now. Returns what is stored. Costs one call for a run that has asked for
/// nothing before.
pub(super) async fn renew_demand(attempt: &Attempt<'_>, asked: Demand) -> PortResult<Demand> {
    let plane = attempt.plane;
    if plane.retried(|| plane.store.replace_demand(None, &asked)).await? {
        return Ok(asked);
    }
    let change = |found: Option<&Demand>| {
        let labels = found.map(|demand| demand.labels.clone()).unwrap_or_default();
        Some(Demand { labels, ..asked.clone() })
    };
    let stored = plane.change_demand(&asked, None, change).await?;
    Ok(stored.unwrap_or(asked))
}

/// The demand with these labels after those that it has.
fn with(demand: Demand, labels: &[MachineLabel]) -> Demand {
    let mut all = demand.labels;
    let new: Vec<_> = labels.iter().filter(|label| !all.contains(label)).cloned().collect();
    all.extend(new);
    let labels = all.split_off(all.len().saturating_sub(MOST));
    Demand { labels, ..demand }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::timestamp::Timestamp;
    use crate::modes::provision::Request;

    #[test]
    fn the_latest_labels_are_kept() {
        let label = |n: usize| MachineLabel::new(format!("m{n:032x}")).unwrap();
        let request = Request::of_run("7".parse().unwrap());
        let demand = Demand::of(&request, Timestamp::from_millis(0));
        let first: Vec<MachineLabel> = (0..MOST).map(label).collect();
        let demand = with(demand, &first);
        assert_eq!(demand.labels, first);
        let again = with(demand.clone(), &first[..1]);
        assert_eq!(again.labels, first, "one that is known already");
        let more = with(demand, &[label(MOST)]);
        assert_eq!((more.labels.len(), more.labels.first()), (MOST, first.get(1)));
        assert_eq!(more.labels.last(), Some(&label(MOST)));
    }
}
