//! Whether the book's table of contents and its pages agree.

use std::collections::BTreeSet;

use super::Pages;
use super::markdown::links;

/// Files below this folder belong to pictures, not to the book.
const IMAGES: &str = "images/";

/// One sentence for each page that the table of contents lacks or lists twice. Entries without a
/// page are found by the check of links.
pub(super) fn check(pages: &Pages, book: &str) -> Vec<String> {
    let contents = format!("{book}/SUMMARY.md");
    let Some(text) = pages.get(&contents) else {
        return vec![format!("{contents}: no such file")];
    };
    let mut listed = BTreeSet::new();
    let mut problems = Vec::new();
    for link in links(text) {
        if !listed.insert(link.target.clone()) {
            problems.push(format!("{contents}:{}: listed twice: {}", link.line, link.target));
        }
    }
    let prefix = format!("{book}/");
    let of_book = pages.keys().filter_map(|page| page.strip_prefix(&prefix));
    let unlisted = of_book
        .filter(|page| *page != "SUMMARY.md" && !page.starts_with(IMAGES))
        .filter(|page| !listed.contains(*page));
    problems.extend(unlisted.map(|page| format!("{contents}: a page is missing: {page}")));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(summary: &str) -> Vec<String> {
        let page = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let pages = Pages::from([
            page("README.md", ""),
            page("docs/SUMMARY.md", summary),
            page("docs/a.md", ""),
            page("docs/adr/1.md", ""),
            page("docs/images/picture.md", ""),
        ]);
        check(&pages, "docs")
    }

    #[test]
    fn each_page_is_listed_once() {
        assert_eq!(problems("- [A](a.md)\n- [One](adr/1.md)\n"), Vec::<String>::new());
        assert_eq!(problems("- [A](a.md)\n"), ["docs/SUMMARY.md: a page is missing: adr/1.md"]);
        assert_eq!(
            problems("- [A](a.md)\n- [One](adr/1.md)\n- [A](a.md)\n"),
            ["docs/SUMMARY.md:3: listed twice: a.md"]
        );
    }

    #[test]
    fn a_book_without_contents_is_a_problem() {
        assert_eq!(check(&Pages::new(), "docs"), ["docs/SUMMARY.md: no such file"]);
    }
}
