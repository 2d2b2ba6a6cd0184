//! Prints the story on stdout, in colour on terminals.

use std::cell::RefCell;
use std::time::Instant;

use anstyle::{AnsiColor, Style};

use ondeck_core::model::failure::Failure;

use crate::control::report::print;
use crate::output::unwritten;

pub(super) struct Narrator {
    started: Instant,
    /// The first failure to print.
    unwritten: RefCell<Option<Failure>>,
}

const fn colour(colour: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(colour)))
}

const TITLE: Style = Style::new().bold();
const COMMAND: Style = colour(AnsiColor::Cyan);
const GOOD: Style = colour(AnsiColor::Green);
const BAD: Style = colour(AnsiColor::Red);
const QUIET: Style = Style::new().dimmed();

impl Narrator {
    /// Prints the first lines. Fails if stdout cannot be written.
    pub(super) fn start() -> Result<Narrator, Failure> {
        let narrator = Narrator { started: Instant::now(), unwritten: RefCell::new(None) };
        narrator.print(&format!(
            "{TITLE}ondeck{TITLE:#}: the life of a runner pool, in under a minute.\n\
             Machines are real processes on this computer, each with an agent; they share one \
             SQLite file.\n\
             A machine boots in 1.5 s here instead of the 20 s or more of a cloud, and every \
             deadline is shorter."
        ));
        narrator.written()?;
        Ok(narrator)
    }

    /// Fails if anything could not be printed.
    pub(super) fn written(&self) -> Result<(), Failure> {
        self.unwritten.borrow().clone().map_or(Ok(()), Err)
    }

    fn print(&self, text: &str) {
        if let Err(error) = print(text) {
            let failure = unwritten("stdout", &error);
            self.unwritten.replace_with(|first| first.take().or(failure));
        }
    }

    /// Begins a chapter. Fails if anything before it could not be printed.
    pub(super) fn chapter(&self, title: &str) -> Result<(), Failure> {
        let at = self.started.elapsed().as_secs_f64();
        self.print(&format!("\n{QUIET}{at:5.1}s{QUIET:#}  {TITLE}{title}{TITLE:#}"));
        self.written()
    }

    /// Prints a command as a user would type it.
    pub(super) fn command(&self, arguments: &[&str]) {
        let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
        self.print(&format!("        {COMMAND}$ ondeck {}{COMMAND:#}", words.join(" ")));
    }

    pub(super) fn say(&self, text: &str) {
        for line in text.lines() {
            self.print(&format!("        {line}"));
        }
    }

    /// Prints a claim that was checked and holds.
    pub(super) fn good(&self, text: &str) {
        self.print(&format!("      {GOOD}✓{GOOD:#} {text}"));
    }

    /// Prints a claim that does not hold.
    pub(super) fn bad(&self, text: &str) {
        self.print(&format!("      {BAD}✗ {text}{BAD:#}"));
    }

    pub(super) fn aside(&self, text: &str) {
        self.print(&format!("        {QUIET}{text}{QUIET:#}"));
    }

    /// Prints the last line.
    pub(super) fn end(&self) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.print(&format!(
            "\n{TITLE}Every machine is accounted for, none was shared, and nothing is left{TITLE:#} \
             ({seconds:.0} s). Next: ondeck --help"
        ));
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./*&".contains(c);
    if word.chars().all(plain) && !word.is_empty() { word.to_owned() } else { format!("'{word}'") }
}
