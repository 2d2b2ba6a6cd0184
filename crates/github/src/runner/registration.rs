//! Registers and deregisters the runner by the commands of `Runner.Listener` that `config.sh` would
//! call. The script itself also checks for libraries that the runner can do without.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use ondeck_core::model::credentials::Token;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::secret::Secret;
use ondeck_core::model::signal::output_tail;
use ondeck_core::ports::{Clock, PortError};
use ondeck_core::runtime::retry::{Retry, retry};
use ondeck_processes::folder;
use tokio::process::Command;

use super::fetch::FastRandom;
use super::install::Installation;
use super::layout::{Layout, write_file};
use super::program::ProgramOutput;
use super::user::User;
use super::{environment, hooks, program};
use crate::http::GITHUB;

/// The files that identify a registered runner.
pub(crate) const FILES: [&str; 5] = [
    ".runner",
    ".runner_migrated",
    ".credentials",
    ".credentials_migrated",
    ".credentials_rsaparams",
];

/// The variable that passes a token to the runner, for registration and removal. Arguments would be
/// readable for every user of the machine.
const TOKEN: &str = "ACTIONS_RUNNER_INPUT_TOKEN";

/// How a command is retried that failed by an error which may pass. The runner itself sends each
/// request three times, within a few seconds; server errors may come in longer bursts.
const PASSING: Retry = Retry {
    attempts: u32::MAX,
    first_pause: Duration::from_secs(1),
    longest_pause: Duration::from_secs(5),
    within: Duration::from_secs(30),
    retry_all_errors: false,
};

/// The beginning of the names of folders with registrations that are set aside.
const SET_ASIDE: &str = "registration-";

/// How many bytes of a registration file are read.
const LARGEST: u64 = 1024 * 1024;

/// The arguments of a registration.
#[derive(Debug)]
pub(crate) struct RegistrationRequest<'a> {
    pub(crate) url: &'a str,
    pub(crate) name: &'a str,
    pub(crate) label: &'a str,
    pub(crate) group: Option<&'a str>,
}

pub(crate) struct Registrar<'a> {
    pub(crate) clock: &'a dyn Clock,
    pub(crate) id: &'a InstanceId,
    pub(crate) user: &'a User,
    pub(crate) layout: &'a Layout,
    pub(crate) software: &'a Installation,
}

