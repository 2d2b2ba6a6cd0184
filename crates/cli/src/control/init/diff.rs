//! The lines in which two texts differ, in the unified format.

/// How many equal lines are shown around a difference.
const CONTEXT: usize = 3;

/// Which of the two texts a line is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Same,
    Removed,
    Added,
}

/// The difference in unified format, empty if there is none.
pub(super) fn unified(path: &str, old: &str, new: &str) -> String {
    let lines = compared(&old.lines().collect::<Vec<_>>(), &new.lines().collect::<Vec<_>>());
    let mut text = String::new();
    let mut at = 0;
    while let Some(first) = (at..lines.len()).find(|n| lines[*n].0 != LineKind::Same) {
        let begin = first.saturating_sub(CONTEXT).max(at);
        // A hunk goes on until more equal lines follow than two hunks would show between them.
        let is_quiet = |n: usize| {
            lines[n..].iter().take(2 * CONTEXT + 1).all(|(kind, _)| *kind == LineKind::Same)
        };
        let quiet = (first..lines.len()).find(|n| is_quiet(*n)).unwrap_or(lines.len());
        let end = (quiet + CONTEXT).min(lines.len());
        text += &hunk(&lines, begin, end);
        at = end;
    }
    if text.is_empty() { text } else { format!("--- {path}\n+++ {path}\n{text}") }
}

/// The lines from `begin` to `end`, below their header.
fn hunk(lines: &[(LineKind, &str)], begin: usize, end: usize) -> String {
    let count = |range: &[(LineKind, &str)], not: LineKind| {
        range.iter().filter(|(kind, _)| *kind != not).count()
    };
    let span = |not: LineKind| {
        let length = count(&lines[begin..end], not);
        // A side without lines is named by the line before it.
        (count(&lines[..begin], not) + usize::from(length > 0), length)
    };
    let ((old, old_length), (new, new_length)) = (span(LineKind::Added), span(LineKind::Removed));
    let mut text = format!("@@ -{old},{old_length} +{new},{new_length} @@\n");
    for (kind, line) in &lines[begin..end] {
        let mark = match kind {
            LineKind::Same => ' ',
            LineKind::Removed => '-',
            LineKind::Added => '+',
        };
        text += &format!("{mark}{line}\n");
    }
    text
}

/// All lines of both texts with what becomes of them, by a longest common subsequence. The table has a
/// cell for each pair of lines, which is enough for files that people read.
fn compared<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(LineKind, &'a str)> {
    let width = new.len() + 1;
    let mut common = vec![0_u32; (old.len() + 1) * width];
    for o in (0..old.len()).rev() {
        for n in (0..new.len()).rev() {
            common[o * width + n] = if old[o] == new[n] {
                common[(o + 1) * width + n + 1] + 1
            } else {
                common[(o + 1) * width + n].max(common[o * width + n + 1])
            };
        }
    }
    let (mut o, mut n, mut lines) = (0, 0, Vec::new());
    while o < old.len() || n < new.len() {
        let down = |o: usize, n: usize| common[o * width + n];
        if o < old.len() && n < new.len() && old[o] == new[n] {
            lines.push((LineKind::Same, old[o]));
            (o, n) = (o + 1, n + 1);
        } else if o < old.len() && (n == new.len() || down(o + 1, n) >= down(o, n + 1)) {
            lines.push((LineKind::Removed, old[o]));
            o += 1;
        } else {
            lines.push((LineKind::Added, new[n]));
            n += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::unified;

    #[test]
    fn changed_lines_are_shown_with_those_around_them() {
        let old: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let new = old.replace("\n5\n", "\nfive\n").replace("\n19\n", "\n");
        assert_eq!(
            unified("f", &old, &new),
            "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n@@ -16,5 +16,4 @@\n 16\n \
             17\n 18\n-19\n 20\n"
        );
        assert_eq!(unified("f", &old, &old), "");
        assert_eq!(unified("f", "", "a\n"), "--- f\n+++ f\n@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(unified("f", "a\n", ""), "--- f\n+++ f\n@@ -1,1 +0,0 @@\n-a\n");
    }

    /// The difference contains both texts: no line is lost without being shown.
    #[test]
    fn a_difference_names_every_line() {
        let texts = ["", "a\nb\nc\n", "b\nc\nd\n", "a\na\nb\n", "x\n", "c\nb\na\nc\n"];
        for old in texts {
            for new in texts {
                let shown = unified("f", old, new);
                let (mut left, mut right): (Vec<&str>, Vec<&str>) = Default::default();
                for line in shown.lines().skip(2).filter(|line| !line.starts_with("@@")) {
                    let (mark, rest) = line.split_at(1);
                    left.extend((mark != "+").then_some(rest));
                    right.extend((mark != "-").then_some(rest));
                }
                if old != new {
                    assert_eq!(left, old.lines().collect::<Vec<_>>(), "{old:?} {new:?}");
                    assert_eq!(right, new.lines().collect::<Vec<_>>(), "{old:?} {new:?}");
                }
            }
        }
    }
}
