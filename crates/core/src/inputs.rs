//! Every input of the program, each in one row.
//!
//! A row states an input's name, value, parser, default, help, modes and scope. Flags,
//! environment variables, stored settings, the inputs of `action.yml` and the reference page are
//! made from the rows, and adapters read their settings by the names in them. Core declares its
//! own rows beside the types that they fill: [`times`], [`crate::model::settings`] and
//! [`crate::modes::provision`]. Each adapter crate has a table of its own.

mod file;
mod given;
pub mod times;

pub use file::{FileForm, FileKey};
pub use given::Given;

use crate::model::ids::RunId;

/// One input: the row from which its flag, variable, setting and documentation are made.
#[derive(Debug, Clone, Copy)]
pub struct Input {
    /// The name as a flag, as a stored setting and as an input of the action.
    pub name: &'static str,
    /// A one-letter form of the flag.
    pub short: Option<char>,
    pub value: InputValue,
    pub default: InputDefault,
    /// One sentence for `--help` and the reference, without the default.
    pub help: &'static str,
    /// The commands that take it.
    pub modes: &'static [Mode],
    pub scope: InputScope,
    /// Fails with what is wrong with a text, worded to follow the input's name.
    pub check: fn(&str) -> Result<(), String>,
    /// Names of inputs that cannot be given together with this one.
    pub conflicts_with: &'static [&'static str],
    /// Names of inputs that must be given together with this one.
    pub requires: &'static [&'static str],
    pub action: ActionInput,
    /// Where a stored setting is in `ondeck.toml`; `None` for every other input.
    pub file: Option<FileKey>,
}

/// What follows the flag on a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputValue {
    /// A text, shown in the help as this placeholder.
    Text(&'static str),
    /// One of these words.
    Choice(&'static str, &'static [&'static str]),
    /// Nothing; its presence means `true`.
    Switch,
    /// Nothing; its value is how often it is given.
    Count,
}

/// What an input means when it is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputDefault {
    /// The input has no effect.
    None,
    /// The same as giving this text.
    Value(&'static str),
    /// Decided elsewhere, as described here for people.
    Described(&'static str),
}

/// How far the effect of an input reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputScope {
    /// Given to refresh, it is stored for every run and every agent until refresh is given another
    /// value. Given to another command, it replaces the stored value for that call.
    Stored,
    /// One call of one command.
    Call,
    /// The process: where it connects to, and what it prints.
    Process,
    /// One call. It is neither stored nor shown, and GitHub is told to mask it.
    Secret,
}

/// The commands of the program that take inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Refresh,
    Provision,
    Release,
    Run,
    Status,
    Explain,
    Doctor,
    Drill,
    Cost,
    Simulate,
    Watch,
    Dashboard,
    Connect,
    Permissions,
    Init,
    Config,
    Apply,
    Drain,
    Retire,
    Terminate,
    Pool,
    Teardown,
    Demo,
    Agent,
}

/// How an input appears in `action.yml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionInput {
    /// As on the command line, if one of its modes is a mode of the action.
    Same,
    /// With a help or a default of its own. `step_output` says that the action's install step finds
    /// a value when neither the input nor its variable is given.
    Adapted { help: &'static str, default: Option<&'static str>, step_output: bool },
    /// The action has no such input.
    Absent,
}

/// The inputs that one crate declares about one subject.
#[derive(Debug, Clone, Copy)]
pub struct InputTable {
    /// The heading in the help; empty for a command's main options.
    pub heading: &'static str,
    pub rows: &'static [Input],
}

impl Mode {
    /// In the order of the help.
    pub const ALL: [Mode; 24] = [
        Mode::Refresh,
        Mode::Provision,
        Mode::Release,
        Mode::Run,
        Mode::Status,
        Mode::Explain,
        Mode::Doctor,
        Mode::Drill,
        Mode::Cost,
        Mode::Simulate,
        Mode::Watch,
        Mode::Dashboard,
        Mode::Connect,
        Mode::Permissions,
        Mode::Init,
        Mode::Config,
        Mode::Apply,
        Mode::Drain,
        Mode::Retire,
        Mode::Terminate,
        Mode::Pool,
        Mode::Teardown,
        Mode::Demo,
        Mode::Agent,
    ];

    /// The modes that the GitHub action offers.
    pub const OF_ACTION: [Mode; 4] = [Mode::Refresh, Mode::Provision, Mode::Release, Mode::Apply];

