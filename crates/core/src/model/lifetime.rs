//! How long a machine may be reused.

use std::time::Duration;

use crate::model::record::Record;
use crate::model::reuse::Reuse;
use crate::model::settings::Settings;
use crate::model::timestamp::Timestamp;

/// The limits of the settings, after which a machine does not return to the pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// The longest time since the machine was registered.
    pub max_age: Option<Duration>,
    /// The most runs that it may be given to.
    pub max_runs: Option<u32>,
}

impl Lifetime {
    pub fn of(settings: &Settings) -> Lifetime {
        let max_runs = match settings.reuse {
            Reuse::Always => settings.max_runs_per_machine,
            Reuse::Never | Reuse::Preserved => Some(1),
        };
        Lifetime { max_age: settings.max_machine_age, max_runs }
    }

    /// Whether any limit is set.
    pub fn is_limited(&self) -> bool {
        self.max_age.is_some() || self.max_runs.is_some()
    }

    /// Whether the machine has reached a limit at `now`, its run has asked for a machine of its own, or
    /// an operator wants it to leave.
    pub fn is_over(&self, record: &Record, now: Timestamp) -> bool {
        let old = self.max_age.is_some_and(|limit| {
            now.since(record.created_at) >= own_limit(limit, record.id.as_str())
        });
        let used_up = record.reuse.is_never() && record.counts.runs > 0;
        let is_wanted = record.departure.is_wanted();
        old || used_up
            || is_wanted
            || self.max_runs.is_some_and(|limit| record.counts.runs >= limit)
    }
}

/// The limit of one machine: up to a tenth below the configured one, by a hash of its id. Otherwise
/// machines that were launched together would all be replaced together.
fn own_limit(limit: Duration, id: &str) -> Duration {
    const STEPS: u64 = 1000;
    // FNV-1a. The low bits of it are spread well enough.
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let share = u32::try_from(hash % STEPS).unwrap_or_default();
    limit - limit / 10 * share / STEPS as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_machines_lie_up_to_a_tenth_below_the_configured_one_and_apart() {
        let limit = Duration::from_secs(10_000);
        let limits: Vec<u64> =
            (0..1000).map(|n| own_limit(limit, &format!("i-{n:017x}")).as_secs()).collect();
        assert!(limits.iter().all(|limit| (9_000..=10_000).contains(limit)));
        for tenth in 0..10 {
            let range = 9_000 + tenth * 100..9_000 + (tenth + 1) * 100;
            let within = limits.iter().filter(|limit| range.contains(*limit)).count();
            assert!((50..200).contains(&within), "{within} of 1000 in {range:?}");
        }
        assert_eq!(own_limit(limit, "i-1"), own_limit(limit, "i-1"));
    }
}
