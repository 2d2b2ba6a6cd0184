//! Checks that programs compile for a target that this computer has no C compiler for. Their Rust code
//! is type-checked; nothing is linked or run.
//!
//! Crates with C code run a C compiler in their build scripts. Because `cargo check` links nothing, a
//! script takes its place that writes empty files.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::step::{Report, Step};

const MACOS: &str = "aarch64-apple-darwin";
/// The control plane without the local backend, which is for Linux only.
const MACOS_FEATURES: &str = "--no-default-features --features control,aws,github";

/// Writes an empty file wherever a C compiler or `ar` would write its output.
const NO_COMPILER: &str = "#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
    -o) : >\"$2\" && shift ;;
    *.a) : >\"$1\" ;;
    esac
    shift
done
";

/// The script's place, relative to the workspace. Cargo runs build scripts in other directories, so
/// it is passed on as an absolute path.
const SCRIPT: &str = ".tools/no-compiler";

/// Checks the control plane for macOS, or notes why it was left out.
pub(crate) fn check_macos(report: &mut Report, root: &Path) {
    check(report, root, MACOS, MACOS_FEATURES);
}

/// Adds the check of a build with these features to the report, or a note why it was left out.
pub(crate) fn check(report: &mut Report, root: &Path, target: &str, features: &str) {
    if !has_target(target) {
        report.note(format!("not checked: {target}: rustup target add {target}"));
        return;
    }
    let script = root.join(SCRIPT);
    if let Err(error) = write(&script) {
        report.note(format!("not checked: {target}: {}: {error}", script.display()));
        return;
    }
    report.run(&step(target, features, &script.display().to_string()), root);
}

fn step(target: &str, features: &str, compiler: &str) -> Step {
    let line = format!("check -p ondeck --target {target} {features}");
    let step = Step::new(format!("compiles for {target}"), &line);
    let target = target.replace('-', "_");
    let variables = ["CC", "CXX", "AR"].map(|tool| format!("{tool}_{target}"));
    variables.iter().fold(step, |step, name| step.with_env(name, compiler))
}

/// Whether the standard library for a target is there or rustup can add it.
pub(crate) fn has_target(target: &str) -> bool {
    let add = Command::new("rustup")
        .args(["target", "add", target])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    add.is_ok_and(|status| status.success())
}

fn write(script: &Path) -> io::Result<()> {
    if let Some(folder) = script.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(script, NO_COMPILER)?;
    fs::set_permissions(script, fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_backend_is_left_out() {
        let line = step(MACOS, MACOS_FEATURES, "/no-compiler").to_string();
        assert!(line.starts_with("CC_aarch64_apple_darwin=/no-compiler "), "{line}");
        assert!(line.contains("--target aarch64-apple-darwin"), "{line}");
        assert!(line.ends_with("--no-default-features --features control,aws,github"), "{line}");
    }
}
