//! Markdown for job summaries. Texts from outside cannot become markup.

use std::time::Duration;

use ondeck_core::model::record::MachineSpec;

/// The most rows of a table.
pub(super) const ROWS: usize = 100;

/// The most characters of a text from outside.
const LONGEST: usize = 300;

/// Escapes a text from outside, so that in a table or a paragraph it is neither markup nor HTML
/// nor mathematics, and stays on its line. Long texts are cut.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::new();
    for (n, character) in text.trim().chars().enumerate() {
        if n == LONGEST {
            out.push('…');
            break;
        }
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            // GitHub reads these two before it reads backslashes.
            '|' => out += "&#124;",
            '$' => out += "&#36;",
            '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '#' | '!' => {
                out.push('\\');
                out.push(character);
            }
            blank if blank.is_control() || blank.is_whitespace() => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

/// A name as code. A name with characters that could end the code is escaped as plain text.
pub(super) fn code(id: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | ':');
    if !id.is_empty() && id.chars().all(safe) { format!("`{id}`") } else { plain(id) }
}

/// A table whose cells are Markdown already. Columns whose header ends with a space are aligned to
/// the right; columns without any content are left out.
pub(super) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let filled = |column: &usize| {
        rows.iter().any(|row| row.get(*column).is_some_and(|cell| !cell.is_empty()))
    };
    let columns: Vec<usize> = (0..header.len()).filter(filled).collect();
    let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<&str> = columns.iter().map(|column| header[*column]).collect();
    let rule = heads.iter().map(|head| if head.ends_with(' ') { "---:" } else { "---" });
    let mut table = line(heads.iter().map(|head| head.trim_end()).collect());
    table += &line(rule.collect());
    for row in rows {
        table += &line(columns.iter().map(|column| row[*column].as_str()).collect());
    }
    table
}

/// A table of the first `most` rows, and a line that says how many more there are.
pub(super) fn first_rows(header: &[&str], mut rows: Vec<Vec<String>>, most: usize) -> String {
    let more = rows.len().saturating_sub(most);
    rows.truncate(most);
    let table = table(header, &rows);
    if more == 0 { table } else { format!("{table}\n{more} more are not shown.\n") }
}

/// How long something took: milliseconds below a second, and two units at the most.
pub(super) fn span(span: Duration) -> String {
    let (millis, seconds) = (span.as_millis(), span.as_secs());
    match seconds {
        0 => format!("{millis} ms"),
        1..60 => format!("{:.1} s", span.as_secs_f64()),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// The same for a narrow column: it is never broken into two lines.
pub(super) fn cell(span: Duration) -> String {
    self::span(span).replace(' ', "&nbsp;")
}

/// Instance type and purchase option. The hyphen is one at which lines are not broken.
pub(super) fn machine_type(spec: &MachineSpec) -> String {
    let usage = spec.usage_class.as_str().replace('-', "\u{2011}");
    format!("{} {usage}", plain(&spec.instance_type))
}

/// `1 machine`, `2 machines`.
pub(super) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

pub(super) fn machines(count: usize) -> String {
    counted(count, "machine", "machines")
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..Default::default()
        })]

        #[test]
        fn no_text_leaves_its_cell(text in "(?s).*") {
            let cell = plain(&text);
            proptest::prop_assert!(!cell.contains(['\n', '\r', '|', '<', '>', '$']), "{cell}");
            let unescaped = |mark: char| {
                let marks: Vec<char> = cell.chars().collect();
                let is = |n: usize| {
                    let before = marks[..n].iter().rev().take_while(|c| **c == '\\').count();
                    marks[n] == mark && before % 2 == 0
                };
                (0..marks.len()).any(is)
            };
            for mark in ['`', '*', '_', '[', ']', '~', '!'] {
                proptest::prop_assert!(!unescaped(mark), "{mark} in {cell}");
            }
        }
    }

    #[test]
    fn empty_columns_are_left_out() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let rows = [row(["a", "", "1"]), row(["b", "", ""])];
        let expected = "| name | count |\n| --- | ---: |\n| a | 1 |\n| b |  |\n";
        assert_eq!(table(&["name", "why", "count "], &rows), expected);
        let cut = format!("{}\n1 more are not shown.\n", &expected[..42]);
        assert_eq!(first_rows(&["name", "why", "count "], rows.to_vec(), 1), cut);
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

    #[test]
    fn texts_from_outside_are_words() {
        let cases = [
            ("c* m6i.*", "c\\* m6i.\\*"),
            ("a|b\n<img src=x>", "a&#124;b &lt;img src=x&gt;"),
            ("`$x$` & [y](z)", "\\`&#36;x&#36;\\` &amp; \\[y\\](z)"),
            (" \t", ""),
        ];
        for (text, cell) in cases {
            assert_eq!(plain(text), cell);
        }
        assert_eq!(plain(&"x".repeat(400)).chars().count(), LONGEST + 1);
        assert_eq!(code("i-0a"), "`i-0a`");
        assert_eq!(code("i`|"), "i\\`&#124;");
    }
}
