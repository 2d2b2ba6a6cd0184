//! Foreign text in messages: shown on one line and cut to a readable length. A line break in a
//! workflow's log could pass for a workflow command.

use std::fmt;

/// How many characters of a value are shown.
const VALUE: usize = 120;
/// How many characters of an error are shown from its beginning, where it says what is wrong.
const HEAD: usize = 160;
/// How many are shown from its end, where it says what was expected, and where.
const TAIL: usize = 120;

/// Displays a value in quotes. Made by [`quoted`].
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(&'a str);

/// Shows a value in quotes, with its line breaks and the like escaped.
pub fn quoted(value: &str) -> Quoted<'_> {
    Quoted(value)
}

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(VALUE) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}", format!("{}…", &self.0[..end])),
        }
    }
}

/// Shows a parser's error on one line. The error may repeat any part of the parsed text unescaped.
pub fn one_line(complaint: &dyn fmt::Display) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let letters: Vec<char> = complaint.to_string().chars().map(plain).collect();
    if letters.len() <= HEAD + TAIL {
        return letters.into_iter().collect();
    }
    let (head, tail) = (&letters[..HEAD], &letters[letters.len() - TAIL..]);
    head.iter().chain(&[' ', '…', ' ']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_quoted_and_a_long_one_cut() {
        for (value, shown) in [
            ("", r#""""#.to_owned()),
            ("two", r#""two""#.to_owned()),
            ("a\n::error::b", r#""a\n::error::b""#.to_owned()),
            (&"ü".repeat(VALUE), format!("\"{}\"", "ü".repeat(VALUE))),
            (&"ü".repeat(VALUE + 1), format!("\"{}…\"", "ü".repeat(VALUE))),
        ] {
            assert_eq!(quoted(value).to_string(), shown);
        }
    }

    #[test]
    fn a_complaint_keeps_its_beginning_and_its_end() {
        assert_eq!(one_line(&"unknown `a\r\nb` at line 1"), "unknown `a  b` at line 1");
        let long = format!("unknown variant `{}`, expected `spot` at line 1", "x".repeat(9_000));
        let line = one_line(&long);
        assert!(line.starts_with("unknown variant `xx"), "{line}");
        assert!(line.ends_with("xx`, expected `spot` at line 1"), "{line}");
        assert_eq!(line.chars().count(), HEAD + TAIL + 3);
    }
}
