//! Decides when a machine terminates itself. A pure function, so that every case can be tested.

use std::time::Duration;

use ondeck_core::inputs::times::Times;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Clock;

/// One moment on both clocks. Thresholds are written by other processes, so they are
/// compared with the time of day. Spans are measured in steady time, which a correction of
/// the clock does not change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    pub(crate) time: Timestamp,
    pub(crate) steady: Duration,
}

impl Moment {
    pub(crate) fn of(clock: &dyn Clock) -> Moment {
        Moment { time: clock.now(), steady: clock.steady() }
    }
}

/// What the agent last read about its record. While the store does not answer, this does not
/// change, and the deadline approaches. Each `since` is steady time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastRecord {
    /// The record has not been written yet. The control plane may have died before it could.
    NotWritten {
        since: Duration,
    },
    Present {
        state: State,
        threshold: Option<Timestamp>,
    },
    /// The record was read before, and has been deleted.
    Deleted {
        since: Duration,
    },
}

impl LastRecord {
    /// Returns what is known after the store has answered with `record` at `steady`.
    pub(crate) fn updated(self, record: Option<&Record>, steady: Duration) -> LastRecord {
        match (record, self) {
            (Some(record), _) => {
                LastRecord::Present { state: record.state, threshold: record.threshold }
            }
            (None, LastRecord::Present { .. }) => LastRecord::Deleted { since: steady },
            (None, unchanged) => unchanged,
        }
    }

    /// Whether no later answer of the store can change this: a terminated record stays terminated.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, LastRecord::Present { state: State::Terminated, .. })
    }
}

/// Why the machine must take no new job; `None` while it may. Past the threshold no
/// transition gives the machine more time, so a job would only be cut off.
pub(crate) fn expiry(last: &LastRecord, now: Timestamp) -> Option<String> {
    match last {
        LastRecord::Present { state: State::Terminated, .. }
        | LastRecord::Present { threshold: None, .. } => Some("it was terminated".to_owned()),
        LastRecord::Present { state, threshold: Some(threshold) } => {
            (*threshold <= now).then(|| format!("{state} past its threshold, {threshold}"))
        }
        LastRecord::NotWritten { .. } | LastRecord::Deleted { .. } => None,
    }
}

/// How long it is until the threshold; `None` if there is none ahead.
pub(crate) fn until_threshold(last: &LastRecord, now: Timestamp) -> Option<Duration> {
    let LastRecord::Present { threshold: Some(threshold), .. } = last else { return None };
    Some(threshold.since(now)).filter(|left| !left.is_zero())
}

/// How long the machine may go on if nothing changes; zero if it must terminate now.
pub(crate) fn time_left(last: &LastRecord, times: &Times, now: Moment) -> Duration {
    let rest = |since: Duration, span: Duration| (since + span).saturating_sub(now.steady);
    match last {
        LastRecord::NotWritten { since } => rest(*since, times.boot_deadline),
        LastRecord::Present { state: State::Terminated, .. } => Duration::ZERO,
        LastRecord::Present { threshold: None, .. } => Duration::ZERO,
        LastRecord::Present { threshold: Some(threshold), .. } => {
            (*threshold + times.self_termination_grace).since(now.time)
        }
        LastRecord::Deleted { since } => rest(*since, times.self_termination_grace),
    }
}

/// Why the machine must terminate now; `None` if it need not.
pub(crate) fn termination_reason(last: &LastRecord, times: &Times, now: Moment) -> Option<String> {
    if !time_left(last, times, now).is_zero() {
        return None;
    }
    Some(match last {
        LastRecord::NotWritten { .. } => {
            format!("no record of it within {} s of its start", times.boot_deadline.as_secs_f64())
        }
        LastRecord::Present { state: State::Terminated, .. }
        | LastRecord::Present { threshold: None, .. } => "it was terminated".to_owned(),
        LastRecord::Present { state, threshold: Some(threshold) } => {
            format!("{state} past its threshold, {threshold}")
        }
        LastRecord::Deleted { .. } => "its record was deleted".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_its_deadline() {
        let times = Times::default();
        let at = |secs: u64| Timestamp::from_millis(secs * 1000);
        let steady = Duration::from_secs;
        let present = |state, threshold| LastRecord::Present { state, threshold };
        let cases = [
            (LastRecord::NotWritten { since: steady(100) }, 280, "no record"),
            (present(State::Idle, Some(at(100))), 160, "idle past its threshold"),
            (present(State::Running, Some(at(100))), 160, "running past its threshold"),
            (present(State::Created, Some(at(100))), 160, "created past its threshold"),
            (present(State::Terminated, None), 0, "terminated"),
            (LastRecord::Deleted { since: steady(100) }, 160, "deleted"),
        ];
        for (last, end, why) in cases {
            let end = Moment { time: at(end), steady: steady(end) };
            let reason = termination_reason(&last, &times, end).unwrap();
            assert!(reason.contains(why), "{reason}");
            if !end.steady.is_zero() {
                let tick = Duration::from_millis(1);
                let before = Moment { time: end.time.before(tick), steady: end.steady - tick };
                assert_eq!(time_left(&last, &times, before), tick, "{last:?}");
                assert_eq!(termination_reason(&last, &times, before), None, "{last:?}");
            }
        }
    }

    #[test]
    fn a_correction_of_the_clock_affects_thresholds_but_not_spans() {
        let times = Times::default();
        let now = Moment { time: Timestamp::from_millis(0), steady: Duration::from_secs(10) };
        let corrected = Moment { time: now.time + Duration::from_secs(3_600), ..now };
        let since = now.steady;
        for last in [LastRecord::NotWritten { since }, LastRecord::Deleted { since }] {
            assert_eq!(time_left(&last, &times, now), time_left(&last, &times, corrected));
        }
        let threshold = Some(now.time + Duration::from_secs(1_800));
        let present = LastRecord::Present { state: State::Idle, threshold };
        assert_eq!(termination_reason(&present, &times, now), None);
        assert!(termination_reason(&present, &times, corrected).is_some());
    }

    #[test]
    fn the_grace_of_a_deleted_record_starts_once() {
        let at = Duration::from_millis;
        let threshold = Some(Timestamp::from_millis(500));
        let present = LastRecord::Present { state: State::Idle, threshold };
        let deleted = present.updated(None, at(100));
        assert_eq!(deleted, LastRecord::Deleted { since: at(100) });
        assert_eq!(deleted.updated(None, at(200)), deleted);
        let not_written = LastRecord::NotWritten { since: at(1) };
        assert_eq!(not_written.updated(None, at(200)), not_written);
    }
}
