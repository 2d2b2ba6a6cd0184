//! Checks that the control plane compiles for macOS. Its Rust code is type-checked; nothing is
//! linked or run.
//!
//! Crates with C code run a C compiler in their build scripts, and this computer has none for macOS.
//! Because `cargo check` links nothing, a script takes its place that writes empty files.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::step::{Report, Step};

const TARGET: &str = "aarch64-apple-darwin";

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

/// Adds the check to the report, or a note why it was left out.
pub(crate) fn check(report: &mut Report, root: &Path) {
    if !is_installed() {
        report.note("macOS was not checked: rustup target add aarch64-apple-darwin");
        return;
    }
    let script = root.join(SCRIPT);
    if let Err(error) = write(&script) {
        report.note(format!("macOS was not checked: {}: {error}", script.display()));
        return;
    }
    let compiler = script.display().to_string();
    let variables = ["CC", "CXX", "AR"].map(|tool| format!("{tool}_aarch64_apple_darwin"));
    report.run(&step(&variables, &compiler), root);
}

fn step(variables: &[String], compiler: &str) -> Step {
    let line = format!(
        "check -p ondeck --target {TARGET} --no-default-features --features control,aws,github"
    );
    let step = Step::new("control plane for macOS", &line);
    variables.iter().fold(step, |step, name| step.with_env(name, compiler))
}

/// Whether the standard library for macOS is there or rustup can add it.
fn is_installed() -> bool {
    let add = Command::new("rustup")
        .args(["target", "add", TARGET])
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
        let line = step(&["CC_aarch64_apple_darwin".to_owned()], "/no-compiler").to_string();
        assert!(line.contains("--target aarch64-apple-darwin"), "{line}");
        assert!(line.ends_with("--no-default-features --features control,aws,github"), "{line}");
    }
}
