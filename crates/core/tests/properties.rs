//! What holds for every input, not only for those that somebody thought of.

use ondeck_core::record::{Record, Row, State};
use ondeck_core::requirements::TypePatterns;
use ondeck_core::settings::{Classes, MinIdle};
use ondeck_core::ticket::Ticket;
use ondeck_core::time::Timestamp;
use ondeck_core::times::TIMES;
use proptest::prelude::*;

/// Texts that are often right, and sometimes anything.
fn nearly(right: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop_oneof![
        8 => proptest::sample::select(right).prop_map(str::to_owned),
        1 => Just(String::new()),
        1 => ".{0,12}",
    ]
}

fn row() -> impl Strategy<Value = Row> {
    const TIME: &[&str] = &["2025-05-31T12:20:00Z", "2025-05-31T12:20:00.123Z", ""];
    const STATES: &[&str] = &["created", "idle", "claimed", "running", "terminated"];
    let texts = (
        nearly(&["i-1", "i-0123456789abcdef0"]),
        nearly(STATES),
        nearly(&["", "7", "run-9999"]),
        nearly(TIME),
        nearly(&["large"]),
        nearly(&["c6i.large"]),
        nearly(&["spot", "on-demand"]),
    );
    let size = prop_oneof![8 => 1_i64..200_000, 1 => any::<i64>()];
    let rest = (size.clone(), size, nearly(TIME), nearly(TIME), nearly(TIME));
    (texts, rest).prop_map(|(texts, rest)| Row {
        instance_id: texts.0,
        state: texts.1,
        run_id: texts.2,
        threshold: texts.3,
        resource_class: texts.4,
        instance_type: texts.5,
        usage_class: texts.6,
        cpu: rest.0,
        mem: rest.1,
        created_at: rest.2,
        updated_at: rest.3,
        ticketed_at: rest.4,
    })
}

const TICKET: &str = r#"{"instanceId":"i-12345678","usageClass":"on-demand","instanceType":"c6i.large","cpu":2,"mem":4096,"resourceClass":"medium","threshold":"2025-05-31T12:20:00.000Z"}"#;

/// The plainest matcher that there is.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], text) => text.is_empty(),
        ([b'*', rest @ ..], _) => (0..=text.len()).any(|n| matches(rest, &text[n..])),
        ([first, rest @ ..], [letter, others @ ..]) => first == letter && matches(rest, others),
        (_, []) => false,
    }
}

proptest! {
    // Failures are printed with their input; no file of them is kept beside the code.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_row_is_a_sound_record_or_is_refused_by_name(row in row()) {
        let id = row.instance_id.clone();
        match Record::try_from(row) {
            Ok(record) => {
                prop_assert_eq!(record.run.is_some(), record.state.is_owned());
                prop_assert_eq!(record.threshold.is_some(), record.state != State::Terminated);
                prop_assert_eq!(Record::try_from(Row::from(&record)), Ok(record));
            }
            Err(unreadable) => prop_assert_eq!(unreadable.id, id),
        }
    }

    #[test]
    fn a_ticket_with_another_letter_in_it_is_read_or_refused(
        at in 0..TICKET.len(), letter in any::<char>()
    ) {
        let change = |(n, c)| if n == at { letter } else { c };
        let spoilt: String = TICKET.chars().enumerate().map(change).collect();
        if let Ok(ticket) = Ticket::from_json(&spoilt) {
            prop_assert_eq!(Ticket::from_json(&ticket.to_json()), Ok(ticket));
        }
    }

    #[test]
    fn patterns_match_as_the_plainest_matcher_does(
        pattern in "[ab.*]{1,8}", text in "[ab.]{0,10}"
    ) {
        let patterns: TypePatterns = pattern.parse().expect("only allowed letters");
        prop_assert_eq!(patterns.admit(&text), matches(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn a_moment_survives_being_written(millis in 0_u64..253_402_300_800_000) {
        let time = Timestamp::from_millis(millis);
        prop_assert_eq!(Timestamp::parse(&time.to_string()), Ok(time));
    }

    #[test]
    fn a_time_survives_being_written(millis in 0_u64..2_592_000_000) {
        for row in TIMES.iter().filter(|row| millis > 0 || row.may_be_zero) {
            let span = std::time::Duration::from_millis(millis);
            prop_assert_eq!(row.parse(&row.format(span)), Ok(span), "{}", row.input);
        }
    }

    #[test]
    fn texts_that_are_no_settings_are_refused_without_a_panic(text in ".{0,60}") {
        for row in TIMES {
            if let Ok(span) = row.parse(&text) {
                prop_assert_eq!(row.parse(&row.format(span)), Ok(span), "{}", row.input);
            }
        }
        if let Ok(classes) = Classes::from_json(&text) {
            prop_assert!(classes.names().all(|name| classes.get(name).is_some_and(|s| s.cpu > 0)));
        }
        if let Ok(minimum) = text.parse::<MinIdle>() {
            prop_assert!(minimum.iter().all(|(_, count)| count <= 1000));
        }
    }
}
