//! The environment of the runner and its jobs.

use std::ffi::OsString;

use ondeck_core::model::ids::InstanceId;
use ondeck_processes::MARKER;
use tokio::process::Command;

use super::layout::Layout;
use super::user::User;

/// The path, if the agent has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The locale, if the agent has none.
pub(crate) const LANG: &str = "C.UTF-8";

/// The variables that are inherited from the agent: proxies, certificates and the time zone. This is
/// an allow list, because the agent may hold secrets under any name and jobs are untrusted code.
const INHERITED: [&str; 12] = [
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

/// Replaces a command's environment with that of the runner.
pub(crate) fn apply(command: &mut Command, user: &User, layout: &Layout, id: &InstanceId) {
    command
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", LANG)
        .envs(inherited(std::env::vars_os()))
        .env("HOME", &layout.home)
        .env("TMPDIR", &layout.tmp)
        .env("USER", &user.name)
        .env("LOGNAME", &user.name)
        .env("SHELL", "/bin/bash")
        .env(MARKER, id.as_str());
    if user.uid == 0 {
        // The runner refuses to run as root without this.
        command.env("RUNNER_ALLOW_RUNASROOT", "1");
    }
}

/// Replaces the environment of one of the agent's own commands with the path and the inherited
/// variables, so that it gets none of the agent's secrets.
pub(crate) fn apply_minimal(command: &mut Command) {
    command.env_clear().env("PATH", PATH).envs(inherited(std::env::vars_os()));
}

fn inherited(
    vars: impl Iterator<Item = (OsString, OsString)>,
) -> impl Iterator<Item = (OsString, OsString)> {
    vars.filter(|(name, value)| {
        !value.is_empty() && name.to_str().is_some_and(|name| INHERITED.contains(&name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_variables_are_inherited() {
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
            assert_eq!(inherited(vars).count() == 1, passes, "{name}");
        }
        assert_eq!(inherited([("PATH".into(), "".into())].into_iter()).count(), 0);
    }
}
