//! What `cargo demo` has to build, which is the first thing that someone who tries ondeck waits for.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::error::TaskError;
use crate::step::said;

const README: &str = "README.md";

/// Checks that the demo is built of as many crates as the README says.
pub(crate) fn check_crates(root: &Path) -> Result<(), TaskError> {
    let file = root.join(README);
    let text = fs::read_to_string(&file).map_err(|error| TaskError::with(&file, error))?;
    let told = told_crates(&text).ok_or_else(|| {
        TaskError::new(
            "README.md names no number of crates",
            "say '(…, N crates)' of the first build",
        )
    })?;
    let mut tree = Command::new("cargo");
    tree.args(["tree", "--locked", "--package", "ondeck", "--edges", "normal,build"]);
    let found = crates(&said(tree.args(["--prefix", "none"]).current_dir(root))?);
    if found == told {
        return Ok(());
    }
    Err(TaskError::new(
        format!("cargo demo builds {found} crates, and {README} says {told}"),
        "put new dependencies behind a feature that the demo does not have, or correct the number",
    ))
}

/// The number in "78 crates)".
fn told_crates(text: &str) -> Option<usize> {
    let before = text.split_once(" crates)")?.0;
    before.rsplit(' ').next()?.parse().ok()
}

/// How many crates a tree without prefixes has.
fn crates(tree: &str) -> usize {
    let names = tree.lines().map(|line| line.trim_end_matches(" (*)").trim());
    names.filter(|line| !line.is_empty()).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_crate_counts_once() {
        assert_eq!(crates("ondeck v0.1.0\na v1.0.0\nb v2.0.0\na v1.0.0 (*)\n\na v2.0.0\n"), 4);
        assert_eq!(told_crates("a minute (70 CPU seconds, 78 crates). Then"), Some(78));
        assert_eq!(told_crates("many crates"), None);
    }

    #[test]
    fn the_readme_says_how_many_there_are() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let readme = fs::read_to_string(root.join(README)).unwrap();
        assert!(told_crates(&readme).is_some());
    }
}
