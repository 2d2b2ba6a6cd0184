//! Commands that are run one after the other, and the report about them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use std::{fmt, io};

use crate::child;
use crate::console::log;
use crate::emulators::Environment;
use crate::error::TaskError;
use crate::tool::{self, Tool};

const CARGO: &str = "cargo";

/// One call of cargo, or of a program that is installed like a cargo subcommand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) name: String,
    program: &'static str,
    args: Vec<String>,
    env: Vec<(String, String)>,
    /// Not part of what is shown, because it is long and the same for all steps that have it.
    surroundings: Environment,
}

impl Step {
    /// A call of cargo with the words of `line` as arguments.
    pub(crate) fn new(name: impl Into<String>, line: &str) -> Self {
        Step::program(name, CARGO, line)
    }

    /// A call of another program, which is looked up in [`search_path`].
    pub(crate) fn program(name: impl Into<String>, program: &'static str, line: &str) -> Self {
        let args = line.split_whitespace().map(str::to_owned).collect();
        let surroundings = Environment::default();
        Step { name: name.into(), program, args, env: Vec::new(), surroundings }
    }

    pub(crate) fn and(mut self, args: &[String]) -> Self {
        self.args.extend_from_slice(args);
        self
    }

    pub(crate) fn with_env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    pub(crate) fn within(mut self, surroundings: &Environment) -> Self {
        self.surroundings = surroundings.clone();
        self
    }

    /// Runs the command with this program's stdout and stderr, and returns its exit code.
    pub(crate) fn run(&self, root: &Path) -> u8 {
        log(&format!("\n--> {}: {self}", self.name));
        let mut command =
            if self.program == CARGO { cargo(root) } else { tool(root, self.program) };
        self.surroundings.apply(&mut command);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        exit_code_of(child::run(&mut command), self.program)
    }
}

/// The exit code to pass on for a program that has ended. Failing to start it counts as 1.
pub(crate) fn exit_code_of(ended: io::Result<ExitStatus>, program: &str) -> u8 {
    match ended {
        // A child that was killed by a signal has no code and must not look like success.
        Ok(status) => status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1)),
        Err(error) => {
            log(&format!("error: cannot run {program}: {error}"));
            1
        }
    }
}

/// What a command prints to stdout. Fails with what it prints to stderr.
pub(crate) fn said(command: &mut Command) -> Result<String, TaskError> {
    let name = command.get_program().display().to_string();
    let failed = |problem: &str| TaskError::new(format!("{name}: {problem}"), "run it by hand");
    let answer = command.output().map_err(|error| failed(&error.to_string()))?;
    if !answer.status.success() {
        let text = [answer.stdout, answer.stderr].concat();
        let words = format!("{}: {}", answer.status, String::from_utf8_lossy(&text).trim());
        return Err(failed(&words));
    }
    String::from_utf8(answer.stdout).map_err(|error| failed(&error.to_string()))
}

/// The command line as a user could type it.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.env {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", self.program)?;
        self.args.iter().try_for_each(|arg| write!(f, " {}", quoted(arg)))
    }
}

/// The word, quoted for a shell if it needs quotes.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Cargo in the workspace's root. It also finds subcommands that were built into `.tools`.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| CARGO.into()));
    command.current_dir(root).env("PATH", search_path(root));
    command
}

/// A program in the workspace's root, from `PATH` or from `.tools`.
pub(crate) fn tool(root: &Path, program: &str) -> Command {
    let path = search_path(root);
    // The search for the program goes by this process's PATH, so it is done here.
    let found = std::env::split_paths(&path).map(|dir| dir.join(program)).find(|p| p.is_file());
    let mut command = Command::new(found.unwrap_or_else(|| program.into()));
    command.current_dir(root).env("PATH", path);
    command
}

/// `PATH` with the tools of `.tools` behind it, so that a tool the developer has installed is
/// preferred.
pub(crate) fn search_path(root: &Path) -> OsString {
    let present = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&present).chain([root.join(tool::DIRECTORY).join("bin")]);
    std::env::join_paths(all).unwrap_or(present)
}

pub(crate) fn workspace_root() -> PathBuf {
    // Cargo sets this variable to the folder of this package, which is one level below the root.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.and_then(|dir| dir.parent().map(Path::to_owned)).unwrap_or_else(|| ".".into())
}

/// The outcomes of the steps so far.
#[derive(Debug, Default)]
pub(crate) struct Report {
    outcomes: Vec<Outcome>,
    notes: Vec<String>,
}

