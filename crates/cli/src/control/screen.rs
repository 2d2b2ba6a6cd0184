//! The size of the terminal.

use std::io::IsTerminal;

/// How much a terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Screen {
    pub(crate) columns: u16,
    pub(crate) rows: u16,
}

/// Where a terminal does not tell its size.
const USUAL: Screen = Screen { columns: 80, rows: 24 };

/// The screen that stdout is shown on; `None` if stdout is no terminal.
pub(crate) fn screen() -> Option<Screen> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let told = rustix::termios::tcgetwinsize(&stdout).ok();
    let told = told.map(|size| Screen { columns: size.ws_col, rows: size.ws_row });
    Some(told.filter(|screen| screen.columns > 0 && screen.rows > 0).unwrap_or(USUAL))
}
