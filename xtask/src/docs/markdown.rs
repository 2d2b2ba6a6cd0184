//! The little of Markdown that the checks need: headings, links, and what is code.

use std::collections::{BTreeMap, BTreeSet};

/// A link or an image, with the number of its line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) line: usize,
    pub(super) target: String,
}

/// Every link, image and reference definition outside of code.
pub(super) fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (line, prose) in prose(text) {
        let mut found = |target: &str| links.push(Link { line, target: target.to_owned() });
        inline_targets(&prose).into_iter().for_each(&mut found);
        if let Some(target) = definition(&prose) {
            found(target);
        }
        for attribute in ["href=\"", "src=\""] {
            for rest in prose.split(attribute).skip(1) {
                found(rest.split('"').next().unwrap_or_default());
            }
        }
    }
    links
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
pub(super) fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for (_, line) in unfenced(text) {
        let Some(heading) = heading(line) else { continue };
        let slug = slug(heading);
        let count = counts.entry(slug.clone()).or_default();
        let anchor = if *count == 0 { slug.clone() } else { format!("{slug}-{count}") };
        *count += 1;
        anchors.insert(anchor);
    }
    anchors
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then_some(text.trim())
}

/// Lowercase letters, digits, `-` and `_`; a space becomes `-`; everything else is dropped.
fn slug(heading: &str) -> String {
    let shown = link_texts(heading);
    let kept = shown.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Replaces `[text](target)` by `text`.
fn link_texts(heading: &str) -> String {
    let mut shown = heading.to_owned();
    while let Some(middle) = shown.find("](") {
        let (Some(open), Some(close)) = (shown[..middle].rfind('['), shown[middle..].find(')'))
        else {
            break;
        };
        let text = shown[open + 1..middle].to_owned();
        shown.replace_range(open..middle + close + 1, &text);
    }
    shown
}

/// The lines that are outside of fenced code, with their numbers.
fn unfenced(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fence: Option<String> = None;
    text.lines().zip(1..).filter_map(move |(line, number)| {
        let bare = line.trim_start();
        let ticks: String = bare.chars().take_while(|c| *c == '`').collect();
        match &fence {
            Some(open) if bare == open => {
                fence = None;
                None
            }
            Some(_) => None,
            None if ticks.len() >= 3 => {
                fence = Some(ticks);
                None
            }
            None => Some((number, line)),
        }
    })
}

/// The lines outside of fenced code, without their inline code.
fn prose(text: &str) -> impl Iterator<Item = (usize, String)> {
    unfenced(text).map(|(number, line)| {
        let outside = line.split('`').step_by(2);
        (number, outside.collect::<Vec<_>>().join("`"))
    })
}

/// The targets of `](target)`, without a title behind the target.
fn inline_targets(line: &str) -> Vec<&str> {
    let insides = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    insides.map(|(inside, _)| inside.split(" \"").next().unwrap_or(inside)).collect()
}

/// The target of `[label]: target`.
fn definition(line: &str) -> Option<&str> {
    let (label, target) = line.strip_prefix('[')?.split_once("]: ")?;
    (!label.contains(']')).then(|| target.split_whitespace().next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<(usize, String)> {
        links(text).into_iter().map(|link| (link.line, link.target)).collect()
    }

    #[test]
    fn links_images_and_definitions_are_found() {
        let text = "A [link](a.md#x) and ![picture](b.png \"title\"), [two](c.md).\n\n\
                    [label]: https://example.com/d title\n<img src=\"e.svg\">\n";
        let expected =
            [(1, "a.md#x"), (1, "b.png"), (1, "c.md"), (3, "https://example.com/d"), (4, "e.svg")];
        assert_eq!(targets(text), expected.map(|(line, target)| (line, target.to_owned())));
    }

    #[test]
    fn code_holds_no_links_and_no_headings() {
        let text = "```sh\n[a](b.md)\n# no heading\n```\n`[c](d.md)` then [e](f.md)\n";
        assert_eq!(targets(text), [(5, "f.md".to_owned())]);
        assert_eq!(anchors(text), BTreeSet::new());
    }

    #[test]
    fn a_longer_fence_holds_a_shorter_one() {
        let text = "````md\n```\n# inside\n```\n````\n# outside\n";
        assert_eq!(anchors(text), BTreeSet::from(["outside".to_owned()]));
    }

    #[test]
    fn anchors_are_those_of_github_and_mdbook() {
        let text = "# A run's `release` exits 8\n## “Re-run failed jobs”\n## Twice\n## Twice\n\
                    ## With a [link](x.md)\n#no heading\n";
        let expected =
            ["a-runs-release-exits-8", "re-run-failed-jobs", "twice", "twice-1", "with-a-link"];
        assert_eq!(anchors(text), expected.map(str::to_owned).into());
    }
}
