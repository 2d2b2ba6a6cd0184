//! What `ondeck status` shows: a summary, then the machines, fitted to the terminal.

pub(super) mod json;
pub(crate) mod machines;
pub(crate) mod summary;

use anstyle::{AnsiColor, Style};
use ondeck_core::model::failure::Failure;
use ondeck_core::modes::status::judgement::{Judgement, Mark};

use self::json::StatusJson;
use self::machines::MachineTable;
use super::Report;
use super::wire::to_json;
use crate::control::screen::Screen;

/// The pool, and the room that there is to show it.
pub(crate) struct Shown {
    judgement: Judgement,
    /// How many columns a line may have; `None` for a table that does not depend on the reader.
    width: Option<usize>,
}

impl Shown {
    pub(crate) fn on(judgement: Judgement, screen: Option<Screen>) -> Shown {
        Shown { judgement, width: screen.map(|screen| usize::from(screen.columns)) }
    }
}

/// What a text is about, which decides its colour. The text says the same in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    /// A heading or a label. Status shows it plain, so that colour means something to look at.
    #[cfg_attr(not(feature = "watch"), expect(dead_code, reason = "only watch draws headings"))]
    Heading,
    /// An operator should look at it.
    Wrong,
    /// It is late.
    Late,
    /// It is leaving the pool.
    Leaving,
    /// It is kept for people.
    Kept,
}

impl Tone {
    pub(crate) fn of(mark: &Mark) -> Tone {
        match mark {
            Mark::Silent(_) | Mark::Failed(_) => Tone::Wrong,
            Mark::Overdue(_) | Mark::Unready(_) => Tone::Late,
            Mark::Retiring(_) => Tone::Leaving,
            Mark::Preserved => Tone::Kept,
        }
    }

    fn style(self) -> Style {
        let colour = |colour: AnsiColor| Style::new().fg_color(Some(colour.into()));
        match self {
            Tone::Plain | Tone::Heading => Style::new(),
            Tone::Wrong => colour(AnsiColor::Red).bold(),
            Tone::Late => colour(AnsiColor::Yellow),
            Tone::Leaving => colour(AnsiColor::Cyan),
            Tone::Kept => colour(AnsiColor::Magenta),
        }
    }

    fn paint(self, text: &str) -> String {
        let style = self.style();
        if style == Style::new() || text.trim().is_empty() {
            return text.to_owned();
        }
        format!("{style}{text}{style:#}")
    }
}

impl Report for Shown {
    fn json(&self) -> String {
        to_json(&StatusJson::from(&self.judgement))
    }

    fn text(&self) -> String {
        let summary = summary::lines(&self.judgement);
        let mut lines: Vec<String> = summary.iter().map(|line| line.shown(self.width)).collect();
        if !self.judgement.machines.is_empty() {
            let machines: Vec<_> = self.judgement.machines.iter().collect();
            let table = MachineTable::new(&machines, self.judgement.at, self.width);
            lines.push(String::new());
            lines.push(table.header().trim_end().to_owned());
            lines.extend((0..machines.len()).map(|row| table.painted(row)));
        }
        lines.join("\n")
    }

    fn failure(&self) -> Option<Failure> {
        None
    }

    fn warnings(&self) -> Vec<String> {
        self.judgement.unreadable.iter().map(ToString::to_string).collect()
    }
}

/// How many columns a text takes. A character that is not ASCII may be wide, so it counts as two: a
/// line may end early, but never wraps.
pub(crate) fn width(text: &str) -> usize {
    text.chars().map(|c| if c.is_ascii() || c == '…' { 1 } else { 2 }).sum()
}

/// The text in at most so many columns, without control characters.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    let text = text.replace(char::is_control, " ");
    if width(&text) <= columns {
        return text;
    }
    let mut cut = String::new();
    for c in text.chars() {
        if width(&cut) + width(c.encode_utf8(&mut [0; 4])) + 1 > columns {
            break;
        }
        cut.push(c);
    }
    if columns > 0 { cut + "…" } else { cut }
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
