//! A pseudo-terminal that stands for the terminal of a process.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, Stdio};

use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::LIMIT;

/// A process whose stdout and stderr are one terminal.
pub(crate) struct AtTerminal {
    child: Child,
    controller: File,
    output: Vec<u8>,
}

impl AtTerminal {
    /// Starts it without a keyboard.
    pub(crate) fn start(command: Command) -> AtTerminal {
        AtTerminal::start_with(command, |_| Stdio::null())
    }

    /// Starts it without a keyboard, on a terminal with so many columns.
    pub(crate) fn start_sized(command: Command, columns: u16) -> AtTerminal {
        AtTerminal::start_with(command, |terminal| {
            let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
            tcsetwinsize(terminal, size).unwrap();
            Stdio::null()
        })
    }

    /// Starts it with a keyboard, for a person who answers questions.
    pub(crate) fn asking(command: Command) -> AtTerminal {
        AtTerminal::start_with(command, |terminal| terminal.try_clone().unwrap().into())
    }

    /// Starts it with a keyboard and a screen of this size, as a shell would: the terminal is its own.
    pub(crate) fn on_screen(command: &Command, columns: u16, rows: u16) -> OnScreen {
        // Only a new session can have a terminal of its own; setsid becomes the command.
        let mut own = Command::new("setsid");
        own.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => own.env(name, value),
                None => own.env_remove(name),
            };
        }
        own.env("TERM", own_term(command));
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let keyboard = |terminal: &OwnedFd| {
            tcsetwinsize(terminal, size).unwrap();
            terminal.try_clone().unwrap().into()
        };
        let at = AtTerminal::start_with(own, keyboard);
        let screen = vt100::Parser::new(cells(rows), cells(columns), 0);
        OnScreen { at, screen, parsed: 0 }
    }

    fn start_with(mut command: Command, stdin: impl Fn(&OwnedFd) -> Stdio) -> AtTerminal {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let terminal: OwnedFd = File::options().read(true).write(true).open(path).unwrap().into();
        command.stdin(stdin(&terminal));
        command.stderr(terminal.try_clone().unwrap()).stdout(terminal);
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

    /// Waits for a question and types a line.
    pub(crate) fn answer(&mut self, question: &str, line: &str) {
        self.until_it_prints(question, 1);
        self.type_line(line);
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        self.controller.write_all(format!("{line}\n").as_bytes()).unwrap();
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

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).unwrap()
}

/// The terminal that the command was told of, or one with colours.
fn own_term(command: &Command) -> String {
    let told = command.get_envs().find(|(name, _)| *name == "TERM").and_then(|(_, value)| value);
    told.map_or("xterm-256color".to_owned(), |term| term.to_string_lossy().into_owned())
}

/// A process with a keyboard, and the screen that a person sees.
pub(crate) struct OnScreen {
    at: AtTerminal,
    screen: vt100::Parser,
    /// How much of the output is on the screen.
    parsed: usize,
}

impl OnScreen {
    pub(crate) fn shown(&self) -> String {
        let rows = self.screen.screen().rows(0, u16::MAX);
        rows.map(|row| row.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn screen(&self) -> &vt100::Screen {
        self.screen.screen()
    }

    /// Everything that it has written.
    pub(crate) fn output(&self) -> String {
        self.at.text()
    }

    /// Reads until the screen is so. Panics if it is not within the limit, or if the process ends.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, so: impl Fn(&str) -> bool) -> String {
        let since = Instant::now();
        loop {
            let shown = self.shown();
            if so(&shown) {
                return shown;
            }
            assert!(since.elapsed() < LIMIT, "not within {LIMIT:?}: {what}\n{shown}");
            assert!(self.read(), "it has ended, before {what}: {}", self.at.text());
        }
    }

    fn read(&mut self) -> bool {
        let is_open = self.at.read();
        self.screen.process(&self.at.output[self.parsed..]);
        self.parsed = self.at.output.len();
        is_open
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.at.controller.write_all(keys.as_bytes()).unwrap();
    }

    /// Gives the terminal another size, as a window manager does.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        self.screen_is_cleared();
        self.screen.screen_mut().set_size(cells(rows), cells(columns));
        tcsetwinsize(&self.at.controller, size).unwrap();
    }

    /// Forgets what is on the screen, so that the next frame has to draw it.
    pub(crate) fn screen_is_cleared(&mut self) {
        self.screen.process(b"\x1b[2J\x1b[H");
    }

    pub(crate) fn signal(&self, which: Signal) {
        let pid = i32::try_from(self.at.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), which).unwrap();
    }

    /// Whether the terminal echoes what is typed, as it does for a shell.
    pub(crate) fn echoes(&self) -> bool {
        let modes = tcgetattr(&self.at.controller).unwrap().local_modes;
        modes.contains(LocalModes::ECHO | LocalModes::ICANON)
    }

    /// Waits for its end. Returns its exit code, if it was not killed, and what is on the screen. Keeps
    /// the terminal open until then, so that its modes can be looked at.
    pub(crate) fn ended(&mut self) -> (Option<i32>, String) {
        while self.read() {}
        let status = self.at.child.wait().unwrap();
        (status.code(), self.shown())
    }
}
