//! A shell of root on the guest, at its second serial port.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long one read waits.
const BREATH: Duration = Duration::from_millis(200);
/// How often a shell that has not answered yet is asked again. What is sent before it runs is lost.
const AGAIN: Duration = Duration::from_secs(3);
/// How long a command may take.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Shell {
    port: UnixStream,
    heard: String,
    count: u32,
}

impl Shell {
    /// Connects to the port and waits until a shell answers.
    pub(crate) fn connect(path: &Path, at_most: Duration) -> Result<Shell, String> {
        let port = UnixStream::connect(path).and_then(|port| {
            port.set_read_timeout(Some(BREATH))?;
            Ok(port)
        });
        let port = port.map_err(|error| format!("{}: {error}", path.display()))?;
        let mut shell = Shell { port, heard: String::new(), count: 0 };
        let deadline = Instant::now() + at_most;
        while Instant::now() < deadline {
            // Split, so that an echo of the command is not taken for its answer.
            shell.send("export SYSTEMD_COLORS=0 SYSTEMD_PAGER=; echo he''re")?;
            if shell.hear("here\n", AGAIN).is_ok() {
                return Ok(shell);
            }
        }
        Err(format!("no shell on the guest within {} s", at_most.as_secs()))
    }

    /// Runs a command as root and returns what it prints. Fails if the command does.
    pub(crate) fn run(&mut self, command: &str) -> Result<String, String> {
        self.count += 1;
        let (begin, end) = (format!("begin-{}\n", self.count), format!("end-{} ", self.count));
        let number = self.count;
        self.send(&format!(
            "echo begin''-{number}; {{ {command}\n}} 2>&1; echo; echo end''-{number} $?"
        ))?;
        self.hear(&begin, LIMIT)?;
        let text = self.hear(&end, LIMIT).map_err(|error| format!("{error}: {command}"))?;
        let status = self.hear("\n", LIMIT)?;
        let text = text.trim_end().to_owned();
        if status.trim() == "0" { Ok(text) } else { Err(format!("{command}: {text}")) }
    }

    fn send(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.port, "{line}").map_err(|error| format!("the guest's shell: {error}"))
    }

    /// Returns what comes before `words`, and drops both.
    fn hear(&mut self, words: &str, at_most: Duration) -> Result<String, String> {
        let deadline = Instant::now() + at_most;
        loop {
            if let Some(at) = self.heard.find(words) {
                let before = self.heard[..at].to_owned();
                self.heard.drain(..at + words.len());
                return Ok(before);
            }
            if Instant::now() > deadline {
                return Err(format!("the guest's shell does not answer: {:?}", self.heard));
            }
            let mut buffer = [0; 4_096];
            match self.port.read(&mut buffer) {
                Ok(0) => return Err("the guest's shell is gone".to_owned()),
                Ok(count) => {
                    let text = String::from_utf8_lossy(&buffer[..count]);
                    self.heard.push_str(&text.replace('\r', ""));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(format!("the guest's shell: {error}")),
            }
        }
    }
}
