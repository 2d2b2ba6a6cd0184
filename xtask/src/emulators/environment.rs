//! The environment of tests: variables to set, and variables to remove.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::Command;

use crate::step::quoted;

/// Changes to the environment of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    removed: Vec<OsString>,
    set: Vec<(&'static str, String)>,
}

/// The addresses and paths that tests need.
#[derive(Debug)]
pub(super) struct Places<'a> {
    pub(super) dynamodb: &'a str,
    pub(super) ministack: &'a str,
    /// The process of DynamoDB Local, whose processor time benchmarks measure.
    pub(super) dynamodb_pid: u32,
    pub(super) models: &'a Path,
    pub(super) shellcheck: &'a Path,
    pub(super) actionlint: &'a Path,
    pub(super) act: &'a Path,
    pub(super) axe: &'a Path,
    /// A folder in which no file is called `no-such-file`.
    pub(super) folder: &'a Path,
}

impl Environment {
    /// The environment of tests. It removes all variables for the AWS SDK in `present`, so that
    /// tests neither touch a real account nor depend on the user's settings.
    pub(super) fn of_tests(
        places: &Places<'_>,
        present: impl Iterator<Item = OsString>,
    ) -> Environment {
        let nothing = places.folder.join("no-such-file").display().to_string();
        let set = vec![
            ("ONDECK_TEST_DYNAMODB", places.dynamodb.to_owned()),
            ("ONDECK_TEST_MINISTACK", places.ministack.to_owned()),
            ("ONDECK_TEST_DYNAMODB_PID", places.dynamodb_pid.to_string()),
            ("ONDECK_TEST_MODELS", places.models.display().to_string()),
            ("ONDECK_TEST_SHELLCHECK", places.shellcheck.display().to_string()),
            ("ONDECK_TEST_ACTIONLINT", places.actionlint.display().to_string()),
            ("ONDECK_TEST_ACT", places.act.display().to_string()),
            ("ONDECK_TEST_AXE", places.axe.display().to_string()),
            ("AWS_ACCESS_KEY_ID", "test".into()),
            ("AWS_SECRET_ACCESS_KEY", "test".into()),
            ("AWS_REGION", "us-east-1".into()),
            ("AWS_EC2_METADATA_DISABLED", "true".into()),
            // All addresses are on loopback, so no proxy applies.
            ("NO_PROXY", "127.0.0.1".into()),
            ("no_proxy", "127.0.0.1".into()),
            ("AWS_CONFIG_FILE", nothing.clone()),
            ("AWS_SHARED_CREDENTIALS_FILE", nothing),
        ];
        let ours = |name: &OsStr| set.iter().any(|(set, _)| name == *set);
        let mut removed: Vec<OsString> = present
            .filter(|name| name.as_encoded_bytes().starts_with(b"AWS_") && !ours(name))
            .collect();
        removed.sort();
        Environment { removed, set }
    }

    pub(crate) fn apply(&self, command: &mut Command) {
        self.removed.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.envs(self.set.iter().map(|(name, value)| (name, value)));
    }

    /// The changes as lines for a shell to source.
    pub(super) fn as_shell_lines(&self) -> String {
        let removed = self.removed.iter().map(|name| format!("unset {}\n", name.display()));
        let set = self.set.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value)));
        removed.chain(set).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(present: &[&str]) -> Environment {
        let places = Places {
            dynamodb: "http://127.0.0.1:1",
            ministack: "http://127.0.0.1:2",
            dynamodb_pid: 11,
            models: Path::new("/a folder/models"),
            shellcheck: Path::new("/shellcheck"),
            actionlint: Path::new("/actionlint"),
            act: Path::new("/act"),
            axe: Path::new("/axe.js"),
            folder: Path::new("/run"),
        };
        Environment::of_tests(&places, present.iter().map(OsString::from))
    }

    #[test]
    fn nothing_of_a_real_account_is_left() {
        let environment = environment(&[
            "PATH",
            "AWS_SESSION_TOKEN",
            "AWS_PROFILE",
            "AWS_ENDPOINT_URL_SQS",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "AWS_ACCESS_KEY_ID",
            "LAWS_OF_NATURE",
        ]);
        assert_eq!(
            environment.removed,
            [
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "AWS_ENDPOINT_URL_SQS",
                "AWS_PROFILE",
                "AWS_SESSION_TOKEN"
            ]
        );
        // A command lists its variables, with `None` for removed ones.
        let mut command = Command::new("true");
        environment.apply(&mut command);
        let told = |name: &str| command.get_envs().find(|(told, _)| *told == name);
        assert_eq!(told("AWS_PROFILE"), Some((OsStr::new("AWS_PROFILE"), None)));
        assert_eq!(told("AWS_REGION").unwrap().1, Some(OsStr::new("us-east-1")));
        assert_eq!(told("PATH"), None);
    }

    #[test]
    fn a_shell_can_read_it() {
        assert_eq!(
            environment(&["AWS_PROFILE"]).as_shell_lines(),
            "\
unset AWS_PROFILE
export ONDECK_TEST_DYNAMODB=http://127.0.0.1:1
export ONDECK_TEST_MINISTACK=http://127.0.0.1:2
export ONDECK_TEST_DYNAMODB_PID=11
export ONDECK_TEST_MODELS='/a folder/models'
export ONDECK_TEST_SHELLCHECK=/shellcheck
export ONDECK_TEST_ACTIONLINT=/actionlint
export ONDECK_TEST_ACT=/act
export ONDECK_TEST_AXE=/axe.js
export AWS_ACCESS_KEY_ID=test
export AWS_SECRET_ACCESS_KEY=test
export AWS_REGION=us-east-1
export AWS_EC2_METADATA_DISABLED=true
export NO_PROXY=127.0.0.1
export no_proxy=127.0.0.1
export AWS_CONFIG_FILE=/run/no-such-file
export AWS_SHARED_CREDENTIALS_FILE=/run/no-such-file
"
        );
    }
}
