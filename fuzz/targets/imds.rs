//! What a machine's metadata says: of its end, and of its pool.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    ondeck_aws::fuzzing::spot_notice(text);
    ondeck_aws::fuzzing::pool_name(text);
});
