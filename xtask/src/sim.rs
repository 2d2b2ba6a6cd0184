//! Runs the simulation, and checks that it finds the planted bugs.

mod mutants;
mod planted_bug;
mod source_copy;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

pub(crate) use mutants::measure;
use planted_bug::PlantedBug;
use source_copy::SourceCopy;

use crate::console::{log, print};
use crate::error::TaskError;
use crate::step::{cargo, exit_code_of};
use crate::{INVALID_INPUT, child};

/// The exit code if a bug was not found or could not be looked for.
const FAILED: u8 = 1;

/// The arguments of cargo that build the simulation.
const BUILD: [&str; 5] = ["build", "--profile", "sim", "--package", "ondeck-sim"];

/// Builds the simulation from the present sources and runs it. Returns its exit code.
pub(crate) fn run(root: &Path, args: &[String]) -> u8 {
    let target = target_of(root);
    let built = exit_code_of(child::run(cargo(root).args(BUILD)), "cargo");
    if built != 0 {
        return built;
    }
    let program = program_in(&target, "sim");
    exit_code_of(child::run(Command::new(&program).args(args)), "the simulation")
}

/// Looks for one planted bug, and prints the history in which it violates an invariant.
pub(crate) fn find(root: &Path, name: &str) -> u8 {
    let bugs = match PlantedBug::all(root) {
        Ok(bugs) => bugs,
        Err(error) => return failed(&error),
    };
    let Some(bug) = bugs.iter().find(|bug| bug.name == name) else {
        let names: Vec<&str> = bugs.iter().map(|bug| bug.name.as_str()).collect();
        log(&format!("error: unknown planted bug: {name}"));
        log(&format!("hint: planted bugs are {}", names.join(", ")));
        return INVALID_INPUT;
    };
    match search(root, bug) {
        Ok(result) => {
            print(&result.history);
            print(&format!("{}\n", result.verdict()));
            result.exit_code()
        }
        Err(error) => failed(&error),
    }
}

/// Looks for every planted bug, one after the other, and prints a table of the results.
pub(crate) fn find_all(root: &Path) -> u8 {
    let bugs = match PlantedBug::all(root) {
        Ok(bugs) => bugs,
        Err(error) => return failed(&error),
    };
    let mut results = Vec::new();
    let mut exit_code = 0;
    for bug in &bugs {
        match search(root, bug) {
            Ok(result) => {
                log(&result.verdict());
                exit_code = exit_code.max(result.exit_code());
                results.push(result);
            }
            // A bug that could not be looked for does not count as found.
            Err(error) => exit_code = exit_code.max(failed(&error)),
        }
    }
    print(&table(&results));
    exit_code
}

fn failed(error: &TaskError) -> u8 {
    error.report();
    FAILED
}

/// The result of the search for one planted bug.
#[derive(Debug, Default)]
struct BugSearch {
    name: String,
    seeds: u64,
    /// The first seed that violates an invariant, and the invariant.
    found: Option<(u64, String)>,
    /// The first brief scene of the exhaustive search that finds the bug.
    scene: Option<String>,
    seconds: u64,
    history: String,
}

impl BugSearch {
    fn verdict(&self) -> String {
        let BugSearch { name, seeds, .. } = self;
        match (&self.found, &self.scene) {
            (Some((seed, invariant)), None) => {
                format!("{name}: found at seed {seed}, by: {invariant}")
            }
            (Some((seed, invariant)), Some(scene)) => {
                format!("{name}: found at seed {seed}, by: {invariant}; and in scene {scene}")
            }
            (None, Some(scene)) if *seeds == 0 => format!("{name}: found in scene {scene}"),
            (None, _) => format!("{name}: not found within {seeds} seeds"),
        }
    }

    /// A bug with 0 seeds must be found by the exhaustive search, any other bug by its seeds.
    fn exit_code(&self) -> u8 {
        let found = self.found.is_some() || self.seeds == 0 && self.scene.is_some();
        if found { 0 } else { FAILED }
    }
}

fn search(root: &Path, bug: &PlantedBug) -> Result<BugSearch, TaskError> {
    let started = Instant::now();
    log(&format!("\n--> {}: {}", bug.name, bug.words));
    let target = target_of(root);
    let copy = SourceCopy::of(root, &target.join("planted"))?;
    copy.apply(&bug.patch)?;
    let program = copy.build(&BUILD)?;
    let mut result = BugSearch { name: bug.name.clone(), seeds: bug.seeds, ..BugSearch::default() };
    for (from, count) in ranges(bug.seeds) {
        let asked =
            ["--from".to_owned(), from.to_string(), "--seeds".to_owned(), count.to_string()];
        let (passed, output) = copy.play(&program, &asked)?;
        if !passed {
            (result.found, result.history) = violation_in(&output);
            break;
        }
    }
    let (passed, output) = copy.play(&program, &["--brief".to_owned()])?;
    if !passed {
        result.scene = scene_in(&output);
        if bug.seeds == 0 {
            result.history = output;
        }
    }
    result.seconds = started.elapsed().as_secs();
    Ok(result)
}

