use super::status::width as columns;

/// The text in lines of at most so many columns, broken between words. A word that is longer than a line
/// is broken too.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            append(&mut lines, word, width);
        } else if columns(line) + 1 + columns(word) <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(String::new());
            append(&mut lines, word, width);
        }
    }
    lines
}

/// Appends a word to the last line, which is empty, and to further ones. Each has a character at least.
fn append(lines: &mut Vec<String>, word: &str, width: usize) {
    if columns(word) <= width {
        return lines.last_mut().expect("there is one").push_str(word);
    }
    let mut used = 0;
    for c in word.chars() {
        let wide = columns(c.encode_utf8(&mut [0; 4]));
        if used > 0 && used + wide > width {
            lines.push(String::new());
            used = 0;
        }
        used += wide;
        lines.last_mut().expect("there is one").push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_before_the_word_that_does_not_fit() {
        assert_eq!(wrapped("a bb ccc  d", 4), ["a bb", "ccc", "d"]);
        assert_eq!(wrapped("one two  three", 7), ["one two", "three"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn a_word_that_is_longer_than_a_line_is_broken() {
        assert_eq!(wrapped("a longer a", 4), ["a", "long", "er a"]);
        assert_eq!(wrapped("ab", 0), ["a", "b"], "nothing is lost");
    }

    #[test]
    fn a_wide_character_takes_two_columns() {
        assert_eq!(wrapped("日本 語", 4), ["日本", "語"]);
        assert_eq!(wrapped("日本語", 4), ["日本", "語"]);
        assert_eq!(wrapped("日本語", 5), ["日本", "語"]);
    }
}
