//! How long GitHub takes to let a runner in.

use std::time::Duration;

use fastrand::Rng;

/// The runner's own time for a registration and a session, in seconds: the lowest possible sum.
const FLOOR: f64 = 0.95;
/// The part of [`FLOOR`] that the registration takes. The session takes the rest.
const REGISTRATION: f64 = 0.55 / FLOOR;
/// Half of all sums are below this, in seconds.
const MEDIAN: f64 = 4.0;
/// 99 of 100 sums are below this, in seconds.
const P99: f64 = 40.0;
/// How many standard deviations of a normal distribution 99 of 100 values are below.
const Z99: f64 = 2.326_347_874_040_841;

/// Draws how long registrations and sessions take, from a log-normal distribution: together at least
/// 0.95 s, 4 s in the median, and 40 s at the 99th percentile. The registration takes 58 % of that.
/// Equal seeds draw equal times: the tenth session takes as long each time, however many registrations
/// came before it.
#[derive(Debug, Clone, PartialEq)]
pub struct RegistrationTimes {
    pub seed: u64,
    /// The factor by which all times are multiplied, to keep a test short.
    pub scale: f64,
}

/// Where the random choices of a [`RegistrationTimes`] have got to.
#[derive(Debug, Clone)]
pub(super) struct Draws {
    registrations: Rng,
    sessions: Rng,
    scale: f64,
}

impl Draws {
    pub(super) fn of(times: &RegistrationTimes) -> Draws {
        let mut registrations = Rng::with_seed(times.seed);
        let sessions = registrations.fork();
        Draws { registrations, sessions, scale: times.scale }
    }

    /// The time from a request to register to its answer.
    pub(super) fn registration(&mut self) -> Duration {
        both(&mut self.registrations).mul_f64(REGISTRATION * self.scale)
    }

    /// The time from a request for a session to its answer.
    pub(super) fn session(&mut self) -> Duration {
        both(&mut self.sessions).mul_f64((1.0 - REGISTRATION) * self.scale)
    }
}

/// The time for a registration and a session.
fn both(random: &mut Rng) -> Duration {
    let deviation = ((P99 - FLOOR) / (MEDIAN - FLOOR)).ln() / Z99;
    let above = (MEDIAN - FLOOR) * (deviation * normal(random)).exp();
    Duration::from_secs_f64(FLOOR + above)
}

/// A number from the standard normal distribution, by the method of Box and Muller.
fn normal(random: &mut Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_their_floor_median_and_99th_percentile() {
        let mut random = Rng::with_seed(1);
        let mut drawn: Vec<f64> = (0..100_000).map(|_| both(&mut random).as_secs_f64()).collect();
        drawn.sort_by(f64::total_cmp);
        assert!(drawn[0] >= FLOOR, "{}", drawn[0]);
        assert!((drawn[50_000] - MEDIAN).abs() < 0.1, "{}", drawn[50_000]);
        assert!((drawn[99_000] - P99).abs() < 2.0, "{}", drawn[99_000]);
    }

    #[test]
    fn a_seed_draws_the_same_times_again_and_a_scale_shortens_them() {
        let draw = |seed, scale| {
            let mut draws = Draws::of(&RegistrationTimes { seed, scale });
            (draws.registration(), draws.session())
        };
        assert_eq!(draw(7, 1.0), draw(7, 1.0));
        assert_ne!(draw(7, 1.0), draw(8, 1.0));
        let ratio = draw(7, 0.1).0.as_secs_f64() / draw(7, 1.0).0.as_secs_f64();
        assert!((ratio - 0.1).abs() < 1e-6, "{ratio}");
    }

    #[test]
    fn registrations_do_not_change_how_long_sessions_take() {
        let sessions = |registrations: usize| -> Vec<Duration> {
            let mut draws = Draws::of(&RegistrationTimes { seed: 7, scale: 1.0 });
            for _ in 0..registrations {
                draws.registration();
            }
            (0..8).map(|_| draws.session()).collect()
        };
        assert_eq!(sessions(0), sessions(3));
    }
}