    /// The command's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Refresh => "refresh",
            Mode::Provision => "provision",
            Mode::Release => "release",
            Mode::Run => "run",
            Mode::Status => "status",
            Mode::Explain => "explain",
            Mode::Doctor => "doctor",
            Mode::Drill => "drill",
            Mode::Cost => "cost",
            Mode::Simulate => "simulate",
            Mode::Watch => "watch",
            Mode::Dashboard => "dashboard",
            Mode::Connect => "connect",
            Mode::Permissions => "permissions",
            Mode::Init => "init",
            Mode::Config => "config",
            Mode::Apply => "apply",
            Mode::Drain => "drain",
            Mode::Retire => "retire",
            Mode::Terminate => "terminate",
            Mode::Pool => "pool",
            Mode::Teardown => "teardown",
            Mode::Demo => "demo",
            Mode::Agent => "agent",
        }
    }
}

impl Input {
    const fn new(
        name: &'static str,
        value: InputValue,
        help: &'static str,
        modes: &'static [Mode],
        scope: InputScope,
    ) -> Input {
        Input {
            name,
            short: None,
            value,
            default: InputDefault::None,
            help,
            modes,
            scope,
            check: |_| Ok(()),
            conflicts_with: &[],
            requires: &[],
            action: ActionInput::Same,
            file: None,
        }
    }

    /// A setting that refresh stores.
    pub const fn stored(
        name: &'static str,
        placeholder: &'static str,
        help: &'static str,
    ) -> Input {
        let value = InputValue::Text(placeholder);
        Input::new(name, value, help, &[Mode::Refresh], InputScope::Stored)
    }

    /// An option for one call of these modes.
    pub const fn call(
        name: &'static str,
        placeholder: &'static str,
        help: &'static str,
        modes: &'static [Mode],
    ) -> Input {
        Input::new(name, InputValue::Text(placeholder), help, modes, InputScope::Call)
    }

    /// A switch for one call of these modes.
    pub const fn switch(name: &'static str, help: &'static str, modes: &'static [Mode]) -> Input {
        Input::new(name, InputValue::Switch, help, modes, InputScope::Call)
    }

    /// A secret for one call, of refresh unless other modes are named.
    pub const fn secret(
        name: &'static str,
        placeholder: &'static str,
        help: &'static str,
    ) -> Input {
        let value = InputValue::Text(placeholder);
        Input::new(name, value, help, &[Mode::Refresh], InputScope::Secret)
    }

    /// An option of the process, for every command.
    pub const fn process(
        name: &'static str,
        placeholder: &'static str,
        help: &'static str,
    ) -> Input {
        Input::new(name, InputValue::Text(placeholder), help, &Mode::ALL, InputScope::Process)
    }

    /// The same input as a switch or a counter, with a one-letter form if it has one.
    #[must_use]
    pub const fn valued(self, value: InputValue, short: Option<char>) -> Input {
        Input { value, short, ..self }
    }

    /// The same input, taken by these modes.
    #[must_use]
    pub const fn of_modes(self, modes: &'static [Mode]) -> Input {
        Input { modes, ..self }
    }

    /// The same input, with the text that it stands for when it is not given.
    #[must_use]
    pub const fn or(self, default: &'static str) -> Input {
        Input { default: InputDefault::Value(default), ..self }
    }

    /// The same input, with words for people about where its value comes from when it is not given.
    #[must_use]
    pub const fn or_described(self, default: &'static str) -> Input {
        Input { default: InputDefault::Described(default), ..self }
    }

    /// The same input, whose texts must pass this check.
    #[must_use]
    pub const fn checked(self, check: fn(&str) -> Result<(), String>) -> Input {
        Input { check, ..self }
    }

