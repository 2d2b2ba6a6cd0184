use std::collections::{BTreeMap, BTreeSet};

use super::writes::InstanceWrite;
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{EventRow, State};
use crate::model::timestamp::Timestamp;

/// Which run owned each instance, and from when to when.
#[derive(Debug, Default)]
pub struct Ownership {
    spans: BTreeMap<InstanceId, Vec<OwnedSpan>>,
    running: BTreeSet<(RunId, InstanceId)>,
}

#[derive(Debug)]
struct OwnedSpan {
    run: RunId,
    from: Timestamp,
    to: Option<Timestamp>,
}

impl Ownership {
    /// Computes it from the event log. The events of one instance must be in the order of their
    /// commits.
    pub fn from_events(events: &[EventRow]) -> Ownership {
        let mut ownership = Ownership::default();
        for event in events {
            ownership.add(&event.instance, event.at, event.to, event.run.as_ref());
        }
        ownership
    }

    /// Computes it from writes to the records. Those of one instance must be in the order in which
    /// they were made.
    pub fn from_writes(writes: &[InstanceWrite]) -> Ownership {
        let mut ownership = Ownership::default();
        for write in writes {
            if let Some(after) = &write.after {
                ownership.add(&write.id, after.updated_at, after.state, after.run.as_ref());
            }
        }
        ownership
    }

    fn add(&mut self, id: &InstanceId, at: Timestamp, state: State, run: Option<&RunId>) {
        if let (State::Running, Some(run)) = (state, run) {
            self.running.insert((run.clone(), id.clone()));
        }
        let spans = self.spans.entry(id.clone()).or_default();
        let open = spans.last_mut().filter(|span| span.to.is_none());
        if open.as_ref().map(|span| &span.run) == run {
            return;
        }
        if let Some(span) = open {
            span.to = Some(at);
        }
        if let Some(run) = run {
            spans.push(OwnedSpan { run: run.clone(), from: at, to: None });
        }
    }

    fn spans(&self, id: &InstanceId) -> &[OwnedSpan] {
        self.spans.get(id).map_or(&[], Vec::as_slice)
    }

    /// Whether the run owned the instance at this moment. A span includes the millisecond in which
    /// it begins, and not the one in which it ends.
    pub(super) fn is_owner(&self, id: &InstanceId, run: &RunId, at: Timestamp) -> bool {
        let mut spans = self.spans(id).iter();
        spans.any(|span| span.run == *run && span.from <= at && span.to.is_none_or(|to| at < to))
    }

    /// Whether the run owned the instance at this moment or at an earlier one.
    pub(super) fn has_been_owner(&self, id: &InstanceId, run: &RunId, at: Timestamp) -> bool {
        self.spans(id).iter().any(|span| span.run == *run && span.from <= at)
    }

    /// Another run that owned the instance at this moment. The milliseconds in which a span begins
    /// and ends may belong to both runs, and do not count.
    pub(super) fn other_owner(
        &self,
        id: &InstanceId,
        run: &RunId,
        at: Timestamp,
    ) -> Option<&RunId> {
        let mut spans = self.spans(id).iter();
        let other = spans
            .find(|span| span.run != *run && span.from < at && span.to.is_none_or(|to| at < to));
        other.map(|span| &span.run)
    }
}

/// The instances that a successful provision reported to a run, and that never were running for
/// it.
pub fn never_given<'a>(
    ownership: &Ownership,
    reported: impl IntoIterator<Item = (&'a RunId, &'a InstanceId)>,
) -> Vec<String> {
    let given =
        |run: &RunId, id: &InstanceId| ownership.running.contains(&(run.clone(), id.clone()));
    let missing = reported.into_iter().filter(|(run, id)| !given(run, id));
    missing.map(|(run, id)| format!("{run} was never given {id}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::writes::history::{WHOLE_LIFE, of_one_instance};
    use super::*;

    #[test]
    fn a_reported_instance_must_have_been_running_for_the_run() {
        let ownership = Ownership::from_writes(&of_one_instance(&WHOLE_LIFE));
        let id = InstanceId::new("i-1").unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|run| RunId::new(run).unwrap());
        assert_eq!(never_given(&ownership, [(&a, &id), (&b, &id)]), Vec::<String>::new());
        assert_eq!(never_given(&ownership, [(&c, &id)]), ["c was never given i-1"]);
    }
}
