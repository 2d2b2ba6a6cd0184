//! Measures the simulation: draws mutants of core and agent, and lets the simulation alone judge
//! each of them. Most mutants are in one build, and the others are built alone.
//!
//! The judgement has rounds, of which each takes longer than those before it and sees only the
//! mutants that those have not found. Results are kept in a file with a digest of the sources, so
//! that an interrupted measure continues where it was.

mod combined;
mod judged;
mod rounds;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use combined::{Combined, Place, Position};
use judged::{Judged, Verdict, summary};
use rounds::{Build, Round};

use super::source_copy::{SourceCopy, digest_of};
use super::{FAILED, failed, target_of};
use crate::console::{log, print};
use crate::error::TaskError;
use crate::step::cargo;
use crate::tool::MUTANTS;

/// The seed of the draw, and how many mutants it draws.
const DRAW: (u64, usize) = (20_261_115, 150);
/// What is not drawn from, with reasons.
const CONFIG: &str = "crates/sim/mutants.toml";
/// The folder in which mutants are built, together and alone, so that each build uses what the one
/// before it has left.
const PLACE: &str = "combined";
const BUILD: [&str; 5] = ["build", "--profile", "sim-mutants", "--package", "ondeck-sim"];

/// One mutant as cargo-mutants lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mutant {
    /// The file, line and change.
    name: String,
    /// The change as a patch.
    diff: String,
    /// The change as a place in a function; `None` if it is in no function.
    place: Option<Place>,
}

/// Judges the drawn mutants by all rounds that need no more than `most_seeds`, and prints the table
/// of the results. Fails if a mutant could not be judged.
pub(crate) fn measure(root: &Path, most_seeds: u64) -> u8 {
    if !MUTANTS.is_there(root) && MUTANTS.install(root) != 0 {
        return FAILED;
    }
    let measured = drawn(root).and_then(|mutants| judge_all(root, &mutants, most_seeds));
    match measured {
        Ok(results) => {
            print(&summary(&results));
            0
        }
        Err(error) => failed(&error),
    }
}

fn judge_all(root: &Path, mutants: &[Mutant], most_seeds: u64) -> Result<Vec<Judged>, TaskError> {
    let folder = target_of(root).join("mutants");
    let kept = folder.join(format!("results-{}.tsv", digest_of(root)?));
    let results = Mutex::new(read(&kept));
    let save = |judged: Judged| {
        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
        log(&judged.line());
        results.insert(judged.name.clone(), judged);
        let lines: Vec<String> = results.values().map(Judged::line).collect();
        fs::write(&kept, lines.join("\n") + "\n").map_err(|error| TaskError::with(&kept, error))
    };
    let passed = |mutant: &Mutant| match results.lock() {
        Ok(results) => results.get(&mutant.name).map_or(Some(0), Judged::rounds),
        Err(_) => None,
    };
    let rounds = Round::all(most_seeds);
    let is_open = |mutant: &&Mutant| passed(mutant).is_some_and(|passed| passed < rounds.len());
    if mutants.iter().any(|mutant| is_open(&mutant)) {
        let builds = build_all(root, &folder, mutants, is_open, save)?;
        for (number, round) in rounds.iter().enumerate() {
            let of_round = |mutant: &&Mutant| passed(mutant) == Some(number);
            let subjects: Vec<&Mutant> = mutants.iter().filter(of_round).collect();
            log(&format!("{} mutants are judged by {}", subjects.len(), round.words()));
            rounds::on_all_processors(&subjects, |mutant| {
                let Some(build) = builds.get(&mutant.name) else { return Ok(()) };
                save(round.judge(build, &mutant.name, number + 1)?)
            })?;
        }
    }
    log(&format!("results are in {}", kept.display()));
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(mutants.iter().filter_map(|mutant| results.get(&mutant.name).cloned()).collect())
}

/// Builds the mutants that are open, in one build or alone, and saves which do not compile.
fn build_all(
    root: &Path,
    folder: &Path,
    mutants: &[Mutant],
    is_open: impl Fn(&&Mutant) -> bool,
    save: impl Fn(Judged) -> Result<(), TaskError>,
) -> Result<BTreeMap<String, Build>, TaskError> {
    let combined = Combined::build(&SourceCopy::of(root, &folder.join(PLACE))?, mutants)?;
    let together = keep(&combined.program, folder.join("combined-program"))?;
    let mut builds = BTreeMap::new();
    for (number, mutant) in (1..).zip(mutants).filter(|(_, mutant)| is_open(mutant)) {
        let within = combined.numbers.get(&mutant.name).copied();
        let program = match within {
            _ if combined.broken.contains(&mutant.name) => None,
            Some(_) => Some(together.clone()),
            None => build_alone(root, folder, number, mutant)?,
        };
        match program {
            Some(program) => {
                let output = folder.join(format!("output-{number}.txt"));
                builds.insert(mutant.name.clone(), Build { program, number: within, output });
            }
            None => {
                let (name, verdict) = (mutant.name.clone(), Verdict::NotBuilt);
                save(Judged { name, verdict, seconds: 0 })?;
            }
        }
    }
    Ok(builds)
}

