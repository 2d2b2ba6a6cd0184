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

/// A point, and why it is recommended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recommendation {
    pub index: usize,
    pub reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It is the cheapest point that spares enough of the waiting that the best one spares.
    SparesEnough,
    /// It is the cheapest point of all, because even the best one spares less than a quarter of a boot.
    LittleToSpare,
}

/// The best point must spare this part of a boot, or waiting hardly depends on the settings.
const WORTHWHILE: u128 = 4;

/// The recommended point: the cheapest of those that spare at least `aim` percent of the waiting that
/// the best point spares. A point spares what its runs wait less, on average, than `cold`, the time
/// that a machine takes to boot. If the best one spares less than a quarter of that, it is the cheapest
/// of all. Of equally cheap ones the one with less waiting is taken, then the first. `None` if there
/// are no points.
pub fn recommend(points: &[Candidate], cold: Duration, aim: u32) -> Option<Recommendation> {
    let spared = |point: &Candidate| cold.saturating_sub(point.waiting).as_millis();
    let best = points.iter().map(spared).max()?;
    let (needed, reason) = match best * WORTHWHILE < cold.as_millis() {
        true => (0, Reason::LittleToSpare),
        false => (best * u128::from(aim), Reason::SparesEnough),
    };
    let good = points.iter().enumerate().filter(|(_, point)| spared(point) * 100 >= needed);
    let (index, _) = good.min_by_key(|(index, point)| (point.cost, point.waiting, *index))?;
    Some(Recommendation { index, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLD: Duration = Duration::from_secs(50);

    /// The recommended point, which spares enough.
    fn good(points: &[Candidate], aim: u32) -> usize {
        let found = recommend(points, COLD, aim).unwrap();
        assert_eq!(found.reason, Reason::SparesEnough);
        found.index
    }

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
            assert_eq!(good(&grid, aim), expected, "{aim}");
        }
        assert_eq!(good(&grid, 100), 4);
    }

    #[test]
    fn equally_cheap_points_are_told_apart_by_waiting_and_then_by_place() {
        let grid = points(&[(12, 2.0), (10, 2.0), (10, 2.0), (10, 3.0)]);
        assert_eq!(good(&grid, 80), 1);
    }

    #[test]
    fn where_waiting_hardly_depends_on_the_settings_the_cheapest_point_is_recommended() {
        let cheapest = |index| Some(Recommendation { index, reason: Reason::LittleToSpare });
        let none = points(&[(50, 2.0), (60, 1.0), (51, 3.0)]);
        assert_eq!(recommend(&none, COLD, 80), cheapest(1));
        // A quarter of 50 s are 12.5 s.
        let little = points(&[(50, 1.0), (38, 4.0)]);
        assert_eq!(recommend(&little, COLD, 80), cheapest(0));
        assert_eq!(good(&points(&[(50, 1.0), (37, 4.0)]), 80), 1);
        assert_eq!(recommend(&[], COLD, 80), None);
    }
}
