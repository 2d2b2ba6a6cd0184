//! The commands `config.sh` and `config.sh remove`.

use std::path::Path;

use hyper::StatusCode;
use serde::Serialize;

use crate::github::protocol::{Exchange, Exchanged, Registered, Registration, UNKNOWN_FLAGS};

use super::command::Command;
use super::pauses::{Pauses, RunnerTimes, wait_as_real};
use super::server::{Reply, Server, ServerError};
use super::settings::{self, CredentialData, Credentials, Settings};
use super::terminal::{print_error, print_line, print_section, print_success};
use super::version;

const DEFAULT_LABELS: [&str; 3] = ["self-hosted", "Linux", "X64"];
/// How often a request is sent.
const ATTEMPTS: u32 = 3;

/// Registers the runner in this folder. Fails if it is configured already or GitHub refuses.
pub(super) async fn configure(root: &Path, command: &Command) -> Result<(), ServerError> {
    print_line("\nSelf-hosted runner registration");
    if Settings::read(root).is_some() {
        return Err(ServerError::new(
            "Cannot configure the runner because it is already configured. To reconfigure the \
             runner, run 'config.cmd remove' or './config.sh remove' first.",
        ));
    }
    wait_as_real(root, |times| times.configure).await;
    print_section("Authentication");
    let url = needed(command, "url")?.trim_end_matches('/').to_owned();
    let exchanged = exchange(root, &url, command).await?;
    print_line("");
    print_success("Connected to GitHub");

    print_section("Runner Registration");
    let registration = registration(root, command)?;
    let server = Server::new(&exchanged.url, format!("Bearer {}", exchanged.token));
    if RunnerTimes::of(root).is_some() {
        for path in ["/runner-groups", "/runners"] {
            let request = Request { method: "GET", word: "Get", path: path.to_owned() };
            request.send(&server, &(), Pauses::of(root)).await?;
        }
    }
    let request = Request { method: "POST", word: "Post", path: "/runners".to_owned() };
    let reply = request.send(&server, &registration, Pauses::of(root)).await?;
    if reply.status == StatusCode::CONFLICT {
        print_line("A runner exists with the same name");
    }
    let registered: Registered = reply.read()?;
    print_line("");
    print_success(if registered.replaced {
        "Successfully replaced the runner"
    } else {
        "Runner successfully added"
    });
    let data = CredentialData {
        client_id: registered.key,
        authorization_url: format!("{}/oauth2/token", exchanged.url),
    };
    Credentials { scheme: "OAuth".to_owned(), data }.write(root)?;
    print_success("Runner connection is good");

    print_section("Runner settings");
    let settings = Settings {
        agent_id: registered.id,
        agent_name: registration.name,
        disable_update: command.has("disableupdate"),
        ephemeral: registration.ephemeral,
        pool_id: 1,
        pool_name: registration.group.unwrap_or_else(|| "Default".to_owned()),
        server_url: exchanged.url,
        git_hub_url: url,
        work_folder: command.value("work").unwrap_or("_work").to_owned(),
    };
    settings.write(root)?;
    print_line("");
    print_success("Settings Saved.");
    print_line("");
    Ok(())
}

fn registration(root: &Path, command: &Command) -> Result<Registration, ServerError> {
    let own = command.value("labels").unwrap_or_default().split(',');
    let own: Vec<String> =
        own.map(str::trim).filter(|label| !label.is_empty()).map(str::to_owned).collect();
    let defaults = !command.has("no-default-labels");
    if !defaults && own.is_empty() {
        return Err(ServerError::new(
            "Disabling default labels via --no-default-labels without specifying --labels is not \
             supported",
        ));
    }
    if let Some(long) = own.iter().find(|label| label.len() > 256) {
        return Err(ServerError::new(format!("Invalid label: {long}")));
    }
    let mut labels: Vec<String> =
        DEFAULT_LABELS.iter().filter(|_| defaults).map(|label| (*label).to_owned()).collect();
    labels.extend(own);
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Ok(Registration {
        name: command.value("name").map_or_else(host, str::to_owned).trim().to_owned(),
        labels,
        group: command.value("runnergroup").map(str::to_owned),
        replace: command.has("replace"),
        ephemeral: command.has("ephemeral"),
        version: version(root),
    })
}

