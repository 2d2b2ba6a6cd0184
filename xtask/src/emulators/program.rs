//! Programs that must be on the computer, or that its distribution can install.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::retry::retry_until_success;
use crate::console::log;
use crate::error::TaskError;

/// The oldest version of Java that DynamoDB Local supports.
const JAVA: u32 = 17;

type Find = fn() -> Option<PathBuf>;

/// A program that must be present before the emulators can be installed.
struct Program<'a> {
    name: &'static str,
    /// Its package names on Debian and its derivatives. Later names are for releases
    /// without the earlier ones.
    packages: &'a [&'static str],
    find: Find,
}

/// Finds or installs a Java that can run DynamoDB Local.
pub(super) fn java() -> Result<PathBuf, TaskError> {
    let packages = &["openjdk-17-jre-headless", "default-jre-headless"];
    Program { name: "Java 17", packages, find: find_java }.get()
}

/// Finds or installs npm, which fetches packages by the user's own npm configuration.
pub(super) fn npm() -> Result<PathBuf, TaskError> {
    let find = || answers(Path::new("npm"), &["--version"]);
    Program { name: "npm", packages: &["npm"], find }.get()
}

/// Finds or installs a Python that can create a virtual environment with pip.
pub(super) fn python() -> Result<PathBuf, TaskError> {
    // Debian's venv may lack ensurepip; MiniStack needs Python 3.10.
    const CHECK: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";
    let find = || answers(Path::new("python3"), &["-c", CHECK]);
    Program { name: "Python 3.10 with venv", packages: &["python3-venv"], find }.get()
}

/// Installs what the tests of the metadata firewall need, if that is possible. Without it these tests
/// do not apply, and say so.
pub(super) fn firewall_tools() {
    let find_nft = || answers(Path::new("nft"), &["--version"]);
    let find_ip = || answers(Path::new("ip"), &["-Version"]);
    for program in [
        Program { name: "nft", packages: &["nftables"], find: find_nft },
        Program { name: "ip", packages: &["iproute2"], find: find_ip },
    ] {
        if program.get().is_err() {
            log(&format!("tests of the metadata firewall are skipped without {}", program.name));
        }
    }
}

/// Installs what the tests with a Docker daemon need, if that is possible. Without it these tests do
/// not apply, and say so.
pub(super) fn docker_tools() {
    let find_docker = || answers(Path::new("dockerd"), &["--version"]);
    let find_busybox = || {
        let busybox = PathBuf::from("/bin/busybox");
        busybox.exists().then_some(busybox)
    };
    // Only root can start a daemon.
    if !may_install() {
        return;
    }
    for program in [
        Program { name: "dockerd", packages: &["docker.io"], find: find_docker },
        Program { name: "busybox", packages: &["busybox-static"], find: find_busybox },
    ] {
        if program.get().is_err() {
            log(&format!("tests with a Docker daemon are skipped without {}", program.name));
        }
    }
}

/// Installs the browser of the tests of the dashboard's page, if that is possible. Without it these
/// tests do not apply, and say so.
pub(super) fn browser() {
    let find = || on_path("chromium");
    let program = Program { name: "chromium", packages: &["chromium"], find };
    if program.get().is_err() {
        log("tests of the dashboard's page are skipped without chromium");
    }
}

/// Finds or installs what a virtual machine and its image need.
pub(crate) fn vm_tools() -> Result<(), TaskError> {
    let keyring = || {
        let keys = PathBuf::from("/usr/share/keyrings/debian-archive-keyring.gpg");
        keys.exists().then_some(keys)
    };
    for (name, package, find) in [
        ("qemu-system-x86_64", "qemu-system-x86", (|| on_path("qemu-system-x86_64")) as Find),
        ("debootstrap", "debootstrap", || on_path("debootstrap")),
        ("Debian's keys", "debian-archive-keyring", keyring),
        ("dnsmasq", "dnsmasq-base", || on_path("dnsmasq")),
        ("stunnel4", "stunnel4", || on_path("stunnel4")),
        ("openssl", "openssl", || on_path("openssl")),
        ("mke2fs", "e2fsprogs", || on_path("mke2fs")),
        ("ip", "iproute2", || on_path("ip")),
        ("strip", "binutils", || on_path("strip")),
    ] {
        Program { name, packages: &[package], find }.get()?;
    }
    Ok(())
}

/// A program by its name, if there is one on `PATH`.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

impl Program<'_> {
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

/// Whether packages can be installed without a password prompt.
fn may_install() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|id| id.stdout == b"0\n")
        && answers(Path::new("apt-get"), &["--version"]).is_some()
}

fn apt_get(args: &[&str]) -> Result<(), TaskError> {
    let mut command = Command::new("apt-get");
    command.arg("-qq").args(args).env("DEBIAN_FRONTEND", "noninteractive");
    retry_until_success(&mut command)
}

/// The program, if it runs with these arguments and succeeds.
fn answers(program: &Path, args: &[&str]) -> Option<PathBuf> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success()).then(|| program.to_owned())
}

/// Prefers the Java in JAVA_HOME, unless it is too old.
fn find_java() -> Option<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin").join("java"));
    home.into_iter().chain([PathBuf::from("java")]).find(|java| {
        let said = Command::new(java).arg("-version").stdin(Stdio::null()).output();
        said.ok()
            .and_then(|said| java_version(&String::from_utf8_lossy(&said.stderr)))
            .is_some_and(|version| version >= JAVA)
    })
}

/// The major version: the first number, or the second if the first is 1, as until Java 8.
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
