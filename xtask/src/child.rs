//! Child processes that do not outlive this program, even if it is interrupted or killed: a shell
//! in a process group of its own, which Ctrl-C does not reach, waits until the pipe that only this
//! program holds is closed, and then terminates the child.

use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use crate::console::log;

/// Runs a command and waits for it. If this program dies first, the command gets SIGTERM; what the
/// command itself has started is left to the command.
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

/// Starts a shell that sends SIGTERM to the process when this program is gone.
fn watch(process: &Child) -> io::Result<Child> {
    /// Reading a line means that the process has ended by itself.
    const WORK: &str = "read -r _ || kill -TERM \"$1\"";

    Command::new("sh")
        .args(["-c", WORK, "sh", &process.id().to_string()])
        .process_group(0)
        .stdin(Stdio::piped())
        // A reader of this program's output must not have to wait for the shell.
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

/// A background process. Dropping this kills its whole process group.
#[derive(Debug)]
pub(crate) struct Background {
    process: Child,
    /// Taken out of `process`, because waiting for a process closes its stdin first.
    pipe: Option<ChildStdin>,
}

impl Background {
    /// Prepares a command for [`Background::start`]. The caller may add arguments, environment
    /// variables and outputs, but not stdin.
    pub(crate) fn command(program: &Path) -> Command {
        /// The background shell kills its own process group, so it cannot hit an unrelated process
        /// even if the program has ended. The program replaces the foreground shell.
        const WORK: &str = "exec 3<&0 </dev/null; (read -r _ <&3; kill -KILL 0) & exec \"$@\" 3<&-";

        let mut command = Command::new("sh");
        command.args(["-c", WORK, "sh"]).arg(program).process_group(0).stdin(Stdio::piped());
        command
    }

    /// Starts a command made by [`Background::command`].
    pub(crate) fn start(command: &mut Command) -> io::Result<Background> {
        let mut process = command.spawn()?;
        let pipe = process.stdin.take();
        Ok(Background { process, pipe })
    }

    /// The id of the program's process, which replaces the shell that starts it.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the process ends.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }

    /// The exit status, or `None` while the process still runs.
    pub(crate) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.pipe.take());
        // The shell does this too, but waiting here must not depend on the shell.
        let killed = self.process.kill().and_then(|()| self.process.wait());
        if let Err(error) = killed {
            log(&format!("warning: process {} may still run: {error}", self.process.id()));
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
    fn a_command_gets_sigterm_when_this_program_is_gone() {
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
    fn dropping_a_background_process_kills_its_group() {
        // Two processes hold the writing end of the output, so the end of the output proves that
        // both are gone.
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
    fn a_background_process_that_exits_is_noticed() {
        let mut background =
            Background::start(&mut Background::command(Path::new("true"))).unwrap();
        // Wait first: dropping would kill it and hide the difference.
        background.process.wait().unwrap();
        assert!(background.ended().unwrap().is_some_and(|status| status.success()));
    }
}
