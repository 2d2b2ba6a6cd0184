//! Planted bugs: patches of the sources that the simulation must find.

use std::path::{Path, PathBuf};

use crate::error::TaskError;

/// The folder of the patches, relative to the root of the workspace.
const DIRECTORY: &str = "crates/sim/planted_bugs";

/// A bug, and how many seeds may be needed to find it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlantedBug {
    pub(super) name: String,
    /// The seeds within which it must be found; 0 if only the exhaustive search finds it.
    pub(super) seeds: u64,
    /// A description of the bug in one sentence.
    pub(super) words: String,
    pub(super) patch: PathBuf,
}

impl PlantedBug {
    /// Returns all planted bugs, sorted by name. Fails if a patch cannot be read.
    pub(super) fn all(root: &Path) -> Result<Vec<PlantedBug>, TaskError> {
        let directory = root.join(DIRECTORY);
        let with = |error| TaskError::with(Path::new(DIRECTORY), error);
        let mut bugs = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(with)? {
            let path = entry.map_err(with)?.path();
            let text = std::fs::read_to_string(&path).map_err(with)?;
            bugs.push(PlantedBug::read(&path, &text)?);
        }
        bugs.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(bugs)
    }

    fn read(path: &Path, text: &str) -> Result<PlantedBug, TaskError> {
        let mut lines = text.lines();
        let seeds = lines.next().and_then(|line| line.strip_prefix("# seeds: ")?.parse().ok());
        let words = lines.next().and_then(|line| line.strip_prefix("# "));
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        let (Some(seeds), Some(words), Some(name)) = (seeds, words, name) else {
            return Err(TaskError::new(
                format!("not a planted bug: {}", path.display()),
                "its first two lines are \"# seeds: N\" and \"# \" with a description",
            ));
        };
        Ok(PlantedBug { name, seeds, words: words.to_owned(), patch: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::source_copy::applies;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn every_planted_bug_applies_to_the_present_sources_and_changes_only_the_program() {
        const SOURCES: [&str; 4] =
            ["crates/core/src/", "crates/agent/src/", "crates/github/src/", "crates/local/src/"];
        let bugs = PlantedBug::all(&root()).unwrap();
        assert!(bugs.len() >= 16, "{}", bugs.len());
        for bug in bugs {
            let is_stated = bug.seeds == 0 || bug.seeds >= 50;
            assert!(is_stated && bug.words.ends_with('.'), "{bug:?}");
            let patch = std::fs::read_to_string(&bug.patch).unwrap();
            let changed: Vec<&str> =
                patch.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect();
            assert!(!changed.is_empty(), "{bug:?}");
            for file in changed {
                let is_source = SOURCES.iter().any(|source| file.starts_with(source));
                assert!(is_source && !file.contains("testkit"), "{file} in {}", bug.name);
            }
            let refused = applies(&root(), &bug.patch);
            assert_eq!(refused, Ok(()), "{} must be updated", bug.name);
        }
    }

    #[test]
    fn a_planted_bug_states_its_seeds_and_a_description() {
        let read = |text: &str| PlantedBug::read(Path::new("planted_bugs/no-guard.patch"), text);
        let bug = read("# seeds: 70\n# A claim without its guard.\n--- a/x\n").unwrap();
        assert_eq!((bug.name.as_str(), bug.seeds), ("no-guard", 70));
        assert_eq!(bug.words, "A claim without its guard.");
        for text in ["", "# seeds: 70\n", "# seeds: many\n# A claim.\n", "# A claim.\n# seeds: 7\n"]
        {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
