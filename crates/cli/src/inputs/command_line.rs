//! From rows to flags and variables, and from a command line to what was given.

use std::io::Write;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use ondeck_core::inputs::{Given, Input, InputDefault, InputScope, InputTable, InputValue, Mode};

use super::{Common, help, misuse, rows, tables};
use crate::output::unwritten;
use crate::{control, logging};

/// A command line that was understood.
#[derive(Debug)]
pub(crate) struct Invocation {
    pub(crate) command: String,
    pub(crate) common: Common,
    /// The positional arguments, for the commands that take some.
    pub(crate) arguments: Vec<String>,
}

/// The id of the positional arguments of a command.
pub(crate) const ARGUMENTS: &str = "arguments";

/// Reads the command line and the variables. Prints what is wrong with them and ends the process
/// with exit code 2; prints help and ends it with 0, or with 11 if it cannot be printed.
pub(crate) fn read() -> Invocation {
    let matches = match demo() {
        Some(matches) => matches,
        None => command_of(Variables::Taken, is_an_argument)
            .try_get_matches()
            .unwrap_or_else(|error| end(&error)),
    };
    invocation(&matches)
}

/// Reads the inputs of refresh from the variables alone. Fails with what is wrong with them.
#[cfg(all(feature = "aws", feature = "control"))]
pub(crate) fn read_variables() -> Result<Invocation, ondeck_core::model::failure::Failure> {
    let command = command_of(Variables::Taken, |mode| mode == Mode::Refresh);
    let matches = command.try_get_matches_from(["ondeck", Mode::Refresh.name()]);
    matches.map(|matches| invocation(&matches)).map_err(|error| misuse::describe(&error))
}

fn invocation(matches: &ArgMatches) -> Invocation {
    let (command, matches) = matches.subcommand().expect("a command is required");
    let arguments = matches.try_get_many::<String>(ARGUMENTS).ok().flatten();
    Invocation {
        command: command.to_owned(),
        common: Common::from_inputs(given(matches)),
        arguments: arguments.into_iter().flatten().cloned().collect(),
    }
}

/// The command line, if it is a valid one of the demo. The demo takes no variables, because its
/// pool is not the user's. The two dashes of `cargo demo -- --dashboard` arrive here, because the alias
/// has its own before them; the demo takes no arguments that they could precede.
fn demo() -> Option<ArgMatches> {
    let name = Mode::Demo.name();
    let mut arguments: Vec<_> = std::env::args_os().collect();
    let at = arguments.iter().position(|argument| argument == name)?;
    if arguments.get(at + 1).is_some_and(|argument| argument == "--") {
        arguments.remove(at + 1);
    }
    let matches =
        command_of(Variables::Ignored, is_an_argument).try_get_matches_from(arguments).ok()?;
    (matches.subcommand_name() == Some(name)).then_some(matches)
}

/// Ends the process with help, or with what is wrong with its command line.
fn end(error: &clap::Error) -> ! {
    let code = if error.use_stderr() { refuse(error) } else { inform(error) };
    std::process::exit(i32::from(code))
}

/// Prints the help or the version.
fn inform(error: &clap::Error) -> u8 {
    let printed = error.print().and_then(|()| std::io::stdout().flush());
    match printed.err().and_then(|error| unwritten("stdout", &error)) {
        None => 0,
        Some(failure) => logging::fail(&failure),
    }
}

fn refuse(error: &clap::Error) -> u8 {
    let failure = misuse::describe(error);
    if let Some(code) = control::report_early(&failure) {
        return code;
    }
    let text = error.render().to_string();
    if misuse::may_be_misread(&text) {
        return logging::fail(&failure);
    }
    drop(error.print());
    let complete = cfg!(all(feature = "aws", feature = "github"));
    if error.kind() == ErrorKind::UnknownArgument && !complete {
        logging::hint(
            "this build lacks the options of AWS or GitHub; build it with --features aws,github",
        );
    }
    failure.kind.exit_code()
}

/// Whether options can be given by variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variables {
    Taken,
    Ignored,
}

