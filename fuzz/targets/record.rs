//! Records in the form of the wire.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ondeck_core::model::record::{Record, RecordRow};
use ondeck_fuzz::assert_readable;

fuzz_target!(|text: &str| {
    let Ok(row) = serde_json::from_str::<RecordRow>(text) else { return };
    let id = row.instance_id.clone();
    match Record::try_from(row) {
        Ok(record) => {
            assert_eq!(record.run.is_some(), record.state.is_owned());
            assert_eq!(record.threshold.is_some(), record.state.is_live());
            assert_eq!(Record::try_from(RecordRow::from(&record)), Ok(record));
        }
        Err(unreadable) => {
            assert_readable(&unreadable.to_string());
            assert_eq!(unreadable.id, id);
        }
    }
});
