//! What the targets share.

/// Fails unless the message is one line of readable length, as every message must be.
pub fn assert_readable(message: &str) {
    assert!(!message.contains(char::is_control), "more than a line: {message:?}");
    assert!(message.chars().count() < 3_000, "too long to read: {message}");
}
