//! Compares what was measured with what is required.

use super::requirements::{Bound, REQUIREMENTS, Requirement, STATED_ROUND_TRIP_MS};
use super::results::{Measured, Results};

pub(super) const QUIET: &str = "quiet";
pub(super) const LOADED: &str = "loaded";

/// A row that was measured, under both conditions as far as it was.
#[derive(Debug)]
pub(super) struct Judgement {
    pub(super) requirement: Requirement,
    pub(super) quiet: Verdict,
    pub(super) loaded: Option<Verdict>,
}

/// A row under one condition.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    /// What is bounded: milliseconds, calls, or the figure itself.
    pub(super) value: f64,
    pub(super) worst: Option<f64>,
    /// The bound under the condition of the run.
    pub(super) allowed: f64,
    pub(super) holds: bool,
    /// The time that no implementation could undercut, in milliseconds.
    pub(super) limit_ms: Option<f64>,
    /// Median time of the row in milliseconds, where it has one.
    pub(super) ms: Option<f64>,
    pub(super) calls: Option<f64>,
    pub(super) trips: Option<f64>,
    /// The rate of what is measured beside it.
    pub(super) beside: Option<f64>,
    pub(super) rounds: usize,
}

/// All rows that were measured on the quiet computer.
pub(super) fn all(results: &Results) -> Vec<Judgement> {
    let judged = |requirement: &Requirement| {
        let verdict = |condition: &str| {
            let measured = results.find(requirement.row, condition)?;
            Verdict::of(requirement, measured)
        };
        let (quiet, loaded) = (verdict(QUIET)?, verdict(LOADED));
        Some(Judgement { requirement: *requirement, quiet, loaded })
    };
    REQUIREMENTS.iter().filter_map(judged).collect()
}

impl Judgement {
    /// Whether the requirement is missed on the quiet computer.
    pub(super) fn is_missed(&self) -> bool {
        !self.quiet.holds
    }

    pub(super) fn complaint(&self) -> String {
        let Verdict { value, allowed, .. } = self.quiet;
        format!("{}: {value:.1}, required {allowed:.1}", self.requirement.words)
    }
}

impl Verdict {
    /// Judges a row; `None` if it lacks the figure.
    fn of(requirement: &Requirement, measured: &Measured) -> Option<Verdict> {
        let (ms, round_trip) = (measured.median("ms"), measured.median("roundTripMs"));
        let plain = Verdict {
            value: 0.0,
            worst: measured.largest("ms"),
            allowed: 0.0,
            holds: false,
            limit_ms: None,
            ms,
            calls: measured.median("calls").filter(|calls| *calls > 0.0),
            trips: measured.median("trips").filter(|trips| *trips > 0.0),
            beside: None,
            rounds: measured.count(),
        };
        let slowness = |round_trip: f64| (round_trip / STATED_ROUND_TRIP_MS).max(1.0);
        Some(match requirement.bound {
            Bound::Time { most_ms, fewest, agent_ms } => {
                let (ms, round_trip) = (ms?, round_trip?);
                let allowed = (most_ms - agent_ms) * slowness(round_trip) + agent_ms;
                let limit_ms = Some(fewest * round_trip + agent_ms);
                Verdict { value: ms, allowed, holds: ms <= allowed, limit_ms, ..plain }
            }
            Bound::TimeOverOutside { most_ms } => {
                let outside = measured.median("outsideMs")?;
                let (ms, allowed) = (ms?, outside + most_ms * slowness(round_trip?));
                let limit_ms = Some(outside);
                Verdict { value: ms, allowed, holds: ms <= allowed, limit_ms, ..plain }
            }
            Bound::Calls { most } => {
                let calls = plain.calls?;
                Verdict { value: calls, allowed: most, holds: calls <= most, ..plain }
            }
            Bound::Figure { name, most, .. } => {
                let value = measured.figure(name)?;
                Verdict { value, allowed: most, holds: value <= most, ..plain }
            }
            Bound::Rate { name, least, beside, least_share } => {
                let (rate, other) = (measured.median(name)?, measured.median(beside)?);
                let allowed = least.min(least_share * other);
                let beside = Some(other);
                Verdict { value: rate, allowed, holds: rate >= allowed, beside, ..plain }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(row: &str, condition: &str, round: &Value) -> Vec<Judgement> {
        let quiet = json!({"row": row, "condition": QUIET, "rounds": [round]});
        let other = json!({"row": row, "condition": condition, "rounds": [round]});
        all(&Results::of(&json!({"results": [quiet, other]})))
    }

    fn time(row: &str, ms: f64, round_trip: f64) -> Verdict {
        let round = json!({
            "ms": ms, "roundTripMs": round_trip, "outsideMs": 60.0, "calls": 12, "trips": 6,
        });
        let judgements = judged(row, LOADED, &round);
        assert_eq!(judgements.len(), 1, "{row}");
        assert_eq!(judgements[0].loaded.as_ref(), Some(&judgements[0].quiet));
        judgements[0].quiet.clone()
    }

    #[test]
    fn a_required_time_grows_with_the_round_trip_and_never_shrinks() {
        assert!(time("warm-1-prompt", 75.0, 10.0).holds);
        assert!(!time("warm-1-prompt", 75.1, 10.0).holds);
        assert!(time("warm-1-prompt", 75.0, 9.0).holds);
        let slow = time("warm-1-prompt", 150.0, 20.0);
        assert_eq!((slow.holds, slow.allowed, slow.limit_ms), (true, 150.0, Some(100.0)));
    }

    #[test]
    fn the_time_of_agents_and_of_the_provider_does_not_grow() {
        let release = time("release-10-50ms", 230.0, 20.0);
        assert_eq!((release.holds, release.limit_ms), (true, Some(170.0)));
        assert!(!time("release-10-50ms", 231.0, 20.0).holds);
        assert!(time("cold-2-50ms", 360.0, 10.0).holds);
        assert!(!time("cold-2-50ms", 361.0, 10.0).holds);
    }

    #[test]
    fn calls_do_not_depend_on_the_computer() {
        assert!(time("refresh-empty", 900.0, 90.0).holds);
        let round = json!({"ms": 1.0, "calls": 13, "roundTripMs": 90.0});
        let judgements = judged("refresh-empty", QUIET, &round);
        assert!(judgements[0].is_missed());
        assert!(judgements[0].complaint().ends_with("no idle machine: 13.0, required 12.0"));
    }

    #[test]
    fn a_rate_may_be_a_share_of_what_the_computer_can_do() {
        let holds = |claims: f64, sqlite: f64| {
            let round = json!({"claimsASecond": claims, "sqliteASecond": sqlite});
            judged("local-claims", QUIET, &round)[0].quiet.holds
        };
        assert!(holds(5_000.0, 30_000.0));
        assert!(!holds(4_999.0, 30_000.0));
        assert!(holds(1_701.0, 5_000.0) && !holds(1_699.0, 5_000.0));
    }
}
