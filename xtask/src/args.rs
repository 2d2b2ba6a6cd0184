//! The command line of `cargo xtask`.

use std::fmt;

use crate::fuzz;
use crate::release::{LINUX, Part};

pub(crate) const HELP: &str = include_str!("args/help.txt");

/// Where `vm` calls itself.
pub(crate) const INSIDE: &str = "--inside";

/// A task and its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Help,
    Test {
        nextest_args: Vec<String>,
    },
    Check {
        fix: bool,
    },
    Docs,
    Infra,
    Policies,
    Release {
        part: Part,
    },
    Emulators {
        command: Vec<String>,
    },
    Cloud {
        port: Option<u16>,
        github: bool,
    },
    /// `inside` the namespaces that the task itself makes.
    Vm {
        inside: bool,
    },
    Fuzz {
        target: Option<String>,
        seconds: u32,
    },
    Bench,
    BenchAws {
        rows: Vec<String>,
    },
    BenchClaims,
    BenchDashboard,
    BenchGitHub {
        rows: Vec<String>,
    },
    Sim {
        args: Vec<String>,
    },
    PlantedBug {
        name: String,
    },
    PlantedBugs,
    SimMutants {
        most_seeds: u64,
    },
    Mutants {
        mutants_args: Vec<String>,
    },
    Advisories,
}

/// Why a command line was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InvalidArgs {
    NoTask,
    UnknownTask(String),
    Unexpected(String),
    NotAPort(String),
    NoPlantedBug,
    NotSeconds(String),
    NotANumber(String),
    UnknownTarget(String),
    UnknownRelease(String),
    NoPart(String),
}

impl fmt::Display for InvalidArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidArgs::NoTask => write!(f, "no task given"),
            InvalidArgs::UnknownTask(name) => write!(f, "unknown task: {name}"),
            InvalidArgs::Unexpected(arg) => write!(f, "unexpected argument: {arg}"),
            InvalidArgs::NotAPort(value) => write!(f, "not a port: {value}"),
            InvalidArgs::NoPlantedBug => write!(f, "a name must follow: --planted-bug"),
            InvalidArgs::NotANumber(value) => write!(f, "not a number: {value}"),
            InvalidArgs::NotSeconds(value) => write!(f, "not a number of seconds: {value}"),
            InvalidArgs::UnknownTarget(name) => {
                write!(f, "none of {}: {name}", fuzz::TARGETS.join(", "))
            }
            InvalidArgs::UnknownRelease(name) => {
                write!(f, "none of {}: {name}", LINUX.join(", "))
            }
            InvalidArgs::NoPart(name) => {
                write!(f, "none of build, describe, --dry-run: {name}")
            }
        }
    }
}

/// Parses a command line that does not include the program's name.
pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Result<Task, InvalidArgs> {
    let mut args = args.into_iter();
    let name = args.next().ok_or(InvalidArgs::NoTask)?;
    let task = match name.as_str() {
        "help" | "--help" | "-h" => Task::Help,
        "test" => return Ok(Task::Test { nextest_args: behind_dashes(args)? }),
        "check" => match args.next() {
            None => Task::Check { fix: false },
            Some(flag) if flag == "--fix" => Task::Check { fix: true },
            Some(other) => return Err(InvalidArgs::Unexpected(other)),
        },
        "docs" => Task::Docs,
        "infra" => Task::Infra,
        "policies" => Task::Policies,
        "release" => return release(args),
        "emulators" => return Ok(Task::Emulators { command: behind_dashes(args)? }),
        "cloud" => return cloud(args),
        "vm" => match args.next() {
            None => Task::Vm { inside: false },
            Some(flag) if flag == INSIDE => Task::Vm { inside: true },
            Some(other) => return Err(InvalidArgs::Unexpected(other)),
        },
        "bench" => match args.next() {
            None => Task::Bench,
            Some(what) if what == "aws" => {
                return Ok(Task::BenchAws { rows: behind_dashes(args)? });
            }
            Some(what) if what == "github" => {
                return Ok(Task::BenchGitHub { rows: behind_dashes(args)? });
            }
            Some(what) if what == "claims" => Task::BenchClaims,
            Some(what) if what == "dashboard" => Task::BenchDashboard,
            Some(other) => return Err(InvalidArgs::Unexpected(other)),
        },
        "sim" => match args.next() {
            Some(flag) if flag == "--planted-bug" => {
                Task::PlantedBug { name: args.next().ok_or(InvalidArgs::NoPlantedBug)? }
            }
            Some(flag) if flag == "--planted-bugs" => Task::PlantedBugs,
            Some(flag) if flag == "--mutants" => {
                Task::SimMutants { most_seeds: most_seeds(args.next())? }
            }
            first => return Ok(Task::Sim { args: first.into_iter().chain(args).collect() }),
        },
        "fuzz" => return fuzzing(args),
        "mutants" => return Ok(Task::Mutants { mutants_args: behind_dashes(args)? }),
        "advisories" => Task::Advisories,
        _ => return Err(InvalidArgs::UnknownTask(name)),
    };
    match args.next() {
        None => Ok(task),
        Some(more) => Err(InvalidArgs::Unexpected(more)),
    }
}

