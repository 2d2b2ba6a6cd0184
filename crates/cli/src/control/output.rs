//! What goes to stdout: an object for programs, a few lines for people.

mod provision;
mod refresh;
mod release;

use std::io::Write;
use std::time::Duration;

use ondeck_core::model::failure::Failure;
use serde_json::{Value, json};

pub(crate) use self::release::words as fate;
use crate::control::actions::{Shown, Step};
use crate::inputs::{Backend, Common};
use crate::logging;

/// Something that a mode has to tell.
pub(crate) trait Telling {
    /// For programs.
    fn json(&self) -> Value;
    /// For people; no final line break.
    fn text(&self) -> String;
    /// What went wrong, if anything did.
    fn failure(&self) -> Option<Failure>;
    /// What should be known besides.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
    /// What is no warning, and should be known on GitHub all the same.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }
    /// What GitHub shows, in Markdown; nothing where there is nothing to show.
    fn summary(&self, _backend: Backend) -> String {
        String::new()
    }
    /// What later steps on GitHub may use, besides the object.
    fn outputs(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

/// Tells what came of a command, and gives the exit code.
pub(crate) fn tell(
    command: &'static str,
    result: Result<&dyn Telling, Failure>,
    common: &Common,
) -> u8 {
    let (telling, failure) = match result {
        Ok(telling) => (Some(telling), telling.failure()),
        Err(failure) => (None, Some(failure)),
    };
    let object = match (&telling, &failure) {
        (Some(telling), _) => telling.json(),
        (None, Some(failure)) => json!({"status": "failed", "error": error(failure)}),
        (None, None) => json!({"status": "success"}),
    };
    let step = Step::around();
    if common.json {
        print(&step.as_ref().map_or_else(|| object.to_string(), |step| step.json(&object)));
    } else if let Some(telling) = &telling {
        let text = telling.text();
        if !text.is_empty() {
            print(&step.as_ref().map_or_else(|| text.clone(), |step| step.text(&text)));
        }
    }
    for warning in telling.iter().flat_map(|telling| telling.warnings()) {
        tracing::warn!("{warning}");
    }
    if let Some(step) = step {
        let (failure, object) = (failure.as_ref(), &object);
        return step.show(&Shown {
            mode: command,
            telling,
            failure,
            object,
            backend: common.compute,
        });
    }
    match failure {
        None => 0,
        Some(failure) => {
            logging::error(&failure.message, &failure.hint);
            failure.kind.exit_code()
        }
    }
}

/// A line on stdout. If nobody reads it any more, there is nobody to tell that either.
pub(crate) fn print(text: &str) {
    drop(try_print(text));
}

/// A line on stdout, for those who would go on for ever.
pub(crate) fn try_print(text: &str) -> std::io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

pub(crate) fn error(failure: &Failure) -> Value {
    json!({
        "kind": failure.kind.as_str(),
        "message": failure.message,
        "hint": failure.hint,
    })
}

/// Adds the parts that are there only when something went wrong.
fn with_failure(mut object: Value, failure: Option<&Failure>) -> Value {
    if let Some(failure) = failure {
        object["error"] = error(failure);
    }
    object
}

fn status(failure: Option<&Failure>) -> &'static str {
    if failure.is_none() { "success" } else { "failed" }
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A table without frame: columns padded, for terminals and logs alike.
pub(crate) fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut lines = vec![header.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()];
    // What machines say must not pass for a line of ours.
    let one_line = |cell: String| cell.replace(char::is_control, " ");
    lines.extend(rows.into_iter().map(|row| row.into_iter().map(one_line).collect()));
    let width = |column: usize| {
        let cells = lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let pad = |line: &Vec<String>| {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(pad).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let rows = vec![vec!["i-1".to_owned(), String::new()], vec!["i-22".into(), "idle".into()]];
        assert_eq!(table(&["instance", "state"], rows), "instance  state\ni-1\ni-22      idle");
        let rows = vec![vec!["i-1".to_owned(), "x\n::error::y".to_owned()]];
        assert_eq!(table(&["id", "why"], rows), "id   why\ni-1  x ::error::y");
    }
}
