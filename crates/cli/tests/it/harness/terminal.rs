//! A pseudo-terminal that stands for the terminal of a process.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A process whose stdout and stderr are one terminal.
pub(crate) struct AtTerminal {
    child: Child,
    controller: File,
    output: Vec<u8>,
}

impl AtTerminal {
    pub(crate) fn start(mut command: Command) -> AtTerminal {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let terminal: OwnedFd = File::options().write(true).open(path).unwrap().into();
        command.stdin(Stdio::null()).stderr(terminal.try_clone().unwrap()).stdout(terminal);
        let child = command.spawn().unwrap();
        // With the command go this process's own handles of the terminal.
        drop(command);
        AtTerminal { child, controller: controller.into(), output: Vec::new() }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// Reads until these words are there so many times. Panics if the process ends before.
    pub(crate) fn until_it_prints(&mut self, words: &str, times: usize) {
        while self.text().matches(words).count() < times {
            assert!(self.read(), "it has ended: {}", self.text());
        }
    }

    /// Reads once. Returns whether the terminal is still open.
    fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        // The last process that has the terminal open ends the reading with an error.
        let count = self.controller.read(&mut buffer).unwrap_or(0);
        self.output.extend_from_slice(&buffer[..count]);
        count > 0
    }

    pub(crate) fn interrupt(&self) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
    }

    /// Everything that it prints until its end.
    pub(crate) fn finish(mut self) -> String {
        while self.read() {}
        self.child.wait().unwrap();
        self.text()
    }
}
