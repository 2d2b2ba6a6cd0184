//! What `ondeck doctor` shows.

pub(crate) mod json;

use std::collections::BTreeMap;

use anstyle::{AnsiColor, Style};
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::modes::doctor::{Area, Finding, Findings, Severity};

use self::json::DoctorJson;
use super::wire::to_json;
use super::{Report, wrapped};
use crate::control::screen::Screen;

/// Wider lines are harder to read. A pipe gets the same text as a terminal of this width.
const WIDEST: usize = 80;
const NARROWEST: usize = 40;

/// The findings, and the room that there is to show them.
#[derive(Debug)]
pub(crate) struct DoctorReport {
    pub(crate) findings: Findings,
    width: usize,
}

impl DoctorReport {
    pub(crate) fn on(findings: Findings, screen: Option<Screen>) -> DoctorReport {
        let width = screen.map_or(WIDEST, |screen| usize::from(screen.columns));
        DoctorReport { findings, width: width.clamp(NARROWEST, WIDEST) }
    }

    /// A text behind a lead, continued below the text.
    fn entry(&self, lead: &str, text: &str) -> Vec<String> {
        let indent = lead.chars().count();
        let parts = wrapped(text, self.width.saturating_sub(indent));
        let lines = parts.iter().enumerate();
        let lines = lines.map(|(n, part)| match n {
            0 => format!("{lead}{part}"),
            _ => format!("{:indent$}{part}", ""),
        });
        lines.collect()
    }

    fn finding(&self, finding: &Finding) -> Vec<String> {
        let Finding { kind, severity, what, fix, .. } = finding;
        let word = severity.as_str();
        let style = style(*severity);
        let mut lines = vec![format!("  {style}{word}{style:#}: {}", kind.as_str())];
        lines.extend(self.entry("    ", what));
        lines.extend(self.entry("    why: ", kind.why()));
        lines.extend(self.entry("    fix: ", fix));
        lines
    }

    /// What was checked, in a few lines.
    fn checked(&self) -> Vec<String> {
        let mut by_area: BTreeMap<Area, Vec<&str>> = BTreeMap::new();
        for (area, what) in &self.findings.checked {
            by_area.entry(*area).or_default().push(what);
        }
        let areas =
            by_area.iter().map(|(area, all)| format!("{}: {}", area.as_str(), all.join(", ")));
        let all = areas.collect::<Vec<_>>().join("; ");
        if all.is_empty() { Vec::new() } else { self.entry("checked: ", &all) }
    }
}

fn style(severity: Severity) -> Style {
    let colour = |colour: AnsiColor| Style::new().bold().fg_color(Some(colour.into()));
    match severity {
        Severity::Error => colour(AnsiColor::Red),
        Severity::Warning => colour(AnsiColor::Yellow),
        Severity::Note => colour(AnsiColor::Cyan),
    }
}

/// How many findings of each severity there are, the worst first.
fn counts(findings: &Findings) -> String {
    let all = [Severity::Error, Severity::Warning, Severity::Note];
    let counted = all.map(|severity| (findings.count(severity), severity.as_str()));
    let words = counted.iter().filter(|(count, _)| *count > 0).map(|(count, word)| {
        let plural = if *count == 1 { "" } else { "s" };
        format!("{count} {word}{plural}")
    });
    words.collect::<Vec<_>>().join(", ")
}

impl Report for DoctorReport {
    fn json(&self) -> String {
        to_json(&DoctorJson::from(&self.findings))
    }

    fn text(&self) -> String {
        let Findings { caller, findings, unchecked, .. } = &self.findings;
        let mut lines = Vec::new();
        lines.extend(caller.iter().flat_map(|name| self.entry("caller: ", name)));
        lines.push(match findings.is_empty() {
            true => "found: nothing wrong".to_owned(),
            false => format!("found: {}", counts(&self.findings)),
        });
        for area in Area::ALL {
            let of_area = findings.iter().filter(|it| it.kind.area() == area);
            let shown: Vec<String> = of_area.flat_map(|it| self.finding(it)).collect();
            if !shown.is_empty() {
                lines.extend([String::new(), area.as_str().to_owned()]);
                lines.extend(shown);
            }
        }
        if !findings.is_empty() {
            lines.push(String::new());
        }
        lines.extend(self.checked());
        for one in unchecked {
            let text = format!("{}, needs {}", one.what, one.needs);
            lines.extend(self.entry("not checked: ", &text));
        }
        // A text from outside cannot start a line of its own.
        let plain = |line: String| line.replace(|c: char| c.is_control() && c != '\u{1b}', " ");
        lines.into_iter().map(plain).collect::<Vec<_>>().join("\n")
    }

    fn failure(&self) -> Option<Failure> {
        let kind = match self.findings.worst()? {
            Severity::Error => FailureKind::FoundErrors,
            Severity::Warning => FailureKind::FoundWarnings,
            Severity::Note => return None,
        };
        let first = self.findings.findings.first()?;
        let message = format!("doctor found {}; the first: {}", counts(&self.findings), first.what);
        Some(Failure::new(kind, message).hint(&*first.fix))
    }
}

#[cfg(test)]
pub(crate) mod tests;
