//! The terminal while the program has it: raw, on its alternate screen, and given back at the end,
//! also after an error, a panic or a signal.

use std::io::{Stdout, Write, stdout};

use ondeck_core::model::timestamp::Timestamp;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::view::View;
use super::{clipboard, draw};

/// Gives the terminal back when it is dropped.
pub(super) struct Session {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Whether colours are wanted. Words say the same.
    coloured: bool,
}

impl Session {
    /// Takes the terminal. Fails if it cannot be drawn on.
    pub(super) fn begin() -> std::io::Result<Session> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        enable_raw_mode()?;
        let entered = execute!(stdout(), EnterAlternateScreen, Hide);
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match terminal {
            Ok(terminal) => Ok(Session { terminal, coloured: is_coloured() }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    pub(super) fn draw(&mut self, view: &mut View, now: Timestamp) -> std::io::Result<()> {
        let coloured = self.coloured;
        self.terminal.draw(|frame| draw::draw(frame, view, now, coloured)).map(drop)
    }

    /// Puts a text on the clipboard, if the terminal can.
    pub(super) fn copy(&mut self, text: &str) -> std::io::Result<()> {
        let mut stdout = stdout();
        stdout.write_all(clipboard::sequence(text).as_bytes())?;
        stdout.flush()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        restore();
    }
}

/// By the same rules as everything else that the program prints.
fn is_coloured() -> bool {
    anstream::AutoStream::choice(&stdout()) != anstream::ColorChoice::Never
}

/// A terminal that is gone needs nothing.
fn restore() {
    drop(execute!(stdout(), LeaveAlternateScreen, Show));
    drop(disable_raw_mode());
}
