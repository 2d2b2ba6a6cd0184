//! Settings as the store keeps them: a line for each, with its name and its value.

#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use ondeck_core::model::settings::Settings;
use ondeck_core::inputs::times::TIMES;
use ondeck_fuzz::assert_readable;

fuzz_target!(|text: &str| {
    let entry = |line: &str| line.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
    let map: BTreeMap<String, String> = text.split('\n').filter_map(entry).collect();
    match Settings::from_map(&map) {
        Ok(settings) => {
            for row in TIMES {
                let span = settings.times.get(row.input).expect("every row has a time");
                assert_eq!(row.parse(&row.format(span)), Ok(span), "{}", row.input);
            }
            // What is not ours is kept for the backend, to the letter.
            assert!(settings.backend.iter().all(|(name, value)| map.get(name) == Some(value)));
        }
        Err(error) => {
            assert!(map.contains_key(&error.name), "no such setting was given: {}", error.name);
            assert_readable(&error.to_string());
        }
    }
});