#[derive(Debug)]
struct Outcome {
    name: String,
    exit_code: u8,
    took: Duration,
}

impl Report {
    pub(crate) fn run(&mut self, step: &Step, root: &Path) {
        self.record(&step.name, || step.run(root));
    }

    /// Installs missing tools, then runs the step that needs them. If a tool cannot be installed,
    /// the step counts as failed: a check that was not made must not look like one that passed.
    pub(crate) fn run_with(&mut self, tools: &[&Tool], step: &Step, root: &Path) {
        for tool in tools {
            if !tool.is_there(root) {
                self.record(&format!("build {}", tool.name), || tool.install(root));
            }
        }
        match tools.iter().find(|tool| !tool.is_there(root)) {
            None => self.run(step, root),
            Some(missing) => self.record(&step.name, || {
                log(&format!("\nerror: {} not run: {} is missing", step.name, missing.name));
                1
            }),
        }
    }

    /// Runs a check that is not a command.
    pub(crate) fn check(&mut self, name: &str, check: impl FnOnce() -> Result<(), TaskError>) {
        self.set_up(name, check);
    }

    /// Sets up something that later steps need. Returns `None` if that failed.
    pub(crate) fn set_up<T>(
        &mut self,
        name: &str,
        set_up: impl FnOnce() -> Result<T, TaskError>,
    ) -> Option<T> {
        let mut result = None;
        self.record(name, || match set_up() {
            Ok(value) => {
                result = Some(value);
                0
            }
            Err(error) => {
                error.report();
                1
            }
        });
        result
    }

    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    #[cfg(test)]
    pub(crate) fn notes(&self) -> &[String] {
        &self.notes
    }

    fn record(&mut self, name: &str, run: impl FnOnce() -> u8) {
        let started = Instant::now();
        let exit_code = run();
        self.outcomes.push(Outcome { name: name.to_owned(), exit_code, took: started.elapsed() });
    }

    /// The exit code of the first step that failed, or 0.
    pub(crate) fn exit_code(&self) -> u8 {
        self.outcomes.iter().map(|outcome| outcome.exit_code).find(|code| *code != 0).unwrap_or(0)
    }

    pub(crate) fn print(&self) {
        log("");
        self.lines().iter().for_each(|line| log(line));
    }

    fn lines(&self) -> Vec<String> {
        let width = self.outcomes.iter().map(|outcome| outcome.name.len()).max().unwrap_or(0);
        let outcomes = self.outcomes.iter().map(|Outcome { name, exit_code, took }| {
            let seconds = took.as_secs_f32();
            let result =
                if *exit_code == 0 { "ok".into() } else { format!("FAILED ({exit_code})") };
            format!("{name:width$}  {seconds:7.1} s  {result}")
        });
        outcomes.chain(self.notes.iter().map(|note| format!("note: {note}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: &[(&str, u8, u64)]) -> Report {
        let outcomes = outcomes.iter().map(|&(name, exit_code, millis)| Outcome {
            name: name.into(),
            exit_code,
            took: Duration::from_millis(millis),
        });
        Report { outcomes: outcomes.collect(), notes: vec!["that is all".to_owned()] }
    }

    #[test]
    fn the_first_failure_gives_the_exit_code() {
        assert_eq!(report(&[]).exit_code(), 0);
        assert_eq!(report(&[("format", 0, 1), ("lints", 0, 1)]).exit_code(), 0);
        assert_eq!(
            report(&[("a", 0, 1), ("b", 101, 1), ("c", 0, 1), ("d", 4, 1)]).exit_code(),
            101
        );
    }

    #[test]
    fn the_report_lists_every_step_with_its_time() {
        let report = report(&[("format", 0, 1250), ("documentation", 101, 61_000)]);
        assert_eq!(
            report.lines(),
            [
                "format             1.2 s  ok",
                "documentation     61.0 s  FAILED (101)",
                "note: that is all"
            ]
        );
    }

    #[test]
    fn a_step_is_shown_as_it_could_be_typed() {
        let step = Step::new("docs", "doc --workspace").with_env("RUSTDOCFLAGS", "-D warnings");
        assert_eq!(step.to_string(), "RUSTDOCFLAGS='-D warnings' cargo doc --workspace");
        let step = Step::new("tests", "nextest run").and(&["-E".into(), "test(it's)".into()]);
        assert_eq!(step.to_string(), r"cargo nextest run -E 'test(it'\''s)'");
        assert_eq!(Step::program("book", "mdbook", "build docs").to_string(), "mdbook build docs");
    }
}
