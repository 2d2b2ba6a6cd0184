//! The inputs of the action and the reference of the inputs, made from the rows with
//! `UPDATE=1 cargo test -p ondeck --all-features docs`.

use std::path::Path;

use ondeck_core::inputs::{ActionInput, Input, InputDefault, InputScope, InputValue, Mode};

use crate::inputs::{rows, tables};

/// The inputs that are no options: they are about getting the program.
pub(super) const OF_THE_ACTION: [&str; 6] =
    ["mode", "version", "download-url", "sha256", "from-source", "verify-provenance"];

const BEGIN: &str =
    "Generated from the tables of inputs by UPDATE=1 cargo test -p ondeck --all-features docs";
const END: &str = "End of the generated part";

#[test]
fn the_action_takes_what_the_modes_take() {
    let declared = action_inputs().map(declaration).collect();
    let handed_on = action_inputs().map(assignment).collect();
    is_up_to_date("action.yml", &[declared, handed_on]);
}

#[test]
fn every_input_is_in_the_reference() {
    let mut page = String::new();
    let mut shown = Vec::new();
    for table in tables().filter(|table| !table.rows.is_empty()) {
        let heading = if table.heading.is_empty() { "General" } else { table.heading };
        if shown.contains(&heading) {
            continue;
        }
        shown.push(heading);
        let alike = tables().filter(|other| other.heading == table.heading);
        let rows: String = alike.flat_map(|table| table.rows).map(reference).collect();
        page.push_str(&format!("\n## {heading}\n\n{HEADER}{rows}"));
    }
    is_up_to_date("docs/reference/inputs.md", &[format!("{page}\n")]);
}

const HEADER: &str = "| input | commands | scope | action | default | meaning |\n\
                      | --- | --- | --- | --- | --- | --- |\n";

/// The rows that are inputs of the action, in the order of the help.
pub(super) fn action_inputs() -> impl Iterator<Item = &'static Input> {
    rows().filter(|row| row.is_in_action())
}

fn modes_of_action(row: &Input) -> String {
    let modes: Vec<&str> =
        Mode::OF_ACTION.iter().filter(|mode| row.is_of(**mode)).map(|mode| mode.name()).collect();
    if modes.len() == Mode::OF_ACTION.len() { "all".into() } else { modes.join(", ") }
}

/// The default that `action.yml` states. A stored setting has none there: what is not given stays
/// as it is.
fn default_in_action(row: &Input) -> Option<&'static str> {
    if let ActionInput::Adapted { default, .. } = row.action {
        return default;
    }
    match (row.default, row.scope) {
        (InputDefault::Value(text), InputScope::Call) => Some(text),
        _ => None,
    }
}

fn declaration(row: &Input) -> String {
    let help = match (row.action, row.default) {
        (ActionInput::Adapted { help, .. }, _) => help.to_owned(),
        (_, InputDefault::Described(text)) => format!("{} [default: {text}]", row.help),
        (_, InputDefault::Value(text)) if default_in_action(row).is_none() => {
            format!("{} [default: {text}]", row.help)
        }
        _ => row.help.to_owned(),
    };
    let help = quoted(&format!("{}: {help}", modes_of_action(row)));
    let default = default_in_action(row).map(|text| format!("    default: {}\n", quoted(text)));
    format!("  {}:\n    description: {help}\n{}", row.name, default.unwrap_or_default())
}

/// The line that hands an input on as a variable. An input that was not given leaves room for a
/// variable that the job has set.
fn assignment(row: &Input) -> String {
    let (name, variable) = (row.name, row.variable());
    let mut value = format!("inputs.{name}");
    if let ActionInput::Adapted { default: Some(_), .. } = row.action {
        // GitHub's own values, such as its token, reach only the modes that take the input.
        let modes = Mode::OF_ACTION.iter().filter(|mode| row.is_of(**mode));
        let modes: Vec<String> =
            modes.map(|mode| format!("inputs.mode == '{}'", mode.name())).collect();
        value = format!("({}) && {value} || ''", modes.join(" || "));
    }
    if default_in_action(row).is_none() {
        value.push_str(&format!(" || env.{variable}"));
    }
    if let ActionInput::Adapted { step_output: true, .. } = row.action {
        value.push_str(&format!(" || steps.install.outputs.{name}"));
    }
    format!("        {variable}: ${{{{ {value} }}}}\n")
}

/// The row of the reference page.
fn reference(row: &Input) -> String {
    let placeholder = match row.value {
        InputValue::Text(placeholder) => format!(" <{placeholder}>"),
        InputValue::Choice(_, values) => format!(" <{}>", values.join("|")),
        InputValue::Switch | InputValue::Count => String::new(),
    };
    let modes: Vec<&str> = row.modes.iter().map(|mode| mode.name()).collect();
    let modes = if row.is_of_every_mode() { "all".to_owned() } else { modes.join(", ") };
    let scope = match row.scope {
        InputScope::Stored => "stored",
        InputScope::Call => "call",
        InputScope::Process => "process",
        InputScope::Secret => "secret",
    };
    let action = if row.is_in_action() { "yes" } else { "" };
    let default = match row.default {
        InputDefault::None => String::new(),
        InputDefault::Value(text) => format!("`{text}`"),
        InputDefault::Described(text) => text.to_owned(),
    };
    let flag = format!("`--{}{placeholder}`", row.name);
    let cells = [flag, modes, scope.to_owned(), action.to_owned(), default, row.help.to_owned()];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}

/// A YAML string in which no character has a meaning of its own.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Compares the generated parts with what the file has between its marks. With `UPDATE=1`, writes
/// them there instead.
#[track_caller]
pub(super) fn is_up_to_date(file: &str, made: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let found = std::fs::read_to_string(&path).expect("the file is there");
    let (mut wanted, mut made, mut within) = (String::new(), made.iter(), false);
    for line in found.split_inclusive('\n') {
        within &= !line.contains(END);
        if !within {
            wanted.push_str(line);
        }
        if line.contains(BEGIN) {
            wanted.push_str(made.next().expect("the file marks no other part"));
            within = true;
        }
    }
    assert!(made.next().is_none() && !within, "the marks are incomplete: {file}");
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        return std::fs::write(&path, &wanted).expect("the file can be written");
    }
    let hint = "hint: UPDATE=1 cargo test -p ondeck --all-features docs";
    assert!(found == wanted, "not what the tables of inputs say: {file}\n{hint}");
}
