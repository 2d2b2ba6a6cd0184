//! Bugs that are kept as patches.

use std::path::{Path, PathBuf};

use crate::error::TaskError;

/// Where they are, below the workspace's root.
const DIRECTORY: &str = "crates/sim/plants";

/// One bug.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plant {
    pub(super) name: String,
    /// Within how many seeds it must be found.
    pub(super) seeds: u64,
    /// What it is, in one sentence.
    pub(super) words: String,
    pub(super) patch: PathBuf,
}

impl Plant {
    /// All of them, by name.
    pub(super) fn all(root: &Path) -> Result<Vec<Plant>, TaskError> {
        let directory = root.join(DIRECTORY);
        let with = |error| TaskError::with(Path::new(DIRECTORY), error);
        let mut plants = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(with)? {
            let path = entry.map_err(with)?.path();
            let text = std::fs::read_to_string(&path).map_err(with)?;
            plants.push(Plant::read(&path, &text)?);
        }
        plants.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(plants)
    }

    fn read(path: &Path, text: &str) -> Result<Plant, TaskError> {
        let mut lines = text.lines();
        let seeds = lines.next().and_then(|line| line.strip_prefix("# seeds: ")?.parse().ok());
        let words = lines.next().and_then(|line| line.strip_prefix("# "));
        let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
        let (Some(seeds), Some(words), Some(name)) = (seeds, words, name) else {
            return Err(TaskError::new(
                format!("not a plant: {}", path.display()),
                "its first two lines are \"# seeds: N\" and \"# \" with what it is",
            ));
        };
        Ok(Plant { name, seeds, words: words.to_owned(), patch: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::tree::applies;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn every_plant_applies_to_the_present_sources_and_spoils_nothing_but_the_program() {
        const SOURCES: [&str; 4] =
            ["crates/core/src/", "crates/agent/src/", "crates/github/src/", "crates/local/src/"];
        let plants = Plant::all(&root()).unwrap();
        assert!(plants.len() >= 16, "{}", plants.len());
        for plant in plants {
            let is_stated = plant.seeds == 0 || plant.seeds >= 50;
            assert!(is_stated && plant.words.ends_with('.'), "{plant:?}");
            let patch = std::fs::read_to_string(&plant.patch).unwrap();
            let changed: Vec<&str> =
                patch.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect();
            assert!(!changed.is_empty(), "{plant:?}");
            for file in changed {
                let is_source = SOURCES.iter().any(|source| file.starts_with(source));
                assert!(is_source && !file.contains("testkit"), "{file} in {}", plant.name);
            }
            let refused = applies(&root(), &plant.patch);
            assert_eq!(refused, Ok(()), "{} must be made anew", plant.name);
        }
    }

    #[test]
    fn a_plant_says_what_it_is_and_within_how_many_seeds_it_is_found() {
        let read = |text: &str| Plant::read(Path::new("plants/no-guard.patch"), text);
        let plant = read("# seeds: 70\n# A claim without its guard.\n--- a/x\n").unwrap();
        assert_eq!((plant.name.as_str(), plant.seeds), ("no-guard", 70));
        assert_eq!(plant.words, "A claim without its guard.");
        for text in ["", "# seeds: 70\n", "# seeds: many\n# A claim.\n", "# A claim.\n# seeds: 7\n"]
        {
            assert!(read(text).is_err(), "{text:?}");
        }
    }
}
