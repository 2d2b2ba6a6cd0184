//! Nothing that we start outlives us, whether we end, are interrupted or are killed outright: a
//! shell waits for the end of a pipe that only we hold, in a process group that the keyboard does
//! not reach.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use crate::say::say;

/// Runs a command to its end. If we are gone before, it is asked to end too; what it has started
/// itself is then its own affair.
pub(crate) fn run(command: &mut Command) -> io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    let watch = match watch(&child) {
        Ok(watch) => watch,
        Err(error) => {
            child.kill()?;
            child.wait()?;
            return Err(error);
        }
    };
    let status = child.wait()?;
    call_off(watch)?;
    Ok(status)
}

/// Asks the process to end when we are gone.
fn watch(process: &Child) -> io::Result<Child> {
    /// A line says that there is nobody left to end.
    const WORK: &str = "read -r _ || kill -TERM \"$1\"";

    Command::new("sh")
        .args(["-c", WORK, "sh", &process.id().to_string()])
        .process_group(0)
        .stdin(Stdio::piped())
        // Whoever reads our output must not have to wait for the shell.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn call_off(mut watch: Child) -> io::Result<()> {
    if let Some(mut pipe) = watch.stdin.take() {
        pipe.write_all(b"\n")?;
    }
    watch.wait().map(drop)
}

/// A process that stays in the background until this is dropped, in a process group of its own
/// that is killed as a whole.
#[derive(Debug)]
pub(crate) struct Background {
    process: Child,
    /// Not left in `process`, which would close it before any wait.
    pipe: Option<ChildStdin>,
}

impl Background {
    /// A command that arguments, surroundings and outputs can be added to.
    pub(crate) fn command(program: &Path) -> Command {
        /// Killing its own group, the shell in the background cannot hit a stranger, even if the
        /// program is long gone. The program takes the place of the shell in the foreground.
        const WORK: &str = "exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) & exec \"$@\" 3<&-";

        let mut command = Command::new("sh");
        command.args(["-c", WORK, "sh"]).arg(program).process_group(0).stdin(Stdio::piped());
        command
    }

    /// Starts what was made by [`Background::command`].
    pub(crate) fn start(command: &mut Command) -> io::Result<Background> {
        let mut process = command.spawn()?;
        let pipe = process.stdin.take();
        Ok(Background { process, pipe })
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // The shell is about to do this too. But whoever waits must not depend on it.
        let killed = self.process.kill().and_then(|()| self.process.wait());
        if let Err(error) = killed {
            say(&format!("warning: process {} may still run: {error}", self.process.id()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_command_runs_to_its_end() {
        let status = run(Command::new("sh").args(["-c", "exit 7"])).unwrap();
        assert_eq!(status.code(), Some(7));
        assert!(run(&mut Command::new("./is-not-there")).is_err());
    }

    #[test]
    fn a_command_is_asked_to_end_if_nobody_waits_for_it_any_more() {
        const SIGTERM: i32 = 15;
        let mut child = Command::new("sleep").arg("300").spawn().unwrap();
        call_off(watch(&child).unwrap()).unwrap();
        assert_eq!(child.try_wait().unwrap(), None);
        let mut watch = watch(&child).unwrap();
        drop(watch.stdin.take());
        assert_eq!(child.wait().unwrap().signal(), Some(SIGTERM));
        watch.wait().unwrap();
    }

    #[test]
    fn a_whole_group_ends_with_what_holds_it() {
        // Two processes hold the writing end of the output, so that its end means that both are
        // gone.
        let mut command = Background::command(Path::new("sh"));
        command.args(["-c", "sleep 300 & echo ready; wait"]).stdout(Stdio::piped());
        let mut background = Background::start(&mut command).unwrap();
        let mut output = BufReader::new(background.process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        assert_eq!(background.ended().unwrap(), None);

        drop(background);
        assert_eq!(output.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn a_program_that_ends_by_itself_is_seen() {
        let mut background =
            Background::start(&mut Background::command(Path::new("true"))).unwrap();
        // Waiting must not be what ends it.
        background.process.wait().unwrap();
        assert!(background.ended().unwrap().is_some_and(|status| status.success()));
    }
}
