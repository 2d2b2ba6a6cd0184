//! Whether every link leads somewhere.
//!
//! Relative links and their anchors must exist. Links into this repository on GitHub must name a
//! file that exists here. Other external links are checked for their form only, because checks
//! must not depend on the network.

use super::markdown::{Link, anchors, links};
use super::{BOOK, Pages};

/// Where the repository is on GitHub. A page of the book links to files outside of the book by
/// this address, since the built book does not contain them.
const REPOSITORY: &str = "https://github.com/ondeck-ci/ondeck";

/// One sentence for each broken link. `exists` says whether a path from the repository's root is a
/// file or a folder.
pub(super) fn check(pages: &Pages, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (page, text) in pages {
        for Link { line, target } in links(text) {
            if let Err(problem) = check_one(pages, &exists, page, &target) {
                problems.push(format!("{page}:{line}: {problem}: {target}"));
            }
        }
    }
    problems
}

fn check_one(
    pages: &Pages,
    exists: &impl Fn(&str) -> bool,
    page: &str,
    target: &str,
) -> Result<(), &'static str> {
    if let Some(path) = target.strip_prefix(REPOSITORY) {
        return check_own(exists, path);
    }
    if target.contains("://") || target.starts_with("mailto:") {
        return check_external(target);
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() { page.to_owned() } else { resolve(page, path)? };
    if in_book(page) && !in_book(&file) {
        return Err("a page of the book must link to other files by their address on GitHub");
    }
    if !exists(&file) {
        return Err("no such file");
    }
    if anchor.is_empty() {
        return Ok(());
    }
    match pages.get(&file) {
        Some(text) if anchors(text).contains(anchor) => Ok(()),
        Some(_) => Err("no such heading"),
        None => Err("an anchor in a file that is not Markdown"),
    }
}

fn in_book(path: &str) -> bool {
    path.starts_with(&format!("{BOOK}/"))
}

/// A link into this repository on GitHub.
fn check_own(exists: &impl Fn(&str) -> bool, path: &str) -> Result<(), &'static str> {
    let path = path.split('#').next().unwrap_or_default();
    let inside = path.strip_prefix("/blob/main/").or_else(|| path.strip_prefix("/tree/main/"));
    match inside {
        Some(file) if exists(file) => Ok(()),
        Some(_) => Err("no such file in this repository"),
        // Issues, releases and the like.
        None => Ok(()),
    }
}

fn check_external(target: &str) -> Result<(), &'static str> {
    let is_mail = target.starts_with("mailto:") && target.contains('@');
    let host = target.strip_prefix("https://").or_else(|| target.strip_prefix("http://"));
    let has_host = host.is_some_and(|host| {
        let host = host.split(['/', '?', '#']).next().unwrap_or_default();
        !host.is_empty() && !target.contains(char::is_whitespace)
    });
    if is_mail || has_host { Ok(()) } else { Err("not an address") }
}

/// The path from the repository's root, of a path that is relative to a page.
fn resolve(page: &str, path: &str) -> Result<String, &'static str> {
    if path.starts_with('/') {
        return Err("a path must be relative to its page");
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or("a path outside of the repository")?;
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(page: &str, text: &str) -> Vec<String> {
        let pages = Pages::from([
            (page.to_owned(), text.to_owned()),
            ("docs/other.md".to_owned(), "# Other\n## A part\n".to_owned()),
        ]);
        let files = ["README.md", "action.yml", "docs/a.png"];
        check(&pages, |path| pages.contains_key(path) || files.contains(&path))
    }

    #[test]
    fn sound_links_pass() {
        let text = "# Here\n[a](#here) [b](other.md) [c](other.md#a-part) ![d](a.png)\n\
                    [e](https://example.com/x?y#z) [f](mailto:a@example.com)\n\
                    [g](https://github.com/ondeck-ci/ondeck/blob/main/action.yml#L3)\n\
                    [h](https://github.com/ondeck-ci/ondeck/releases)\n";
        assert_eq!(problems("docs/page.md", text), Vec::<String>::new());
        assert_eq!(problems("CONTRIBUTING.md", "[a](docs/other.md#a-part)"), Vec::<String>::new());
    }

    #[test]
    fn broken_links_are_named_with_file_line_and_target() {
        for (link, problem) in [
            ("none.md", "no such file"),
            ("other.md#none", "no such heading"),
            ("#none", "no such heading"),
            ("a.png#x", "an anchor in a file that is not Markdown"),
            ("/docs/other.md", "a path must be relative to its page"),
            ("../../x.md", "a path outside of the repository"),
            ("https://", "not an address"),
            ("ftp://example.com", "not an address"),
            (
                "../README.md",
                "a page of the book must link to other files by their address on GitHub",
            ),
            (
                "https://github.com/ondeck-ci/ondeck/blob/main/none.rs",
                "no such file in this repository",
            ),
        ] {
            let found = problems("docs/page.md", &format!("\n[x]({link})\n"));
            assert_eq!(found, [format!("docs/page.md:2: {problem}: {link}")], "{link}");
        }
    }
}
