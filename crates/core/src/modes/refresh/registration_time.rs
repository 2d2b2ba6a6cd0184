//! How long machines take from their claim until they let jobs in, by the way that they take: provision
//! claims a second machine only after the time within which most machines of this pool are ready.

use std::collections::BTreeMap;
use std::time::Duration;

use super::survey::Survey;
use crate::model::failure::Failure;
use crate::model::heartbeat::Heartbeat;
use crate::model::ids::InstanceId;
use crate::model::settings::{READY_P95, REGISTRATION_P95, Settings};
use crate::model::signal::AgentStatus;
use crate::modes::plane::Plane;
use crate::modes::provision::usable_delay;

/// How many machines are asked at most: one batched read.
const SAMPLE: usize = 100;
/// With fewer times than this, what is known stays.
const FEWEST: usize = 5;

/// Stores the 95th percentiles of the last registrations, and of the last claims of registered machines,
/// each if it has changed noticeably.
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
    let change = news(settings, status.iter().filter_map(|status| status.heartbeat));
    if change.is_empty() {
        return Ok(());
    }
    plane.retried(|| plane.store.put_settings(&change)).await?;
    tracing::info!(?change, "95 of 100 machines take at most this long to be ready");
    Ok(())
}

/// The settings that these heartbeats change.
fn news(
    settings: &Settings,
    beats: impl Iterator<Item = Heartbeat> + Clone,
) -> BTreeMap<String, String> {
    let registered = beats.clone().filter_map(|beat| beat.registration).collect();
    let ready = beats.filter_map(|beat| beat.ready_claim).collect();
    let ways = [
        (REGISTRATION_P95, registered, settings.registration_p95),
        (READY_P95, ready, settings.ready_p95),
    ];
    let changed = ways.into_iter().filter_map(|(name, took, known)| {
        let p95 = percentile_95(took).filter(|p95| is_news(*p95, known))?;
        Some((name.to_owned(), p95.as_millis().to_string()))
    });
    changed.collect()
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

/// Whether the delays that follow from the two differ by more than a tenth.
fn is_news(now: Duration, known: Option<Duration>) -> bool {
    let now = usable_delay(now);
    known.map(usable_delay).is_none_or(|known| known.abs_diff(now) > known / 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::timestamp::Timestamp;

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
    fn each_way_has_a_percentile_of_its_own() {
        let beat = |registered: u64, ready: Option<u64>| Heartbeat {
            registration: Some(Duration::from_millis(registered)),
            ready_claim: ready.map(Duration::from_millis),
            ..Heartbeat::new(Timestamp::from_millis(0), Duration::from_secs(5))
        };
        let changed = |settings: &Settings, beats: &[Heartbeat]| {
            let found = news(settings, beats.iter().copied());
            let value = |name| found.get(name).map(|value| value.parse::<u64>().unwrap());
            (value(REGISTRATION_P95), value(READY_P95))
        };
        let few: Vec<Heartbeat> = (1..=5).map(|n| beat(n * 1_000, (n > 1).then_some(n))).collect();
        assert_eq!(changed(&Settings::default(), &few), (Some(5_000), None), "four were ready");
        let enough: Vec<Heartbeat> = (1..=5).map(|n| beat(n * 1_000, Some(n))).collect();
        assert_eq!(changed(&Settings::default(), &enough), (Some(5_000), Some(5)));
        let millis = |span| Some(Duration::from_millis(span));
        let known = |ready| Settings {
            registration_p95: millis(5_000),
            ready_p95: millis(ready),
            ..Settings::default()
        };
        assert_eq!(changed(&known(1_500), &enough), (None, Some(5)));
        assert_eq!(changed(&known(900), &enough), (None, None), "both make the shortest delay");
    }

    #[test]
    fn small_changes_are_no_news() {
        let known = Some(Duration::from_secs(10));
        assert!(is_news(Duration::from_secs(3), None));
        for (now, news) in [(9, false), (11, false), (12, true), (8, true)] {
            assert_eq!(is_news(Duration::from_secs(now), known), news, "{now}");
        }
        for (now, known, news) in [(1, 900, false), (1_100, 2, false), (2, 1_200, true)] {
            let [now, known] = [now, known].map(Duration::from_millis);
            assert_eq!(is_news(now, Some(known)), news, "{now:?} {known:?}");
        }
        assert!(!is_news(Duration::from_secs(60), Some(Duration::from_secs(25))), "the longest");
    }
}
