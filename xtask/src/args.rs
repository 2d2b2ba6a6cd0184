//! What can be asked for.

use std::fmt;

pub(crate) const HELP: &str = "\
Set-up and checks of ondeck

Usage: cargo xtask <TASK>

Tasks:
  test [-- NEXTEST_ARGS]  the workspace's doctests, then every other test
  check [--fix]           formatting, lints, documentation, licences and bans;
                          --fix formats instead of complaining
  bench                   what provisioning costs on the local backend; takes a minute after the build
  advisories              known vulnerabilities (needs more network than the registries)
  help                    this text

Tools that are missing are built once into .tools, at pinned versions.
All steps of a task are run; the exit code is that of the first that failed.
";

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Help,
    Test { nextest_args: Vec<String> },
    Check { fix: bool },
    Bench,
    Advisories,
}

/// Why a command line cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InvalidArgs {
    NoTask,
    UnknownTask(String),
    Unexpected(String),
}

impl fmt::Display for InvalidArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidArgs::NoTask => write!(f, "no task given"),
            InvalidArgs::UnknownTask(name) => write!(f, "unknown task: {name}"),
            InvalidArgs::Unexpected(arg) => write!(f, "unexpected argument: {arg}"),
        }
    }
}

/// Reads a command line, without the program's own name.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Task, InvalidArgs> {
    let mut args = args.into_iter();
    let name = args.next().ok_or(InvalidArgs::NoTask)?;
    let task = match name.as_str() {
        "help" | "--help" | "-h" => Task::Help,
        "test" => match args.next() {
            None => Task::Test { nextest_args: Vec::new() },
            Some(dashes) if dashes == "--" => {
                return Ok(Task::Test { nextest_args: args.collect() });
            }
            Some(other) => return Err(InvalidArgs::Unexpected(other)),
        },
        "check" => match args.next() {
            None => Task::Check { fix: false },
            Some(flag) if flag == "--fix" => Task::Check { fix: true },
            Some(other) => return Err(InvalidArgs::Unexpected(other)),
        },
        "bench" => Task::Bench,
        "advisories" => Task::Advisories,
        _ => return Err(InvalidArgs::UnknownTask(name)),
    };
    match args.next() {
        None => Ok(task),
        Some(more) => Err(InvalidArgs::Unexpected(more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Task, InvalidArgs> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn tasks_are_read() {
        let test = |args: &[&str]| Task::Test {
            nextest_args: args.iter().map(ToString::to_string).collect(),
        };
        for (line, task) in [
            ("help", Task::Help),
            ("--help", Task::Help),
            ("-h", Task::Help),
            ("test", test(&[])),
            ("test --", test(&[])),
            ("test -- -E test(claim) -- --exact", test(&["-E", "test(claim)", "--", "--exact"])),
            ("check", Task::Check { fix: false }),
            ("check --fix", Task::Check { fix: true }),
            ("bench", Task::Bench),
            ("advisories", Task::Advisories),
        ] {
            assert_eq!(parsed(line), Ok(task), "{line}");
        }
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        let unexpected = |arg: &str| InvalidArgs::Unexpected(arg.into());
        for (line, error) in [
            ("", InvalidArgs::NoTask),
            ("tests", InvalidArgs::UnknownTask("tests".into())),
            ("test claim", unexpected("claim")),
            ("check --fx", unexpected("--fx")),
            ("check --fix now", unexpected("now")),
            ("bench 10", unexpected("10")),
            ("help me", unexpected("me")),
        ] {
            assert_eq!(parsed(line), Err(error), "{line}");
        }
    }

    #[test]
    fn help_names_every_task() {
        for name in ["test", "check", "bench", "advisories", "help"] {
            assert!(HELP.contains(&format!("\n  {name} ")), "{name}");
        }
    }
}
