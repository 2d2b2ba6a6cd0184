//! The index by which the store finds records and intents. A write shows in it some time later, as
//! in DynamoDB, whose global indexes are eventually consistent.

use std::collections::BTreeMap;

use ondeck_core::model::ids::{InstanceId, IntentId};
use ondeck_core::model::record::Record;
use ondeck_core::model::timestamp::Timestamp;

use crate::kernel::Micros;

/// What the index has of each item. An item that was written without it, by a harness, is not in
/// here and does not lag.
#[derive(Debug, Default)]
pub(crate) struct LaggingIndex {
    /// The threshold of each version of a record; `None` if it is terminated.
    thresholds: BTreeMap<InstanceId, Versions<Option<Timestamp>>>,
    /// Whether each version of an intent is open.
    open: BTreeMap<IntentId, Versions<bool>>,
}

/// The versions of one item with the times from which the index shows them, oldest first.
#[derive(Debug, Default)]
struct Versions<T> {
    shown: Vec<(Micros, T)>,
    written: u64,
}

impl<T: Copy> Versions<T> {
    fn write(&mut self, value: T, at: Micros) {
        // The index shows writes in their order.
        let at = self.shown.last().map_or(at, |(last, _)| at.max(*last));
        self.shown.push((at, value));
        self.written += 1;
    }

    /// The latest version that the index shows; `None` if it shows none.
    fn latest(&self, now: Micros) -> Option<T> {
        self.shown.iter().rev().find(|(at, _)| *at <= now).map(|(_, value)| *value)
    }
}

impl LaggingIndex {
    /// How often a record was written.
    pub(crate) fn record_writes(&self, id: &InstanceId) -> u64 {
        self.thresholds.get(id).map_or(0, |versions| versions.written)
    }

    /// Shows a record from `at` on.
    pub(crate) fn write_record(&mut self, record: &Record, at: Micros) {
        self.thresholds.entry(record.id.clone()).or_default().write(record.threshold, at);
    }

    /// Shows an intent from `at` on.
    pub(crate) fn write_intent(&mut self, id: &IntentId, open: bool, at: Micros) {
        self.open.entry(id.clone()).or_default().write(open, at);
    }

    /// Whether the index lists a record among the live ones.
    pub(crate) fn lists_live(&self, record: &Record, now: Micros) -> bool {
        match self.thresholds.get(&record.id) {
            None => true,
            Some(versions) => versions.latest(now).flatten().is_some(),
        }
    }

    /// Whether the index lists a record among those whose threshold is at or before `time`.
    pub(crate) fn lists_expired(&self, record: &Record, time: Timestamp, now: Micros) -> bool {
        match self.thresholds.get(&record.id) {
            None => true,
            Some(versions) => versions.latest(now).flatten().is_some_and(|until| until <= time),
        }
    }

    /// Whether the index lists an intent among the open ones.
    pub(crate) fn lists_open(&self, id: &IntentId, now: Micros) -> bool {
        self.open.get(id).is_none_or(|versions| versions.latest(now).unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_shows_later_and_in_order() {
        let mut index = LaggingIndex::default();
        let id = IntentId::new("1-1").unwrap();
        assert!(index.lists_open(&id, 0), "written without the index");
        index.write_intent(&id, true, 30);
        assert!(!index.lists_open(&id, 29) && index.lists_open(&id, 30));
        index.write_intent(&id, false, 10);
        assert!(!index.lists_open(&id, 30), "the second write does not overtake the first");
    }
}