impl Registrar<'_> {
    /// Registers the runner, and saves its registration files for [`Registrar::remove`]. Retries server
    /// errors. Fails with the end of the runner's output.
    pub(crate) async fn add(
        &self,
        request: &RegistrationRequest<'_>,
        token: &Token,
        within: Duration,
    ) -> Result<(), String> {
        self.insist(PASSING, || self.add_once(request, token, within)).await?;
        self.save_files()
    }

    async fn add_once(
        &self,
        request: &RegistrationRequest<'_>,
        token: &Token,
        within: Duration,
    ) -> Result<(), CommandError> {
        self.write_environment()?;
        let mut command = self.command("configure", &token.secret);
        command
            .args(["--unattended", "--url", request.url, "--name", request.name])
            .args(["--labels", request.label, "--no-default-labels", "--replace"])
            .args(["--work", "_work", "--disableupdate"]);
        if let Some(group) = request.group {
            command.args(["--runnergroup", group]);
        }
        let failed = |problem: String| format!("the registration failed: {problem}");
        let output = self.run(command, token, within).await.map_err(failed)?;
        match output.problem() {
            None => Ok(()),
            Some(problem) => {
                Err(CommandError { why: failed(problem), passes: is_server_error(&output.all()) })
            }
        }
    }

    /// Deregisters the runner. Succeeds if GitHub does not know it. GitHub calls a runner busy for some
    /// seconds after its last job and refuses to remove it; that and server errors are retried, for up
    /// to `busy_timeout`.
    pub(crate) async fn remove(
        &self,
        token: &Token,
        within: Duration,
        busy_timeout: Duration,
    ) -> Result<(), String> {
        let policy = Retry { within: busy_timeout, ..PASSING };
        self.insist(policy, || self.remove_once(token, within)).await
    }

    /// Repeats a command as long as its error may pass and the policy allows.
    async fn insist<F>(&self, policy: Retry, once: impl Fn() -> F) -> Result<(), String>
    where
        F: Future<Output = Result<(), CommandError>>,
    {
        let done = retry(self.clock, &FastRandom, policy, |_| async {
            match once().await {
                Err(CommandError { why, passes: true }) => {
                    Err(PortError::Unavailable { service: GITHUB, reason: why })
                }
                done => Ok(done.map_err(|error| error.why)),
            }
        });
        match done.await {
            Ok(done) => done,
            Err(PortError::Unavailable { reason, .. }) => Err(reason),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn remove_once(&self, token: &Token, within: Duration) -> Result<(), CommandError> {
        self.restore_files()?;
        self.write_environment()?;
        let command = self.command("remove", &token.secret);
        let output = self.run(command, token, within).await?;
        let said = output.all();
        let is_unknown = !output.is_success() && is_unknown_runner(&said);
        let is_gone = is_unknown || (output.is_success() && !is_skipped(&said));
        if !is_gone {
            let why = format!("the removal failed: {}", output_tail(&said));
            return Err(CommandError { why, passes: is_busy(&said) || is_server_error(&said) });
        }
        if is_unknown {
            tracing::warn!("GitHub does not know the runner, or not the token to remove it");
        }
        Ok(self.forget()?)
    }

    /// Keeps the saved registration for [`Registrar::take_back`], because the runner could not be
    /// removed yet.
    pub(crate) fn set_aside(&self) -> Result<(), String> {
        let copies = self.copies();
        if !copies.join(FILES[0]).exists() {
            return Ok(());
        }
        let number = self.layout.next_count()?;
        let place = self.layout.state.join(format!("{SET_ASIDE}{number}"));
        fs::rename(&copies, &place).map_err(|e| format!("cannot make {}: {e}", place.display()))
    }

    /// The numbers of the registrations that were set aside.
    pub(crate) fn set_aside_before(&self) -> Result<Vec<u32>, String> {
        let failed = |e: io::Error| format!("cannot read {}: {e}", self.layout.state.display());
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.layout.state).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix(SET_ASIDE));
            numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Makes a registration that was set aside the saved one. There must be no other saved one.
    pub(crate) fn take_back(&self, number: u32) -> Result<(), String> {
        let place = self.layout.state.join(format!("{SET_ASIDE}{number}"));
        let failed = |e: io::Error| format!("cannot take back {}: {e}", place.display());
        folder::remove(&self.copies()).map_err(failed)?;
        fs::rename(&place, self.copies()).map_err(failed)
    }

    /// Whether registration files exist on this machine.
    pub(crate) fn is_registered(&self) -> bool {
        let there = |folder: &Path| folder.join(FILES[0]).symlink_metadata().is_ok();
        there(&self.software.root) || there(&self.copies())
    }

    /// Removes the registration files and their copies.
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

    fn command(&self, what: &str, token: &Secret) -> Command {
        let mut command = self.user.command(self.software.root.join("bin/Runner.Listener"));
        environment::apply(&mut command, self.user, self.layout, self.id);
        command.arg(what).current_dir(&self.software.root).env(TOKEN, token.expose());
        command
    }

    async fn run(
        &self,
        command: Command,
        token: &Token,
        within: Duration,
    ) -> Result<ProgramOutput, String> {
        program::run_redacted(self.clock, command, within, &[&token.secret]).await
    }

    /// Writes `.env`, which the runner adds to its own environment and that of jobs.
    fn write_environment(&self) -> Result<(), String> {
        let mut lines = hooks::without_hooks(&self.software.operator_env);
        if !lines.lines().any(|line| line.starts_with("LANG=")) {
            // Without the line, jobs would have the locale of the listener, which may have none.
            lines.push_str(&format!("LANG={}\n", environment::LANG));
        }
        write_file(&self.software.root.join(".env"), lines.as_bytes(), 0o644, None)
    }

    fn copies(&self) -> std::path::PathBuf {
        self.layout.state.join("registration")
    }

    /// Copies the registration files to where jobs cannot change them. The runner sends the
    /// removal token to the address in these files.
    fn save_files(&self) -> Result<(), String> {
        let copies = self.copies();
        let failed = |e: io::Error| format!("cannot save the registration: {e}");
        folder::make_private(&copies).map_err(failed)?;
        for name in FILES {
            if let Some(content) = read(&self.software.root.join(name)).map_err(failed)? {
                write_file(&copies.join(name), &content, 0o600, None)?;
            }
        }
        Ok(())
    }

    /// Replaces the registration files by the copies, if there are copies.
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
                write_file(&path, &content, 0o600, Some(self.user))?;
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

/// Why a command of the runner failed, and whether the reason may pass.
struct CommandError {
    why: String,
    passes: bool,
}

impl From<String> for CommandError {
    fn from(why: String) -> CommandError {
        CommandError { why, passes: false }
    }
}

/// Whether the last attempt of a command got a server error, or exceeded a rate limit.
fn is_server_error(said: &str) -> bool {
    const STATUS: &str = "Response status code does not indicate success: ";
    let last = said.lines().rev().find_map(|line| line.split_once(STATUS));
    last.is_some_and(|(_, status)| status.starts_with('5') || status.starts_with("429"))
}

/// Whether GitHub refused a removal because the runner has a job. Servers with the old flow report an
/// exception without a status; others report status 422, which has had two names in .NET.
fn is_busy(said: &str) -> bool {
    let has_job = said.contains("running a job");
    let is_refusal = ["code: UnprocessableEntity ", "code: UnprocessableContent ", ": 422 ("]
        .iter()
        .any(|status| said.contains(status));
    has_job && (is_refusal || !said.contains("Http response code: "))
}

/// Whether the runner did not ask GitHub at all. It says so, and exits with 0.
fn is_skipped(said: &str) -> bool {
    said.contains("because config files are missing")
}

/// Whether a removal failed because GitHub does not know the runner. The present runner sends its token
/// with the deletion, and GitHub may then answer an invalid one in the same way: the runner stays in
/// the list, offline, until refresh finds its machine gone. Older runners exchange their token first,
/// and fail at that request if it is invalid.
fn is_unknown_runner(said: &str) -> bool {
    let is_deletion = |line: &str| line.to_ascii_lowercase().contains("from 'delete ");
    said.lines().any(|line| line.contains("code: NotFound ") && is_deletion(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_runner_is_recognised() {
        let refused = |name: &str| {
            format!(
                "Http response code: {name} from 'Delete https://api.github.com/x/1'\n\
                 {{\"message\":\"Bad request - Runner \\\"i-1\\\" is still running a job\"}}\n"
            )
        };
        let status = "Response status code does not indicate success: 422 (Unprocessable Content).";
        for (said, busy) in [
            (refused("UnprocessableEntity"), true),
            (refused("UnprocessableContent"), true),
            (format!("{}{status}", refused("Unheard")), true),
            (refused("Forbidden"), false),
            ("Runner i-1-1 is currently running a job and cannot be deleted.".to_owned(), true),
            (status.to_owned(), false),
        ] {
            assert_eq!(is_busy(&said), busy, "{said}");
        }
    }

    #[test]
    fn the_last_status_decides_whether_an_error_may_pass() {
        let status = |status: &str| {
            format!("x\nResponse status code does not indicate success: {status}.\ny\n")
        };
        for (said, passes) in [
            (status("502 (Bad Gateway)"), true),
            (status("503 (Service Unavailable)"), true),
            (status("429 (Too Many Requests)"), true),
            (status("404 (Not Found)"), false),
            (status("401 (Unauthorized)"), false),
            (format!("{}{}", status("502 (Bad Gateway)"), status("404 (Not Found)")), false),
            ("Http response code: BadGateway from 'POST x'".to_owned(), false),
        ] {
            assert_eq!(is_server_error(&said), passes, "{said}");
        }
    }

    #[test]
    fn only_a_failed_deletion_means_an_unknown_runner() {
        for (said, unknown) in [
            (
                "Http response code: NotFound from 'Delete https://api.github.com/x/1' (RegistrationRequest Id: 1)",
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
