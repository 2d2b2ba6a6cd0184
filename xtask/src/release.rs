//! `cargo xtask release`: makes, tries and describes what a release consists of. The workflow of
//! releases calls its parts on several computers; a dry run calls all of them on this one.

mod elf;
mod page;
mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::TaskError;
use crate::step::{Report, said};
use crate::{cross, emulators, formula, sbom};
use page::Page;
pub(crate) use programs::{FEATURES, LINUX};

/// What the programs that check a release are installed from.
const REQUIREMENTS: &str = "xtask/release/requirements.txt";
const CONTAINER: &str = "infra/container/Containerfile";
const DIST: &str = "target/dist";
/// What is packed without being built for release never gets into the folder of a release.
const QUICK_DIST: &str = "target/dist-quick";

/// What of a release is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// The programs and packages for one target, tried if this computer can run them.
    Build { target: String },
    /// Bill of materials, digests and formula of the programs in `target/dist`.
    Describe,
    /// Everything that this computer can make, from nothing, and an installation from it. If
    /// `quick`, programs are those that the tests have built.
    DryRun { quick: bool },
}

pub(crate) fn run(root: &Path, part: &Part) -> Report {
    let mut report = Report::default();
    let version = env!("CARGO_PKG_VERSION");
    match part {
        Part::Build { target } => {
            programs::build(&mut report, root, &root.join(DIST), version, target);
        }
        Part::Describe => describe(&mut report, root, &root.join(DIST), true),
        Part::DryRun { quick: true } => {
            let dist = root.join(QUICK_DIST);
            report.check("empty folder", || empty(&dist));
            programs::pack_tested(&mut report, root, &dist, version);
            describe(&mut report, root, &dist, true);
            try_installation(&mut report, root, &dist, version);
            report.note("not built for release: all programs are the one that the tests use");
        }
        Part::DryRun { quick: false } => rehearse(&mut report, root, version),
    }
    report
}

fn rehearse(report: &mut Report, root: &Path, version: &str) {
    let dist = root.join(DIST);
    report.check("empty folder", || empty(&dist));
    let mut is_complete = true;
    for target in LINUX {
        let has_compiler = || programs::compiler(root, target).is_ok();
        if cross::has_target(target) && has_compiler() {
            programs::build(report, root, &dist, version, target);
        } else {
            is_complete = false;
            cross::check(report, root, target, FEATURES);
            report.note(format!("not linked, because it has no C compiler here: {target}"));
        }
    }
    cross::check_macos(report, root);
    report.note("programs for macOS are checked and not linked");
    describe(report, root, &dist, is_complete);
    try_installation(report, root, &dist, version);
    report.note("provenance is made by the workflow alone; the container was linted, not built");
}

/// Writes what describes the programs. A formula is for all of them, so an incomplete release has
/// none.
fn describe(report: &mut Report, root: &Path, dist: &Path, is_complete: bool) {
    report.check("bill of materials", || check_bill(root, dist));
    report.check("digests", || write_digests(dist));
    if is_complete {
        report.check("formula", || formula::write(dist).map(drop));
    } else {
        report.note("no formula: it needs the programs for all targets of Linux");
    }
    report.check("container", || lint_container(root));
}

/// Writes the bill of materials into a folder and validates it against the schema of CycloneDX.
pub(crate) fn check_bill(root: &Path, dist: &Path) -> Result<(), TaskError> {
    let bill = sbom::write(root, dist)?;
    let mut validate = Command::new(python(root)?);
    validate.arg(root.join("xtask/release/validate.py")).arg(&bill);
    said(&mut validate).map(drop)
}

/// Parses and lints the recipe of the container.
pub(crate) fn lint_container(root: &Path) -> Result<(), TaskError> {
    let linter = python(root)?.with_file_name("hadolint");
    said(Command::new(linter).arg(root.join(CONTAINER))).map(drop)
}

/// A Python with the packages that check a release.
pub(crate) fn python(root: &Path) -> Result<PathBuf, TaskError> {
    emulators::python_with(root, "release", &root.join(REQUIREMENTS))
}

/// Installs the programs from a page on loopback, as a user does, and runs what was installed.
fn try_installation(report: &mut Report, root: &Path, dist: &Path, version: &str) {
    report.check("installation", || {
        let home = Scratch::new("install")?;
        let page = Page::serve(dist, version)?;
        let mut install = Command::new("sh");
        install.arg(root.join("install.sh")).args(["--version", version, "--provenance", "off"]);
        install.args(["--download-url", page.url(), "--dir"]).arg(home.path());
        said(&mut install)?;
        programs::try_life(&home.path().join("ondeck"), version)
    });
}

fn write_digests(dist: &Path) -> Result<(), TaskError> {
    let files = fs::read_dir(dist).map_err(|error| TaskError::with(dist, error))?;
    let mut names: Vec<_> = files.flatten().map(|file| file.file_name()).collect();
    names.retain(|name| name != "SHA256SUMS" && name != "ondeck.rb");
    names.sort();
    let digests = said(Command::new("sha256sum").arg("--").args(names).current_dir(dist))?;
    let sums = dist.join("SHA256SUMS");
    fs::write(&sums, digests).map_err(|error| TaskError::with(&sums, error))
}

fn empty(folder: &Path) -> Result<(), TaskError> {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| TaskError::with(folder, error))?;
    }
    fs::create_dir_all(folder).map_err(|error| TaskError::with(folder, error))
}

/// A temporary folder that is removed with this value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Scratch, TaskError> {
        let unique = format!("ondeck-release-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(unique);
        empty(&path)?;
        Ok(Scratch(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that stays is in the folder of temporary files.
        drop(fs::remove_dir_all(&self.0));
    }
}