/// Splits the seeds into growing ranges, because most bugs are found by the first few seeds.
fn ranges(seeds: u64) -> impl Iterator<Item = (u64, u64)> {
    const FIRST: u64 = 25;
    let mut from = 0;
    std::iter::from_fn(move || {
        let count = from.max(FIRST).min(seeds - from);
        let range = (from, count);
        from += count;
        (count > 0).then_some(range)
    })
}

/// Reads the first seed with a violation, the invariant, and the history
/// from the simulation's output.
fn violation_in(output: &str) -> (Option<(u64, String)>, String) {
    const WORDS: &str = " violates an invariant: ";
    let lines = output.lines();
    // The command to replay a history works only with the planted bug.
    let lines = lines.filter(|line| !line.starts_with("replay it with: "));
    let history: Vec<&str> = lines.skip_while(|line| !line.contains(WORDS)).collect();
    let found = history.first().and_then(|line| {
        let (seed, how) = line.strip_prefix("seed ")?.split_once(WORDS)?;
        let invariant = how.split_once(": ").map_or(how, |(invariant, _)| invariant);
        Some((seed.parse().ok()?, invariant.to_owned()))
    });
    (found, history.iter().flat_map(|line| [line, "\n"]).collect())
}

/// Reads the first scene with a violation from the output of the exhaustive search.
fn scene_in(output: &str) -> Option<String> {
    const WORDS: &str = "--exhaustive --scene ";
    output.split_once(WORDS).and_then(|(_, rest)| rest.lines().next()).map(str::to_owned)
}

/// Formats the results like the table in `docs/reliability.md`.
fn table(results: &[BugSearch]) -> String {
    let mut text = String::from(
        "| planted bug | seeds | found at | invariant | exhaustive | seconds |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for result in results {
        let (seed, invariant) = match &result.found {
            Some((seed, invariant)) => (seed.to_string(), invariant.as_str()),
            None => ("not found".to_owned(), ""),
        };
        let BugSearch { name, seeds, seconds, .. } = result;
        let scene = result.scene.as_deref().unwrap_or("not found");
        let line = format!("| {name} | {seeds} | {seed} | {invariant} | {scene} | {seconds} |\n");
        text.push_str(&line);
    }
    text
}

/// The directory that cargo builds into.
pub(crate) fn target_of(root: &Path) -> PathBuf {
    // Joining keeps an absolute path as it is.
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn program_in(target: &Path, profile: &str) -> PathBuf {
    target.join(profile).join("ondeck-sim")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_in_one_range() {
        let all = |seeds| ranges(seeds).collect::<Vec<_>>();
        assert_eq!(all(20), [(0, 20)]);
        assert_eq!(all(25), [(0, 25)]);
        assert_eq!(all(150), [(0, 25), (25, 25), (50, 50), (100, 50)]);
        assert_eq!(ranges(3000).map(|(_, count)| count).sum::<u64>(), 3000);
    }

    #[test]
    fn the_violated_invariant_is_read_from_the_output() {
        let output = "  violations       2\n\n\
                      seed 7 violates an invariant: store first: i-1 was terminated\n\
                      shrunk in 3 histories to:\n\
                      replay it with: cargo xtask sim --seed 7\n\
                      seed 9 also violates an invariant: one owner: i-2\n";
        let (found, history) = violation_in(output);
        assert_eq!(found, Some((7, "store first".to_owned())));
        assert!(history.starts_with("seed 7 "), "{history}");
        assert!(
            history.ends_with("to:\nseed 9 also violates an invariant: one owner: i-2\n"),
            "{history}"
        );
        assert_eq!(violation_in("  violations       0\n"), (None, String::new()));
    }

    #[test]
    fn the_table_has_a_row_for_each_planted_bug() {
        let found = BugSearch {
            name: "a".to_owned(),
            seeds: 50,
            found: Some((7, "store first".to_owned())),
            seconds: 3,
            ..BugSearch::default()
        };
        let lost = BugSearch { name: "b".to_owned(), seeds: 60, ..BugSearch::default() };
        assert_eq!((found.exit_code(), lost.exit_code()), (0, FAILED));
        assert_eq!(
            table(&[found, lost]),
            "| planted bug | seeds | found at | invariant | exhaustive | seconds |\n\
             | --- | --- | --- | --- | --- | --- |\n\
             | a | 50 | 7 | store first | not found | 3 |\n\
             | b | 60 | not found |  | not found | 0 |\n"
        );
    }

    #[test]
    fn a_bug_with_0_seeds_must_be_found_by_the_exhaustive_search() {
        let output =
            "=> one owner: i-1\nreplay it with: cargo xtask sim --exhaustive --scene race\n";
        let result =
            BugSearch { name: "c".to_owned(), scene: scene_in(output), ..BugSearch::default() };
        assert_eq!((result.exit_code(), result.verdict().as_str()), (0, "c: found in scene race"));
        assert_eq!(BugSearch { scene: None, ..result }.exit_code(), FAILED);
        assert_eq!(scene_in("all is well"), None);
    }
}
