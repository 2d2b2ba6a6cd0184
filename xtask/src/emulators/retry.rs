//! Retries of commands, and pauses where there is no event to wait for.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::child;
use crate::console::log;
use crate::error::TaskError;

/// The pauses between attempts. Registries refuse callers now and then for a while.
const PAUSES: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(30)];

/// Runs a command that needs the network until it succeeds, at most four times. Fails with the last
/// error. The command's stdout is discarded, so that it does not mix with our data.
pub(super) fn retry_until_success(command: &mut Command) -> Result<(), TaskError> {
    attempt(&PAUSES, command)
}

/// Runs a command once. Fails if the command does.
pub(super) fn once(command: &mut Command) -> Result<(), TaskError> {
    attempt(&[], command)
}

fn attempt(pauses: &[Duration], command: &mut Command) -> Result<(), TaskError> {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut pauses = pauses.iter();
    loop {
        let failure = match child::run(command) {
            Ok(status) if status.success() => return Ok(()),
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let Some(&next) = pauses.next() else {
            return Err(TaskError::new(
                format!("{failure}: {}", line(command)),
                "what it says itself is above; the registries of npm and PyPI have to be in reach",
            ));
        };
        log(&format!("{failure}; again in {} s: {}", next.as_secs(), line(command)));
        pause(next);
    }
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.display().to_string()).collect::<Vec<_>>().join(" ")
}

#[expect(clippy::disallowed_methods, reason = "there is no event to wait for")]
pub(super) fn pause(how_long: Duration) {
    std::thread::sleep(how_long);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_passes_is_forgiven() {
        let folder = std::env::temp_dir().join(format!("ondeck-retry-{}", std::process::id()));
        let script =
            format!("mkdir {folder}/a || {{ mkdir {folder}; false; }}", folder = folder.display());
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stderr(Stdio::null());
        assert!(once(&mut command).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(attempt(&[Duration::from_millis(1)], &mut command), Ok(()));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_failure_that_stays_is_told_with_its_command() {
        let failed = once(Command::new("sh").args(["-c", "exit 3"]));
        let expected = TaskError::new(
            "exit status: 3: sh -c exit 3",
            "what it says itself is above; the registries of npm and PyPI have to be in reach",
        );
        assert_eq!(failed, Err(expected));
    }
}
