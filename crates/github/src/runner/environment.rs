//! What the runner and its jobs get to know of the environment that the agent has.

use std::ffi::OsString;

use ondeck_core::model::ids::InstanceId;
use ondeck_processes::MARKER;
use tokio::process::Command;

use super::layout::Layout;
use super::user::User;

/// Where programs are, unless the agent knows better.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The language of programs, unless the agent has one.
pub(crate) const LANG: &str = "C.UTF-8";

/// What is handed on of the agent's own environment: how to get out, whom to trust, what time it
/// is. A list of what may pass, because nobody can list what must not: the agent may hold any
/// secret under any name, and jobs are other people's code.
const HANDED_ON: [&str; 12] = [
    "PATH",
    "LANG",
    "TZ",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "DOCKER_HOST",
];

/// Gives a command the environment of the runner, and no other.
pub(crate) fn give(command: &mut Command, user: &User, layout: &Layout, id: &InstanceId) {
    command
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", LANG)
        .envs(handed_on(std::env::vars_os()))
        .env("HOME", &layout.home)
        .env("TMPDIR", &layout.tmp)
        .env("USER", &user.name)
        .env("LOGNAME", &user.name)
        .env("SHELL", "/bin/bash")
        .env(MARKER, id.as_str());
    if user.uid == 0 {
        // The runner refuses to be root unless it is told that this is meant.
        command.env("RUNNER_ALLOW_RUNASROOT", "1");
    }
}

/// Gives a command of the agent's own what it needs, and none of the agent's secrets.
pub(crate) fn give_plain(command: &mut Command) {
    command.env_clear().env("PATH", PATH).envs(handed_on(std::env::vars_os()));
}

fn handed_on(
    vars: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    vars.filter(|(name, value)| {
        !value.is_empty() && name.to_str().is_some_and(|name| HANDED_ON.contains(&name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_handed_on() {
        for (name, passes) in [
            ("PATH", true),
            ("https_proxy", true),
            ("NO_PROXY", true),
            ("TZ", true),
            ("HOME", false),
            ("AWS_SECRET_ACCESS_KEY", false),
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", false),
            ("ONDECK_TABLE", false),
            ("GITHUB_TOKEN", false),
            ("RUNNER_TRACKING_ID", false),
            ("LD_PRELOAD", false),
            ("BASH_ENV", false),
        ] {
            let vars = [(name.into(), "value".into())].into_iter();
            assert_eq!(handed_on(vars).count() == 1, passes, "{name}");
        }
        assert_eq!(handed_on([("PATH".into(), "".into())].into_iter()).count(), 0);
    }
}
