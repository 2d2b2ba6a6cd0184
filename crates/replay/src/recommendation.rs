//! Which point of a grid to recommend.

use std::time::Duration;

use ondeck_core::model::money::Money;

/// What the choice goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// How long runs waited, on average.
    pub waiting: Duration,
    pub cost: Money,
}

/// The index of the recommended point: the cheapest of those that spare at least `aim` percent of the
/// waiting that the best point spares. A point spares what its runs wait less than `cold`, the time
/// that a machine takes to boot. If none spares anything, that is the cheapest point. Of equally cheap
/// ones the one with less waiting is taken, then the first. `None` if there are no points.
pub fn recommend(points: &[Candidate], cold: Duration, aim: u32) -> Option<usize> {
    let spared = |point: &Candidate| cold.saturating_sub(point.waiting).as_millis();
    let best = points.iter().map(spared).max()?;
    let is_good = |point: &Candidate| spared(point) * 100 >= best * u128::from(aim);
    let good = points.iter().enumerate().filter(|(_, point)| is_good(point));
    good.min_by_key(|(index, point)| (point.cost, point.waiting, *index)).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLD: Duration = Duration::from_secs(50);

    fn points(of: &[(u64, f64)]) -> Vec<Candidate> {
        let point = |(seconds, dollars): &(u64, f64)| Candidate {
            waiting: Duration::from_secs(*seconds),
            cost: Money::from_dollars(*dollars).unwrap(),
        };
        of.iter().map(point).collect()
    }

    #[test]
    fn the_cheapest_point_that_spares_enough_is_recommended() {
        // The best spares 40 s: 80 % of it are 32 s, a waiting of 18 s.
        let grid = points(&[(45, 1.0), (19, 2.0), (18, 3.0), (12, 4.0), (10, 9.0)]);
        for (aim, expected) in [(0, 0), (12, 0), (13, 1), (80, 2), (81, 3), (95, 3), (96, 4)] {
            assert_eq!(recommend(&grid, COLD, aim), Some(expected), "{aim}");
        }
        assert_eq!(recommend(&grid, COLD, 100), Some(4));
    }

    #[test]
    fn equally_cheap_points_are_told_apart_by_waiting_and_then_by_place() {
        let grid = points(&[(12, 2.0), (10, 2.0), (10, 2.0), (10, 3.0)]);
        assert_eq!(recommend(&grid, COLD, 80), Some(1));
    }

    #[test]
    fn without_anything_spared_the_cheapest_point_is_recommended() {
        let grid = points(&[(50, 2.0), (60, 1.0), (51, 3.0)]);
        assert_eq!(recommend(&grid, COLD, 80), Some(1));
        assert_eq!(recommend(&[], COLD, 80), None);
    }
}
