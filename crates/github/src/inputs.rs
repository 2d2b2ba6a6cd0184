//! The inputs of the GitHub forge and of the runner that agents start for it.

use std::path::PathBuf;

use ondeck_core::inputs::{ActionInput, FileForm, Input, InputTable, InputValue, Mode};
use ondeck_core::model::excerpt::quoted;

/// The commands that call GitHub about runners.
const USERS: &[Mode] = &[Mode::Refresh, Mode::Doctor, Mode::Drill, Mode::Teardown];
/// The commands that call GitHub.
const CALLERS: &[Mode] =
    &[Mode::Refresh, Mode::Doctor, Mode::Drill, Mode::Simulate, Mode::Teardown];

pub const TOKEN: Input = Input::secret(
    "github-token",
    "TOKEN",
    "Token that may register runners; prefer the variable, because other users can see a command \
     line",
)
.of_modes(CALLERS)
.in_action(ActionInput::Adapted {
    help: "Token that may register runners",
    default: None,
    step_output: false,
});
pub const APP_ID: Input = Input::call(
    "github-app-id",
    "ID",
    "Instead of a token: id of a GitHub App that may register runners",
    USERS,
)
.conflicting(&["github-token"]);
pub const APP_PRIVATE_KEY: Input = Input::secret(
    "github-app-private-key",
    "PEM",
    "Private key of the GitHub App, in PEM; prefer the variable",
)
.of_modes(USERS)
.requiring(&["github-app-id"])
.in_action(ActionInput::Adapted {
    help: "Private key of the GitHub App, in PEM",
    default: None,
    step_output: false,
});
pub const JOBS_TOKEN: Input =
    Input::secret("jobs-token", "TOKEN", "Token that may read workflow runs, for rescue")
        .of_modes(&[Mode::Refresh, Mode::Doctor, Mode::Simulate])
        .or_described("the token that registers runners")
        .in_action(ActionInput::Adapted {
            help: "Token that may read workflow runs, for rescue",
            default: Some("${{ github.token }}"),
            step_output: false,
        });
pub const URL: Input =
    Input::call("github-url", "URL", "Address of GitHub; set it for an Enterprise Server", CALLERS)
        .or_described("GITHUB_SERVER_URL, or https://github.com");
pub const SCOPE: Input = Input::call(
    "runner-scope",
    "",
    "Level at which runners register: the repository or its organisation",
    USERS,
)
.valued(InputValue::Choice("SCOPE", &[REPOSITORY_SCOPE, ORGANISATION_SCOPE]), None)
.or(REPOSITORY_SCOPE);
/// The value of [`SCOPE`] for runners of one repository.
pub const REPOSITORY_SCOPE: &str = "repository";
/// The value of [`SCOPE`] for runners of a whole organisation.
pub const ORGANISATION_SCOPE: &str = "organisation";
pub const REPOSITORY: Input = Input::call(
    "repository",
    "OWNER/NAME",
    "Repository that runners serve",
    &[Mode::Refresh, Mode::Doctor, Mode::Drill, Mode::Simulate, Mode::Teardown, Mode::Init],
)
.or_described("GITHUB_REPOSITORY, or the pool; for init the remote origin");
pub const RUNNER_GROUP: Input = Input::stored(
    "runner-group",
    "NAME",
    "Runner group that an organisation's runners join; empty for the default group",
)
.checked(runner_group)
.in_file("github", FileForm::Text);
pub const RUNNER_VERSION: Input = Input::stored(
    "actions-runner-version",
    "VERSION",
    "Version of actions/runner: a number, or latest for GitHub's newest; with latest, a runner on \
     the image is used unless it is older",
)
.or_described("latest")
.in_file("image", FileForm::Text);
pub const RUNNER_API_URL: Input = Input::call(
    "actions-runner-api-url",
    "URL",
    "GitHub API that lists the releases of actions/runner",
    &[Mode::Refresh, Mode::Doctor],
)
.or_described(PUBLIC_API);
/// Where releases of actions/runner are listed unless [`RUNNER_API_URL`] is given.
pub const PUBLIC_API: &str = "https://api.github.com";
pub const RUNNER_USER: Input = Input::stored(
    "runner-user",
    "USER",
    "User that jobs run as; the agent creates it if it does not exist",
)
.or_described("runner on aws, else the agent's own user")
.in_file("machines", FileForm::Text);
pub const RUNNER_GROUPS: Input = Input::stored(
    "runner-groups",
    "GROUP ...",
    "Supplementary groups of the user that jobs run as; docker makes jobs root on their machine",
)
.or_described("none")
.checked(|text| group_names(text).map(drop))
.in_file("machines", FileForm::List(" "));

pub const KEEP_DOCKER_CACHE: Input = Input::stored(
    "keep-docker-cache",
    "",
    "Keep the Docker images, tags and build cache of a run for later runs; a run can then leave a \
     false image to another",
)
.valued(InputValue::Choice("TRUE|FALSE", &[TRUE, FALSE]), None)
.or(FALSE)
.in_file("machines", FileForm::Flag);
/// The value of [`KEEP_DOCKER_CACHE`] that keeps the cache.
pub(crate) const TRUE: &str = "true";
/// The default of [`KEEP_DOCKER_CACHE`].
const FALSE: &str = "false";