    /// The same input, which cannot be combined with those named.
    #[must_use]
    pub const fn conflicting(self, conflicts_with: &'static [&'static str]) -> Input {
        Input { conflicts_with, ..self }
    }

    /// The same input, which needs those named.
    #[must_use]
    pub const fn requiring(self, requires: &'static [&'static str]) -> Input {
        Input { requires, ..self }
    }

    /// The same input, appearing in `action.yml` like this.
    #[must_use]
    pub const fn in_action(self, action: ActionInput) -> Input {
        Input { action, ..self }
    }

    /// The same setting, written like this in this table of `ondeck.toml`.
    #[must_use]
    pub const fn in_file(self, table: &'static str, form: FileForm) -> Input {
        Input { file: Some(FileKey { table, form }), ..self }
    }

    /// The environment variable that gives the input.
    pub fn variable(&self) -> String {
        format!("ONDECK_{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// Whether the input can be given by its variable. Switches that only concern a person at a
    /// terminal, such as `--json`, cannot.
    pub fn has_variable(&self) -> bool {
        match self.value {
            InputValue::Text(_) | InputValue::Choice(..) => true,
            InputValue::Switch => self.is_in_action(),
            InputValue::Count => false,
        }
    }

    /// Whether the action has an input of this name.
    pub fn is_in_action(&self) -> bool {
        self.action != ActionInput::Absent && Mode::OF_ACTION.iter().any(|mode| self.is_of(*mode))
    }

    /// Whether the command takes the input.
    pub fn is_of(&self, mode: Mode) -> bool {
        self.modes.contains(&mode)
    }

    /// Whether every command takes the input.
    pub fn is_of_every_mode(&self) -> bool {
        Mode::ALL.iter().all(|mode| self.is_of(*mode))
    }

    /// Whether an empty text means that the input is not given. For a stored setting it means
    /// that the setting goes back to its default.
    pub fn may_be_empty(&self) -> bool {
        self.scope == InputScope::Stored
    }
}

/// The run that provision and release work for.
pub const RUN_ID: Input = Input::call(
    "run-id",
    "ID",
    "Workflow run; also the label of its machines",
    &[Mode::Provision, Mode::Release, Mode::Run],
)
.or_described("GITHUB_RUN_ID")
.checked(|text| text.parse::<RunId>().map(drop).map_err(|error| error.to_string()));

/// Every table of core, in the order of the help.
pub const TABLES: &[InputTable] = &[
    InputTable { heading: "", rows: &[RUN_ID] },
    InputTable { heading: "", rows: crate::modes::provision::INPUTS },
    InputTable { heading: "", rows: crate::modes::release::INPUTS },
    InputTable { heading: "", rows: &[crate::modes::refresh::TIME_LIMIT] },
    InputTable { heading: "", rows: crate::model::settings::INPUTS },
];

/// Declares a struct together with the rows that fill it. Each field states its type, its parser
/// and its row; an input that is added here needs no other declaration. The parser takes a `&str`
/// and fails with a text. A field starts as its row's default value; one whose row has none states
/// its first value after `=`. The fields after `also` are not inputs.
macro_rules! input_struct {
    (@first $parse:expr, $row:expr, $first:expr) => { $first };
    (@first $parse:expr, $row:expr) => {
        match $row.default {
            $crate::inputs::InputDefault::Value(text) => {
                let parsed: Result<_, String> = ($parse)(text);
                parsed.expect("a row's parser accepts the row's default")
            }
            _ => unreachable!("the row has a default value"),
        }
    };
    (
        $(#[$attribute:meta])*
        pub struct $name:ident, rows $rows:ident;
        $($field:ident: $type:ty $(= $first:expr)?, $parse:expr, $row:expr;)*
        $(; also { $($(#[$other_attribute:meta])* $other:ident: $other_type:ty;)* })?
    ) => {
        $(#[$attribute])*
        pub struct $name {
            $(pub $field: $type,)*
            $($($(#[$other_attribute])* pub $other: $other_type,)*)?
        }

        /// The rows of the fields.
        pub const $rows: &[$crate::inputs::Input] = &[
            $($row.checked(|text| {
                let parsed: Result<$type, String> = ($parse)(text);
                parsed.map(drop)
            }),)*
        ];

        impl Default for $name {
            fn default() -> $name {
                $name {
                    $($field: input_struct!(@first $parse, $row $(, $first)?),)*
                    $($($other: Default::default(),)*)?
                }
            }
        }

        impl $name {
            /// Sets the field of the input with this name. Returns whether there is one; fails with
            /// what is wrong with the text.
            pub fn set_input(&mut self, name: &str, text: &str) -> Result<bool, String> {
                $(if name == $row.name {
                    let parsed: Result<$type, String> = ($parse)(text);
                    self.$field = parsed?;
                    return Ok(true);
                })*
                Ok(false)
            }
        }
    };
}
pub(crate) use input_struct;
