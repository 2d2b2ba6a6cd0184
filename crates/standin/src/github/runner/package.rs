//! The runner's package, as GitHub offers it for download.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::pauses::RunnerTimes;
use super::{LISTENER_VARIABLE, worker};

/// The file with [`RunnerPackage::session_pause`], in seconds.
pub(super) const SESSION_PAUSE: &str = "session-pause";
/// The file with [`RunnerPackage::closing_pause`], in seconds.
pub(super) const CLOSING_PAUSE: &str = "closing-pause";
/// The file with [`RunnerPackage::times`], if it has them.
pub(super) const TIMES: &str = "times";
/// The file name of the listener's program.
const LISTENER: &str = "ondeck-runner-standin";
const SCRIPTS: [(&str, &str); 4] = [
    ("config.sh", include_str!("package/config.sh")),
    ("env.sh", include_str!("package/env.sh")),
    ("run.sh", include_str!("package/run.sh")),
    ("run-helper.sh.template", include_str!("package/run-helper.sh")),
];

/// How to build a package.
#[derive(Debug, Clone)]
pub struct RunnerPackage {
    /// The version that the package reports.
    pub version: String,
    /// How long `run.sh` waits before it restarts a listener that has exited with 2.
    pub restart_pause: Duration,
    /// How long the listener waits before it asks for a session again. The real one waits for 30 s,
    /// or for 11 s after the status 502, 503 or 504. All its other pauses before it tries something
    /// again are in proportion.
    pub session_pause: Duration,
    /// How long after the end of a job the listener says so. If it gets a signal meanwhile, it says
    /// that the job was cancelled, also if it was not.
    pub closing_pause: Duration,
    /// How long its commands take by themselves. Without it they are as fast as they can be, and do not
    /// make those requests of the real one whose answers they do not need.
    pub times: Option<RunnerTimes>,
}

/// Builds a package of this version as a `tar.gz`, with the defaults of the real one.
///
/// # Panics
/// If the listener was not built, or there is no `tar`.
pub fn runner_package(version: &str) -> Vec<u8> {
    RunnerPackage { version: version.to_owned(), ..RunnerPackage::default() }.build()
}

impl Default for RunnerPackage {
    /// A package with the pauses of the real one.
    fn default() -> RunnerPackage {
        RunnerPackage {
            version: "2.336.0".to_owned(),
            restart_pause: Duration::from_secs(5),
            session_pause: Duration::from_secs(30),
            closing_pause: Duration::from_millis(40),
            times: None,
        }
    }
}

impl RunnerPackage {
    /// Builds the package as a `tar.gz`. Equal packages have equal bytes.
    ///
    /// # Panics
    /// If the listener was not built, or there is no `tar`.
    pub fn build(&self) -> Vec<u8> {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        self.lay_out(folder.path());
        let packed = Command::new("tar")
            .args(["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"])
            .args(["--use-compress-program=gzip -n -1", "-c", "-C"])
            .arg(folder.path())
            .arg(".")
            .output()
            .expect("there is a tar");
        let said = String::from_utf8_lossy(&packed.stderr);
        assert!(packed.status.success(), "tar does not work: {said}");
        packed.stdout
    }

    /// Writes the package's files to a folder, as if it were unpacked there.
    ///
    /// # Panics
    /// If the listener was not built, or the folder cannot be written to.
    pub fn lay_out(&self, folder: &Path) {
        let bin = folder.join("bin");
        fs::create_dir_all(&bin).expect("a folder can be made");
        for (name, text) in SCRIPTS {
            write_program(&folder.join(name), text);
        }
        let pause = format!("#!/bin/bash\nsleep {}\n", self.restart_pause.as_secs_f64());
        write_program(&folder.join("restart-pause.sh"), &pause);
        fs::write(bin.join("version"), &self.version).expect("a file can be written");
        for (name, pause) in
            [(SESSION_PAUSE, self.session_pause), (CLOSING_PAUSE, self.closing_pause)]
        {
            let seconds = pause.as_secs_f64().to_string();
            fs::write(bin.join(name), seconds).expect("a file can be written");
        }
        if let Some(times) = self.times {
            fs::write(bin.join(TIMES), times.to_text()).expect("a file can be written");
        }
        fs::copy(listener(), bin.join("Runner.Listener")).expect("a program can be copied");
        let worker = bin.join(worker::NAME);
        symlink("Runner.Listener", worker).expect("a link can be made");
    }
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("a file can be written");
    fs::set_permissions(path, Permissions::from_mode(0o755)).expect("a file can be made to run");
}

/// Finds the listener's program: by its variable, beside this program, or one folder above.
fn listener() -> PathBuf {
    if let Some(named) = std::env::var_os(LISTENER_VARIABLE) {
        return named.into();
    }
    let own = std::env::current_exe().expect("this program has a file");
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(LISTENER));
    found.into_iter().find(|program| program.is_file()).unwrap_or_else(|| {
        panic!("no {LISTENER}\nhint: build it with cargo build -p ondeck-standin --bins")
    })
}
