//! `cargo xtask policies`: holds the gateway's answers against another implementation of IAM, and
//! lints the policies.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::child;
use crate::console::log;
use crate::emulators;
use crate::error::TaskError;
use crate::step::exit_code_of;
use crate::tool;

/// What both programs are installed from, in `xtask/policies`.
const JUDGE: [&str; 3] = ["package.json", "package-lock.json", "compare.mjs"];

/// Writes what IAM is asked, then runs both programs on it. Returns the exit code of the first step
/// that failed.
pub(crate) fn run(root: &Path) -> u8 {
    let tools = root.join(tool::DIRECTORY);
    let decisions = tools.join("decisions.json");
    let variable = format!("ONDECK_TEST_DECISIONS={}", decisions.display());
    let test = "cargo test --package ondeck-standin --all-features --test it decisions_are_written";
    let mut asking = vec!["env".to_owned(), variable];
    asking.extend(test.split(' ').map(str::to_owned));
    let steps: [&dyn Fn() -> u8; 3] = [
        &|| emulators::run(root, &asking),
        &|| compare(root, &tools.join("iam-simulate"), &decisions),
        &|| lint(root, &tools.join("parliament"), &decisions),
    ];
    steps.iter().map(|step| step()).find(|code| *code != 0).unwrap_or(0)
}

/// Installs iam-simulate with its lock file, and compares the answers. It is under the AGPL, so it
/// runs as a program of its own.
fn compare(root: &Path, folder: &Path, decisions: &Path) -> u8 {
    let copied = fs::create_dir_all(folder).and_then(|()| {
        let source = root.join("xtask/policies");
        JUDGE.iter().try_for_each(|name| fs::copy(source.join(name), folder.join(name)).map(drop))
    });
    if let Err(error) = copied {
        TaskError::with(folder, error).report();
        return 1;
    }
    let mut install = Command::new("npm");
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder);
    let mut compare = Command::new("node");
    compare.arg("compare.mjs").arg(decisions).current_dir(folder);
    in_turn([("npm", install), ("node", compare)])
}

/// Installs parliament by digest, and lints.
fn lint(root: &Path, folder: &Path, decisions: &Path) -> u8 {
    let mut create = Command::new("python3");
    create.args(["-m", "venv"]).arg(folder);
    let python = folder.join("bin/python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--require-hashes", "--requirement"]);
    install.arg(root.join("xtask/policies/requirements.txt"));
    let mut lint = Command::new(&python);
    // parliament reads its data by a module that setuptools has deprecated.
    lint.args(["-W", "ignore"]).arg(root.join("xtask/policies/lint.py")).arg(decisions);
    in_turn([("python3 -m venv", create), ("pip", install), ("parliament", lint)])
}

/// Runs commands until one fails, and returns its exit code.
fn in_turn<const N: usize>(commands: [(&str, Command); N]) -> u8 {
    for (name, mut command) in commands {
        log(&format!("\n--> {name}"));
        let code = exit_code_of(child::run(&mut command), name);
        if code != 0 {
            return code;
        }
    }
    0
}
