//! Single values in a file of `key = value` lines below `[table]` headers: `ondeck.toml`, and the
//! arguments of the Terraform module. Everything else in the file stays as it is, comments included.

/// The value of a key, as it is written, or `None` if there is none. Keys before the first header are
/// in the table "".
pub(super) fn value<'a>(text: &'a str, table: &str, key: &str) -> Option<&'a str> {
    let (begin, end) = span(text, table, key)?;
    let written = text[begin..end].split_once('=')?.1;
    Some(without_comment(written).trim())
}

/// The value of a key whose value is a string.
pub(super) fn string(text: &str, table: &str, key: &str) -> Option<String> {
    serde_json::from_str(value(text, table, key)?).ok()
}

/// The text with a value for the key: in place of the one that it has, at the end of its table, or in
/// a new table at the end.
pub(super) fn with(text: &str, table: &str, key: &str, value: &str) -> String {
    let line = format!("{key} = {value}\n");
    if let Some((begin, end)) = span(text, table, key) {
        return format!("{}{line}{}", &text[..begin], &text[end..]);
    }
    match end_of_table(text, table) {
        Some(end) => format!("{}{line}{}", &text[..end], &text[end..]),
        None => format!("{}\n\n[{table}]\n{line}", text.trim_end()),
    }
}

/// Where the lines of a key begin and end. A value with an open bracket goes on until it is closed.
fn span(text: &str, table: &str, key: &str) -> Option<(usize, usize)> {
    let (mut at, mut current, mut found) = (0, "", None);
    for line in text.split_inclusive('\n') {
        let (begin, bare) = (at, line.trim());
        at += line.len();
        match found {
            Some((first, depth)) => {
                let depth = depth + open_brackets(bare);
                if depth <= 0 {
                    return Some((first, at));
                }
                found = Some((first, depth));
            }
            None if is_header(bare) => current = bare.trim_matches(['[', ']']),
            None => {
                let is_key = bare.split_once('=').is_some_and(|(name, _)| name.trim() == key);
                if current == table && is_key {
                    let depth = open_brackets(bare);
                    if depth <= 0 {
                        return Some((begin, at));
                    }
                    found = Some((begin, depth));
                }
            }
        }
    }
    None
}

/// The end of the last line of a table that is not blank.
fn end_of_table(text: &str, table: &str) -> Option<usize> {
    let (mut at, mut current, mut end) = (0, "", None);
    for line in text.split_inclusive('\n') {
        let bare = line.trim();
        at += line.len();
        if is_header(bare) {
            current = bare.trim_matches(['[', ']']);
        }
        if current == table && !bare.is_empty() {
            end = Some(at);
        }
    }
    end
}

fn is_header(line: &str) -> bool {
    line.starts_with('[') && line.ends_with(']')
}

/// How many brackets the line opens beyond those that it closes. Brackets in strings do not count.
fn open_brackets(line: &str) -> i32 {
    let mut depth = 0;
    for c in outside_strings(line) {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
    }
    depth
}

/// The characters of a line outside of its strings and its comment.
fn outside_strings(line: &str) -> impl Iterator<Item = char> {
    let mut within = false;
    let chars = line.chars().take_while(move |c| {
        within ^= *c == '"';
        within || *c != '#'
    });
    let mut quoted = false;
    chars.filter(move |c| {
        quoted ^= *c == '"';
        !quoted
    })
}

/// A value without the comment behind it.
fn without_comment(value: &str) -> &str {
    let mut within = false;
    let comment = value.find(|c: char| {
        within ^= c == '"';
        c == '#' && !within
    });
    comment.map_or(value, |at| &value[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Ours.\npool = \"acme/web\" # no level\n\n[network]\n# Two zones.\nsubnet-ids = [\n  \
                        \"subnet-1\", # a ]\n  \"subnet-2\",\n]\n\n[times]\nmax-runtime-min = 60\n";

    #[test]
    fn values_are_found_in_their_table() {
        assert_eq!(string(TEXT, "", "pool").as_deref(), Some("acme/web"));
        assert_eq!(value(TEXT, "times", "max-runtime-min"), Some("60"));
        assert_eq!(value(TEXT, "network", "max-runtime-min"), None);
        assert_eq!(value(TEXT, "", "region"), None);
    }

    #[test]
    fn a_value_is_replaced_with_all_of_its_lines_and_nothing_else() {
        let list = "subnet-ids = [\n  \"subnet-1\", # a ]\n  \"subnet-2\",\n]\n";
        let expected = TEXT.replace(list, "subnet-ids = [\"subnet-3\"]\n");
        assert_eq!(with(TEXT, "network", "subnet-ids", "[\"subnet-3\"]"), expected);
        let expected =
            TEXT.replace("]\n\n[times]", "]\nsecurity-group-ids = [\"sg-1\"]\n\n[times]");
        assert_eq!(with(TEXT, "network", "security-group-ids", "[\"sg-1\"]"), expected);
        let expected = TEXT.replace("level\n", "level\nregion = \"us-east-1\"\n");
        assert_eq!(with(TEXT, "", "region", "\"us-east-1\""), expected);
        let expected = format!("{TEXT}\n[image]\nami = \"ami-1\"\n");
        assert_eq!(with(TEXT, "image", "ami", "\"ami-1\""), expected);
    }
}
