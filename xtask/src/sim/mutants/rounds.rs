//! The rounds of the judgement, and how a mutant is judged by one of them.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::combined::VARIABLE;
use super::judged::{Judged, Verdict};
use crate::child;
use crate::error::TaskError;

/// The exit code of `timeout`. A program that is killed at the limit of processor time has none, and
/// `timeout` ends by the same signal.
const TIMED_OUT: i32 = 124;

/// A program that contains a mutant.
#[derive(Debug, Clone)]
pub(super) struct Build {
    pub(super) program: PathBuf,
    /// The number that chooses the mutant, if the program contains several.
    pub(super) number: Option<u32>,
    /// The file with the last output of the program with this mutant.
    pub(super) output: PathBuf,
}

/// A part of the simulation that judges mutants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// The fixed seeds from this one on, up to another.
    Seeds(u64, u64),
    Sweep,
    BriefScenes,
}

/// Most mutants are found by the first seeds. The last round ends with the seeds that
/// CONTRIBUTING.md asks to play before a review.
const ROUNDS: [Round; 6] = [
    Round::Seeds(0, 50),
    Round::Seeds(50, 300),
    Round::Seeds(300, 900),
    Round::Sweep,
    Round::BriefScenes,
    Round::Seeds(900, 2_000),
];

impl Round {
    /// The rounds up to the first that needs more than these seeds.
    pub(super) fn all(most_seeds: u64) -> Vec<Round> {
        let needs_more = |round: &Round| matches!(round, Round::Seeds(_, to) if *to > most_seeds);
        ROUNDS.into_iter().take_while(|round| !needs_more(round)).collect()
    }

    /// What judges in this round.
    pub(super) fn words(self) -> String {
        match self {
            Round::Seeds(from, to) => format!("the seeds from {from} to {}", to - 1),
            Round::Sweep => "the sweep".to_owned(),
            Round::BriefScenes => "the brief scenes".to_owned(),
        }
    }

    fn args(self) -> Vec<String> {
        match self {
            Round::Seeds(from, to) => {
                let (from, count) = (from.to_string(), (to - from).to_string());
                vec!["--from".to_owned(), from, "--seeds".to_owned(), count]
            }
            Round::Sweep => vec!["--sweep".to_owned()],
            Round::BriefScenes => vec!["--brief".to_owned()],
        }
    }

    /// A mutant that takes more seconds of processor time is endless: many times what a sound
    /// program takes.
    fn cpu_seconds(self) -> u64 {
        match self {
            Round::Seeds(from, to) => 30 + (to - from) / 5,
            Round::Sweep | Round::BriefScenes => 300,
        }
    }

    /// Judges a mutant that has survived all rounds before the one with this number.
    pub(super) fn judge(
        self,
        build: &Build,
        name: &str,
        number: usize,
    ) -> Result<Judged, TaskError> {
        let started = Instant::now();
        let (status, text) = self.run(build)?;
        let found = text.lines().find_map(|line| line.strip_prefix("found by "));
        let verdict = match (status.code(), found) {
            (Some(0), _) => Verdict::Survived(number),
            (_, Some(found)) => Verdict::Found(found.to_owned()),
            (Some(TIMED_OUT) | None, None) => {
                Verdict::Found(format!("time limit of {}", self.words()))
            }
            _ => Verdict::Found(format!("crash of the simulation in {}", self.words())),
        };
        Ok(Judged { name: name.to_owned(), verdict, seconds: started.elapsed().as_secs() })
    }

    /// Runs the program. Returns how it ended, and its output.
    fn run(self, build: &Build) -> Result<(ExitStatus, String), TaskError> {
        let with = |error| TaskError::with(&build.output, error);
        let file = fs::File::create(&build.output).map_err(with)?;
        let errors = file.try_clone().map_err(with)?;
        let limit = self.cpu_seconds();
        // A program that waits forever takes no processor time.
        let mut command = Command::new("timeout");
        command.arg((10 * limit).to_string()).arg("prlimit").arg(format!("--cpu={limit}"));
        command.arg(&build.program).arg("--judge").args(self.args()).stdout(file).stderr(errors);
        if let Some(number) = build.number {
            command.env(VARIABLE, number.to_string());
        }
        let status = child::run(&mut command).map_err(with)?;
        Ok((status, fs::read_to_string(&build.output).map_err(with)?))
    }
}

/// Does the work for each item, on all processors. Returns the first error, after which no further
/// work begins.
pub(super) fn on_all_processors<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<(), TaskError> + Sync,
) -> Result<(), TaskError> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let is_failed = || failure.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed))
                    && !is_failed()
                {
                    if let Err(error) = work(item) {
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_of_seeds_continues_where_the_one_before_it_ended() {
        let mut next = 0;
        for round in ROUNDS {
            if let Round::Seeds(from, to) = round {
                assert_eq!(from, next);
                assert!(to - from >= from, "{round:?} is shorter than the rounds before it");
                next = to;
            }
        }
        assert_eq!(Round::all(u64::MAX), ROUNDS);
        assert_eq!(Round::all(300), [Round::Seeds(0, 50), Round::Seeds(50, 300)]);
        assert_eq!(Round::Seeds(50, 300).args(), ["--from", "50", "--seeds", "250"]);
    }

    #[test]
    fn work_is_done_for_each_item_until_it_fails() {
        let done = AtomicUsize::new(0);
        let items: Vec<usize> = (0..20).collect();
        let count = |_: &usize| {
            done.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        on_all_processors(&items, count).unwrap();
        assert_eq!(done.into_inner(), 20);
        let fails = |item: &usize| match item {
            3 => Err(TaskError::new("no", "never")),
            _ => Ok(()),
        };
        assert!(on_all_processors(&items, fails).is_err());
    }
}
