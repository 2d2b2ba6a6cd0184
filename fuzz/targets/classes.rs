//! The sizes of machines, as an operator writes them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ondeck_core::model::settings::Classes;
use ondeck_fuzz::assert_readable;

fuzz_target!(|text: &str| {
    match Classes::from_json(text) {
        Ok(classes) => {
            assert!(classes.names().count() > 0, "no class at all");
            for name in classes.names() {
                let size = classes.get(name).expect("what is named is there");
                assert!(size.cpu > 0 && size.mem > 0, "{name} has no size");
            }
        }
        Err(problem) => assert_readable(&problem),
    }
});