/// How many seeds judge a mutant at most; all if no number is given.
fn most_seeds(value: Option<String>) -> Result<u64, InvalidArgs> {
    let Some(value) = value else { return Ok(u64::MAX) };
    value.parse().map_err(|_| InvalidArgs::NotANumber(value))
}

/// The arguments after `--`, which are passed on to another program.
fn behind_dashes(mut args: impl Iterator<Item = String>) -> Result<Vec<String>, InvalidArgs> {
    match args.next() {
        None => Ok(Vec::new()),
        Some(dashes) if dashes == "--" => Ok(args.collect()),
        Some(other) => Err(InvalidArgs::Unexpected(other)),
    }
}

fn cloud(mut args: impl Iterator<Item = String>) -> Result<Task, InvalidArgs> {
    let (mut number, mut github) = (None, false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--port" if number.is_none() => number = Some(port(args.next())?),
            "--github" if !github => github = true,
            _ => return Err(InvalidArgs::Unexpected(arg)),
        }
    }
    Ok(Task::Cloud { port: number, github })
}

/// What is published is made by the workflow alone, so the task has no form that publishes.
fn release(mut args: impl Iterator<Item = String>) -> Result<Task, InvalidArgs> {
    let part = match args.next().as_deref() {
        Some("build") => {
            let target = args.next().unwrap_or_default();
            if !LINUX.contains(&target.as_str()) {
                return Err(InvalidArgs::UnknownRelease(target));
            }
            Part::Build { target }
        }
        Some("describe") => Part::Describe,
        Some("--dry-run") => match args.next() {
            None => Part::DryRun { quick: false },
            Some(flag) if flag == "--quick" => Part::DryRun { quick: true },
            Some(other) => return Err(InvalidArgs::Unexpected(other)),
        },
        other => return Err(InvalidArgs::NoPart(other.unwrap_or_default().to_owned())),
    };
    match args.next() {
        None => Ok(Task::Release { part }),
        Some(more) => Err(InvalidArgs::Unexpected(more)),
    }
}

fn fuzzing(args: impl Iterator<Item = String>) -> Result<Task, InvalidArgs> {
    let (mut target, mut seconds) = (None, fuzz::SECONDS);
    let mut args = args;
    while let Some(arg) = args.next() {
        if arg == "--seconds" {
            let value = args.next().unwrap_or_default();
            seconds = value
                .parse()
                .ok()
                .filter(|seconds| *seconds > 0)
                .ok_or(InvalidArgs::NotSeconds(value))?;
        } else if arg.starts_with('-') || target.is_some() {
            return Err(InvalidArgs::Unexpected(arg));
        } else if fuzz::TARGETS.contains(&arg.as_str()) {
            target = Some(arg);
        } else {
            return Err(InvalidArgs::UnknownTarget(arg));
        }
    }
    Ok(Task::Fuzz { target, seconds })
}

