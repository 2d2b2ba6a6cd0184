//! `cargo xtask bench aws`: builds the program in release mode, has `crates/cli/benches/aws` measure it
//! on emulated AWS, and judges the results by what is required.
//!
//! DynamoDB and SQS are stand-ins that use little processor time, because what they use delays the program
//! on a computer with two cores. With `--reference`, they are the emulators that the tests go by: calls and
//! round trips must be the same.

mod judgement;
mod plot;
mod requirements;
mod results;
mod table;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::console::{log, print};
use crate::emulators::{DynamoDb, Emulators};
use crate::error::TaskError;
use crate::sim::target_of;
use crate::step::Step;
use judgement::Judgement;
use results::Results;

/// The argument that chooses the emulators of the tests.
const REFERENCE: &str = "--reference";

/// Measures and judges the selected rows, all if there are none. Returns 0 unless a step failed or a
/// requirement is missed on the quiet computer.
pub(crate) fn run(root: &Path, rows: &[String]) -> u8 {
    let built = build().run(root);
    if built != 0 {
        return built;
    }
    let target = target_of(root);
    let folder = target.join("bench");
    let measured = match measure(root, &target.join("release").join("ondeck"), rows) {
        Ok(exit_code) => exit_code,
        Err(error) => {
            error.report();
            return 1;
        }
    };
    match report(&folder) {
        Ok(missed) => measured.max(u8::from(missed)),
        Err(error) => {
            error.report();
            measured.max(1)
        }
    }
}

fn build() -> Step {
    Step::new("build", "build --release --package ondeck --features aws")
}

/// Runs the benchmark on emulators of its own, and returns its exit code.
fn measure(root: &Path, program: &Path, rows: &[String]) -> Result<u8, TaskError> {
    let is_reference = rows.iter().any(|row| row == REFERENCE);
    let built = harness("--no-run", &[]).run(root);
    if built != 0 {
        return Ok(built);
    }
    let kind = if is_reference { DynamoDb::Local } else { DynamoDb::Dynoxide };
    let emulators = Emulators::start_with(root, kind)?;
    let [dynamodb, sqs] = emulators.pids();
    let mut step = harness("", rows)
        .within(&emulators.environment)
        .with_env("ONDECK_BENCH_PROGRAM", program.display().to_string())
        .with_env("ONDECK_BENCH_DYNAMODB_PID", dynamodb.to_string());
    if is_reference {
        step = step
            .with_env("ONDECK_BENCH_REFERENCE", "1")
            .with_env("ONDECK_BENCH_SQS_PID", sqs.to_string());
    }
    Ok(step.run(root))
}

/// The step that builds or runs the benchmark. The gateway is optimised, since it takes part in each call.
fn harness(option: &str, rows: &[String]) -> Step {
    let line =
        format!("bench --package ondeck --features aws --bench aws --profile gateway {option} --");
    let rows: Vec<String> = rows.iter().filter(|row| *row != REFERENCE).cloned().collect();
    Step::new("measure", &line).and(&rows)
}

/// Prints the tables and draws the plots. Returns whether a requirement is missed.
fn report(folder: &Path) -> Result<bool, TaskError> {
    let file = folder.join("aws.json");
    let text = fs::read_to_string(&file).map_err(|error| TaskError::with(&file, error))?;
    let json: Value = serde_json::from_str(&text).map_err(|error| TaskError::with(&file, error))?;
    let results = Results::of(&json);
    let judgements = judgement::all(&results);
    print(&table::table(&results, &judgements));
    print(&table::cpu_table(&results, &judgements));
    for (name, theme) in plot::THEMES {
        let file = folder.join(format!("aws-{name}.svg"));
        let drawn = plot::draw(&judgements, theme);
        fs::write(&file, drawn).map_err(|error| TaskError::with(&file, error))?;
    }
    log(&format!("results and plots are in {}", folder.display()));
    let missed: Vec<&Judgement> = judgements.iter().filter(|it| it.is_missed()).collect();
    for judgement in &missed {
        log(&format!("error: {}", judgement.complaint()));
    }
    Ok(!missed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_build_is_measured() {
        let rows = ["warm-10".to_owned(), REFERENCE.to_owned()];
        let command = harness("", &rows).to_string();
        assert!(command.ends_with(" -- warm-10"), "{command}");
        assert!(build().to_string().contains(" --release "));
    }
}
