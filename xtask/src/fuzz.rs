//! `cargo xtask fuzz`: coverage-guided fuzzing of everything that ondeck parses.
//!
//! It needs no nightly compiler: the coverage pass is part of LLVM and therefore of every Rust
//! compiler, and libFuzzer is built from its C++ source.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::child;
use crate::console::{log, print};
use crate::error::TaskError;
use crate::step::{Step, exit_code_of};
use crate::tool;

/// The fuzz targets, by the name of their program.
pub(crate) const TARGETS: [&str; 8] =
    ["ticket", "settings", "classes", "patterns", "record", "imds", "ec2", "github"];

/// The time for each target unless `--seconds` is given.
pub(crate) const SECONDS: u32 = 20;

/// Switches on the counting of branches and comparisons in libFuzzer's form. The compiler's own
/// flag for this exists on nightly only.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
     -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
     -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares";

/// The outcome of one target, from the last lines of libFuzzer.
#[derive(Debug, PartialEq, Eq, Default)]
struct Figures {
    executions: u64,
    coverage: u64,
    /// The file with the input that failed.
    failing_input: Option<String>,
}

/// Builds the targets and runs one or all of them. Returns 0 if none failed.
pub(crate) fn run(root: &Path, only: Option<&str>, seconds: u32) -> u8 {
    let programs = match build(root) {
        Ok(programs) => programs,
        Err(error) => {
            error.report();
            return 1;
        }
    };
    let mut worst = 0;
    for target in TARGETS.into_iter().filter(|target| only.is_none_or(|only| only == *target)) {
        match fuzz(root, &programs, target, seconds) {
            Ok((exit_code, figures)) => {
                print(&format!("{}\n", line(target, exit_code, &figures)));
                worst = worst.max(exit_code);
            }
            Err(error) => {
                error.report();
                worst = worst.max(1);
            }
        }
    }
    worst
}

/// Builds the targets and returns the folder of their programs.
fn build(root: &Path) -> Result<PathBuf, TaskError> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    let asked = Command::new(&compiler).arg("--version").output();
    if !asked.is_ok_and(|answer| answer.status.success()) {
        let hint = "libFuzzer is built from C++: install g++ or clang, or set CXX";
        return Err(TaskError::new(format!("no C++ compiler: {compiler}"), hint));
    }
    let host = host()?;
    let set = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let folder = set.unwrap_or_else(|| root.join("target")).join("fuzz");
    // Naming the platform keeps the flags away from build scripts and macros.
    let step = Step::new("fuzz targets", "build --manifest-path fuzz/Cargo.toml --release --bins")
        .and(&["--target".to_owned(), host.clone()])
        .and(&["--target-dir".to_owned(), folder.display().to_string()])
        .with_env("RUSTFLAGS", RUSTFLAGS);
    match step.run(root) {
        0 => Ok(folder.join(host).join("release")),
        _ => Err(TaskError::new("cannot build the fuzz targets", "see cargo's output above")),
    }
}

/// The target triple of this computer.
fn host() -> Result<String, TaskError> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let asked = Command::new(compiler).arg("-vV").output();
    let said = asked.map(|answer| String::from_utf8_lossy(&answer.stdout).into_owned());
    let host = said.ok().and_then(|said| {
        said.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
    });
    host.ok_or_else(|| TaskError::new("rustc does not print its host platform", "run rustc -vV"))
}

/// Runs one target, starting from the inputs of earlier runs and the seeds.
fn fuzz(
    root: &Path,
    programs: &Path,
    target: &str,
    seconds: u32,
) -> Result<(u8, Figures), TaskError> {
    let kept = root.join(tool::DIRECTORY).join("fuzz");
    let (corpus, failing) = (kept.join("corpus").join(target), kept.join("failing").join(target));
    for folder in [&corpus, &failing] {
        fs::create_dir_all(folder).map_err(|error| TaskError::with(folder, error))?;
    }
    let log_file = kept.join(format!("{target}.log"));
    let output = File::create(&log_file).map_err(|error| TaskError::with(&log_file, error))?;
    log(&format!("--> fuzzing {target} for {seconds} s"));
    let mut command = Command::new(programs.join(target));
    command
        .arg(&corpus)
        .arg(root.join("fuzz/seeds").join(target))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", failing.display()))
        .args(["-print_final_stats=1", "-timeout=10", "-max_len=4096"])
        .current_dir(root)
        .stdout(Stdio::null())
        .stderr(output);
    let exit_code = exit_code_of(child::run(&mut command), target);
    let said = fs::read(&log_file).map_err(|error| TaskError::with(&log_file, error))?;
    let figures = read(&String::from_utf8_lossy(&said));
    if exit_code != 0 {
        let input = figures.failing_input.as_deref().unwrap_or("no input was kept");
        let hint = format!("read {}, and turn the input into a test", log_file.display());
        TaskError::new(format!("{target} failed: {input}"), hint).report();
    }
    Ok((exit_code, figures))
}

fn read(said: &str) -> Figures {
    let mut figures = Figures::default();
    for line in said.lines() {
        let after = |mark: &str| line.split_once(mark).map(|(_, rest)| rest.trim());
        let number = |mark: &str| after(mark)?.split(' ').next()?.parse().ok();
        if let Some(count) = number("stat::number_of_executed_units:") {
            figures.executions = count;
        }
        if let Some(count) = number(" cov: ") {
            figures.coverage = count;
        }
        if let Some(path) = after("Test unit written to ") {
            figures.failing_input = Some(path.to_owned());
        }
    }
    figures
}

fn line(target: &str, exit_code: u8, figures: &Figures) -> String {
    let Figures { executions, coverage, .. } = figures;
    let result = if exit_code == 0 { "ok" } else { "FAILED" };
    format!("{target:10} {executions:>10} executions  {coverage:>6} edges covered  {result}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_libfuzzers_output() {
        let said = "#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 30Mb\n\
                    #900\tDONE   cov: 345 ft: 678 corp: 9/99b lim: 4 exec/s: 9 rss: 31Mb\n\
                    stat::number_of_executed_units: 900\nstat::new_units_added: 7\n";
        let figures = read(said);
        assert_eq!(figures, Figures { executions: 900, coverage: 345, failing_input: None });
        let shown = line("ticket", 0, &figures);
        assert_eq!(shown, "ticket            900 executions     345 edges covered  ok");
        let said = "artifact_prefix='/x/'; Test unit written to /x/crash-1\nBase64: eA==\n";
        assert_eq!(read(said).failing_input.as_deref(), Some("/x/crash-1"));
    }

    #[test]
    fn every_target_is_a_program_with_seeds() {
        let fuzz = crate::step::workspace_root().join("fuzz");
        let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
        let programs: Vec<&str> = manifest
            .lines()
            .filter_map(|line| line.strip_prefix("path = \"targets/")?.strip_suffix(".rs\""))
            .collect();
        assert_eq!(programs, TARGETS);
        for target in TARGETS {
            assert!(fuzz.join("targets").join(format!("{target}.rs")).is_file(), "{target}");
            let seeds = fs::read_dir(fuzz.join("seeds").join(target)).unwrap();
            assert!(seeds.count() > 0, "{target}");
        }
    }
}
