//! Rows of the store.

use ondeck_core::model::record::{Record, RecordRow, State};
use proptest::prelude::*;

use super::strategies::{assert_readable, config, nearly, record};

fn row() -> impl Strategy<Value = RecordRow> {
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
        nearly(&["", "00000000deadbeef"]),
        nearly(&["", "7-large", "run-9999-8xlarge", "8-large"]),
        nearly(&["", "never"]),
        nearly(&["", "retired", "drained"]),
    );
    let size = prop_oneof![8 => 1_i64..200_000, 1 => any::<i64>()];
    let count = prop_oneof![8 => 0_i64..9, 1 => any::<i64>()];
    let counts = (count.clone(), count.clone(), count);
    let rest = (size.clone(), size, nearly(TIME), nearly(TIME), nearly(TIME), counts);
    (texts, rest).prop_map(|(texts, rest)| RecordRow {
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
        settings_version: texts.7,
        generation: rest.5.0,
        runs: rest.5.1,
        missed_registrations: rest.5.2,
        label: texts.8,
        reuse: texts.9,
        departure: texts.10,
    })
}

/// A column, and a value that it cannot have.
type Corruption = (&'static str, fn(&mut RecordRow, String));

const CORRUPTIONS: [Corruption; 7] = [
    ("state is unknown", |row, value| row.state = value),
    ("run id", |row, value| row.run_id = value),
    ("threshold", |row, value| row.threshold = value),
    ("resource class", |row, value| row.resource_class = value),
    ("usage class", |row, value| row.usage_class = value),
    ("createdAt", |row, value| row.created_at = value),
    ("ticketedAt", |row, value| row.ticketed_at = value),
];

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_row_is_a_sound_record_or_is_refused_by_name(row in row()) {
        let id = row.instance_id.clone();
        match Record::try_from(row) {
            Ok(record) => {
                prop_assert_eq!(record.run.is_some(), record.state.is_owned());
                prop_assert!(record.suffix.is_none() || record.run.is_some());
                prop_assert_eq!(record.threshold.is_some(), record.state != State::Terminated);
                prop_assert_eq!(Record::try_from(RecordRow::from(&record)), Ok(record));
            }
            Err(unreadable) => {
                assert_readable(&unreadable.to_string());
                prop_assert_eq!(unreadable.id, id);
            }
        }
    }

    #[test]
    fn a_record_survives_being_written(record in record()) {
        prop_assert_eq!(Record::try_from(RecordRow::from(&record)), Ok(record));
    }

    #[test]
    fn a_column_that_makes_no_sense_is_named(
        record in record(), (column, corrupt) in proptest::sample::select(&CORRUPTIONS[..]),
        value in "(?s)[!-/:-@ \n].{0,400}",
    ) {
        let mut row = RecordRow::from(&record);
        corrupt(&mut row, value);
        let error = Record::try_from(row).unwrap_err();
        prop_assert_eq!(error.id.as_str(), record.id.as_str());
        prop_assert!(error.problem.contains(column), "{} is not named: {}", column, error);
        assert_readable(&error.to_string());
    }
}
