//! The simulation, and the bugs that it must find.

mod plant;
mod tree;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use plant::Plant;
use tree::Tree;

use crate::console::{log, print};
use crate::error::TaskError;
use crate::step::{cargo, exit_code_of};
use crate::{INVALID_INPUT, child};

/// Something is not as it should be.
const FAILED: u8 = 1;

/// What is built, and how.
const BUILD: [&str; 5] = ["build", "--profile", "sim", "--package", "ondeck-sim"];

/// Builds the simulation as it is and runs it. Gives its exit code.
pub(crate) fn run(root: &Path, args: &[String]) -> u8 {
    let target = target_of(root);
    let built = exit_code_of(child::run(cargo(root).args(BUILD)), "cargo");
    if built != 0 {
        return built;
    }
    let program = program_in(&target);
    exit_code_of(child::run(Command::new(&program).args(args)), "the simulation")
}

/// Looks for one planted bug, and shows the history that it spoils.
pub(crate) fn find(root: &Path, name: &str) -> u8 {
    let plants = match Plant::all(root) {
        Ok(plants) => plants,
        Err(error) => return told(&error),
    };
    let Some(plant) = plants.iter().find(|plant| plant.name == name) else {
        let names: Vec<&str> = plants.iter().map(|plant| plant.name.as_str()).collect();
        log(&format!("error: unknown plant: {name}"));
        log(&format!("hint: plants are {}", names.join(", ")));
        return INVALID_INPUT;
    };
    match search(root, plant) {
        Ok(row) => {
            print(&row.history);
            print(&format!("{}\n", row.verdict()));
            row.exit_code()
        }
        Err(error) => told(&error),
    }
}

/// Looks for every planted bug, one after the other.
pub(crate) fn find_all(root: &Path) -> u8 {
    let plants = match Plant::all(root) {
        Ok(plants) => plants,
        Err(error) => return told(&error),
    };
    let mut rows = Vec::new();
    let mut exit_code = 0;
    for plant in &plants {
        match search(root, plant) {
            Ok(row) => {
                log(&row.verdict());
                exit_code = exit_code.max(row.exit_code());
                rows.push(row);
            }
            // A bug that was not looked for must not look like one that was found.
            Err(error) => exit_code = exit_code.max(told(&error)),
        }
    }
    print(&table(&rows));
    exit_code
}

fn told(error: &TaskError) -> u8 {
    error.report();
    FAILED
}

/// What came of the search for one plant.
#[derive(Debug, Default)]
struct Row {
    name: String,
    seeds: u64,
    /// The first seed that breaks a promise, and which.
    found: Option<(u64, String)>,
    /// The first scene of the exhaustive check in which it shows.
    scene: Option<String>,
    seconds: u64,
    history: String,
}

impl Row {
    fn verdict(&self) -> String {
        let Row { name, seeds, .. } = self;
        match (&self.found, &self.scene) {
            (Some((seed, promise)), None) => {
                format!("{name}: found at seed {seed}, by: {promise}")
            }
            (Some((seed, promise)), Some(scene)) => {
                format!("{name}: found at seed {seed}, by: {promise}; and in scene {scene}")
            }
            (None, Some(scene)) if *seeds == 0 => format!("{name}: found in scene {scene}"),
            (None, _) => format!("{name}: not found within {seeds} seeds"),
        }
    }

    /// What states no seeds is for the exhaustive check to find.
    fn exit_code(&self) -> u8 {
        let found = self.found.is_some() || self.seeds == 0 && self.scene.is_some();
        if found { 0 } else { FAILED }
    }
}

fn search(root: &Path, plant: &Plant) -> Result<Row, TaskError> {
    let started = Instant::now();
    log(&format!("\n--> {}: {}", plant.name, plant.words));
    let target = target_of(root);
    let tree = Tree::of(root, &target.join("planted"))?;
    tree.plant(&plant.patch)?;
    let program = tree.build(&BUILD)?;
    let mut row = Row { name: plant.name.clone(), seeds: plant.seeds, ..Row::default() };
    for (from, count) in stretches(plant.seeds) {
        let asked =
            ["--from".to_owned(), from.to_string(), "--seeds".to_owned(), count.to_string()];
        let (sound, output) = tree.play(&program, &asked)?;
        if !sound {
            (row.found, row.history) = broken_in(&output);
            break;
        }
    }
    let (sound, output) = tree.play(&program, &["--brief".to_owned()])?;
    if !sound {
        row.scene = scene_in(&output);
        if plant.seeds == 0 {
            row.history = output;
        }
    }
    row.seconds = started.elapsed().as_secs();
    Ok(row)
}

