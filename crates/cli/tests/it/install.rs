//! `install.sh` against a release page on loopback: what is checked before anything is installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::act::page::{Page, VERSION};
use crate::harness::{Background, Done};

/// A computer to install on: a folder for the program, and one before the rest of PATH.
struct Computer {
    folder: tempfile::TempDir,
    page: Page,
}

impl Computer {
    fn new() -> Computer {
        let program = format!("#!/bin/sh\necho ondeck {VERSION}\n");
        let page = Page::with_release(program.as_bytes());
        let computer = Computer { folder: tempfile::tempdir().unwrap(), page };
        // Where the tests run, a real one may be there.
        computer.put_program("gh", "#!/bin/sh\nexit 1\n");
        computer
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("bin with blanks")
    }

    fn put_program(&self, name: &str, script: &str) {
        let path = self.folder.path().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn install(&self, options: &[&str]) -> Done {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../install.sh");
        let path = format!("{}:{}", self.folder.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("sh");
        command.arg(script).arg("--dir").arg(self.dir()).args(options);
        command.env("PATH", path).stdin(Stdio::null());
        Background::start(command.stdout(Stdio::piped()).stderr(Stdio::piped())).finish()
    }

    /// Installs from the page of the test.
    fn install_here(&self, options: &[&str]) -> Done {
        let here = ["--version", VERSION, "--download-url", self.page.url()];
        self.install(&[&here, options].concat())
    }

    /// What is in the folder for the program.
    fn installed(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir()).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn asset() -> String {
    format!("ondeck-{VERSION}-{}-unknown-linux-musl", std::env::consts::ARCH)
}

#[test]
fn the_program_is_checked_and_installed() {
    let computer = Computer::new();
    let done = computer.install_here(&[]).succeeded();
    let program = computer.dir().join("ondeck");
    let said = format!("ondeck {VERSION} is installed: {}\n", program.display());
    assert!(done.stdout.contains(&said), "{}", done.stdout);
    let unchecked =
        "the digest was checked, and the provenance was not; the GitHub CLI is not signed";
    assert!(done.stdout.contains(unchecked), "{}", done.stdout);
    assert_eq!(computer.installed(), ["ondeck"]);
    let mode = fs::metadata(&program).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755);
    computer.install_here(&["--version", &format!("v{VERSION}")]).succeeded();
    assert_eq!(computer.installed(), ["ondeck"], "a second time");
}

#[test]
fn what_is_not_the_release_is_not_installed_and_the_earlier_version_stays() {
    let computer = Computer::new();
    computer.install_here(&[]).succeeded();
    let before = fs::read(computer.dir().join("ondeck")).unwrap();
    let refused = |words: &str, code: i32| {
        let done = computer.install_here(&[]).exited(code);
        assert!(done.stderr.contains(words) && done.stderr.contains("\nhint: "), "{}", done.stderr);
        assert_eq!(computer.installed(), ["ondeck"]);
        assert_eq!(fs::read(computer.dir().join("ondeck")).unwrap(), before);
    };
    computer.page.put(&asset(), b"#!/bin/sh\ntouch pwned\n");
    refused(&format!("the SHA-256 of {} should be ", asset()), 2);
    computer.page.redirect(&asset(), "/gone");
    refused("no such file, so probably no such version: ", 2);
    computer.page.redirect(&asset(), "file:///etc/passwd");
    refused("the file cannot be fetched: ", 6);
    computer.page.put("SHA256SUMS", b"");
    refused(&format!("not among the files of release {VERSION}: {}", asset()), 2);
}

#[test]
fn a_redirect_is_followed_and_its_file_is_checked() {
    let computer = Computer::new();
    let program = format!("#!/bin/sh\necho ondeck {VERSION}\n");
    computer.page.put_beside("/elsewhere", program.as_bytes());
    computer.page.redirect(&asset(), "/elsewhere");
    computer.install_here(&[]).succeeded();
    computer.page.put_beside("/elsewhere", b"something else");
    let done = computer.install_here(&[]).exited(2);
    assert!(done.stderr.contains("do not use it before you know why"), "{}", done.stderr);
}

#[test]
fn the_provenance_is_checked_where_the_github_cli_can() {
    let computer = Computer::new();
    let required = computer.install_here(&["--provenance", "required"]).exited(2);
    assert!(required.stderr.contains("is not signed in"), "{}", required.stderr);
    assert_eq!(computer.installed(), [""; 0]);

    let calls = computer.folder.path().join("calls");
    let gh = format!("#!/bin/sh\necho \"$*\" >>'{}'\n", calls.display());
    computer.put_program("gh", &gh);
    let done = computer.install_here(&["--provenance", "required"]).succeeded();
    assert!(done.stdout.contains("provenance checked: built by ondeck-ci/ondeck"));
    let calls = fs::read_to_string(&calls).unwrap();
    let verify = calls.lines().nth(1).unwrap();
    assert!(
        verify.starts_with("attestation verify ") && verify.ends_with(" --repo ondeck-ci/ondeck")
    );

    computer.put_program("gh", "#!/bin/sh\n[ \"$1\" = auth ] || { echo forged >&2; exit 1; }\n");
    let done = computer.install_here(&[]).exited(2);
    assert!(done.stderr.contains("forged\nerror: the provenance of "), "{}", done.stderr);
    computer.install_here(&["--provenance", "off"]).succeeded();
}

#[test]
fn invalid_options_are_refused_before_anything_is_fetched() {
    let computer = Computer::new();
    for (options, words) in [
        (&["--version"][..], "no value given: --version"),
        (&["--prefix=/usr"], "unknown option: --prefix=/usr"),
        (&["--version", "../1.0.0"], "not a version: ../1.0.0"),
        (&["--version", "1.0.0\n2"], "not a version: 1.0.0"),
        (&["--download-url", "http://example.com"], "begins with https://: http://example.com"),
        (&["--download-url", "http://127.0.0.1.example.com"], "begins with https://: "),
        (&["--download-url", "https://example.com"], "a mirror does not say which release"),
        (&["--provenance", "maybe"], "none of auto, required, off: maybe"),
    ] {
        let done = computer.install(options).exited(2);
        assert!(done.stderr.contains(words), "{words}: {}", done.stderr);
    }
    computer.put_program("uname", "#!/bin/sh\necho Plan9\n");
    let done = computer.install_here(&[]).exited(2);
    assert!(done.stderr.contains("no release for this platform: Plan9"), "{}", done.stderr);
    assert_eq!(computer.page.asked(), [""; 0]);
    assert!(computer.install(&["--help"]).succeeded().stdout.starts_with("Install ondeck\n"));
}
