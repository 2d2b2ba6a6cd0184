//! Jobs that run as a user of their own, on the local backend.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use ondeck_standin::not_applicable;

use super::harness::{GitHubHarness, github};
use crate::harness::{Driven, Home, TIMES};

/// An unused user name. The user that the program creates with it is deleted on drop.
struct TemporaryUser(String);

impl Drop for TemporaryUser {
    fn drop(&mut self) {
        Command::new("userdel").args(["-f", &self.0]).output().unwrap();
    }
}

/// The runner must be able to list every folder above it, and the store with the tokens is in one of
/// them.
#[test]
fn a_job_with_a_user_of_its_own_reads_neither_the_store_nor_the_logs() {
    if !rustix::process::geteuid().is_root() {
        not_applicable("root: a runner with a user of its own on the local backend");
        return;
    }
    let user = TemporaryUser(format!("ondeck-own-{}", std::process::id()));
    let harness = GitHubHarness { pool: Home::bare(), github: github() };
    fs::set_permissions(harness.pool.outside(), fs::Permissions::from_mode(0o755)).unwrap();
    // The script fails if the user does not exist yet.
    let script = format!("id -u {0} && echo a-secret-of-the-script", user.0);
    let inputs = [format!("--runner-user={}", user.0), format!("--pre-runner-script={script}")];
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    harness.ondeck(&[&["refresh"], &TIMES[..], &inputs].concat()).succeeded();
    harness.provision("1", 1).succeeded();

    let home = harness.pool.dir().display().to_string();
    let job = format!(
        r#"
        echo "as $(id -un)"
        ls {home} >/dev/null && echo "lists the home"
        echo "reads: $(find {home} -type f -readable -not -path '{home}/machines/*/*/*' 2>/dev/null)"
        echo "writes: $(find {home} -writable -not -path '{home}/machines/*/*' 2>/dev/null)"
        "#
    );
    let job = harness.done(harness.queue("1", &job));
    let expected = format!("as {}\nlists the home\nreads: \nwrites: \n", user.0);
    assert_eq!(
        job.log
            .lines()
            .filter(|line| !line.starts_with("A job "))
            .fold(String::new(), |all, line| all + line + "\n"),
        expected
    );
    let mode = |path: &str| {
        let found = fs::metadata(harness.pool.dir().join(path)).unwrap();
        found.permissions().mode() & 0o777
    };
    let modes = ["", "machines", "logs", "ondeck.db"].map(mode);
    assert_eq!(modes, [0o755, 0o755, 0o700, 0o600]);
    for log in fs::read_dir(harness.pool.dir().join("logs")).unwrap() {
        assert_eq!(log.unwrap().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    harness.release("1").succeeded();
}
