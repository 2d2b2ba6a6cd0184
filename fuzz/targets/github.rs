//! Answers of GitHub: a byte for the status, a line for each header, an empty one, and the body.

#![no_main]

use libfuzzer_sys::fuzz_target;

const STATUS: [u16; 10] = [200, 200, 201, 302, 401, 403, 404, 422, 429, 500];

fuzz_target!(|answer: &[u8]| {
    let Some((status, mut rest)) = answer.split_first() else { return };
    let mut headers = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { break };
        let Ok(name) = std::str::from_utf8(&line[..colon]) else { break };
        headers.push((name, &line[colon + 1..]));
    }
    let status = STATUS[usize::from(*status) % STATUS.len()];
    ondeck_github::fuzzing::answer(status, &headers, rest);
});
