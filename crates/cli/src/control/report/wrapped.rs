/// The text in lines of at most so many characters, broken between words. A longer word has a line of
/// its own.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_before_the_word_that_does_not_fit() {
        assert_eq!(wrapped("a bb ccc  d", 4), ["a bb", "ccc", "d"]);
        assert_eq!(wrapped("longer a", 4), ["longer", "a"]);
        assert_eq!(wrapped("", 4), [""]);
    }
}
