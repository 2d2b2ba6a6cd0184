//! The heartbeat of an agent. It says how often it comes, so that a change of the setting does not
//! make agents look dead that have not heard of it yet.

use std::time::Duration;

use crate::model::timestamp::Timestamp;

/// The version of what agents and control plane write for each other. It grows when one of them
/// could misunderstand the other. The tests of two versions build the program once more with
/// another one; no other build sets the variable.
pub const PROTOCOL: u32 = match option_env!("ONDECK_PROTOCOL") {
    Some(text) => whole_number(text),
    None => 1,
};

const fn whole_number(text: &str) -> u32 {
    match u32::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("ONDECK_PROTOCOL is not a whole number"),
    }
}

/// The oldest protocol that this version understands.
const OLDEST_PROTOCOL: u32 = 1;

/// Whether this program understands an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compatibility {
    Understood,
    /// The agent is too old.
    Older,
    /// The agent is newer than this program.
    Newer,
}

/// How many heartbeats may be missed.
const MISSED: u32 = 3;
/// The periods that a heartbeat may announce; others count as the nearest of these. Otherwise an
/// agent could claim to be healthy for ever.
const PERIODS: (Duration, Duration) = (Duration::from_secs(1), LONGEST_PERIOD);
/// The longest period that is believed.
pub const LONGEST_PERIOD: Duration = Duration::from_secs(60);

/// The period of a machine that waits for a run, where a machine that has one beats every `period`: twice
/// as long, within what is believed.
pub fn idle_period(period: Duration) -> Duration {
    period.saturating_mul(2).min(LONGEST_PERIOD).max(period)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heartbeat {
    /// When it was sent, by the agent's clock.
    pub at: Timestamp,
    /// After which time the next one follows.
    pub period: Duration,
    /// The [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// How long the machine's last registration took, from its begin to being registered.
    pub registration: Option<Duration>,
    /// How long the machine took to let in the jobs of the last run that found it registered, from seeing
    /// the run.
    pub ready_claim: Option<Duration>,
    /// Whether the runner has a job.
    pub busy: bool,
    /// Whether the provider has announced that it will take the machine away.
    pub interrupted: bool,
}

impl Heartbeat {
    /// A heartbeat of an agent of this version that has registered no runner yet.
    pub fn new(at: Timestamp, period: Duration) -> Heartbeat {
        let (registration, ready_claim, busy, interrupted) = (None, None, false, false);
        Heartbeat { at, period, protocol: PROTOCOL, registration, ready_claim, busy, interrupted }
    }

    pub fn compatibility(&self) -> Compatibility {
        match self.protocol {
            protocol if protocol > PROTOCOL => Compatibility::Newer,
            protocol if protocol < OLDEST_PROTOCOL => Compatibility::Older,
            _ => Compatibility::Understood,
        }
    }

    /// The age past which the machine counts as unhealthy.
    pub fn healthy_within(&self) -> Duration {
        self.period.clamp(PERIODS.0, PERIODS.1) * MISSED
    }

    /// Whether the machine is healthy at `now`. A heartbeat from the future comes from a clock that
    /// runs ahead, and is healthy within the same distance as one from the past.
    pub fn is_healthy(&self, now: Timestamp) -> bool {
        self.at.distance(now) <= self.healthy_within()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_of_the_oldest_protocol_up_to_this_one_are_understood() {
        let of = |protocol| {
            let beat = Heartbeat::new(Timestamp::from_millis(0), Duration::from_secs(5));
            Heartbeat { protocol, ..beat }.compatibility()
        };
        assert_eq!(of(OLDEST_PROTOCOL - 1), Compatibility::Older);
        assert_eq!(of(OLDEST_PROTOCOL), Compatibility::Understood);
        assert_eq!(of(PROTOCOL), Compatibility::Understood);
        assert_eq!(of(PROTOCOL + 1), Compatibility::Newer);
    }

    #[test]
    fn an_idle_machine_beats_half_as_often_within_bounds() {
        let seconds = Duration::from_secs;
        for (period, idle) in [(1, 2), (5, 10), (30, 60), (31, 60), (60, 60), (90, 90)] {
            assert_eq!(idle_period(seconds(period)), seconds(idle), "{period}");
        }
    }

    #[test]
    fn health_goes_by_the_announced_period_within_bounds() {
        let seconds = Duration::from_secs;
        let sent = Timestamp::from_millis(1_000_000);
        for (period, limit) in [
            (Duration::ZERO, 3),
            (Duration::from_millis(100), 3),
            (seconds(1), 3),
            (seconds(5), 15),
            (seconds(60), 180),
            (seconds(61), 180),
            (Duration::MAX, 180),
        ] {
            let beat = Heartbeat::new(sent, period);
            let (limit, tick) = (seconds(limit), Duration::from_millis(1));
            assert!(beat.is_healthy(sent) && beat.is_healthy(sent + limit), "{period:?}");
            assert!(!beat.is_healthy(sent + limit + tick), "{period:?}");
            assert!(beat.is_healthy(sent.before(limit)), "{period:?}, sent in the future");
            assert!(!beat.is_healthy(sent.before(limit + tick)), "{period:?}");
        }
    }
}
