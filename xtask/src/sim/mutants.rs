//! Measures the simulation: draws mutants of core and agent, and lets the simulation alone judge
//! each of them. Most mutants are in one build, and the others are built alone.
//!
//! Results are kept in a file with a digest of the sources, so that an interrupted measure
//! continues where it was.

mod combined;
mod judged;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use combined::{Combined, Place, Position, VARIABLE};
use judged::{Judged, Verdict, summary};

use super::source_copy::{SourceCopy, digest_of};
use super::{FAILED, failed, target_of};
use crate::child;
use crate::console::{log, print};
use crate::error::TaskError;
use crate::step::cargo;
use crate::tool::MUTANTS;

/// The seed of the draw, and how many mutants it draws.
const DRAW: (u64, usize) = (20_261_115, 150);
/// What is not drawn from, with reasons.
const CONFIG: &str = "crates/sim/mutants.toml";
const BUILD: [&str; 5] = ["build", "--profile", "sim-mutants", "--package", "ondeck-sim"];
/// A mutant that takes more processor time is endless. The judge takes a minute of it.
const CPU_SECONDS: u64 = 300;
/// A mutant that waits forever takes none. On a busy computer the judge takes several minutes.
const TIME_LIMIT: Duration = Duration::from_secs(1_800);

/// The exit code of `timeout`. A program that is killed at the limit of processor time has none, and
/// `timeout` ends by the same signal.
const TIMED_OUT: i32 = 124;

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

/// Judges the drawn mutants that have no result yet, up to `at_most` of them, and prints the table
/// of all results. Fails if a mutant could not be judged.
pub(crate) fn measure(root: &Path, at_most: usize) -> u8 {
    if !MUTANTS.is_there(root) && MUTANTS.install(root) != 0 {
        return FAILED;
    }
    let measured = drawn(root).and_then(|mutants| judge_all(root, &mutants, at_most));
    match measured {
        Ok(results) => {
            print(&summary(&results));
            0
        }
        Err(error) => failed(&error),
    }
}

fn judge_all(root: &Path, mutants: &[Mutant], at_most: usize) -> Result<Vec<Judged>, TaskError> {
    let folder = target_of(root).join("mutants");
    let digest = digest_of(root)?;
    let kept = folder.join(format!("results-{digest}.tsv"));
    let mut results: BTreeMap<String, Judged> = read(&kept);
    let mut left = at_most;
    // One build of many takes longer than a build of a few.
    const WORTH_ONE_BUILD: usize = 10;
    let missing = mutants.iter().filter(|mutant| !results.contains_key(&mutant.name)).count();
    let combined = match missing.min(at_most) >= WORTH_ONE_BUILD {
        true => Some(Combined::build(&SourceCopy::of(root, &folder.join("combined"))?, mutants)?),
        false => None,
    };
    for mutant in mutants {
        if left == 0 {
            break;
        }
        if results.contains_key(&mutant.name) {
            continue;
        }
        left -= 1;
        let judged = judge(root, &folder, mutant, combined.as_ref())?;
        log(&judged.line());
        results.insert(mutant.name.clone(), judged);
        let lines: Vec<String> = results.values().map(Judged::line).collect();
        fs::write(&kept, lines.join("\n") + "\n").map_err(|e| TaskError::with(&kept, e))?;
    }
    log(&format!("results are in {}", kept.display()));
    Ok(mutants.iter().filter_map(|mutant| results.get(&mutant.name).cloned()).collect())
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

/// Runs the judge of the simulation with a mutant, and builds it first if it is in no build yet.
fn judge(
    root: &Path,
    folder: &Path,
    mutant: &Mutant,
    combined: Option<&Combined>,
) -> Result<Judged, TaskError> {
    let started = Instant::now();
    let output = folder.join("output.txt");
    let within = combined.and_then(|it| Some((&it.program, *it.numbers.get(&mutant.name)?)));
    let is_broken = combined.is_some_and(|it| it.broken.contains(&mutant.name));
    let verdict = match within {
        _ if is_broken => Verdict::NotBuilt,
        Some((program, number)) => run_judge(program, Some(number), &output)?,
        None => judge_alone(root, folder, mutant, &output)?,
    };
    let seconds = started.elapsed().as_secs();
    Ok(Judged { name: mutant.name.clone(), verdict, seconds })
}

fn judge_alone(
    root: &Path,
    folder: &Path,
    mutant: &Mutant,
    output: &Path,
) -> Result<Verdict, TaskError> {
    let copy = SourceCopy::of(root, folder)?;
    let patch: PathBuf = folder.join("mutant.patch");
    fs::write(&patch, &mutant.diff).map_err(|error| TaskError::with(&patch, error))?;
    copy.apply(&patch)?;
    match copy.build_quietly(&BUILD) {
        Err(_) => Ok(Verdict::NotBuilt),
        Ok(()) => run_judge(&copy.program("sim-mutants"), None, output),
    }
}

/// Runs the judge, with the mutant of this number if the program contains several.
fn run_judge(program: &Path, number: Option<u32>, output: &Path) -> Result<Verdict, TaskError> {
    let with = |error| TaskError::with(output, error);
    let file = fs::File::create(output).map_err(with)?;
    let errors = file.try_clone().map_err(with)?;
    let seconds = TIME_LIMIT.as_secs().to_string();
    let mut command = Command::new("timeout");
    command.arg(&seconds).arg("prlimit").arg(format!("--cpu={CPU_SECONDS}"));
    command.arg(program).arg("--judge").stdout(file).stderr(errors);
    if let Some(number) = number {
        command.env(VARIABLE, number.to_string());
    }
    let status = child::run(&mut command).map_err(with)?;
    let text = fs::read_to_string(output).map_err(with)?;
    let found = text.lines().find_map(|line| line.strip_prefix("found by "));
    Ok(match (status.code(), found) {
        (Some(0), _) => Verdict::Survived,
        (_, Some(found)) => Verdict::Found(found.to_owned()),
        (Some(TIMED_OUT) | None, None) => Verdict::Found("time limit".to_owned()),
        _ => Verdict::Found("crash of the simulation".to_owned()),
    })
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