/// The command line of this build.
#[cfg(any(test, feature = "shell"))]
pub(crate) fn command() -> Command {
    command_of(Variables::Taken, |_| true)
}

/// Whether the command line can be one of this command: its name is among the arguments.
fn is_an_argument(mode: Mode) -> bool {
    std::env::args_os().skip(1).any(|argument| argument == mode.name())
}

/// The command line, with the inputs of those commands only that `is_wanted` names. The inputs of all
/// commands are more than a thousand, and making them takes milliseconds.
fn command_of(variables: Variables, is_wanted: impl Fn(Mode) -> bool) -> Command {
    let shared = |row: &&Input| row.is_of_every_mode();
    let mut command = Command::new("ondeck")
        .version(env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .after_help(help::PROGRAM)
        .max_term_width(100)
        .subcommand_required(true)
        .arg_required_else_help(true);
    for table in [&rows::PROCESS].into_iter().chain(tables().filter(|t| !is_process(t))) {
        for row in table.rows.iter().filter(shared) {
            let heading = match table.heading {
                "" => "For every command".to_owned(),
                heading => format!("{heading}, for every command"),
            };
            let argument = argument(row, None, true, variables);
            command = command.arg(argument.global(true).help_heading(heading));
        }
    }
    let modes = Mode::ALL.into_iter().filter(|mode| control::has(*mode));
    let subcommands = modes.map(|mode| match is_wanted(mode) {
        true => subcommand(mode, variables),
        false => named(mode),
    });
    command.subcommands(subcommands).subcommands(control::other_commands())
}

fn is_process(table: &InputTable) -> bool {
    table.rows.iter().any(|row| row.name == rows::BACKEND.name)
}

/// A command without its inputs, for the list of commands.
fn named(mode: Mode) -> Command {
    Command::new(mode.name()).about(help::about(mode))
}

fn subcommand(mode: Mode, variables: Variables) -> Command {
    let mut command = named(mode).after_help(help::examples(mode));
    for table in tables() {
        for row in table.rows.iter().filter(|row| row.is_of(mode) && !row.is_of_every_mode()) {
            // Refresh checks what it stores itself, together with what is stored already.
            let checked = !(mode == Mode::Refresh && row.scope == InputScope::Stored);
            let argument = argument(row, Some(mode), checked, variables);
            command = command.arg(match table.heading {
                "" => argument,
                heading => argument.help_heading(help::heading(heading, row, mode)),
            });
        }
    }
    if mode == Mode::Run {
        let job = Arg::new(ARGUMENTS).value_name("CMD").num_args(1..).last(true).required(true);
        command = command.arg(job.help("Command of the job and its arguments"));
    }
    if mode == Mode::Explain {
        let subject = Arg::new(ARGUMENTS).value_name("SUBJECT").required(true);
        command = command.arg(subject.help("Id of a run, a label of it, or id of a machine"));
    }
    if mode == Mode::Connect {
        let machine = Arg::new(ARGUMENTS).value_name("MACHINE").required(true);
        command = command.arg(machine.help("Id of the machine, as ondeck status shows it"));
    }
    if mode == Mode::Permissions {
        let task = Arg::new(ARGUMENTS).value_name("TASK").required(true);
        let task = task.value_parser(PossibleValuesParser::new(["check"]));
        command = command.arg(task.help("What to do with the permissions"));
    }
    if matches!(mode, Mode::Drain | Mode::Retire | Mode::Terminate) {
        let machines = Arg::new(ARGUMENTS).value_name("MACHINE").num_args(1..);
        let machines = machines.required(mode == Mode::Terminate);
        command = command.arg(machines.help("Ids of machines, as ondeck status shows them"));
    }
    if mode == Mode::Pool {
        let task = Arg::new(ARGUMENTS).value_name("TASK").required(true);
        let task = task.value_parser(PossibleValuesParser::new(["list", "repair"]));
        command = command.arg(task.help("Show the tickets, or delete and send what is wrong"));
    }
    if mode == Mode::Config {
        let task = Arg::new(ARGUMENTS).value_name("TASK").required(true);
        let task = task.value_parser(PossibleValuesParser::new(control::CONFIG_TASKS));
        command = command.arg(task.help("What to do with the file"));
    }
    command
}

/// The flag and the variable of a row. The variable is not shown: it may hold a secret, and the
/// help says once how variables are named. An empty variable counts as not given, because that is
/// how a workflow passes on an input that it was not given.
fn argument(row: &'static Input, mode: Option<Mode>, checked: bool, variables: Variables) -> Arg {
    // Some commands that take this input do not take the other.
    let is_taken = |name: &&&str| {
        let taken = |other: &Input| other.name == **name && mode.is_none_or(|it| other.is_of(it));
        super::rows().any(taken)
    };
    let variable = row.variable();
    let empty = std::env::var_os(&variable).is_some_and(|value| value.is_empty());
    let mut argument = Arg::new(row.name)
        .long(row.name)
        .help(help_with_default(row))
        .hide_env(true)
        .conflicts_with_all(row.conflicts_with.iter().filter(is_taken))
        .requires_all(row.requires);
    if let Some(short) = row.short {
        argument = argument.short(short);
    }
    if row.has_variable() && !empty && variables == Variables::Taken {
        argument = argument.env(variable);
    }
    match row.value {
        InputValue::Switch => argument.action(ArgAction::SetTrue),
        InputValue::Count => argument.action(ArgAction::Count),
        InputValue::Choice(placeholder, values) => {
            let empty = row.may_be_empty().then(|| PossibleValue::new("").hide(true));
            let values = values.iter().map(|value| PossibleValue::new(*value));
            argument
                .value_name(placeholder)
                .value_parser(PossibleValuesParser::new(values.chain(empty)))
        }
        InputValue::Text(placeholder) => argument
            .value_name(placeholder)
            .allow_negative_numbers(true)
            .value_parser(move |text: &str| -> Result<String, String> {
                if checked && !(text.is_empty() && row.may_be_empty()) {
                    (row.check)(text)?;
                }
                Ok(text.to_owned())
            }),
    }
}

fn help_with_default(row: &Input) -> String {
    match (row.default, row.value) {
        (InputDefault::None, _) | (_, InputValue::Switch) => row.help.to_owned(),
        (InputDefault::Value(text) | InputDefault::Described(text), _) => {
            format!("{} [default: {text}]", row.help)
        }
    }
}

fn given(matches: &ArgMatches) -> Given {
    let mut given = Given::default();
    for row in super::rows() {
        match row.value {
            InputValue::Switch => {
                if matches.try_get_one::<bool>(row.name).ok().flatten() == Some(&true) {
                    given.insert(row, "true");
                }
            }
            InputValue::Count => {
                if let Ok(Some(count)) = matches.try_get_one::<u8>(row.name) {
                    given.insert(row, count.to_string());
                }
            }
            InputValue::Text(_) | InputValue::Choice(..) => {
                if let Ok(Some(text)) = matches.try_get_one::<String>(row.name) {
                    given.insert(row, text.clone());
                }
            }
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_same_inputs_alone_as_among_all() {
        let ids = |command: &Command, name: &str| -> Vec<String> {
            let subcommand = command.find_subcommand(name).unwrap();
            subcommand.get_arguments().map(|argument| argument.get_id().to_string()).collect()
        };
        let all = command();
        let listed = |command: &Command| -> Vec<String> {
            command.get_subcommands().map(|it| it.get_name().to_owned()).collect()
        };
        let modes: Vec<Mode> = Mode::ALL.into_iter().filter(|mode| control::has(*mode)).collect();
        for mode in &modes {
            let alone = command_of(Variables::Taken, |wanted| wanted == *mode);
            assert_eq!(listed(&alone), listed(&all));
            for other in &modes {
                let expected =
                    if other == mode { ids(&all, mode.name()) } else { Vec::<String>::new() };
                assert_eq!(ids(&alone, other.name()), expected, "{}", other.name());
            }
        }
    }
}
