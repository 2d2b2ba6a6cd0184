//! What the runner calls before and after each job, and what that has noted.
//!
//! The scripts are the agent's and jobs cannot change them. The notes can be written by any job,
//! since hooks run as the same user: they are read for the account of a run, and for nothing else.

use std::fs::File;
use std::io::Read;
use std::time::Duration;

use ondeck_core::model::ids::RunId;
use ondeck_core::model::timestamp::Timestamp;
use tokio::process::Command;

use super::layout::{Layout, put};

/// The variables that name the hooks, what we call them, and the scripts.
const HOOKS: [(&str, &str, &str); 2] = [
    ("ACTIONS_RUNNER_HOOK_JOB_STARTED", "started", include_str!("hooks/started.sh")),
    ("ACTIONS_RUNNER_HOOK_JOB_COMPLETED", "completed", include_str!("hooks/completed.sh")),
];

/// How much of the notes is read.
const LONGEST: u64 = 1024 * 1024;

/// Writes the hooks for a run. `operators` are the lines of the operator's own environment for
/// the runner, which may name hooks as well: those are called by ours.
pub(crate) fn write(layout: &Layout, run: &RunId, operators: &str) -> Result<(), String> {
    put(&layout.hooks.join("run"), format!("{run}\n").as_bytes(), 0o644, None)?;
    for (variable, name, script) in HOOKS {
        put(&layout.hooks.join(format!("{name}.sh")), script.as_bytes(), 0o755, None)?;
        let theirs = layout.hooks.join(format!("operator-{name}"));
        let path = named(operators, variable)
            .or_else(|| std::env::var(variable).ok().filter(|path| !path.is_empty()));
        match path {
            Some(path) => put(&theirs, format!("{path}\n").as_bytes(), 0o644, None)?,
            None => ondeck_processes::folder::remove_file(&theirs)
                .map_err(|e| format!("cannot remove {}: {e}", theirs.display()))?,
        }
    }
    Ok(())
}

/// Tells a listener of them.
pub(crate) fn announce(command: &mut Command, layout: &Layout) {
    for (variable, name, _) in HOOKS {
        command.env(variable, layout.hooks.join(format!("{name}.sh")));
    }
}

/// The operator's environment without what names hooks, because the runner would prefer these
/// lines to what it is started with.
pub(crate) fn without_hooks(operators: &str) -> String {
    let ours = |line: &&str| !HOOKS.iter().any(|(variable, ..)| value(line, variable).is_some());
    operators.lines().filter(ours).map(|line| format!("{line}\n")).collect()
}

fn named(operators: &str, variable: &str) -> Option<String> {
    let found = operators.lines().rev().find_map(|line| value(line, variable));
    found.filter(|path| !path.is_empty()).map(str::to_owned)
}

fn value<'a>(line: &'a str, variable: &str) -> Option<&'a str> {
    line.strip_prefix(variable)?.strip_prefix('=')
}

/// What was done for a run: jobs and the time that they took, one that has not ended counting
/// until now. Empty if there was none.
pub(crate) fn account(layout: &Layout, now: Timestamp) -> String {
    let mut notes = Vec::new();
    let read = File::open(&layout.notes).and_then(|it| it.take(LONGEST).read_to_end(&mut notes));
    if let Err(error) = read {
        tracing::warn!("the jobs of this run cannot be counted: {error}");
    }
    tally(&String::from_utf8_lossy(&notes), now).to_string()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    jobs: u32,
    refused: u32,
    busy: Duration,
}

fn tally(notes: &str, now: Timestamp) -> Tally {
    let mut tally = Tally::default();
    let mut open: Option<Timestamp> = None;
    for line in notes.lines() {
        let mut words = line.split(' ');
        let (what, at) = (words.next(), words.next().and_then(|it| it.parse().ok()));
        let Some(at) = at.map(Timestamp::from_millis) else { continue };
        match what {
            Some("started") => {
                tally.jobs += 1;
                tally.busy += open.replace(at).map_or(Duration::ZERO, |since| at.since(since));
            }
            Some("completed") => {
                tally.busy += open.take().map_or(Duration::ZERO, |since| at.since(since));
            }
            Some("refused") => tally.refused += 1,
            _ => {}
        }
    }
    tally.busy += open.map_or(Duration::ZERO, |since| now.since(since));
    tally
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.jobs > 0 {
            let plural = if self.jobs == 1 { "job" } else { "jobs" };
            write!(f, "{} {plural}, {:.1} s busy", self.jobs, self.busy.as_secs_f64())?;
        }
        match (self.jobs, self.refused) {
            (_, 0) => Ok(()),
            (0, refused) => write!(f, "{refused} refused"),
            (_, refused) => write!(f, ", {refused} refused"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_become_an_account() {
        for (notes, account) in [
            ("", ""),
            ("rubbish\nstarted soon\n\n", ""),
            ("started 1000 7 1 build\ncompleted 5250 7 1 build\n", "1 job, 4.2 s busy"),
            (
                "started 1000 7 1 a\ncompleted 2000 7 1 a\nstarted 3000 7 1 b\n",
                "2 jobs, 8.0 s busy",
            ),
            ("started 1000 7 1 a\nstarted 2000 7 1 b\ncompleted 3000 7 1 b", "2 jobs, 2.0 s busy"),
            ("refused 1000 8 1 a\ncompleted 2000 8 1 a\n", "1 refused"),
            (
                "refused 9 8 1 a\nstarted 1000 7 1 a\ncompleted 2000 7 1 a",
                "1 job, 1.0 s busy, 1 refused",
            ),
            ("started 99999 7 1 a\n", "1 job, 0.0 s busy"),
        ] {
            assert_eq!(
                tally(notes, Timestamp::from_millis(10_000)).to_string(),
                account,
                "{notes}"
            );
        }
    }

    #[test]
    fn the_operators_hooks_are_found_and_left_out() {
        let theirs = "A=1\nACTIONS_RUNNER_HOOK_JOB_STARTED=/opt/old.sh\n\
                      ACTIONS_RUNNER_HOOK_JOB_STARTED=/opt/new.sh\n\
                      ACTIONS_RUNNER_HOOK_JOB_COMPLETED=\nB=2";
        assert_eq!(named(theirs, HOOKS[0].0).as_deref(), Some("/opt/new.sh"));
        assert_eq!(named(theirs, HOOKS[1].0), None);
        assert_eq!(without_hooks(theirs), "A=1\nB=2\n");
    }
}