/// Builds a mutant alone, and returns the path of the program; `None` if it does not compile.
fn build_alone(
    root: &Path,
    folder: &Path,
    number: u32,
    mutant: &Mutant,
) -> Result<Option<PathBuf>, TaskError> {
    let copy = SourceCopy::of(root, &folder.join(PLACE))?;
    let patch = folder.join("mutant.patch");
    fs::write(&patch, &mutant.diff).map_err(|error| TaskError::with(&patch, error))?;
    copy.apply(&patch)?;
    if copy.build_quietly(&BUILD).is_err() {
        return Ok(None);
    }
    keep(&copy.program("sim-mutants"), folder.join(format!("alone-{number}"))).map(Some)
}

/// Copies a program, because the next one is built at the same place.
fn keep(program: &Path, to: PathBuf) -> Result<PathBuf, TaskError> {
    fs::copy(program, &to).map_err(|error| TaskError::with(&to, error))?;
    Ok(to)
}

fn read(kept: &Path) -> BTreeMap<String, Judged> {
    let text = fs::read_to_string(kept).unwrap_or_default();
    let judged = text.lines().filter_map(Judged::parse);
    judged.map(|judged| (judged.name.clone(), judged)).collect()
}

/// Draws the mutants: sorted by name, shuffled by the seed, and the first of them taken.
fn drawn(root: &Path) -> Result<Vec<Mutant>, TaskError> {
    let (seed, count) = DRAW;
    let mut mutants = listed(root)?;
    mutants.sort_by(|a, b| a.name.cmp(&b.name));
    log(&format!("{} mutants are listed", mutants.len()));
    shuffle(&mut mutants, seed);
    mutants.truncate(count);
    Ok(mutants)
}

fn listed(root: &Path) -> Result<Vec<Mutant>, TaskError> {
    let hint = "cargo mutants --list --json --diff must work";
    let mut command = cargo(root);
    command.args(["mutants", "--config", CONFIG, "--workspace", "--list", "--json", "--diff"]);
    let answer = command.output().map_err(|error| TaskError::new(error.to_string(), hint))?;
    let text = String::from_utf8_lossy(&answer.stdout);
    let json: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| TaskError::new(format!("the list of mutants: {error}"), hint))?;
    let entry = |entry: &serde_json::Value| {
        let text = |key: &str| entry.get(key)?.as_str().map(str::to_owned);
        let (name, file, diff) = (text("name")?, text("file")?, text("diff")?);
        let place = place_in(entry, &file);
        Some(Mutant { name, diff: as_patch(&file, &diff), place })
    };
    let entries = json.as_array().map(Vec::as_slice).unwrap_or_default();
    let mutants: Vec<Mutant> = entries.iter().filter_map(entry).collect();
    match mutants.len() == entries.len() && !mutants.is_empty() {
        true => Ok(mutants),
        false => Err(TaskError::new("the list of mutants has other fields than expected", hint)),
    }
}

/// Reads where a mutant is; `None` if it is in no function.
fn place_in(entry: &serde_json::Value, file: &str) -> Option<Place> {
    let position = |at: &serde_json::Value| -> Option<Position> {
        let number = |key: &str| usize::try_from(at.get(key)?.as_u64()?).ok();
        Some((number("line")?, number("column")?))
    };
    let span = |of: &serde_json::Value| {
        let span = of.get("span")?;
        Some(position(span.get("start")?)?..position(span.get("end")?)?)
    };
    Some(Place {
        file: file.to_owned(),
        function: span(entry.get("function")?)?,
        replaced: span(entry)?,
        replacement: entry.get("replacement")?.as_str()?.to_owned(),
    })
}

/// Replaces the first two lines of a diff, which name the mutation instead of a file.
fn as_patch(file: &str, diff: &str) -> String {
    let hunks = diff.find("@@").map_or("", |at| &diff[at..]);
    format!("--- a/{file}\n+++ b/{file}\n{hunks}")
}

/// Shuffles by Fisher and Yates, with numbers by SplitMix64.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    for at in (1..items.len()).rev() {
        let other = usize::try_from(next() % (at as u64 + 1)).unwrap_or(0);
        items.swap(at, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draw_depends_on_nothing_but_its_seed() {
        let draw = |seed| {
            let mut numbers: Vec<u32> = (0..8).collect();
            shuffle(&mut numbers, seed);
            numbers
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let mut sorted = draw(3);
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn a_diff_becomes_a_patch_of_its_file() {
        let diff = "--- x.rs\n+++ replace a with b\n@@ -1,1 +1,1 @@\n-a\n+b\n";
        let patch = "--- a/x.rs\n+++ b/x.rs\n@@ -1,1 +1,1 @@\n-a\n+b\n";
        assert_eq!(as_patch("x.rs", diff), patch);
    }
}
