//! Writes the job summary.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// The most bytes of one summary. GitHub refuses the whole summary of a step that is larger than
/// 1 MiB, and other commands of the step may have written before.
pub(crate) const LONGEST: usize = 256 * 1024;

/// Appends to the summary of the step. A text that is too long is cut.
pub(super) fn append(file: &Path, markdown: &str) -> std::io::Result<()> {
    if markdown.is_empty() {
        return Ok(());
    }
    let text = bounded(markdown, LONGEST);
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(text.as_bytes())?;
    file.write_all(b"\n")
}

/// Cuts after a whole line, and never within a chart.
fn bounded(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
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
    kept + "\nThe rest is not shown, because GitHub limits the size of a summary.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_after_a_line_and_before_a_chart() {
        let text = "one\n```mermaid\ntwo\nthree\n```\nfour\n";
        let note = "\nThe rest is not shown, because GitHub limits the size of a summary.\n";
        assert_eq!(bounded(text, text.len()), text);
        assert_eq!(
            bounded(text, text.len() - 1),
            format!("one\n```mermaid\ntwo\nthree\n```\n{note}")
        );
        assert_eq!(bounded(text, 24), format!("one\n{note}"));
        assert_eq!(bounded(text, 2), note);
    }
}
