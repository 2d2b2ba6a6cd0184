//! The job's summary, in Markdown.

mod failure;
mod gantt;
mod markdown;
pub(crate) mod provision;
pub(crate) mod refresh;
pub(crate) mod release;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use ondeck_core::model::record::MachineSpec;

use super::Shown;
use crate::inputs::Backend;

/// GitHub takes a MiB of a step, and refuses the whole if it is more. Others of the step may have
/// written before.
const LONGEST: usize = 256 * 1024;

/// The most machines of a table, and of a chart.
const ROWS: usize = 100;
const BARS: usize = 20;

/// What is shown of a mode.
pub(super) fn of(shown: &Shown<'_>) -> String {
    let text = match (shown.telling, shown.failure) {
        (Some(telling), _) => telling.summary(shown.backend),
        (None, Some(failure)) => failure::section(shown.mode, failure),
        (None, None) => String::new(),
    };
    bounded(text, LONGEST)
}

/// Adds it to what the step has said.
pub(super) fn append(file: &Path, text: &str) -> std::io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")
}

/// Cut after a whole line, and never within a chart.
fn bounded(text: String, longest: usize) -> String {
    if text.len() <= longest {
        return text;
    }
    let mut kept = String::new();
    let mut whole = 0;
    let mut in_chart = false;
    for line in text.split_inclusive('\n') {
        if kept.len() + line.len() > longest {
            break;
        }
        kept += line;
        in_chart ^= line.starts_with("```");
        if !in_chart {
            whole = kept.len();
        }
    }
    kept.truncate(whole);
    kept + "\nThe rest was cut off, because GitHub takes only so much.\n"
}

/// How long something took, as precisely as anybody wants to know.
fn span(span: Duration) -> String {
    let (millis, seconds) = (span.as_millis(), span.as_secs());
    match seconds {
        0 => format!("{millis} ms"),
        1..60 => format!("{:.1} s", span.as_secs_f64()),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The same for a narrow column.
fn cell(span: Duration) -> String {
    self::span(span).replace(' ', "&nbsp;")
}

/// What a machine is. The hyphen is one that lines are not broken at.
fn kind(spec: &MachineSpec) -> String {
    let usage = spec.usage_class.as_str().replace('-', "\u{2011}");
    format!("{} {usage}", markdown::plain(&spec.instance_type))
}

/// `1 machine`, `2 machines`.
fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn machines(count: usize) -> String {
    counted(count, "machine", "machines")
}

/// What is to be known of every estimate.
fn assumption(backend: Backend) -> String {
    let local = match backend {
        Backend::Local => {
            "These are figures for the EC2 types that local machines are named after; processes \
             on this computer cost nothing. "
        }
        Backend::Aws => "",
    };
    format!("<sub>{local}{}</sub>\n", super::money::ASSUMPTION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_cut_after_a_line_and_before_a_chart() {
        let text = "one\n```mermaid\ntwo\nthree\n```\nfour\n".to_owned();
        let note = "\nThe rest was cut off, because GitHub takes only so much.\n";
        assert_eq!(bounded(text.clone(), text.len()), text);
        assert_eq!(
            bounded(text.clone(), text.len() - 1),
            format!("one\n```mermaid\ntwo\nthree\n```\n{note}")
        );
        assert_eq!(bounded(text.clone(), 24), format!("one\n{note}"));
        assert_eq!(bounded(text, 2), note);
    }

    #[test]
    fn spans_are_as_precise_as_is_useful() {
        let cases = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_949, "1.9 s"),
            (59_999, "60.0 s"),
            (61_000, "1 min 01 s"),
            (3_660_000, "1 h 01 min"),
        ];
        for (millis, words) in cases {
            assert_eq!(span(Duration::from_millis(millis)), words);
        }
    }
}
