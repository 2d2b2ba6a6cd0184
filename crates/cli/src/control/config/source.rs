//! The text of the file: where a problem is, and how it is shown.

use std::ops::Range;

use ondeck_core::inputs::InputScope;

use crate::control::report::config::FileProblem;
use crate::inputs::rows;

/// A part of the text, in bytes.
pub(crate) type Span = Range<usize>;

/// Something that is wrong with the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) span: Span,
    /// Lowercase, no full stop, the value last.
    pub(crate) message: String,
    /// Empty if there is nothing to suggest.
    pub(crate) hint: String,
}

/// The file and its text.
#[derive(Debug)]
pub(crate) struct Source {
    /// As it was given.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Problem {
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Problem {
        Problem { span, message: message.into(), hint: String::new() }
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = hint.into();
        self
    }
}

impl Source {
    /// Line and column of a byte.
    pub(crate) fn position(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..self.boundary(at)];
        let begin = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before[begin..].chars().count() + 1)
    }

    /// The problems with their places, in the order of the file.
    pub(crate) fn locate(&self, problems: &[Problem]) -> Vec<FileProblem> {
        let shows_lines = !self.may_hold_secret();
        let mut sorted: Vec<&Problem> = problems.iter().collect();
        sorted.sort_by_key(|problem| (problem.span.start, problem.span.end));
        let located = sorted.into_iter().map(|problem| {
            let (line, column) = self.position(problem.span.start);
            let excerpt = if shows_lines { self.excerpt(&problem.span) } else { String::new() };
            let Problem { message, hint, .. } = problem.clone();
            FileProblem { line, column, message, hint, excerpt }
        });
        located.collect()
    }

    /// Whether a line may be one of a secret, or has an address with a password. Then no line is
    /// shown: the value may go on over several of them.
    fn may_hold_secret(&self) -> bool {
        let mut secrets = rows().filter(|row| row.scope == InputScope::Secret);
        secrets.any(|row| {
            self.text.match_indices(row.name).any(|(at, name)| {
                let rest = self.text[at + name.len()..].trim_start_matches(['"', '\'', ' ', '\t']);
                rest.starts_with('=')
            })
        }) || self.text.split("://").skip(1).any(|rest| {
            let authority = rest.split(['/', '"', '\'', '\n']).next();
            authority.is_some_and(|authority| authority.contains('@'))
        })
    }

    fn excerpt(&self, span: &Span) -> String {
        const LONGEST: usize = 120;
        let start = self.boundary(span.start);
        let begin = self.text[..start].rfind('\n').map_or(0, |end| end + 1);
        let line = self.text[begin..].lines().next().unwrap_or_default();
        let (number, column) = self.position(start);
        let shown: String = line.chars().take(LONGEST).collect();
        let shown = shown.replace(char::is_control, " ");
        let marked = self.text[start..self.boundary(span.end).max(start)].lines().next();
        let marks = marked.map_or(0, |marked| marked.chars().count());
        let marks = marks.clamp(1, (shown.chars().count() + 1).saturating_sub(column - 1).max(1));
        let (gutter, pad) = (number.to_string(), " ".repeat(column - 1));
        let blank = " ".repeat(gutter.len());
        format!("{gutter} | {shown}\n{blank} | {pad}{}", "^".repeat(marks))
    }

    /// The byte itself, or the last one before it at which a character begins.
    fn boundary(&self, at: usize) -> usize {
        let at = at.min(self.text.len());
        (0..=at).rev().find(|at| self.text.is_char_boundary(*at)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Source {
        Source { path: "ondeck.toml".to_owned(), text: text.to_owned() }
    }

    fn shown(text: &str, span: Span) -> (usize, usize, String) {
        let located = source(text).locate(&[Problem::new(span, "m")]).remove(0);
        (located.line, located.column, located.excerpt)
    }

    #[test]
    fn a_place_counts_lines_and_characters() {
        let text = "a = 1\r\nüb = 2\n";
        assert_eq!(shown(text, 0..1), (1, 1, "1 | a = 1\n  | ^".to_owned()));
        let at = text.find("2").unwrap();
        assert_eq!(shown(text, at..at + 1), (2, 6, "2 | üb = 2\n  |      ^".to_owned()));
        assert_eq!(shown(text, text.len()..text.len()), (3, 1, "3 | \n  | ^".to_owned()));
        assert_eq!(shown("", 0..0), (1, 1, "1 | \n  | ^".to_owned()));
        assert_eq!(shown("ü", 1..9).0, 1, "in the middle of a character");
    }

    #[test]
    fn marks_end_with_the_line() {
        let (_, _, excerpt) = shown("a = '''x\ny'''", 4..12);
        assert_eq!(excerpt, "1 | a = '''x\n  |     ^^^^");
        let (_, _, excerpt) = shown(&"x".repeat(300), 0..300);
        assert!(excerpt.len() < 300, "{excerpt}");
    }

    #[test]
    fn no_line_of_a_file_with_a_secret_is_shown() {
        for text in [
            "github-token=x\nami=1",
            "\"jobs-token\" = ''",
            "a.github-token\t= 1",
            "http-proxy = \"http://me:secret@proxy\"",
        ] {
            let located = source(text).locate(&[Problem::new(0..text.len(), "m")]).remove(0);
            assert_eq!(located.excerpt, "", "{text}");
        }
        let located = source("# github-token is a variable").locate(&[Problem::new(0..1, "m")]);
        assert_ne!(located[0].excerpt, "");
    }
}
