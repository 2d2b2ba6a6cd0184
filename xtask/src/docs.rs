//! `cargo xtask docs`: checks the links of all tracked Markdown files and builds the book.

mod links;
mod markdown;
mod summary;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::console::log;
use crate::error::TaskError;
use crate::step::{Report, Step};
use crate::tool::MDBOOK;

/// The folder of the book's sources, below the workspace's root.
const BOOK: &str = "docs";

/// All Markdown files of the repository, by their path from its root.
type Pages = BTreeMap<String, String>;

pub(crate) fn run(root: &Path) -> Report {
    let mut report = Report::default();
    check_all(&mut report, root);
    report
}

/// Checks links and builds the book. Both are done even if one of them fails.
pub(crate) fn check_all(report: &mut Report, root: &Path) {
    report.check("links", || check(root));
    let build = Step::program("book", MDBOOK.name, &format!("build {BOOK}"));
    report.run_with(&[&MDBOOK], &build, root);
    report.note("external links were checked for their form only; the book is in target/book");
}

/// Prints each broken link and each page that the table of contents lacks. Fails if there is one.
fn check(root: &Path) -> Result<(), TaskError> {
    let files = tracked(root)?;
    let pages = read(root, &files)?;
    let exists = |path: &str| root.join(path).exists();
    let mut problems = links::check(&pages, exists);
    problems.extend(summary::check(&pages, BOOK));
    problems.iter().for_each(|problem| log(&format!("error: {problem}")));
    match problems.len() {
        0 => Ok(()),
        count => Err(TaskError::new(
            format!("links and pages to correct: {count}"),
            "each line above names the file, the line and the target",
        )),
    }
}

/// Markdown files that git knows, or would add.
fn tracked(root: &Path) -> Result<Vec<String>, TaskError> {
    let args = ["ls-files", "--cached", "--others", "--exclude-standard", "--", "*.md"];
    let listed = Command::new("git").args(args).current_dir(root).output();
    let failed = |why: String| {
        TaskError::new(format!("cannot list the Markdown files: {why}"), "run it in a git checkout")
    };
    let listed = listed.map_err(|error| failed(error.to_string()))?;
    if !listed.status.success() {
        return Err(failed(String::from_utf8_lossy(&listed.stderr).trim().to_owned()));
    }
    let files = String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect();
    Ok(files)
}

fn read(root: &Path, files: &[String]) -> Result<Pages, TaskError> {
    let mut pages = Pages::new();
    // A file that is deleted but not yet staged is still listed.
    for file in files.iter().filter(|file| root.join(file).is_file()) {
        let text = std::fs::read_to_string(root.join(file))
            .map_err(|error| TaskError::with(Path::new(file), error))?;
        pages.insert(file.clone(), text);
    }
    Ok(pages)
}
