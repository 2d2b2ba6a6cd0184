//! Moments, pauses and beats.

use std::sync::Mutex;
use std::time::Duration;

use ondeck_core::model::heartbeat::Heartbeat;
use ondeck_core::model::signal::{AgentStatus, Pulse, output_tail};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::Clock;
use ondeck_core::runtime::poll::{PollInterval, Wait, wait_until};
use ondeck_core::runtime::retry::Retry;
use ondeck_core::testkit::{FixedRandom, VirtualClock};
use proptest::prelude::*;

use super::strategies::{assert_readable, config, corrupted, ms, nearly, text, time};

/// RFC 3339 by counting the days one year and one month at a time.
fn written(millis: u64) -> String {
    let (mut days, rest) = (millis / 86_400_000, millis % 86_400_000);
    let leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (seconds, millis) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let day = days + 1;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// When a caller polled that had polled for the first time at `since` and got an answer from
/// `answered` on.
fn asked(interval: PollInterval, answered: Duration, patience: Duration) -> (Vec<Duration>, bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let clock = VirtualClock::new();
    let since = clock.steady();
    let asked = Mutex::new(Vec::new());
    let wait = Wait::begin(&clock, patience, interval);
    let answer = runtime.block_on(wait_until(&clock, wait, || {
        let waited = clock.steady() - since;
        asked.lock().unwrap().push(waited);
        async move { Ok::<_, ()>((waited >= answered).then_some(())) }
    }));
    (asked.into_inner().unwrap(), answer.unwrap().is_some())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_moment_is_written_as_a_calendar_would(time in time()) {
        prop_assert_eq!(time.to_string(), written(time.millis()));
        prop_assert_eq!(Timestamp::parse(&time.to_string()), Ok(time));
    }

    #[test]
    fn the_order_of_texts_is_that_of_moments(one in time(), other in time()) {
        prop_assert_eq!(one.cmp(&other), one.to_string().cmp(&other.to_string()));
        prop_assert_eq!(one.distance(other), other.distance(one));
        prop_assert_eq!(one.distance(other), one.since(other) + other.since(one));
    }

    #[test]
    fn spans_are_added_and_taken_away_within_bounds(time in time(), secs in any::<u64>(), nanos in 0_u32..1_000_000_000) {
        let span = Duration::new(secs, nanos);
        let (later, earlier) = (time + span, time.before(span));
        prop_assert!(earlier <= time && time <= later);
        prop_assert_eq!(Timestamp::parse(&later.to_string()), Ok(later));
        prop_assert_eq!(Timestamp::parse(&earlier.to_string()), Ok(earlier));
    }

    #[test]
    fn any_text_is_a_moment_or_is_refused_in_a_line(
        text in prop_oneof![
            text(), corrupted(time().prop_map(|time| time.to_string())),
            nearly(&["2016-12-31T23:59:60Z", "9999-12-31T23:59:59.9999999Z", "0000-00-00T00:00:00Z"]),
        ]
    ) {
        match Timestamp::parse(&text) {
            Ok(time) => prop_assert_eq!(Timestamp::parse(&time.to_string()), Ok(time)),
            Err(error) => assert_readable(&error.to_string()),
        }
    }

    #[test]
    fn a_pause_doubles_up_to_the_longest_and_is_at_least_half_of_that(
        first in 0_u64..10_000_000_000, longest in 0_u64..100_000_000_000, n in any::<u32>(), roll in any::<u64>()
    ) {
        let retry = Retry {
            first_pause: Duration::from_nanos(first),
            longest_pause: Duration::from_nanos(longest),
            ..Retry::SHORT
        };
        let whole = (u128::from(first) << n.min(16)).min(u128::from(longest));
        let pause = retry.pause(n, &FixedRandom(roll)).as_nanos();
        prop_assert!((whole / 2..=whole).contains(&pause), "{} of {}", pause, whole);
    }

    #[test]
    fn a_heart_is_judged_alike_from_both_sides(
        now in 0_u64..200_000, beat in 0_u64..200_000, period in 0_u64..90_000
    ) {
        let pulse = |now, beat| {
            let heartbeat = Heartbeat::new(Timestamp::from_millis(beat), ms(period));
            let status = AgentStatus { readiness: None,  heartbeat: Some(heartbeat), report: None };
            status.pulse(Timestamp::from_millis(now))
        };
        prop_assert_eq!(pulse(now, beat), pulse(beat, now));
        let age = now.abs_diff(beat);
        let expected = if age <= 3 * period.clamp(1_000, 60_000) { Pulse::Healthy } else { Pulse::Stale(ms(age)) };
        prop_assert_eq!(pulse(now, beat), expected);
    }

    #[test]
    fn last_words_are_one_bounded_line_that_ends_as_they_did(
        lines in prop::collection::vec(text(), 0..6), end in "[a-z]{1,9}", long in 0_usize..900
    ) {
        let said = format!("{}\n{}{end}\n \r\n", lines.join("\n"), "é".repeat(long));
        let words = output_tail(&said);
        prop_assert!(words.ends_with(&end), "{:?}", words);
        prop_assert!(words.chars().count() <= 500);
        prop_assert!(!words.contains(char::is_control), "{:?}", words);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..config() })]

    #[test]
    fn an_answer_is_found_no_later_than_promised(
        every in 5_u64..400, part in proptest::option::of(0_u32..12), prompt in any::<bool>(),
        answered in 0_u64..20_000, patience in 0_u64..20_000
    ) {
        let interval = part.map_or(PollInterval::fixed(ms(every)), |part| PollInterval::backing_off(ms(every), part));
        let interval = if prompt { interval.prompt() } else { interval };
        let shortest = if prompt { every / 10 } else { every };
        let (asked, found) = asked(interval, ms(answered), ms(patience));
        prop_assert_eq!(found, answered <= patience);
        let last = *asked.last().unwrap();
        prop_assert_eq!(asked[0], Duration::ZERO);
        prop_assert!(last <= ms(patience), "asked after the deadline");
        let late = last.saturating_sub(ms(answered));
        let slowest = part.map_or(ms(every), |part| (ms(answered) / part.max(1)).max(ms(every)));
        prop_assert!(!found || late <= slowest, "late by {:?}", late);
        let mut short = 0;
        for (n, pause) in asked.windows(2).map(|pair| pair[1] - pair[0]).enumerate() {
            prop_assert!(pause <= ms(every) * 16);
            // Only the first and the last question may be off the beat.
            let inner = n > 0 && n + 2 < asked.len();
            short += usize::from(inner && pause < ms(shortest));
        }
        // One more, where a prompt interval becomes the usual one.
        prop_assert!(short <= usize::from(prompt), "{:?}", asked);
    }
}
