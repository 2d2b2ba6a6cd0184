//! The Action's inputs are the options of the three modes: made from the command line's own
//! definition, with `UPDATE=1 cargo test -p ondeck docs`.

use std::path::Path;

use clap::{Arg, ArgAction, CommandFactory};

use crate::inputs::Cli;

/// What the Action can be asked to do.
pub(super) const MODES: [&str; 3] = ["refresh", "provision", "release"];

/// The inputs that are no options: they are about getting the program.
pub(super) const OF_THE_ACTION: [&str; 5] =
    ["mode", "version", "download-url", "sha256", "from-source"];

/// Options that are no inputs, and why. Most can still be given as a variable of the job.
const LEFT_OUT: [(&str, &str); 10] = [
    ("backend", "the Action is for aws, unless ONDECK_BACKEND says otherwise"),
    ("home", "what is kept there is for the local backend"),
    ("json", "the output `result` has it"),
    ("verbose", "debug logging is switched on for a run by GitHub"),
    ("quiet", "a log that nobody reads does not disturb"),
    ("local-capacity", "for the local backend"),
    ("local-boot-ms", "for the local backend"),
    ("local-catalogue", "for the local backend"),
    ("local-launch-failure", "for the local backend"),
    ("local-duplicate-tickets", "for the local backend"),
];

/// What inputs have for a default where the option has none. It is nobody else's business.
const DEFAULTS: [(&str, &str); 1] = [("jobs-token", "${{ github.token }}")];

/// Options that mean more as inputs, or less, in the words that stand for the option's own.
const WORDS: [(&str, &str); 5] = [
    (
        "agent-url",
        "Where machines get the agent: https://, or s3:// if the image has the aws program; image \
         if it is on the image [default: that of the release, for x86-64]",
    ),
    ("agent-sha256", "What the agent's SHA-256 must be [default: what the release says]"),
    ("github-token", "A token that may register runners"),
    ("github-app-private-key", "The App's private key, in PEM"),
    ("jobs-token", "A token that may read workflow runs, for rescue"),
];

/// What the step before finds out where nobody says it.
const FOUND: [&str; 2] = ["agent-url", "agent-sha256"];

const BEGIN: &str = "Made from the command line by UPDATE=1 cargo test -p ondeck docs";
const END: &str = "End of what is made";

#[test]
fn the_action_takes_what_the_modes_take() {
    let inputs = inputs();
    let declared = inputs.iter().map(Input::declaration).collect();
    let handed_on = inputs.iter().map(Input::variable).collect();
    is_up_to_date("action.yml", &[declared, handed_on]);
}

#[test]
fn every_input_has_its_row() {
    let table: String = inputs().iter().map(Input::row).collect();
    is_up_to_date("docs/reference/inputs.md", &[format!("{HEADER}{table}")]);
}

#[test]
fn what_is_left_out_is_there() {
    let known: Vec<String> =
        MODES.iter().flat_map(|mode| options(mode)).map(|arg| name(&arg)).collect();
    for (option, _) in LEFT_OUT {
        assert!(known.contains(&option.to_owned()), "no such option: --{option}");
    }
    for name in OF_THE_ACTION {
        assert!(
            !known.contains(&name.to_owned()),
            "both an option and an input of the action: {name}"
        );
    }
}

const HEADER: &str = "| input | modes | default | meaning |\n| --- | --- | --- | --- |\n";

/// An option of one or more modes, as an input.
pub(super) struct Input {
    pub(super) name: String,
    pub(super) modes: Vec<&'static str>,
    words: String,
    default: Option<String>,
}

/// In the order of the help.
pub(super) fn inputs() -> Vec<Input> {
    let mut inputs: Vec<Input> = Vec::new();
    for mode in MODES {
        for arg in
            options(mode).filter(|arg| LEFT_OUT.iter().all(|(name, _)| *name != self::name(arg)))
        {
            let input = Input::of(&arg, mode);
            match inputs.iter_mut().find(|known| known.name == input.name) {
                None => inputs.push(input),
                Some(known) => {
                    // One input cannot have two meanings.
                    assert_eq!(known.words, input.words, "{}", input.name);
                    assert_eq!(known.default, input.default, "{}", input.name);
                    known.modes.push(mode);
                }
            }
        }
    }
    inputs
}

