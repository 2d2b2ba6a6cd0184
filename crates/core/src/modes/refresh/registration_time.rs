//! How long registrations take: provision claims a second machine only after the time within which
//! most machines of this pool register.

use std::collections::BTreeMap;
use std::time::Duration;

use super::survey::Survey;
use crate::model::failure::Failure;
use crate::model::ids::InstanceId;
use crate::model::settings::{REGISTRATION_P95, Settings};
use crate::model::signal::AgentStatus;
use crate::modes::plane::Plane;

/// How many machines are asked at most: one batched read.
const SAMPLE: usize = 100;
/// With fewer registrations than this, what is known stays.
const FEWEST: usize = 5;

/// Stores the 95th percentile of the last registrations, if it has changed noticeably.
pub(super) async fn record(
    plane: &Plane,
    settings: &Settings,
    survey: &Survey,
) -> Result<(), Failure> {
    let ids = sample(survey.live.iter().map(|record| &record.id), plane.random.number());
    if ids.len() < FEWEST {
        return Ok(());
    }
    // Those of idle machines have been read already.
    let (known, others): (Vec<_>, Vec<_>) =
        ids.into_iter().partition(|id| survey.idle_status.contains_key(id));
    let mut status: Vec<AgentStatus> =
        known.iter().filter_map(|id| survey.idle_status.get(id).cloned()).collect();
    if !others.is_empty() {
        status.extend(plane.retried(|| plane.store.agent_status(&others)).await?);
    }
    let took = status.iter().filter_map(|status| status.heartbeat?.registration).collect();
    let Some(p95) = percentile_95(took).filter(|p95| is_news(*p95, settings.registration_p95))
    else {
        return Ok(());
    };
    let change = BTreeMap::from([(REGISTRATION_P95.to_owned(), p95.as_millis().to_string())]);
    plane.retried(|| plane.store.put_settings(&change)).await?;
    tracing::info!(seconds = p95.as_secs_f64(), "95 of 100 registrations take at most this long");
    Ok(())
}

/// At most [`SAMPLE`] of the ids, spread evenly from a random one on.
fn sample<'a>(
    ids: impl ExactSizeIterator<Item = &'a InstanceId> + Clone,
    random: u64,
) -> Vec<InstanceId> {
    let step = ids.len().div_ceil(SAMPLE).max(1);
    let start = usize::try_from(random % step as u64).unwrap_or(0);
    ids.skip(start).step_by(step).cloned().collect()
}

/// `None` if there are fewer than [`FEWEST`].
fn percentile_95(mut took: Vec<Duration>) -> Option<Duration> {
    took.sort_unstable();
    let rank = (took.len() * 95).div_ceil(100);
    (took.len() >= FEWEST).then(|| took[rank - 1])
}

/// Whether the two differ by more than a tenth.
fn is_news(now: Duration, known: Option<Duration>) -> bool {
    known.is_none_or(|known| known.abs_diff(now) > known / 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: &[u64]) -> Vec<Duration> {
        seconds.iter().copied().map(Duration::from_secs).collect()
    }

    #[test]
    fn the_percentile_is_the_time_within_which_95_of_100_have_registered() {
        assert_eq!(percentile_95(seconds(&[9, 9, 9, 9])), None, "too few");
        assert_eq!(percentile_95(seconds(&[5, 1, 2, 4, 3])), Some(Duration::from_secs(5)));
        let hundred: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(percentile_95(seconds(&hundred)), Some(Duration::from_secs(95)));
    }

    #[test]
    fn a_sample_is_bounded_and_spread() {
        for (count, random, expected) in [(0, 7, 0), (99, 7, 99), (100, 7, 100), (1_000, 7, 100)] {
            let ids: Vec<InstanceId> =
                (0..count).map(|n| InstanceId::new(format!("i-{n}")).unwrap()).collect();
            let sample = sample(ids.iter(), random);
            assert_eq!(sample.len(), expected, "of {count}");
        }
    }

    #[test]
    fn small_changes_are_no_news() {
        let known = Some(Duration::from_secs(10));
        assert!(is_news(Duration::from_secs(3), None));
        for (now, news) in [(9, false), (11, false), (12, true), (8, true)] {
            assert_eq!(is_news(Duration::from_secs(now), known), news, "{now}");
        }
    }
}
