//! The hooks that the runner calls before and after each job, and the notes that they write.
//!
//! The scripts belong to the agent, and jobs cannot change them. Hooks run as the same user as jobs,
//! so any job can write to the notes: they are used for the account of a run and for no decision.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use ondeck_core::model::excerpt::one_line;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::timestamp::Timestamp;
use tokio::process::Command;

use super::layout::{Layout, write_file};

/// For each hook: the variable that tells the runner about it, our name for it, and its script.
const HOOKS: [(&str, &str, &str); 2] = [
    ("ACTIONS_RUNNER_HOOK_JOB_STARTED", "started", include_str!("hooks/started.sh")),
    ("ACTIONS_RUNNER_HOOK_JOB_COMPLETED", "completed", include_str!("hooks/completed.sh")),
];

/// Runs the operator's hook. Both of our hooks end with it.
const OPERATOR: &str = include_str!("hooks/operator.sh");

/// The file that says why the machine takes no further job.
const END: &str = "end";

/// The file that names the run whose jobs are let in.
const OWNER: &str = "run";

/// How many bytes of the notes are read.
const LONGEST: u64 = 1024 * 1024;

/// Writes the hooks, which compare the run of each job with this one. Without a run, jobs wait until
/// [`name_owner`] names one.
/// `root` has the runner's software. `operator_env` is the operator's `.env` of the runner. Hooks that
/// it names are called by ours.
pub(crate) fn write(
    layout: &Layout,
    run: Option<&RunId>,
    root: &Path,
    operator_env: &str,
) -> Result<(), String> {
    let software = format!("{}\n", root.display());
    write_file(&layout.hooks.join("software"), software.as_bytes(), 0o644, None)?;
    write_file(&layout.hooks.join("operator.sh"), OPERATOR.as_bytes(), 0o644, None)?;
    match run {
        Some(run) => name_owner(layout, run)?,
        None => withdraw_owner(layout)?,
    }
    for (variable, name, script) in HOOKS {
        write_file(&layout.hooks.join(format!("{name}.sh")), script.as_bytes(), 0o755, None)?;
        let operator_hook = layout.hooks.join(format!("operator-{name}"));
        let path = hook_named(operator_env, variable)
            .or_else(|| std::env::var(variable).ok().filter(|path| !path.is_empty()));
        match path {
            Some(path) => write_file(&operator_hook, format!("{path}\n").as_bytes(), 0o644, None)?,
            None => ondeck_processes::folder::remove_file(&operator_hook)
                .map_err(|e| format!("cannot remove {}: {e}", operator_hook.display()))?,
        }
    }
    Ok(())
}

/// Lets in jobs of this run, and refuses others. A hook reads the whole line or none.
pub(crate) fn name_owner(layout: &Layout, run: &RunId) -> Result<(), String> {
    let (new, path) = (layout.hooks.join("run.new"), layout.hooks.join(OWNER));
    write_file(&new, format!("{run}\n").as_bytes(), 0o644, None)?;
    std::fs::rename(&new, &path).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Lets in no further job.
pub(crate) fn withdraw_owner(layout: &Layout) -> Result<(), String> {
    let path = layout.hooks.join(OWNER);
    let failed = |e| format!("cannot remove {}: {e}", path.display());
    ondeck_processes::folder::remove_file(&path).map_err(failed)
}

/// Makes the hooks say in each job's log that the machine takes no further job, and why.
pub(crate) fn announce_end(layout: &Layout, why: &str) -> Result<(), String> {
    let path = layout.hooks.join(END);
    if path.exists() {
        return Ok(());
    }
    write_file(&path, format!("{}\n", one_line(&why)).as_bytes(), 0o644, None)
}

/// Takes back what [`announce_end`] said.
pub(crate) fn withdraw_end(layout: &Layout) -> Result<(), String> {
    let path = layout.hooks.join(END);
    let failed = |e| format!("cannot remove {}: {e}", path.display());
    ondeck_processes::folder::remove_file(&path).map_err(failed)
}

/// Sets the variables that make a listener call the hooks.
pub(crate) fn set_variables(command: &mut Command, layout: &Layout) {
    for (variable, name, _) in HOOKS {
        command.env(variable, layout.hooks.join(format!("{name}.sh")));
    }
}

/// The operator's `.env` without the lines that name hooks. The runner would prefer these lines to the
/// variables that it is started with.
pub(crate) fn without_hooks(operator_env: &str) -> String {
    let names_no_hook =
        |line: &&str| !HOOKS.iter().any(|(variable, ..)| value(line, variable).is_some());
    operator_env.lines().filter(names_no_hook).map(|line| format!("{line}\n")).collect()
}

fn hook_named(operator_env: &str, variable: &str) -> Option<String> {
    let found = operator_env.lines().rev().find_map(|line| value(line, variable));
    found.filter(|path| !path.is_empty()).map(str::to_owned)
}

fn value<'a>(line: &'a str, variable: &str) -> Option<&'a str> {
    line.strip_prefix(variable)?.strip_prefix('=')
}

