//! `cargo xtask bench aws`: builds the program in release mode, has `crates/cli/benches/aws` measure it
//! on emulated AWS, and judges the results by what is required.

mod judgement;
mod plot;
mod requirements;
mod results;
mod table;

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::console::{log, print};
use crate::emulators;
use crate::error::TaskError;
use crate::sim::target_of;
use crate::step::Step;
use judgement::Judgement;
use results::Results;

/// Measures and judges the selected rows, all if there are none. Returns 0 unless a step failed or a
/// requirement is missed on the quiet computer.
pub(crate) fn run(root: &Path, rows: &[String]) -> u8 {
    let built = build().run(root);
    if built != 0 {
        return built;
    }
    let target = target_of(root);
    let folder = target.join("bench");
    let measured =
        emulators::run_bench(root, &command(&target.join("release").join("ondeck"), rows));
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

/// The gateway is optimised, since it takes part in each call, but needs no release build, which would take
/// minutes: its share of a round trip is part of what is measured as a round trip.
fn command(program: &Path, rows: &[String]) -> Vec<String> {
    let line = "cargo bench --package ondeck --features aws --bench aws --profile gateway --";
    let program = format!("ONDECK_BENCH_PROGRAM={}", program.display());
    let words = ["env", &program].into_iter().chain(line.split(' ')).map(str::to_owned);
    words.chain(rows.iter().cloned()).collect()
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
        let rows = ["warm-10".to_owned()];
        let command = command(Path::new("/target/release/ondeck"), &rows);
        assert_eq!(command[1], "ONDECK_BENCH_PROGRAM=/target/release/ondeck");
        assert_eq!(command.last().map(String::as_str), Some("warm-10"));
        assert!(build().to_string().contains(" --release "));
    }
}