/// Removes the runner in this folder from GitHub, and deletes its configuration.
pub(super) async fn unconfigure(root: &Path, command: &Command) -> Result<(), ServerError> {
    let configured = Settings::read(root);
    let has_credentials = Credentials::read(root).is_some();
    if command.has("local") {
        settings::forget_credentials(root);
        settings::forget_settings(root);
        return Ok(());
    }
    wait_as_real(root, |times| times.remove).await;
    print_section("Runner removal");
    match &configured {
        Some(settings) if has_credentials => {
            if let Err(error) = deregister(root, settings, command).await {
                print_error("Failed: Removing runner from the server");
                return Err(error);
            }
        }
        _ => print_line(
            "Cannot connect to server, because config files are missing. Skipping removing \
             runner from the server.",
        ),
    }
    if has_credentials {
        settings::forget_credentials(root);
        print_success("Removed .credentials");
    } else {
        print_line("Does not exist. Skipping Removing .credentials");
    }
    if configured.is_some() {
        settings::forget_settings(root);
        print_success("Removed .runner");
    } else {
        print_line("Does not exist. Skipping Removing .runner");
    }
    print_line("");
    Ok(())
}

async fn deregister(
    root: &Path,
    settings: &Settings,
    command: &Command,
) -> Result<(), ServerError> {
    let (host, name) = split(&settings.git_hub_url);
    let scope = if name.contains('/') { "repos" } else { "orgs" };
    let request = Request {
        method: "DELETE",
        word: "Delete",
        path: format!("/api/v3/{scope}/{name}/actions/runners/{}", settings.agent_id),
    };
    let mut server = Server::new(&host, remote_auth(command)?);
    let unknown = command.unknown();
    if !unknown.is_empty() {
        server = server.with_header(UNKNOWN_FLAGS, unknown.join(", "));
    }
    request.send(&server, &(), Pauses::of(root)).await?;
    print_line("");
    print_success("Runner removed successfully");
    Ok(())
}

/// Exchanges the token of the command line for one to register with. The real runner drops the port of
/// the address here and for the removal; this one keeps it, so that several servers can run at once.
async fn exchange(root: &Path, url: &str, command: &Command) -> Result<Exchanged, ServerError> {
    let request = Request {
        method: "POST",
        word: "POST",
        path: "/api/v3/actions/runner-registration".to_owned(),
    };
    let server = Server::new(&split(url).0, remote_auth(command)?);
    let body = Exchange {
        url: url.to_owned(),
        runner_event: "register".to_owned(),
        unknown: command.unknown(),
    };
    request.send(&server, &body, Pauses::of(root)).await?.read()
}

fn remote_auth(command: &Command) -> Result<String, ServerError> {
    Ok(format!("RemoteAuth {}", needed(command, "token")?))
}

/// The server of an address, and the repository or organisation.
fn split(url: &str) -> (String, String) {
    let parts: Vec<&str> = url.splitn(4, '/').collect();
    (parts[..parts.len().min(3)].join("/"), parts.get(3).copied().unwrap_or_default().to_owned())
}

/// A request of `config.sh`.
struct Request {
    method: &'static str,
    /// The method in the runner's own messages.
    word: &'static str,
    path: String,
}

impl Request {
    /// Sends the request up to [`ATTEMPTS`] times, but not again after the status 404. Prints each
    /// refusal.
    async fn send(
        &self,
        server: &Server,
        body: &impl Serialize,
        pauses: Pauses,
    ) -> Result<Reply, ServerError> {
        let mut attempt = 1;
        loop {
            let (status, error) = match server.ask(self.method, &self.path, body).await {
                Ok(reply) if reply.status.is_success() => return Ok(reply),
                // The real runner asks for the name and the group before it registers.
                Ok(reply) if matches!(reply.status.as_u16(), 400 | 409) => return Ok(reply),
                Ok(reply) => (Some(reply.status), self.refused(server, &reply)),
                Err(error) => (None, error),
            };
            if status == Some(StatusCode::NOT_FOUND) || attempt == ATTEMPTS {
                return Err(error);
            }
            let longest = if attempt == 1 { 2.0 } else { 5.0 };
            tokio::time::sleep(pauses.between(1.0..longest)).await;
            attempt += 1;
        }
    }

    /// The real runner's messages for a refused request, with method, URL and answer.
    fn refused(&self, server: &Server, reply: &Reply) -> ServerError {
        let reason = reply.status.canonical_reason().unwrap_or_default();
        print_error(&format!(
            "Http response code: {} from '{} {}{}' (Request Id: {})",
            reason.replace(' ', ""),
            self.word,
            server.root(),
            self.path,
            reply.id
        ));
        print_error(&reply.text);
        ServerError::new(format!(
            "Response status code does not indicate success: {} ({reason}).",
            reply.status.as_u16()
        ))
    }
}

/// A required value. Fails if it is missing; the real runner would prompt for it.
fn needed<'a>(command: &'a Command, name: &str) -> Result<&'a str, ServerError> {
    command.value(name).ok_or_else(|| {
        ServerError::new(format!(
            "Invalid configuration provided for {name}. Terminating unattended configuration."
        ))
    })
}
