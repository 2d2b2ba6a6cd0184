//! The listener's command line, and the variables that can replace flags.

use std::collections::{BTreeMap, BTreeSet};

/// Prefix of variables that the listener reads like flags. Jobs do not see these variables.
pub(super) const PREFIX: &str = "ACTIONS_RUNNER_INPUT_";

const EVERYWHERE: [&str; 4] = ["check", "commit", "help", "version"];
const OF_CONFIGURE: [&str; 15] = [
    "auth",
    "disableupdate",
    "ephemeral",
    "generateServiceConfig",
    "labels",
    "monitorsocketaddress",
    "name",
    "no-default-labels",
    "pat",
    "replace",
    "runnergroup",
    "token",
    "unattended",
    "url",
    "work",
];
const OF_REMOVE: [&str; 3] = ["local", "pat", "token"];
const OF_RUN: [&str; 3] = ["jitconfig", "once", "startuptype"];

/// The listener's command, flags and values.
#[derive(Debug, Default)]
pub(super) struct Command {
    commands: Vec<String>,
    flags: BTreeSet<String>,
    values: BTreeMap<String, String>,
    variables: BTreeMap<String, String>,
}

impl Command {
    /// The command of this process.
    pub(super) fn of_this_process() -> Command {
        let arguments = std::env::args().skip(1);
        let variables = std::env::vars().filter_map(|(name, value)| {
            let name = name
                .get(..PREFIX.len())
                .filter(|it| it.eq_ignore_ascii_case(PREFIX))
                .map(|_| name[PREFIX.len()..].to_ascii_lowercase())?;
            let value = value.trim().to_owned();
            (!value.is_empty()).then_some((name, value))
        });
        Command::of(arguments, variables)
    }

    /// Parses arguments. A name with two dashes is a flag, or an option if a value follows. Words
    /// before the first flag are commands. The first of several values for a name wins.
    pub(super) fn of(
        arguments: impl Iterator<Item = String>,
        variables: impl Iterator<Item = (String, String)>,
    ) -> Command {
        let mut command = Command { variables: variables.collect(), ..Command::default() };
        let mut begun = false;
        let mut open: Option<String> = None;
        for argument in arguments {
            if let Some(name) = argument.strip_prefix("--").filter(|name| !name.is_empty()) {
                begun = true;
                command.flags.extend(open.replace(name.to_owned()));
            } else if !begun {
                command.commands.push(argument);
            } else if !argument.starts_with('-')
                && let Some(name) = open.take()
            {
                command.values.entry(name).or_insert(argument);
            }
        }
        command.flags.extend(open);
        command
    }

    /// The command: `configure`, `remove` or `run`.
    pub(super) fn name(&self) -> &str {
        self.commands.first().map_or("", String::as_str)
    }

    /// The value of an option. The command line takes precedence over the environment.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let value = self.values.get(name).or_else(|| self.variables.get(name));
        value.map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether a flag is set; in the environment, by the value `true`.
    pub(super) fn has(&self, name: &str) -> bool {
        let said = |value: &String| value.eq_ignore_ascii_case("true");
        self.flags.contains(name) || self.variables.get(name).is_some_and(said)
    }

    /// The arguments that the command does not know.
    pub(super) fn unknown(&self) -> Vec<String> {
        let known: &[&str] = match self.name() {
            "configure" => &OF_CONFIGURE,
            "remove" => &OF_REMOVE,
            "run" => &OF_RUN,
            _ => &[],
        };
        let is_known = |name: &str| {
            known.iter().chain(&EVERYWHERE).any(|known| known.eq_ignore_ascii_case(name))
        };
        let names = self.flags.iter().chain(self.values.keys());
        let unknown = names.filter(|name| !is_known(name)).cloned();
        self.commands.iter().skip(1).cloned().chain(unknown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str, variables: &[(&str, &str)]) -> Command {
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Command::of(line.split(' ').map(str::to_owned), variables)
    }

    #[test]
    fn flags_and_values_are_told_apart() {
        let line = "configure --unattended --url http://x --labels a,b --replace --url second";
        let command =
            command(line, &[("token", "secret"), ("disableupdate", "True"), ("url", "y")]);
        assert_eq!(command.name(), "configure");
        assert!(command.has("unattended") && command.has("replace"));
        assert!(command.has("disableupdate") && !command.has("ephemeral"));
        assert_eq!(command.value("url"), Some("http://x"));
        assert_eq!(command.value("labels"), Some("a,b"));
        assert_eq!(command.value("token"), Some("secret"));
        assert_eq!(command.value("name"), None);
        assert_eq!(command.unknown(), Vec::<String>::new());
    }

    #[test]
    fn each_command_knows_its_own() {
        assert_eq!(command("configure --label x", &[]).unknown(), ["label"]);
        assert_eq!(command("remove --token x --unattended", &[]).unknown(), ["unattended"]);
        assert_eq!(command("run --once more", &[]).unknown(), Vec::<String>::new());
        assert_eq!(command("configure now --version", &[]).unknown(), ["now"]);
    }
}
