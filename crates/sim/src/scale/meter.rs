//! Counts calls, and the units that DynamoDB bills for each partition key in each second.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most read and write units of one partition key in a second, see "Designing partition keys" in
/// the DynamoDB Developer Guide.
pub const KEY_LIMITS: Units = Units { reads: 3_000.0, writes: 1_000.0 };

/// Read and write units.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Units {
    pub reads: f64,
    pub writes: f64,
}

impl Units {
    pub(crate) fn reads(reads: f64) -> Units {
        Units { reads, writes: 0.0 }
    }

    pub(crate) fn writes(writes: f64) -> Units {
        Units { reads: 0.0, writes }
    }

    fn add(&mut self, other: Units) {
        self.reads += other.reads;
        self.writes += other.writes;
    }

    fn at_least(&mut self, other: Units) {
        self.reads = self.reads.max(other.reads);
        self.writes = self.writes.max(other.writes);
    }

    /// The larger of the shares that this is of the limits.
    pub fn share_of(&self, limits: Units) -> f64 {
        (self.reads / limits.reads).max(self.writes / limits.writes)
    }
}

/// A value of the partition key of the table, or of one of its indexes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeteredKey {
    /// The name of the index; `None` for the table itself.
    pub index: Option<&'static str>,
    pub value: String,
}

impl MeteredKey {
    pub(crate) fn of_table(value: String) -> MeteredKey {
        MeteredKey { index: None, value }
    }

    /// What precedes the first `#`; for the index of a run's events its name, since its keys are ids
    /// of runs.
    pub fn kind(&self) -> &str {
        match self.index {
            Some(index) if index != "lists" => index,
            _ => self.value.split('#').next().unwrap_or_default(),
        }
    }
}

/// What one key has consumed.
#[derive(Debug, Clone, Copy, Default)]
pub struct KeyUse {
    pub total: Units,
    /// The most in one second.
    pub peak: Units,
    second: u64,
    now: Units,
}

/// What was counted in a span of time.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    pub keys: HashMap<MeteredKey, KeyUse>,
    /// Calls of AWS by operation.
    pub calls: BTreeMap<&'static str, u64>,
    /// The most units of the whole table in one second, indexes included.
    pub busiest_second: Units,
    second: u64,
    now: Units,
}

/// Counts what several processes consume. A clone counts into the same.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Mutex<Counted>>);

impl Meter {
    /// Counts units of a key at a time since the beginning.
    pub(crate) fn charge(&self, at: Duration, key: MeteredKey, units: Units) {
        let second = at.as_secs();
        let mut counted = self.counted();
        if counted.second != second {
            (counted.second, counted.now) = (second, Units::default());
        }
        counted.now.add(units);
        let now = counted.now;
        counted.busiest_second.at_least(now);
        let used = counted.keys.entry(key).or_default();
        if used.second != second {
            (used.second, used.now) = (second, Units::default());
        }
        used.total.add(units);
        used.now.add(units);
        used.peak.at_least(used.now);
    }

    pub(crate) fn count(&self, operation: &'static str, times: usize) {
        *self.counted().calls.entry(operation).or_default() += times as u64;
    }

    /// What was counted since the last call.
    pub fn take(&self) -> Counted {
        std::mem::take(&mut *self.counted())
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    pub fn total(&self) -> Units {
        let mut total = Units::default();
        self.keys.values().for_each(|used| total.add(used.total));
        total
    }

    /// For each kind of key: how many keys, the units of all, and the peak of the busiest one.
    pub fn kinds(&self) -> BTreeMap<&str, (usize, Units, Units)> {
        let mut kinds: BTreeMap<&str, (usize, Units, Units)> = BTreeMap::new();
        for (key, used) in &self.keys {
            let (keys, total, peak) = kinds.entry(key.kind()).or_default();
            *keys += 1;
            total.add(used.total);
            peak.at_least(used.peak);
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peak_is_that_of_one_second_and_one_key() {
        let meter = Meter::default();
        let key = |value: &str| MeteredKey::of_table(value.to_owned());
        for (millis, value, writes) in
            [(0, "A#1", 2.0), (999, "A#1", 3.0), (1_000, "A#1", 4.0), (1_001, "A#2", 1.0)]
        {
            meter.charge(Duration::from_millis(millis), key(value), Units::writes(writes));
        }
        meter.count("PutItem", 2);
        let counted = meter.take();
        assert_eq!(counted.total(), Units::writes(10.0));
        assert_eq!(counted.busiest_second, Units::writes(5.0));
        let (keys, total, peak) = counted.kinds()["A"];
        assert_eq!((keys, total, peak), (2, Units::writes(10.0), Units::writes(5.0)));
        assert_eq!(counted.calls["PutItem"], 2);
        assert_eq!(meter.take().total(), Units::default(), "counted once");
        assert!((peak.share_of(KEY_LIMITS) - 0.005).abs() < 1e-9);
    }

    #[test]
    fn keys_are_grouped_by_what_they_are_for() {
        let lists = MeteredKey { index: Some("lists"), value: "LIVE#3".to_owned() };
        let by_run = MeteredKey { index: Some("events-by-run"), value: "run-1".to_owned() };
        assert_eq!((lists.kind(), by_run.kind()), ("LIVE", "events-by-run"));
        assert_eq!(MeteredKey::of_table("SETTING".to_owned()).kind(), "SETTING");
    }
}
