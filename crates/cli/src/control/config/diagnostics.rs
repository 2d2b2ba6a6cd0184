//! Shows what is wrong with a file: on stderr, and in a workflow as annotations of its lines.

use std::io::Write;

use crate::control::github_actions;
use crate::control::report::config::FileProblem;
use crate::logging;

/// Shows each problem with its place, the line, and a hint.
pub(super) fn show(path: &str, problems: &[FileProblem]) {
    for problem in problems {
        let FileProblem { line, column, message, hint, excerpt } = problem;
        match github_actions::is_active() {
            true => github_actions::annotate_line(path, (*line, *column), message),
            false => logging::error(&format!("{path}:{line}:{column}: {message}"), ""),
        }
        print_lines(excerpt);
        if !hint.is_empty() {
            logging::hint(hint);
        }
    }
}

/// If stderr is closed, the lines are dropped.
fn print_lines(excerpt: &str) {
    for line in excerpt.lines() {
        drop(writeln!(anstream::stderr(), "  {}", github_actions::harmless(line)));
    }
}
