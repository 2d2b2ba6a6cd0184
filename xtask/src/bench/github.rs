//! `cargo xtask bench github`: builds the program in release mode, has `crates/cli/benches/aws/github`
//! measure it with a GitHub whose runners take as long as the real ones, and judges the results by what
//! is required.

mod judgement;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::console::{log, print};
use crate::emulators;
use crate::error::TaskError;
use crate::sim::target_of;
use crate::step::Step;

/// Measures and judges the selected rows, all if there are none. Returns 0 unless a step failed or a
/// requirement is missed.
pub(crate) fn run(root: &Path, rows: &[String]) -> u8 {
    let mut built = 0;
    for step in builds() {
        built = built.max(step.run(root));
    }
    if built != 0 {
        return built;
    }
    let target = target_of(root);
    let rows: Vec<String> = rows.iter().map(|row| absolute(row)).collect();
    let measured = emulators::run(root, &command(&target, &rows));
    if measured != 0 {
        return measured;
    }
    match report(&target.join("bench").join("github.json")) {
        Ok(missed) => u8::from(missed),
        Err(error) => {
            error.report();
            1
        }
    }
}

/// The program as it is released, and the runner's double. That one is compiled as the benchmark itself
/// is, whose packages it shares.
fn builds() -> [Step; 2] {
    [
        Step::new("build", "build --release --package ondeck --features aws,github"),
        Step::new(
            "build",
            "build --profile sim --package ondeck-standin --bin ondeck-runner-standin",
        ),
    ]
}

fn command(target: &Path, rows: &[String]) -> Vec<String> {
    let line =
        "cargo bench --package ondeck --features aws,github --bench aws --profile sim -- github";
    let program = target.join("release").join("ondeck");
    let runner = target.join("sim").join("ondeck-runner-standin");
    let variables = [
        format!("ONDECK_BENCH_PROGRAM={}", program.display()),
        format!("ONDECK_TEST_RUNNER={}", runner.display()),
    ];
    let words = std::iter::once("env".to_owned()).chain(variables);
    words.chain(line.split(' ').map(str::to_owned)).chain(rows.iter().cloned()).collect()
}

/// An argument whose path, if it has one, does not depend on the folder of the process: a benchmark is
/// started in that of its package.
fn absolute(argument: &str) -> String {
    const BEFORE: &str = "--before=";
    let path = argument.strip_prefix(BEFORE).and_then(|path| std::path::absolute(path).ok());
    path.map_or_else(|| argument.to_owned(), |path| format!("{BEFORE}{}", path.display()))
}

/// Prints the table. Returns whether a requirement is missed.
fn report(file: &Path) -> Result<bool, TaskError> {
    let text = fs::read_to_string(file).map_err(|error| TaskError::with(file, error))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| TaskError::with(file, error))?;
    let judgements = judgement::all(&json);
    print(&judgement::table(&json, &judgements));
    log(&format!("results are in {}", file.display()));
    let mut is_missed = judgements.is_empty();
    if is_missed {
        log("error: nothing was measured; is there such a row?");
    }
    for complaint in judgements.iter().filter_map(judgement::Judgement::complaint) {
        log(&format!("error: {complaint}"));
        is_missed = true;
    }
    Ok(is_missed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_build_and_the_compiled_runner_are_measured() {
        let rows = ["local-warm-ready-10-0ms".to_owned(), "--before=/old/ondeck".to_owned()];
        let command = command(Path::new("/target"), &rows);
        assert_eq!(command[1], "ONDECK_BENCH_PROGRAM=/target/release/ondeck");
        assert_eq!(command[2], "ONDECK_TEST_RUNNER=/target/sim/ondeck-runner-standin");
        assert_eq!(command[command.len() - 3], "github");
        assert_eq!(command.last().map(String::as_str), Some("--before=/old/ondeck"));
        assert!(builds()[0].to_string().contains(" --release "));
    }

    #[test]
    fn the_path_of_the_older_program_is_found_from_another_folder() {
        let here = std::env::current_dir().unwrap();
        let expected = format!("--before={}", here.join("old/ondeck").display());
        assert_eq!(absolute("--before=old/ondeck"), expected);
        assert_eq!(absolute("--before=/old/ondeck"), "--before=/old/ondeck");
        assert_eq!(absolute("aws-warm"), "aws-warm");
    }
}
