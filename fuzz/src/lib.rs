//! What the targets share.

/// One line, of a length that somebody reads: what every message must be.
pub fn assert_readable(message: &str) {
    assert!(!message.contains(char::is_control), "more than a line: {message:?}");
    assert!(message.chars().count() < 3_000, "nobody reads that much: {message}");
}
