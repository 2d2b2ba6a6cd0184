//! The story as text, in the width of the terminal.

use std::io::IsTerminal;

use anstyle::{AnsiColor, Style};
use ondeck_core::model::timestamp::Timestamp;

use super::super::{table, wrapped};
use super::words::{clock, day, millis};
use super::{ExplainReport, LineKind, SubjectKind};

/// A narrower terminal is not served.
const NARROWEST: usize = 40;
/// The columns of the time, and the blanks behind it.
const TIME: usize = 14;

/// The number of columns of the terminal; `None` if stdout is none, so that nothing is broken.
pub(super) fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout))?.ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// How a line of the story looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    Plain,
    Heading,
    /// It says that something is unknown.
    Unknown,
}

/// One line of the story on a screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownLine {
    pub(crate) look: Look,
    /// The time, with the blanks behind it. Empty if the text begins at the left.
    pub(crate) lead: String,
    pub(crate) text: String,
}

impl ShownLine {
    fn heading(text: impl Into<String>) -> ShownLine {
        ShownLine { look: Look::Heading, lead: String::new(), text: text.into() }
    }

    fn plain(text: impl Into<String>) -> ShownLine {
        ShownLine { look: Look::Plain, lead: String::new(), text: text.into() }
    }

    fn painted(&self) -> String {
        let style = match self.look {
            Look::Plain => Style::new(),
            Look::Heading => Style::new().bold(),
            Look::Unknown => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
        };
        format!("{}{style}{}{style:#}", self.lead, self.text)
    }
}

/// The whole text. Colours are removed when it is printed elsewhere than on a terminal.
pub(super) fn text(report: &ExplainReport, width: Option<usize>) -> String {
    lines(report, width).iter().map(ShownLine::painted).collect::<Vec<_>>().join("\n")
}

/// The lines, whose sentences are broken to so many columns; `None` breaks none. Rows of tables are not
/// broken.
pub(super) fn lines(report: &ExplainReport, width: Option<usize>) -> Vec<ShownLine> {
    let width = width.map_or(usize::MAX, |width| width.max(NARROWEST));
    let what = match report.subject {
        SubjectKind::Run => "run",
        SubjectKind::Machine => "machine",
    };
    let mut lines = vec![ShownLine::heading(format!("{what} {}", report.id))];
    let mut today = None;
    for line in &report.timeline {
        if let Some(at) = line.at
            && today.replace(day(at)) != Some(day(at))
        {
            lines.push(ShownLine::heading(format!("{} (UTC)", day(at))));
        }
        let time = line.at.map_or("-".to_owned(), clock);
        let look = match line.kind {
            LineKind::Unknown => Look::Unknown,
            _ => Look::Plain,
        };
        lines.extend(entry(&time, &line.text, width, look));
    }
    lines.push(ShownLine::heading("now"));
    for sentence in &report.present {
        lines.extend(entry("", sentence, width, Look::Plain));
    }
    lines.extend(ledger(report));
    lines
}

/// A sentence beside its time, broken between words.
fn entry(time: &str, text: &str, width: usize, look: Look) -> Vec<ShownLine> {
    let parts = wrapped(text, width.saturating_sub(TIME));
    let beside = |(n, text): (usize, String)| {
        let time = if n == 0 { time } else { "" };
        ShownLine { look, lead: format!("{time:TIME$}"), text }
    };
    parts.into_iter().enumerate().map(beside).collect()
}

/// A table for each call, one below the other.
fn ledger(report: &ExplainReport) -> Vec<ShownLine> {
    let mut calls: Vec<Timestamp> = report.ledger.iter().map(|row| row.call).collect();
    calls.dedup();
    let mut lines = Vec::new();
    for call in calls {
        lines.push(ShownLine::heading(format!("time of the call at {}", clock(call))));
        let rows = report.ledger.iter().filter(|row| row.call == call).map(|row| {
            let typical = |ms: Option<u64>| ms.map_or("-".to_owned(), millis);
            vec![row.phase.to_owned(), millis(row.ms), typical(row.median), typical(row.p95)]
        });
        let table = table(&["phase", "took", "usually", "95 % within"], rows.collect());
        lines.extend(table.lines().map(ShownLine::plain));
    }
    if !lines.is_empty() {
        lines.push(ShownLine::plain(match report.typical_calls {
            0 => "no recent call of another run to compare with".to_owned(),
            1 => "compared with 1 recent call of another run".to_owned(),
            calls => format!("compared with {calls} recent calls of other runs"),
        }));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_broken_between_words_and_nothing_is_lost() {
        let text = "i-0123456789abcdef0 was lost to run 16203894417, which claimed it first.";
        for width in [1, 20, 30, 71, 72, 200] {
            let lines = wrapped(text, width);
            assert_eq!(lines.concat().replace(' ', ""), text.replace(' ', ""), "{width}");
            let is_whole = lines.join(" ") == text;
            assert_eq!(is_whole, width > 1, "words that fit are not broken: {width}");
            assert!(lines.iter().all(|line| line.len() <= width), "{width}: {lines:?}");
        }
    }
}
