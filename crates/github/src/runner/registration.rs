//! Putting the runner on GitHub's list, and taking it off again.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use ondeck_core::model::credentials::Credentials;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::output_tail;
use ondeck_core::ports::{Clock, PortError};
use ondeck_core::runtime::retry::{Retry, retry};
use ondeck_processes::folder;
use tokio::process::Command;

use super::fetch::Chance;
use super::install::Installation;
use super::layout::{Layout, put};
use super::program::Ended;
use super::user::User;
use super::{environment, hooks, program};
use crate::http::GITHUB;

/// What a registered runner knows itself by.
pub(crate) const FILES: [&str; 5] = [
    ".runner",
    ".runner_migrated",
    ".credentials",
    ".credentials_migrated",
    ".credentials_rsaparams",
];

/// The variable by which `config.sh` takes a token, to register as well as to remove. Arguments
/// could be read by everybody on the machine.
const TOKEN: &str = "ACTIONS_RUNNER_INPUT_TOKEN";

/// How often a runner that is held busy is tried again. `config.sh` itself tries three times.
const BUSY: Retry = Retry {
    attempts: u32::MAX,
    first_pause: Duration::from_secs(1),
    longest_pause: Duration::from_secs(5),
    within: Duration::ZERO,
    retry_all_errors: false,
};

/// How much of such a file is read.
const LARGEST: u64 = 1024 * 1024;

/// What `config.sh` is to be told.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) url: &'a str,
    pub(crate) name: &'a str,
    pub(crate) label: &'a str,
    pub(crate) group: Option<&'a str>,
}

/// What registering takes.
pub(crate) struct Registrar<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) id: &'a InstanceId,
    pub(crate) user: &'a User,
    pub(crate) layout: &'a Layout,
    pub(crate) software: &'a Installation,
}