pub const MIN_FREE_DISK: Input = Input::stored(
    "min-free-disk-percent",
    "PERCENT",
    "Free space and inodes that a machine must have after a run to be used again; 0 for any",
)
.or(MIN_FREE_DISK_PERCENT)
.checked(|text| percent(text).map(drop))
.in_file("machines", FileForm::Whole);
/// The default of [`MIN_FREE_DISK`].
pub(crate) const MIN_FREE_DISK_PERCENT: &str = "10";
pub const CLEAN_IGNORE: Input = Input::stored(
    "clean-ignore",
    "PATH ...",
    "Files and folders that may change during a run, beside those that each system changes by itself",
)
.or_described("none")
.checked(|text| absolute_paths(text).map(drop))
.in_file("machines", FileForm::List(" "));

/// Reads a percentage below 100.
pub(crate) fn percent(text: &str) -> Result<u8, String> {
    let number = text.trim().parse::<u8>().ok().filter(|number| *number < 100);
    number.ok_or_else(|| format!("is not a percentage below 100: {}", quoted(text)))
}

/// The paths in a list, separated by blanks, commas or lines. Fails if one is not absolute.
pub(crate) fn absolute_paths(text: &str) -> Result<Vec<PathBuf>, String> {
    let names = text.split([' ', ',', '\n', '\t', '\r']).filter(|name| !name.is_empty());
    let path = |name: &str| {
        let fits = name.starts_with('/') && !name.split('/').any(|part| part == "..");
        let fits = fits && !name.trim_matches('/').is_empty();
        if fits {
            Ok(name.into())
        } else {
            Err(format!("names no absolute path: {}", quoted(name)))
        }
    };
    names.map(path).collect()
}

/// Fails if the runner would not understand the name of a group: it takes a value that begins with a
/// dash for an option.
fn runner_group(name: &str) -> Result<(), String> {
    if name.trim().starts_with('-') {
        return Err(format!("begins with a dash, which actions/runner ignores: {}", quoted(name)));
    }
    Ok(())
}

/// The names in a list of groups, separated by blanks or commas. Fails if one is not a name.
pub(crate) fn group_names(text: &str) -> Result<Vec<&str>, String> {
    let names: Vec<&str> =
        text.split([' ', ',', '\n', '\t', '\r']).filter(|name| !name.is_empty()).collect();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match names.iter().find(|name| name.starts_with('-') || !name.chars().all(fits)) {
        Some(name) => Err(format!("holds something else than names of groups: {}", quoted(name))),
        None => Ok(names),
    }
}

/// Every input of the GitHub forge.
pub const INPUTS: InputTable = InputTable {
    heading: "GitHub",
    rows: &[
        TOKEN,
        APP_ID,
        APP_PRIVATE_KEY,
        JOBS_TOKEN,
        URL,
        SCOPE,
        REPOSITORY,
        RUNNER_GROUP,
        RUNNER_VERSION,
        RUNNER_API_URL,
        RUNNER_USER,
        RUNNER_GROUPS,
        KEEP_DOCKER_CACHE,
        MIN_FREE_DISK,
        CLEAN_IGNORE,
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_group_does_not_begin_with_a_dash() {
        for name in ["", "builders", "a-b", "big machines"] {
            assert_eq!(runner_group(name), Ok(()), "{name}");
        }
        for name in ["-x", " --ephemeral"] {
            let error = runner_group(name).unwrap_err();
            assert!(error.starts_with("begins with a dash"), "{error}");
        }
    }

    #[test]
    fn groups_are_names() {
        assert_eq!(group_names(" docker, kvm\nlxd "), Ok(vec!["docker", "kvm", "lxd"]));
        assert_eq!(group_names(""), Ok(vec![]));
        for bad in ["docker;id", "-G", "a:b", "$(id)"] {
            let error = group_names(bad).unwrap_err();
            assert!(error.starts_with("holds something else than names of groups: "), "{error}");
        }
    }

    #[test]
    fn percentages_and_paths_are_checked() {
        assert_eq!((percent("10"), percent(" 0 ")), (Ok(10), Ok(0)));
        for bad in ["", "100", "-1", "ten", "5.5"] {
            let error = percent(bad).unwrap_err();
            assert!(error.starts_with("is not a percentage below 100: "), "{error}");
        }
        let paths = ["/etc/motd", "/opt/cache"].map(PathBuf::from).to_vec();
        assert_eq!(absolute_paths("/etc/motd,\n /opt/cache"), Ok(paths));
        for bad in ["etc", "/etc/../root", "/", "//"] {
            let error = absolute_paths(bad).unwrap_err();
            assert!(error.starts_with("names no absolute path: "), "{error}");
        }
    }
}
