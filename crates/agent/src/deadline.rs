//! When a machine ends itself: a pure decision, so that every case of it can be tested.

use ondeck_core::inputs::times::Times;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::timestamp::Timestamp;

/// What the agent last knew of its record. While the store is out of reach this stays as it
/// was, and its deadline goes on counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There has never been one: the control plane has not come so far, or died on the way.
    Unrecorded {
        since: Timestamp,
    },
    Recorded {
        state: State,
        threshold: Option<Timestamp>,
    },
    /// There was one, and it has been deleted.
    Struck {
        since: Timestamp,
    },
}

impl Standing {
    pub(crate) fn after_seeing(self, record: Option<&Record>, now: Timestamp) -> Standing {
        match (record, self) {
            (Some(record), _) => {
                Standing::Recorded { state: record.state, threshold: record.threshold }
            }
            (None, Standing::Recorded { .. }) => Standing::Struck { since: now },
            (None, unchanged) => unchanged,
        }
    }

    /// Whether no later answer of the store can change it: a terminated machine stays terminated.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Standing::Recorded { state: State::Terminated, .. })
    }
}

/// The moment at which the machine ends, if nothing changes until then.
pub(crate) fn end_at(standing: &Standing, times: &Times) -> Timestamp {
    match standing {
        Standing::Unrecorded { since } => *since + times.boot_deadline,
        Standing::Recorded { state: State::Terminated, .. } => Timestamp::from_millis(0),
        Standing::Recorded { threshold: None, .. } => Timestamp::from_millis(0),
        Standing::Recorded { threshold: Some(threshold), .. } => {
            *threshold + times.self_termination_grace
        }
        Standing::Struck { since } => *since + times.self_termination_grace,
    }
}

/// Why the machine must end now; `None` if it need not.
pub(crate) fn why_end(standing: &Standing, times: &Times, now: Timestamp) -> Option<String> {
    if now < end_at(standing, times) {
        return None;
    }
    Some(match standing {
        Standing::Unrecorded { .. } => {
            format!("no record of it within {} s of its start", times.boot_deadline.as_secs_f64())
        }
        Standing::Recorded { state: State::Terminated, .. }
        | Standing::Recorded { threshold: None, .. } => "it was terminated".to_owned(),
        Standing::Recorded { state, threshold: Some(threshold) } => {
            format!("{state} past its threshold, {threshold}")
        }
        Standing::Struck { .. } => "its record was deleted".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_standing_has_its_deadline() {
        let times = Times::default();
        let at = |secs: u64| Timestamp::from_millis(secs * 1000);
        let recorded = |state, threshold| Standing::Recorded { state, threshold };
        let cases = [
            (Standing::Unrecorded { since: at(100) }, at(280), "no record"),
            (recorded(State::Idle, Some(at(100))), at(160), "idle past its threshold"),
            (recorded(State::Running, Some(at(100))), at(160), "running past its threshold"),
            (recorded(State::Created, Some(at(100))), at(160), "created past its threshold"),
            (recorded(State::Terminated, None), at(0), "terminated"),
            (Standing::Struck { since: at(100) }, at(160), "deleted"),
        ];
        for (standing, end, why) in cases {
            assert_eq!(end_at(&standing, &times), end, "{standing:?}");
            let reason = why_end(&standing, &times, end).unwrap();
            assert!(reason.contains(why), "{reason}");
            if end > at(0) {
                let just_before = end.before(Duration::from_millis(1));
                assert_eq!(why_end(&standing, &times, just_before), None, "{standing:?}");
            }
        }
    }

    #[test]
    fn a_record_that_vanishes_starts_the_clock_once() {
        let at = Timestamp::from_millis;
        let recorded = Standing::Recorded { state: State::Idle, threshold: Some(at(500)) };
        let struck = recorded.after_seeing(None, at(100));
        assert_eq!(struck, Standing::Struck { since: at(100) });
        assert_eq!(struck.after_seeing(None, at(200)), struck);
        let unrecorded = Standing::Unrecorded { since: at(1) };
        assert_eq!(unrecorded.after_seeing(None, at(200)), unrecorded);
    }
}