/// All seeds, in stretches that grow: most plants are found by the first few.
fn stretches(seeds: u64) -> impl Iterator<Item = (u64, u64)> {
    const FIRST: u64 = 25;
    let mut from = 0;
    std::iter::from_fn(move || {
        let count = from.max(FIRST).min(seeds - from);
        let stretch = (from, count);
        from += count;
        (count > 0).then_some(stretch)
    })
}

/// The first seed and its promise, and the history, in what the simulation has said.
fn broken_in(output: &str) -> (Option<(u64, String)>, String) {
    const WORDS: &str = " breaks a promise: ";
    let lines = output.lines();
    // How to replay it is said for the program without the plant.
    let lines = lines.filter(|line| !line.starts_with("replay it with: "));
    let history: Vec<&str> = lines.skip_while(|line| !line.contains(WORDS)).collect();
    let found = history.first().and_then(|line| {
        let (seed, how) = line.strip_prefix("seed ")?.split_once(WORDS)?;
        let promise = how.split_once(": ").map_or(how, |(promise, _)| promise);
        Some((seed.parse().ok()?, promise.to_owned()))
    });
    (found, history.iter().flat_map(|line| [line, "\n"]).collect())
}

/// The first scene in which a promise was broken.
fn scene_in(output: &str) -> Option<String> {
    const WORDS: &str = "--exhaustive --scene ";
    output.split_once(WORDS).and_then(|(_, rest)| rest.lines().next()).map(str::to_owned)
}

/// As the documentation has it.
fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| plant | seeds | found at | promise | exhaustive | seconds |\n\
         | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let (seed, promise) = match &row.found {
            Some((seed, promise)) => (seed.to_string(), promise.as_str()),
            None => ("not found".to_owned(), ""),
        };
        let Row { name, seeds, seconds, .. } = row;
        let scene = row.scene.as_deref().unwrap_or("not found");
        let line = format!("| {name} | {seeds} | {seed} | {promise} | {scene} | {seconds} |\n");
        text.push_str(&line);
    }
    text
}

/// Where cargo builds.
fn target_of(root: &Path) -> PathBuf {
    // Joining keeps an absolute path as it is.
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn program_in(target: &Path) -> PathBuf {
    target.join("sim").join("ondeck-sim")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_is_in_one_stretch() {
        let all = |seeds| stretches(seeds).collect::<Vec<_>>();
        assert_eq!(all(20), [(0, 20)]);
        assert_eq!(all(25), [(0, 25)]);
        assert_eq!(all(150), [(0, 25), (25, 25), (50, 50), (100, 50)]);
        assert_eq!(stretches(3000).map(|(_, count)| count).sum::<u64>(), 3000);
    }

    #[test]
    fn the_broken_promise_is_read_from_what_the_simulation_says() {
        let output = "  broken promises  2\n\nseed 7 breaks a promise: store first: i-1 was ended\n\
                      shrunk in 3 histories to:\nreplay it with: cargo xtask sim --seed 7\nseed 9 breaks one too: one owner: i-2\n";
        let (found, history) = broken_in(output);
        assert_eq!(found, Some((7, "store first".to_owned())));
        assert!(history.starts_with("seed 7 "), "{history}");
        assert!(history.ends_with("to:\nseed 9 breaks one too: one owner: i-2\n"), "{history}");
        assert_eq!(broken_in("  broken promises  0\n"), (None, String::new()));
    }

    #[test]
    fn the_table_has_a_row_for_each_plant_and_a_column_for_what_was_explored() {
        let found = Row {
            name: "a".to_owned(),
            seeds: 50,
            found: Some((7, "store first".to_owned())),
            seconds: 3,
            ..Row::default()
        };
        let lost = Row { name: "b".to_owned(), seeds: 60, ..Row::default() };
        assert_eq!((found.exit_code(), lost.exit_code()), (0, FAILED));
        assert_eq!(
            table(&[found, lost]),
            "| plant | seeds | found at | promise | exhaustive | seconds |\n\
             | --- | --- | --- | --- | --- | --- |\n\
             | a | 50 | 7 | store first | not found | 3 |\n\
             | b | 60 | not found |  | not found | 0 |\n"
        );
    }

    #[test]
    fn what_states_no_seeds_is_for_the_exhaustive_check() {
        let output =
            "=> one owner: i-1\nreplay it with: cargo xtask sim --exhaustive --scene race\n";
        let row = Row { name: "c".to_owned(), scene: scene_in(output), ..Row::default() };
        assert_eq!((row.exit_code(), row.verdict().as_str()), (0, "c: found in scene race"));
        assert_eq!(Row { scene: None, ..row }.exit_code(), FAILED);
        assert_eq!(scene_in("all is well"), None);
    }
}
