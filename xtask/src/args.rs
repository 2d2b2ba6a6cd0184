//! What can be asked for.

use std::fmt;

use crate::fuzz;

pub(crate) const HELP: &str = "\
Set-up and checks of ondeck

Usage: cargo xtask <TASK>

Tasks:
  test [-- NEXTEST_ARGS]  the workspace's doctests, then every other test
  check [--fix]           formatting, lints, documentation, licences and bans;
                          --fix formats instead of complaining
  emulators [-- COMMAND]  starts what stands in for AWS in tests, and runs the command with its
                          addresses; without one, prints them as shell lines and stays
  cloud [--port N]        AWS on loopback with machines that are processes, to try the aws backend
  bench                   what provisioning costs on the local backend; takes a minute after the build
  bench aws               how many calls of AWS the modes take, counted between ondeck and the
                          emulators; takes two minutes after the build
  sim [ARGS]              plays histories of the whole system that follow from seeds, and holds them
                          against its promises; sim --help has the options
  sim --plant NAME        does so with a bug of crates/sim/plants in the program, until it is found
  sim --plants            looks for all of these bugs; takes a minute for each
  fuzz [TARGET] [--seconds N]
                          feeds what ondeck reads, 20 s each, with inputs that reach ever more of
                          it; needs a C++ compiler, and some minutes for the first build
  mutants [-- ARGS]       whether the tests notice mistakes in core's rules, made one at a time, as
                          .cargo/mutants.toml says; takes an hour; ARGS go to cargo-mutants
  advisories              known vulnerabilities (needs more network than the registries)
  help                    this text

Tools that are missing are built or fetched once into .tools, at pinned versions. Emulators need
Java 17, npm and Python 3.10, which are installed by apt-get where it is there and you are root.
All steps of a task are run; the exit code is that of the first that failed.
";

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Help,
    Test { nextest_args: Vec<String> },
    Check { fix: bool },
    Emulators { command: Vec<String> },
    Cloud { port: Option<u16> },
    Fuzz { target: Option<String>, seconds: u32 },
    Bench,
    BenchAws,
    Sim { args: Vec<String> },
    Plant { name: String },
    Plants,
    Mutants { mutants_args: Vec<String> },
    Advisories,
}

/// Why a command line cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InvalidArgs {
    NoTask,
    UnknownTask(String),
    Unexpected(String),
    NotAPort(String),
    NoPlant,
    NotSeconds(String),
    UnknownTarget(String),
}

impl fmt::Display for InvalidArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidArgs::NoTask => write!(f, "no task given"),
            InvalidArgs::UnknownTask(name) => write!(f, "unknown task: {name}"),
            InvalidArgs::Unexpected(arg) => write!(f, "unexpected argument: {arg}"),
            InvalidArgs::NotAPort(value) => write!(f, "not a port: {value}"),
            InvalidArgs::NoPlant => write!(f, "a name must follow: --plant"),
            InvalidArgs::NotSeconds(value) => write!(f, "not a number of seconds: {value}"),
            InvalidArgs::UnknownTarget(name) => {
                write!(f, "none of {}: {name}", fuzz::TARGETS.join(", "))
            }
        }
    }
}

/// Reads a command line, without the program's own name.
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
        "emulators" => return Ok(Task::Emulators { command: behind_dashes(args)? }),
        "cloud" => match args.next() {
            None => Task::Cloud { port: None },
            Some(flag) if flag == "--port" => Task::Cloud { port: Some(port(args.next())?) },
            Some(other) => return Err(InvalidArgs::Unexpected(other)),
        },
        "bench" => match args.next() {
            None => Task::Bench,
            Some(backend) if backend == "aws" => Task::BenchAws,
            Some(other) => return Err(InvalidArgs::Unexpected(other)),
        },
        "sim" => match args.next() {
            Some(flag) if flag == "--plant" => {
                Task::Plant { name: args.next().ok_or(InvalidArgs::NoPlant)? }
            }
            Some(flag) if flag == "--plants" => Task::Plants,
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

/// What is for somebody else.
fn behind_dashes(mut args: impl Iterator<Item = String>) -> Result<Vec<String>, InvalidArgs> {
    match args.next() {
        None => Ok(Vec::new()),
        Some(dashes) if dashes == "--" => Ok(args.collect()),
        Some(other) => Err(InvalidArgs::Unexpected(other)),
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
            ("emulators", Task::Emulators { command: vec![] }),
            (
                "emulators -- cargo test --",
                Task::Emulators { command: ["cargo", "test", "--"].map(str::to_owned).to_vec() },
            ),
            ("cloud", Task::Cloud { port: None }),
            ("cloud --port 4566", Task::Cloud { port: Some(4566) }),
            ("bench", Task::Bench),
            ("bench aws", Task::BenchAws),
            ("sim", Task::Sim { args: vec![] }),
            ("sim --seed 7", Task::Sim { args: ["--seed", "7"].map(str::to_owned).to_vec() }),
            ("sim --plant no-grace", Task::Plant { name: "no-grace".to_owned() }),
            ("sim --plants", Task::Plants),
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
            ("emulators cargo", unexpected("cargo")),
            ("cloud 4566", unexpected("4566")),
            ("cloud --port 4566 now", unexpected("now")),
            ("cloud --port", InvalidArgs::NotAPort(String::new())),
            ("cloud --port 65536", InvalidArgs::NotAPort("65536".into())),
            ("bench 10", unexpected("10")),
            ("sim --plant", InvalidArgs::NoPlant),
            ("sim --plant no-grace now", unexpected("now")),
            ("sim --plants now", unexpected("now")),
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
            "emulators",
            "cloud",
            "bench",
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
