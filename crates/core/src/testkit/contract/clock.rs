use std::time::Duration;

use crate::ports::Clock;

/// A correction that no test could mistake for time that has passed.
const STEP: Duration = Duration::from_secs(3_600);
/// Longer than the suite takes between two readings on a busy computer.
const READING: Duration = Duration::from_secs(60);

/// Checks what [`Clock`] states about steady time. `step` moves the clock's time of day by so many
/// milliseconds, as a correction does; `None` for a clock whose time of day the test cannot move.
pub async fn clock_suite(clock: &dyn Clock, step: Option<&dyn Fn(i64)>) {
    steady_time_never_goes_back(clock);
    sleep_lets_steady_time_pass(clock).await;
    if let Some(step) = step {
        let millis = i64::try_from(STEP.as_millis()).expect("an hour fits");
        // Forwards, and back beyond where it was.
        for by in [millis, -2 * millis, millis] {
            a_step_moves_the_time_of_day_only(clock, step, by);
        }
    }
}

fn steady_time_never_goes_back(clock: &dyn Clock) {
    let mut last = clock.steady();
    for _ in 0..1_000 {
        let now = clock.steady();
        assert!(now >= last, "steady time went back from {last:?} to {now:?}");
        last = now;
    }
}

async fn sleep_lets_steady_time_pass(clock: &dyn Clock) {
    let span = Duration::from_millis(5);
    let begun = clock.steady();
    clock.sleep(span).await;
    let slept = clock.steady().saturating_sub(begun);
    assert!(slept >= span, "a sleep of {span:?} took {slept:?} of steady time");
}

fn a_step_moves_the_time_of_day_only(clock: &dyn Clock, step: &dyn Fn(i64), by: i64) {
    let (now, steady) = (clock.now(), clock.steady());
    step(by);
    let moved = if by > 0 { clock.now().since(now) } else { now.since(clock.now()) };
    let expected = Duration::from_millis(by.unsigned_abs());
    assert!(moved + READING >= expected, "a step of {by} ms moved the time of day by {moved:?}");
    let steady_moved = clock.steady().checked_sub(steady).expect("steady time never goes back");
    assert!(steady_moved < READING, "a step of {by} ms moved steady time by {steady_moved:?}");
}