fn port(value: Option<String>) -> Result<u16, InvalidArgs> {
    let value = value.unwrap_or_default();
    value.parse().map_err(|_| InvalidArgs::NotAPort(value))
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
            ("docs", Task::Docs),
            ("infra", Task::Infra),
            ("policies", Task::Policies),
            ("release --dry-run", Task::Release { part: Part::DryRun { quick: false } }),
            ("release --dry-run --quick", Task::Release { part: Part::DryRun { quick: true } }),
            (
                "release build x86_64-unknown-linux-musl",
                Task::Release { part: Part::Build { target: LINUX[0].to_owned() } },
            ),
            ("release describe", Task::Release { part: Part::Describe }),
            ("emulators", Task::Emulators { command: vec![] }),
            (
                "emulators -- cargo test --",
                Task::Emulators { command: ["cargo", "test", "--"].map(str::to_owned).to_vec() },
            ),
            ("cloud", Task::Cloud { port: None, github: false }),
            ("cloud --port 4566", Task::Cloud { port: Some(4566), github: false }),
            ("cloud --github", Task::Cloud { port: None, github: true }),
            ("cloud --github --port 4566", Task::Cloud { port: Some(4566), github: true }),
            ("vm", Task::Vm { inside: false }),
            ("vm --inside", Task::Vm { inside: true }),
            ("bench", Task::Bench),
            ("bench aws", Task::BenchAws { rows: vec![] }),
            ("bench aws -- warm-10", Task::BenchAws { rows: vec!["warm-10".into()] }),
            ("bench github", Task::BenchGitHub { rows: vec![] }),
            ("bench github -- local", Task::BenchGitHub { rows: vec!["local".into()] }),
            ("bench claims", Task::BenchClaims),
            ("bench dashboard", Task::BenchDashboard),
            ("sim", Task::Sim { args: vec![] }),
            ("sim --seed 7", Task::Sim { args: ["--seed", "7"].map(str::to_owned).to_vec() }),
            ("sim --planted-bug no-grace", Task::PlantedBug { name: "no-grace".to_owned() }),
            ("sim --planted-bugs", Task::PlantedBugs),
            ("sim --mutants", Task::SimMutants { most_seeds: u64::MAX }),
            ("sim --mutants 300", Task::SimMutants { most_seeds: 300 }),
            ("fuzz", Task::Fuzz { target: None, seconds: 20 }),
            ("fuzz ec2", Task::Fuzz { target: Some("ec2".into()), seconds: 20 }),
            ("fuzz --seconds 5 ec2", Task::Fuzz { target: Some("ec2".into()), seconds: 5 }),
            ("mutants", Task::Mutants { mutants_args: vec![] }),
            ("mutants -- --list", Task::Mutants { mutants_args: vec!["--list".into()] }),
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
            ("docs now", unexpected("now")),
            ("emulators cargo", unexpected("cargo")),
            ("cloud 4566", unexpected("4566")),
            ("cloud --port 4566 now", unexpected("now")),
            ("cloud --github --github", unexpected("--github")),
            ("cloud --port", InvalidArgs::NotAPort(String::new())),
            ("cloud --port 65536", InvalidArgs::NotAPort("65536".into())),
            ("vm now", unexpected("now")),
            ("bench 10", unexpected("10")),
            ("bench aws warm-10", unexpected("warm-10")),
            ("bench github local", unexpected("local")),
            ("release", InvalidArgs::NoPart(String::new())),
            ("release --quick", InvalidArgs::NoPart("--quick".into())),
            ("release --dry-run now", unexpected("now")),
            ("release build moon", InvalidArgs::UnknownRelease("moon".into())),
            ("release describe now", unexpected("now")),
            ("sim --planted-bug", InvalidArgs::NoPlantedBug),
            ("sim --planted-bug no-grace now", unexpected("now")),
            ("sim --planted-bugs now", unexpected("now")),
            ("sim --mutants all", InvalidArgs::NotANumber("all".into())),
            ("sim --mutants 5 now", unexpected("now")),
            ("fuzz moon", InvalidArgs::UnknownTarget("moon".into())),
            ("fuzz ec2 imds", unexpected("imds")),
            ("fuzz --second 5", unexpected("--second")),
            ("fuzz --seconds", InvalidArgs::NotSeconds(String::new())),
            ("fuzz --seconds 0", InvalidArgs::NotSeconds("0".into())),
            ("mutants --list", unexpected("--list")),
            ("help me", unexpected("me")),
        ] {
            assert_eq!(parsed(line), Err(error), "{line}");
        }
    }

    #[test]
    fn help_names_every_task() {
        for name in [
            "test",
            "check",
            "docs",
            "emulators",
            "cloud",
            "vm",
            "bench",
            "infra",
            "release",
            "sim",
            "fuzz",
            "mutants",
            "advisories",
            "help",
        ] {
            assert!(HELP.contains(&format!("\n  {name} ")), "{name}");
        }
    }
}
