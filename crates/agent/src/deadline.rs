//! When a machine terminates itself: a pure decision, so that every case of it can be tested.

use std::time::Duration;

use ondeck_core::inputs::times::Times;
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Clock;

/// One moment on both clocks. Thresholds are written by other processes, so they are compared with
/// the time of day. Spans go by steady time, which a correction of the clock does not move.
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

/// What the agent last knew of its record. While the store does not answer, this stays as it was,
/// and the deadline comes nearer. Each `since` is steady time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// There has never been one: the control plane has not come so far, or died on the way.
    Unrecorded {
        since: Duration,
    },
    Recorded {
        state: State,
        threshold: Option<Timestamp>,
    },
    /// There was one, and it has been deleted.
    Struck {
        since: Duration,
    },
}

impl Standing {
    pub(crate) fn after_seeing(self, record: Option<&Record>, steady: Duration) -> Standing {
        match (record, self) {
            (Some(record), _) => {
                Standing::Recorded { state: record.state, threshold: record.threshold }
            }
            (None, Standing::Recorded { .. }) => Standing::Struck { since: steady },
            (None, unchanged) => unchanged,
        }
    }

    /// Whether no later answer of the store can change it: a terminated machine stays terminated.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Standing::Recorded { state: State::Terminated, .. })
    }
}

/// How long the machine may go on if nothing changes; zero if it must terminate now.
pub(crate) fn left(standing: &Standing, times: &Times, now: Moment) -> Duration {
    let rest = |since: Duration, span: Duration| (since + span).saturating_sub(now.steady);
    match standing {
        Standing::Unrecorded { since } => rest(*since, times.boot_deadline),
        Standing::Recorded { state: State::Terminated, .. } => Duration::ZERO,
        Standing::Recorded { threshold: None, .. } => Duration::ZERO,
        Standing::Recorded { threshold: Some(threshold), .. } => {
            (*threshold + times.self_termination_grace).since(now.time)
        }
        Standing::Struck { since } => rest(*since, times.self_termination_grace),
    }
}

/// Why the machine must terminate now; `None` if it need not.
pub(crate) fn why_end(standing: &Standing, times: &Times, now: Moment) -> Option<String> {
    if !left(standing, times, now).is_zero() {
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

    #[test]
    fn each_standing_has_its_deadline() {
        let times = Times::default();
        let at = |secs: u64| Timestamp::from_millis(secs * 1000);
        let steady = Duration::from_secs;
        let recorded = |state, threshold| Standing::Recorded { state, threshold };
        let cases = [
            (Standing::Unrecorded { since: steady(100) }, 280, "no record"),
            (recorded(State::Idle, Some(at(100))), 160, "idle past its threshold"),
            (recorded(State::Running, Some(at(100))), 160, "running past its threshold"),
            (recorded(State::Created, Some(at(100))), 160, "created past its threshold"),
            (recorded(State::Terminated, None), 0, "terminated"),
            (Standing::Struck { since: steady(100) }, 160, "deleted"),
        ];
        for (standing, end, why) in cases {
            let end = Moment { time: at(end), steady: steady(end) };
            let reason = why_end(&standing, &times, end).unwrap();
            assert!(reason.contains(why), "{reason}");
            if !end.steady.is_zero() {
                let tick = Duration::from_millis(1);
                let before = Moment { time: end.time.before(tick), steady: end.steady - tick };
                assert_eq!(left(&standing, &times, before), tick, "{standing:?}");
                assert_eq!(why_end(&standing, &times, before), None, "{standing:?}");
            }
        }
    }

    #[test]
    fn a_correction_of_the_clock_moves_thresholds_and_no_spans() {
        let times = Times::default();
        let now = Moment { time: Timestamp::from_millis(0), steady: Duration::from_secs(10) };
        let corrected = Moment { time: now.time + Duration::from_secs(3_600), ..now };
        let since = now.steady;
        for standing in [Standing::Unrecorded { since }, Standing::Struck { since }] {
            assert_eq!(left(&standing, &times, now), left(&standing, &times, corrected));
        }
        let threshold = Some(now.time + Duration::from_secs(1_800));
        let recorded = Standing::Recorded { state: State::Idle, threshold };
        assert_eq!(why_end(&recorded, &times, now), None);
        assert!(why_end(&recorded, &times, corrected).is_some());
    }

    #[test]
    fn a_record_that_vanishes_starts_the_clock_once() {
        let at = Duration::from_millis;
        let threshold = Some(Timestamp::from_millis(500));
        let recorded = Standing::Recorded { state: State::Idle, threshold };
        let struck = recorded.after_seeing(None, at(100));
        assert_eq!(struck, Standing::Struck { since: at(100) });
        assert_eq!(struck.after_seeing(None, at(200)), struck);
        let unrecorded = Standing::Unrecorded { since: at(1) };
        assert_eq!(unrecorded.after_seeing(None, at(200)), unrecorded);
    }
}