impl Registrar<'_> {
    /// Puts the runner on the list.
    pub(crate) async fn add(
        &self,
        request: &Request<'_>,
        credentials: &Credentials,
        within: Duration,
    ) -> Result<(), String> {
        self.write_environment()?;
        let mut command = self.command("config.sh", &credentials.registration);
        command
            .args(["--unattended", "--url", request.url, "--name", request.name])
            .args(["--labels", request.label, "--no-default-labels", "--replace"])
            .args(["--work", "_work", "--disableupdate"]);
        if let Some(group) = request.group {
            command.args(["--runnergroup", group]);
        }
        let ended = self.run(command, credentials, within).await;
        let problem = match ended {
            Ok(ended) => ended.problem(),
            Err(why) => Some(why),
        };
        if let Some(problem) = problem {
            return Err(format!("config.sh failed: {problem}"));
        }
        self.keep_files()
    }

    /// Takes it off the list, if it is on it. GitHub may hold a runner busy for some seconds after
    /// its last job, and keeps it until then: that alone is tried again, for as long as `patience`.
    pub(crate) async fn remove(
        &self,
        credentials: &Credentials,
        within: Duration,
        patience: Duration,
    ) -> Result<(), String> {
        let policy = Retry { within: patience, ..BUSY };
        let removed = retry(self.clock, &Chance, policy, |_| async {
            match self.remove_once(credentials, within).await {
                Err(Kept { why, busy: true }) => {
                    Err(PortError::Unavailable { service: GITHUB, reason: why })
                }
                removed => Ok(removed.map_err(|kept| kept.why)),
            }
        });
        match removed.await {
            Ok(removed) => removed,
            Err(PortError::Unavailable { reason, .. }) => Err(reason),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn remove_once(&self, credentials: &Credentials, within: Duration) -> Result<(), Kept> {
        self.restore_files()?;
        self.write_environment()?;
        let mut command = self.command("config.sh", &credentials.removal);
        command.arg("remove");
        let ended = self.run(command, credentials, within).await?;
        if !ended.is_success() && !is_unknown_runner(&ended.said()) {
            let said = ended.said();
            let why = format!("config.sh remove failed: {}", output_tail(&said));
            return Err(Kept { why, busy: is_busy(&said) });
        }
        Ok(self.forget()?)
    }

    /// Whether this machine believes that it has a runner on the list.
    pub(crate) fn is_registered(&self) -> bool {
        let there = |folder: &Path| folder.join(FILES[0]).symlink_metadata().is_ok();
        there(&self.software.root) || there(&self.copies())
    }

    /// Removes all that the runner knows itself by.
    pub(crate) fn forget(&self) -> Result<(), String> {
        for name in FILES {
            for folder in [&self.software.root, &self.copies()] {
                let path = folder.join(name);
                folder::remove_any(&path)
                    .map_err(|e| format!("cannot remove {}: {e}", path.display()))?;
            }
        }
        Ok(())
    }

    fn command(&self, program: &str, token: &Secret) -> Command {
        let mut command = self.user.command(self.software.root.join(program));
        environment::give(&mut command, self.user, self.layout, self.id);
        command.current_dir(&self.software.root).env(TOKEN, token.expose());
        command
    }

    async fn run(
        &self,
        command: Command,
        credentials: &Credentials,
        within: Duration,
    ) -> Result<Ended, String> {
        let secrets = [&credentials.registration, &credentials.removal];
        program::run_hiding(self.clock, command, within, &secrets).await
    }

    /// Writes the lines that the runner puts into its own environment and that of jobs.
    fn write_environment(&self) -> Result<(), String> {
        let mut lines = hooks::without_hooks(&self.software.operators);
        if !lines.lines().any(|line| line.starts_with("LANG=")) {
            // Otherwise config.sh would want to write the line, and must not be able to.
            lines.push_str(&format!("LANG={}\n", environment::LANG));
        }
        put(&self.software.root.join(".env"), lines.as_bytes(), 0o644, None)
    }

    fn copies(&self) -> std::path::PathBuf {
        self.layout.state.join("registration")
    }

    /// Keeps copies where jobs cannot change them: the runner sends the token with which it is
    /// removed to the address in these files.
    fn keep_files(&self) -> Result<(), String> {
        let copies = self.copies();
        let failed = |e: io::Error| format!("cannot keep the registration: {e}");
        folder::make_private(&copies).map_err(failed)?;
        for name in FILES {
            if let Some(content) = read(&self.software.root.join(name)).map_err(failed)? {
                put(&copies.join(name), &content, 0o600, None)?;
            }
        }
        Ok(())
    }

    /// Puts the copies back, in place of whatever is there now.
    fn restore_files(&self) -> Result<(), String> {
        let copies = self.copies();
        let failed = |e: io::Error| format!("cannot restore the registration: {e}");
        if !copies.join(FILES[0]).exists() {
            return Ok(());
        }
        for name in FILES {
            let path = self.software.root.join(name);
            folder::remove_any(&path).map_err(failed)?;
            if let Some(content) = read(&copies.join(name)).map_err(failed)? {
                put(&path, &content, 0o600, Some(self.user))?;
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(file) => file.take(LARGEST).read_to_end(&mut content)?,
    };
    Ok(Some(content))
}

/// Why a runner is still on the list, and whether that is because of a job.
struct Kept {
    why: String,
    busy: bool,
}

impl From<String> for Kept {
    fn from(why: String) -> Kept {
        Kept { why, busy: false }
    }
}

fn is_busy(said: &str) -> bool {
    said.contains("code: UnprocessableEntity ") && said.contains("running a job")
}

/// Whether a removal failed because there is nothing to remove. Where a token is exchanged first,
/// a worthless one is answered in the same way, but not for the deletion.
fn is_unknown_runner(said: &str) -> bool {
    let is_deletion = |line: &str| line.to_ascii_lowercase().contains("from 'delete ");
    said.lines().any(|line| line.contains("code: NotFound ") && is_deletion(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_deletion_tells_an_unknown_runner() {
        for (said, unknown) in [
            (
                "Http response code: NotFound from 'Delete https://api.github.com/x/1' (Request Id: 1)",
                true,
            ),
            ("Http response code: NotFound from 'DELETE https://api.github.com/x/1'", true),
            ("Http response code: NotFound from 'POST https://api.github.com/actions/x'", false),
            ("Http response code: Forbidden from 'DELETE https://api.github.com/x/1'", false),
            ("Http response code: NotFound\nfrom 'Delete https://api.github.com/x/1'", false),
        ] {
            assert_eq!(is_unknown_runner(said), unknown, "{said}");
        }
    }
}