/// Returns how many jobs a run had and how long they took, for people. A job that has not ended counts
/// until `now`. Empty if there was no job. A failure to read the notes is logged.
pub(crate) fn account(layout: &Layout, now: Timestamp) -> String {
    let mut notes = Vec::new();
    let read = File::open(&layout.notes).and_then(|it| it.take(LONGEST).read_to_end(&mut notes));
    if let Err(error) = read {
        tracing::warn!("cannot count the jobs of this run: {error}");
    }
    count_jobs(&String::from_utf8_lossy(&notes), now).to_string()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct JobStatistics {
    jobs: u32,
    refused: u32,
    busy: Duration,
}

fn count_jobs(notes: &str, now: Timestamp) -> JobStatistics {
    let mut statistics = JobStatistics::default();
    let mut open: Option<Timestamp> = None;
    for line in notes.lines() {
        let mut words = line.split(' ');
        let (what, at) = (words.next(), words.next().and_then(|it| it.parse().ok()));
        let Some(at) = at.map(Timestamp::from_millis) else { continue };
        match what {
            Some("started") => {
                statistics.jobs += 1;
                statistics.busy += open.replace(at).map_or(Duration::ZERO, |since| at.since(since));
            }
            Some("completed") => {
                statistics.busy += open.take().map_or(Duration::ZERO, |since| at.since(since));
            }
            Some("refused") => statistics.refused += 1,
            _ => {}
        }
    }
    statistics.busy += open.map_or(Duration::ZERO, |since| now.since(since));
    statistics
}

impl std::fmt::Display for JobStatistics {
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
                count_jobs(notes, Timestamp::from_millis(10_000)).to_string(),
                account,
                "{notes}"
            );
        }
    }

    /// Runs the hook of a job of run 7 on a machine without an owner. Time is a file of tenths of a second,
    /// which moves on when the hook sleeps. Returns how long it has waited, and what it said.
    fn refused_after(owner: &str) -> (Duration, String) {
        use std::os::unix::fs::PermissionsExt;

        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        for folder in ["hooks", "notes", "bin"] {
            std::fs::create_dir(path(folder)).unwrap();
        }
        std::fs::write(path("tenths"), "0").unwrap();
        std::fs::write(path("hooks").join(OWNER), owner).unwrap();
        std::fs::write(path("hooks/started.sh"), HOOKS[0].2).unwrap();
        let tenths = path("tenths").display().to_string();
        let date = format!("read -r now <{tenths} || :; echo $((now / 10))");
        let sleep = format!("read -r now <{tenths} || :; echo $((now + 1)) >{tenths}");
        for (name, script) in [("date", date), ("sleep", sleep)] {
            let program = path("bin").join(name);
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut hook = std::process::Command::new("/bin/sh");
        hook.arg(path("hooks/started.sh")).env("PATH", path("bin")).env("GITHUB_RUN_ID", "7");
        let done = hook.output().unwrap();
        assert_eq!(done.status.code(), Some(1), "{done:?}");
        let waited = std::fs::read_to_string(path("tenths")).unwrap();
        let waited = Duration::from_millis(waited.trim().parse::<u64>().unwrap() * 100);
        (waited, String::from_utf8(done.stdout).unwrap())
    }

    #[test]
    fn a_job_waits_ten_seconds_at_most_for_the_owner() {
        // Without a line break, the name of the run may not be complete.
        for owner in ["", "7"] {
            let (waited, said) = refused_after(owner);
            assert!((9..=10).contains(&waited.as_secs()), "{waited:?}");
            assert!(said.contains("was given to no run yet and takes no job: 7"), "{said}");
        }
        let (waited, said) = refused_after("77\n");
        assert_eq!(waited, Duration::ZERO, "there is nothing to wait for");
        assert!(said.contains("was given to run 77 and takes no job of another: 7"), "{said}");
    }

    #[test]
    fn the_operators_hooks_are_found_and_left_out() {
        let theirs = "A=1\nACTIONS_RUNNER_HOOK_JOB_STARTED=/opt/old.sh\n\
                      ACTIONS_RUNNER_HOOK_JOB_STARTED=/opt/new.sh\n\
                      ACTIONS_RUNNER_HOOK_JOB_COMPLETED=\nB=2";
        assert_eq!(hook_named(theirs, HOOKS[0].0).as_deref(), Some("/opt/new.sh"));
        assert_eq!(hook_named(theirs, HOOKS[1].0), None);
        assert_eq!(without_hooks(theirs), "A=1\nB=2\n");
    }
}
