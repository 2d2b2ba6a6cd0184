//! Answers of EC2: a byte for the status, and the body.

#![no_main]

use libfuzzer_sys::fuzz_target;

const STATUS: [u16; 6] = [200, 200, 302, 400, 403, 503];

fuzz_target!(|answer: &[u8]| {
    let Some((status, body)) = answer.split_first() else { return };
    let status = STATUS[usize::from(*status) % STATUS.len()];
    ondeck_aws::fuzzing::ec2_answer(status, body);
});
