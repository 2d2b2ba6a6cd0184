//! Programs that a computer has, or that its distribution can give it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::patience::until_it_works;
use crate::console::log;
use crate::error::TaskError;

/// DynamoDB Local needs this version.
const JAVA: u32 = 17;

/// Something that has to be on the computer before anything of ours can be installed.
struct Program {
    name: &'static str,
    /// What Debian and its kin call it. Later ones are for releases that lack the earlier.
    packages: &'static [&'static str],
    find: fn() -> Option<PathBuf>,
}

/// Runs DynamoDB Local.
pub(super) fn java() -> Result<PathBuf, TaskError> {
    let packages = &["openjdk-17-jre-headless", "default-jre-headless"];
    Program { name: "Java 17", packages, find: find_java }.get()
}

/// Fetches packages from npm's registry, as whoever has set it up wants it done.
pub(super) fn npm() -> Result<PathBuf, TaskError> {
    let find = || answers(Path::new("npm"), &["--version"]);
    Program { name: "npm", packages: &["npm"], find }.get()
}

/// Python that can make a virtual environment with pip in it.
pub(super) fn python() -> Result<PathBuf, TaskError> {
    // Debian has a venv without what puts pip into it; MiniStack wants 3.10.
    const CHECK: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";
    let find = || answers(Path::new("python3"), &["-c", CHECK]);
    Program { name: "Python 3.10 with venv", packages: &["python3-venv"], find }.get()
}

impl Program {
    fn get(&self) -> Result<PathBuf, TaskError> {
        if let Some(found) = (self.find)() {
            return Ok(found);
        }
        if may_install() {
            log(&format!("{} is not there: installing it with apt-get", self.name));
            apt_get(&["update"])?;
            for package in self.packages {
                let installed = apt_get(&["install", "--yes", "--no-install-recommends", package]);
                match (installed, (self.find)()) {
                    (Ok(()), Some(found)) => return Ok(found),
                    (Ok(()), None) => log(&format!("installed, but it will not do: {package}")),
                    (Err(_), _) => log(&format!("cannot be installed: {package}")),
                }
            }
        }
        Err(TaskError::new(
            format!("not found, or too old: {}", self.name),
            format!("install it; on Debian and Ubuntu the package is {}", self.packages[0]),
        ))
    }
}

/// Nobody is asked for a password.
fn may_install() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout == b"0\n")
        && answers(Path::new("apt-get"), &["--version"]).is_some()
}

fn apt_get(args: &[&str]) -> Result<(), TaskError> {
    let mut command = Command::new("apt-get");
    command.arg("-qq").args(args).env("DEBIAN_FRONTEND", "noninteractive");
    until_it_works(&mut command)
}

/// The program, if it starts and is content.
fn answers(program: &Path, args: &[&str]) -> Option<PathBuf> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success()).then(|| program.to_owned())
}

/// Whoever sets JAVA_HOME means it, but perhaps for something that needs an old one.
fn find_java() -> Option<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin").join("java"));
    home.into_iter().chain([PathBuf::from("java")]).find(|java| {
        let said = Command::new(java).arg("-version").stdin(Stdio::null()).output();
        said.ok()
            .and_then(|said| java_version(&String::from_utf8_lossy(&said.stderr)))
            .is_some_and(|version| version >= JAVA)
    })
}

/// The first number, or the second where it is 1, as it was until Java 8.
fn java_version(said: &str) -> Option<u32> {
    let quoted = said.split('"').nth(1)?;
    let mut numbers = quoted.split(|c: char| !c.is_ascii_digit()).map(|word| word.parse().ok());
    match numbers.next()?? {
        1 => numbers.next()?,
        major => Some(major),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_java_are_read() {
        for (said, version) in [
            ("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment", Some(17)),
            ("java version \"1.8.0_392\"\n", Some(8)),
            ("openjdk version \"21\" 2023-09-19", Some(21)),
            ("openjdk version \"25-ea\" 2025-09-16", Some(25)),
            ("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version \"11.0.2\"", Some(11)),
            ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
            ("", None),
        ] {
            assert_eq!(java_version(said), version, "{said}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_does_not_answer() {
        assert_eq!(answers(Path::new("true"), &[]), Some("true".into()));
        assert_eq!(answers(Path::new("false"), &[]), None);
        assert_eq!(answers(Path::new("./is-not-there"), &[]), None);
    }
}
