//! What machines, scripts and jobs get to know of the environment that they are started from.

use std::ffi::{OsStr, OsString};

/// The part of this process's environment that is handed on.
///
/// This is an allow list, because the launching process may hold secrets under any name and jobs are
/// untrusted code. Besides, GitHub's runner kills every process that carries its
/// `RUNNER_TRACKING_ID` at the end of the job.
pub(crate) fn handed_on() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| is_handed_on(name))
}

/// Where programs are found, who the user is, how they read and write, and whom they trust.
fn is_handed_on(name: &OsStr) -> bool {
    const NAMES: [&str; 12] = [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TERM",
        "TMPDIR",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
    ];
    name.to_str().is_some_and(|name| NAMES.contains(&name) || name.starts_with("LC_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_is_handed_on() {
        for (name, passes) in [
            ("PATH", true),
            ("HOME", true),
            ("LC_ALL", true),
            ("SSL_CERT_FILE", true),
            ("PATHS", false),
            ("path", false),
            ("NPM_TOKEN", false),
            ("DATABASE_URL", false),
            ("GITHUB_TOKEN", false),
            ("RUNNER_TRACKING_ID", false),
            ("ONDECK_RUN_ID", false),
            ("LD_PRELOAD", false),
        ] {
            assert_eq!(is_handed_on(OsStr::new(name)), passes, "{name}");
        }
    }
}
