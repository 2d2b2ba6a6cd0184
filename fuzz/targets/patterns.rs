//! Patterns of instance types, and a type on the last line, against the plainest matcher.

#![no_main]

use libfuzzer_sys::fuzz_target;
use ondeck_core::model::requirements::TypePatterns;
use ondeck_fuzz::assert_readable;

/// By a table of which beginnings match which: short patterns can be made that take a recursive
/// matcher years.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let mut row: Vec<bool> = (0..=text.len()).map(|n| n == 0).collect();
    for letter in pattern {
        let mut next = vec![*letter == b'*' && row[0]];
        for n in 0..text.len() {
            next.push(match letter {
                b'*' => next[n] || row[n + 1],
                letter => row[n] && *letter == text[n],
            });
        }
        row = next;
    }
    row[text.len()]
}

fuzz_target!(|text: &str| {
    let (patterns, kind) = text.rsplit_once('\n').unwrap_or((text, ""));
    match patterns.parse::<TypePatterns>() {
        Ok(patterns) => {
            let expected = patterns.iter().any(|one| matches(one.as_bytes(), kind.as_bytes()));
            assert_eq!(patterns.admit(kind), expected, "{patterns} on {kind:?}");
            assert_eq!(patterns.to_string().parse(), Ok(patterns));
        }
        Err(error) => assert_readable(&error.to_string()),
    }
});
