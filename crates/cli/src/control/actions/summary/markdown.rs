//! Markdown that means what it says, whatever is put into it.

/// The longest text of a cell.
const LONGEST: usize = 300;

/// A text from outside, as plain words: in a table or a paragraph, it is neither markup nor HTML
/// nor mathematics, and stays on its line.
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
            // A backslash would not keep these from being read before the rest is.
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

/// A name of ours, which holds no character that could end the code.
pub(super) fn code(id: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | ':');
    if !id.is_empty() && id.chars().all(safe) { format!("`{id}`") } else { plain(id) }
}

/// A table. Columns whose head ends with a blank hold numbers, and are set to the right; columns
/// that hold nothing at all are left out. Cells are Markdown already.
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

/// The first of many rows, and a line that says how many there are besides.
pub(super) fn some_of(header: &[&str], mut rows: Vec<Vec<String>>, most: usize) -> String {
    let more = rows.len().saturating_sub(most);
    rows.truncate(most);
    let table = table(header, &rows);
    if more == 0 { table } else { format!("{table}\nAnd {more} more, which are left out here.\n") }
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
        let cut = format!("{}\nAnd 1 more, which are left out here.\n", &expected[..42]);
        assert_eq!(some_of(&["name", "why", "count "], rows.to_vec(), 1), cut);
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
