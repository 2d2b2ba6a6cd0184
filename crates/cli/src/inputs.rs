//! The command line, made from the tables of inputs.
//!
//! Core and each adapter declare their own rows; the rows that belong to the program itself are in
//! [`rows`](mod@rows). Nothing here names an option, apart from those that choose what the process does.

pub(crate) mod command_line;
mod help;
#[cfg(feature = "init")]
pub(crate) mod init;
mod misuse;
#[cfg(all(feature = "control", feature = "github"))]
pub(crate) mod notices;
pub(crate) mod rows;
pub(crate) mod simulate;

use std::path::PathBuf;

use ondeck_core::inputs::{Given, Input, InputTable};

#[cfg(all(feature = "aws", feature = "control"))]
pub(crate) use self::command_line::read_variables;
pub(crate) use self::command_line::{Invocation, read};

/// What every command knows about its process.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(feature = "control"),
    expect(dead_code, reason = "an agent prints neither JSON nor text")
)]
pub(crate) struct Common {
    /// Where the store and the pool are.
    pub(crate) records: Backend,
    /// Where machines are launched.
    pub(crate) compute: Backend,
    pub(crate) home: Option<PathBuf>,
    pub(crate) json: bool,
    pub(crate) verbose: u8,
    pub(crate) quiet: bool,
    /// All that was given, for the command itself and for the adapters.
    pub(crate) given: Given,
}

/// What records or machines can be on. Every build knows the names; one without an adapter says so
/// when it is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    /// One SQLite file, and processes on this computer as machines.
    Local,
    /// DynamoDB, SQS and EC2.
    Aws,
}

impl Common {
    /// Reads what the inputs say about the process.
    pub(crate) fn from_inputs(given: Given) -> Common {
        let chosen = |row| match given.text(row).or(given.text_or_default(&rows::BACKEND)) {
            Some(rows::AWS) => Backend::Aws,
            _ => Backend::Local,
        };
        Common {
            records: chosen(&rows::RECORDS),
            compute: chosen(&rows::COMPUTE),
            home: given.text(&rows::HOME).map(PathBuf::from),
            json: given.is_set(&rows::JSON),
            verbose: given.text(&rows::VERBOSE).and_then(|count| count.parse().ok()).unwrap_or(0),
            quiet: given.is_set(&rows::QUIET),
            given,
        }
    }
}

/// Every table of this build, in the order of the help.
pub(crate) fn tables() -> impl Iterator<Item = &'static InputTable> {
    const ADAPTERS: &[InputTable] = &[
        simulate::SIMULATE,
        #[cfg(feature = "init")]
        init::INIT,
        #[cfg(feature = "github")]
        ondeck_github::INPUTS,
        #[cfg(all(feature = "control", feature = "github"))]
        notices::NOTICES,
        #[cfg(feature = "aws")]
        ondeck_aws::INPUTS,
        #[cfg(feature = "local")]
        ondeck_local::INPUTS,
    ];
    const LAST: &[InputTable] = &[ondeck_core::inputs::times::TABLE, rows::PROCESS];
    [ondeck_core::inputs::TABLES, rows::COMMANDS, ADAPTERS, LAST].into_iter().flatten()
}

/// Every row of this build.
pub(crate) fn rows() -> impl Iterator<Item = &'static Input> {
    tables().flat_map(|table| table.rows)
}
