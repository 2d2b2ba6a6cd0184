//! A copy of the sources, into which a planted bug is patched.
//!
//! All planted bugs share one copy, and only files that differ are written, so that cargo rebuilds
//! only what a patch changes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program_in;
use crate::child;
use crate::error::TaskError;
use crate::step::{cargo, exit_code_of};

/// The exit code of the simulation if an invariant was violated.
const VIOLATED: u8 = 1;

pub(super) struct SourceCopy {
    origin: PathBuf,
    sources: PathBuf,
    /// The target directory of the copy.
    target: PathBuf,
    /// The file with the last output of the simulation.
    output: PathBuf,
}

impl SourceCopy {
    /// Copies the sources as they are now, committed or not.
    pub(super) fn of(root: &Path, planted: &Path) -> Result<SourceCopy, TaskError> {
        let sources = planted.join("tree");
        let names = sources_of(root)?;
        fs::create_dir_all(&sources).map_err(|error| TaskError::with(&sources, error))?;
        for name in &names {
            let (from, to) = (root.join(name), sources.join(name));
            copy(&from, &to).map_err(|error| TaskError::with(&from, error))?;
        }
        for stale in files_below(&sources).map_err(|error| TaskError::with(&sources, error))? {
            let is_current = stale.strip_prefix(&sources).is_ok_and(|name| names.contains(name));
            if !is_current {
                fs::remove_file(&stale).map_err(|error| TaskError::with(&stale, error))?;
            }
        }
        let (target, output) = (planted.join("target"), planted.join("output.txt"));
        Ok(SourceCopy { origin: root.to_owned(), sources, target, output })
    }

    /// Applies a patch. Fails if the sources have changed so that it does not apply.
    pub(super) fn apply(&self, patch: &Path) -> Result<(), TaskError> {
        git_apply(&self.sources, patch, &[]).map_err(|why| {
            let hint = "the sources have changed; update the patch";
            TaskError::new(format!("{} does not apply: {why}", patch.display()), hint)
        })
    }

    /// The text of a file as it was copied.
    pub(super) fn original(&self, name: &str) -> Result<String, TaskError> {
        let path = self.origin.join(name);
        fs::read_to_string(&path).map_err(|error| TaskError::with(&path, error))
    }

    /// The text of a file of the copy.
    pub(super) fn present(&self, name: &str) -> Result<String, TaskError> {
        let path = self.sources.join(name);
        fs::read_to_string(&path).map_err(|error| TaskError::with(&path, error))
    }

    /// Gives a file of the copy another text.
    pub(super) fn replace(&self, name: &str, text: &str) -> Result<(), TaskError> {
        let path = self.sources.join(name);
        fs::write(&path, text).map_err(|error| TaskError::with(&path, error))
    }

    /// The program that was built with this profile.
    pub(super) fn program(&self, profile: &str) -> PathBuf {
        program_in(&self.target, profile)
    }

    fn building(&self, args: &[&str]) -> Command {
        let mut command = cargo(&self.sources);
        // The lock file of a copy is discarded with it.
        command.args(args).args(["--locked", "--quiet"]).env("CARGO_TARGET_DIR", &self.target);
        // A patch may leave something unused, which does not matter here.
        command.env("RUSTFLAGS", "--cap-lints=allow");
        command
    }

    /// Builds the simulation from the copy, where a failure is no surprise. Its output is the error.
    pub(super) fn build_quietly(&self, args: &[&str]) -> Result<(), String> {
        let built = self.building(args).output().map_err(|error| error.to_string())?;
        match built.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&built.stderr).into_owned()),
        }
    }

    /// Builds the simulation from the copy, and returns the path of the program.
    pub(super) fn build(&self, args: &[&str]) -> Result<PathBuf, TaskError> {
        let mut command = self.building(args);
        match exit_code_of(child::run(&mut command), "cargo") {
            0 => Ok(self.program("sim")),
            _ => {
                Err(TaskError::new("the program with the planted bug does not build", "see above"))
            }
        }
    }

    /// Runs the simulation. Returns whether no invariant was violated, and the output.
    pub(super) fn play(
        &self,
        program: &Path,
        args: &[String],
    ) -> Result<(bool, String), TaskError> {
        let with = |error| TaskError::with(&self.output, error);
        let output = File::create(&self.output).map_err(with)?;
        let mut command = Command::new(program);
        command.args(args).stdout(output);
        let exit_code = exit_code_of(child::run(&mut command), "the simulation");
        let text = fs::read_to_string(&self.output).map_err(with)?;
        match exit_code {
            0 => Ok((true, text)),
            VIOLATED => Ok((false, text)),
            code => Err(TaskError::new(
                format!("the simulation ended with exit code {code}"),
                format!("run it by hand: {} {}", program.display(), args.join(" ")),
            )),
        }
    }
}

/// Checks that a patch applies. The error says why it does not.
#[cfg(test)]
pub(super) fn applies(root: &Path, patch: &Path) -> Result<(), String> {
    git_apply(root, patch, &["--check"])
}

fn git_apply(sources: &Path, patch: &Path, more: &[&str]) -> Result<(), String> {
    let describe = |error: io::Error| error.to_string();
    let sources = sources.canonicalize().map_err(describe)?;
    let patch = patch.canonicalize().map_err(describe)?;
    let mut git = Command::new("git");
    git.current_dir(&sources).arg("apply").args(more).arg(patch);
    // The copy is in an ignored folder of a repository. If git found that repository, it would
    // silently skip every file of the patch.
    if let Some(above) = sources.parent() {
        git.env("GIT_CEILING_DIRECTORIES", above);
    }
    let applied = git.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").output();
    let applied = applied.map_err(describe)?;
    if applied.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&applied.stderr).trim().to_owned())
}

/// A digest of the sources that a mutant is judged by: core, agent and the simulation.
pub(super) fn digest_of(root: &Path) -> Result<String, TaskError> {
    const JUDGED: [&str; 3] = ["crates/core/src", "crates/agent/src", "crates/sim"];
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for name in sources_of(root)?.iter().filter(|name| JUDGED.iter().any(|of| name.starts_with(of)))
    {
        let content = fs::read(root.join(name)).map_err(|error| TaskError::with(name, error))?;
        let name = name.to_string_lossy();
        // FNV-1a with 64 bits.
        for byte in name.bytes().chain([0]).chain(content) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(format!("{hash:016x}"))
}

/// Lists the files that git tracks or would track. Deleted files are not included.
fn sources_of(root: &Path) -> Result<BTreeSet<PathBuf>, TaskError> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let hint = "the sources are those that git knows; is this a clone?";
    let listed = git.output().map_err(|error| TaskError::new(format!("git: {error}"), hint))?;
    if !listed.status.success() {
        let why = String::from_utf8_lossy(&listed.stderr).trim().to_owned();
        return Err(TaskError::new(why, hint));
    }
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names = names.split_terminator('\0').map(PathBuf::from);
    Ok(names.filter(|name| root.join(name).is_file()).collect())
}

/// Copies a file unless it is unchanged, so that cargo does not rebuild it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let content = fs::read(from)?;
    if fs::read(to).is_ok_and(|present| present == content) {
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(to, content)
}

fn files_below(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files.extend(files_below(&entry.path())?);
        } else {
            files.push(entry.path());
        }
    }
    Ok(files)
}
