//! Index shards: a store may list records by an index whose keys carry a limited load. The number of
//! keys follows the size of the fleet. It never falls, so that no entry is out of sight.

use std::collections::BTreeMap;

use super::survey::Survey;
use crate::model::failure::Failure;
use crate::model::settings::{INDEX_SHARDS, Settings};
use crate::modes::plane::Plane;

/// How many live records one key of an index takes: one transition each, all within a few seconds,
/// is what DynamoDB admits to a key (500 a second).
const RECORDS_PER_SHARD: usize = 1_000;

/// Doubles the number of shards until it suffices for the live records, and stores it.
pub(super) async fn grow(
    plane: &Plane,
    settings: &Settings,
    survey: &Survey,
) -> Result<(), Failure> {
    let Some(shards) = wanted(survey.live.len(), settings.index_shards.max(1)) else {
        return Ok(());
    };
    let change = BTreeMap::from([(INDEX_SHARDS.to_owned(), shards.to_string())]);
    plane.retried(|| plane.store.put_settings(&change)).await?;
    tracing::info!(shards, live = survey.live.len(), "spread the lists over more keys");
    Ok(())
}

/// The number of shards to change to; `None` if `shards` suffices.
fn wanted(live: usize, shards: u32) -> Option<u32> {
    let needed = u32::try_from(live.div_ceil(RECORDS_PER_SHARD)).unwrap_or(u32::MAX / 2);
    (needed > shards).then(|| needed.next_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_double_with_the_fleet_and_never_fall() {
        for (live, shards, expected) in [
            (0, 1, None),
            (1_000, 1, None),
            (1_001, 1, Some(2)),
            (2_001, 2, Some(4)),
            (10_000, 1, Some(16)),
            (10_000, 16, None),
            (5, 16, None),
        ] {
            assert_eq!(wanted(live, shards), expected, "{live} records, {shards} shards");
        }
    }
}