/// A mode's own options, then those of every command.
fn options(mode: &str) -> impl Iterator<Item = Arg> {
    let cli = Cli::command();
    let mode = cli.find_subcommand(mode).expect("there is such a mode").clone();
    let all: Vec<Arg> = mode.get_arguments().chain(cli.get_arguments()).cloned().collect();
    all.into_iter()
}

fn name(arg: &Arg) -> String {
    arg.get_long().expect("every option has a long name").to_owned()
}

impl Input {
    fn of(arg: &Arg, mode: &'static str) -> Input {
        let name = name(arg);
        let find = |list: &[(&str, &str)]| {
            let found = list.iter().find(|(of, _)| *of == name);
            found.map(|(_, text)| (*text).to_owned())
        };
        let variable = format!("ONDECK_{}", name.to_uppercase().replace('-', "_"));
        assert_eq!(
            arg.get_env(),
            Some(variable.as_ref()),
            "--{name} cannot be given by the Action"
        );
        let default = match arg.get_action() {
            ArgAction::SetTrue => Some("false".to_owned()),
            _ => arg.get_default_values().first().map(|value| value.display().to_string()),
        };
        let words = arg.get_help().expect("every option has a help").to_string();
        Input {
            words: find(&WORDS).unwrap_or(words),
            default: find(&DEFAULTS).or(default),
            modes: vec![mode],
            name,
        }
    }

    fn of_modes(&self) -> String {
        if self.modes.len() == MODES.len() { "all".into() } else { self.modes.join(", ") }
    }

    fn declaration(&self) -> String {
        let Input { name, words, default, .. } = self;
        let words = quoted(&format!("{}: {words}", self.of_modes()));
        let default = default.as_ref().map(|value| format!("    default: {}\n", quoted(value)));
        format!("  {name}:\n    description: {words}\n{}", default.unwrap_or_default())
    }

    /// An input that was not given leaves room for a variable that the job has set.
    fn variable(&self) -> String {
        let name = &self.name;
        let variable = format!("ONDECK_{}", name.to_uppercase().replace('-', "_"));
        let mut value = format!("inputs.{name}");
        if DEFAULTS.iter().any(|(of, _)| of == name) {
            let modes = self.modes.iter().map(|mode| format!("inputs.mode == '{mode}'"));
            let modes = modes.collect::<Vec<_>>().join(" || ");
            value = format!("({modes}) && {value} || ''");
        }
        if self.default.is_none() {
            value.push_str(&format!(" || env.{variable}"));
        }
        if FOUND.contains(&name.as_str()) {
            value.push_str(&format!(" || steps.install.outputs.{name}"));
        }
        format!("        {variable}: ${{{{ {value} }}}}\n")
    }

    fn row(&self) -> String {
        let (words, stated) =
            match self.words.strip_suffix(']').and_then(|w| w.rsplit_once(" [default: ")) {
                Some((words, stated)) => (words.to_owned(), Some(stated.to_owned())),
                None => (self.words.clone(), None),
            };
        let code = |value: &String| format!("`{value}`");
        let default = self.default.as_ref().map(code).or(stated).unwrap_or_default();
        let cells = [format!("`{}`", self.name), self.of_modes(), default, words];
        format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
    }
}

/// As YAML: nothing in it means anything.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Compares what is made with what stands in the file between the marks, or puts it there.
#[track_caller]
fn is_up_to_date(file: &str, made: &[String]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
    let found = std::fs::read_to_string(&path).expect("the file is there");
    let (mut wanted, mut made, mut within) = (String::new(), made.iter(), false);
    for line in found.split_inclusive('\n') {
        within &= !line.contains(END);
        if !within {
            wanted.push_str(line);
        }
        if line.contains(BEGIN) {
            wanted.push_str(made.next().expect("nothing else is marked"));
            within = true;
        }
    }
    assert!(made.next().is_none() && !within, "not marked as it should be: {file}");
    if std::env::var_os("UPDATE").is_some_and(|update| update == "1") {
        return std::fs::write(&path, &wanted).expect("the file can be written");
    }
    let hint = "hint: UPDATE=1 cargo test -p ondeck docs";
    assert!(found == wanted, "not what the command line says: {file}\n{hint}");
}
