//! AWS and GitHub of the story, and the program run against them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use ondeck_standin::{
    Gateway, GatewayOptions, GitHub, GitHubOptions, MachineCommand, Permission, PolicyPool, Role,
    runner_package,
};
use serde_json::Value;

use crate::StoryArguments;
use crate::network::Network;

/// The repository whose runs are played, and the pool.
pub(super) const REPOSITORY: &str = "acme/web";
/// Tokens of the stand-in's GitHub.
const TOKEN: &str = "github_pat_11ADMINISTERSonly_acmeweb";
const JOBS_TOKEN: &str = "ghs_readsrunsandnothingelse";
const RUNNER: &str = "2.336.0";
const MACHINE_ROLE: &str = "ondeck-machine";
/// How long one call of the program may take.
const LIMIT_SEC: &str = "500";

/// An account at AWS and one at GitHub, both in this process.
pub(super) struct Account {
    pub(super) gateway: Gateway,
    pub(super) github: GitHub,
    /// URL and digest of the agent.
    pub(super) agent: (String, String),
    pub(super) folder: PathBuf,
    ondeck: PathBuf,
    certificate: PathBuf,
    _network: Network,
}

impl Account {
    pub(super) fn open(arguments: &StoryArguments, kvm: bool) -> Result<Account, String> {
        let image = absolute(&arguments.machine.image)?;
        let folder = absolute(&arguments.machine.folder)?;
        let gateway = Gateway::start(options(arguments, &image, &folder, kvm)?);
        let pool = PolicyPool {
            pool: REPOSITORY.to_owned(),
            name: "ondeck-acme-web-????????".to_owned(),
            machine_role: MACHINE_ROLE.to_owned(),
        };
        for role in Role::ALL {
            gateway.grant(role.name(), &pool, &[role]);
        }
        let models = Some(arguments.models.clone());
        let github =
            GitHub::start(GitHubOptions { models, behind_tls: true, ..GitHubOptions::default() });
        github.allow(TOKEN, REPOSITORY, &[Permission::Administration]);
        github.allow(JOBS_TOKEN, REPOSITORY, &[Permission::ActionsRead]);
        github.publish_runner(RUNNER, runner_package(RUNNER));
        let agent = publish_agent(&github, &arguments.ondeck, &folder)?;
        let agents = gateway.endpoint("agents");
        let network = Network::start(&image, &folder, agents.url(), github.url())?;
        Ok(Account {
            gateway,
            github,
            agent,
            folder,
            ondeck: absolute(&arguments.ondeck)?,
            certificate: image.join("ca.pem"),
            _network: network,
        })
    }

    /// Everything that must not be read by a job or by an outsider.
    pub(super) fn secrets(&self) -> Vec<String> {
        let fixed = [TOKEN, JOBS_TOKEN, "standin-secret-", "standin-token-"].map(str::to_owned);
        fixed.into_iter().chain(self.github.runner_tokens()).collect()
    }

    /// Starts the program with these arguments.
    pub(super) fn start(&self, arguments: &[&str]) -> Result<Running, String> {
        let mode = arguments.first().copied().unwrap_or_default();
        let mut command = Command::new("timeout");
        command.arg(LIMIT_SEC).arg(&self.ondeck).args(arguments);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if ["ONDECK_", "AWS_", "GITHUB_", "RUNNER_"].iter().any(|it| name.starts_with(it)) {
                command.env_remove(name);
            }
        }
        command
            .env("AWS_ENDPOINT_URL", self.gateway.endpoint("control").url())
            .env("AWS_ACCESS_KEY_ID", Role::of_command(mode).name())
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_REGION", "us-east-1")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("ONDECK_BACKEND", "aws")
            .env("ONDECK_FORGE", "github")
            .env("ONDECK_POOL", REPOSITORY)
            .env("SSL_CERT_FILE", &self.certificate)
            .env_remove("SSL_CERT_DIR")
            .env("NO_PROXY", "*")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if mode == "refresh" {
            command.env("ONDECK_GITHUB_TOKEN", TOKEN).env("ONDECK_JOBS_TOKEN", JOBS_TOKEN);
        }
        let child = command.spawn().map_err(|error| format!("cannot run ondeck: {error}"))?;
        Ok(Running { child, line: arguments.join(" ") })
    }

    /// Runs the program to its end and returns the JSON that it prints. Fails if it does.
    pub(super) fn ondeck(&self, arguments: &[&str]) -> Result<Value, String> {
        self.start(arguments)?.finish()
    }
}

/// A call of the program.
pub(super) struct Running {
    child: Child,
    line: String,
}

impl Running {
    pub(super) fn finish(self) -> Result<Value, String> {
        let done = self.child.wait_with_output().map_err(|error| error.to_string())?;
        let (out, err) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        if !done.status.success() {
            return Err(format!("ondeck {}: {}\n{out}{err}", self.line, done.status));
        }
        serde_json::from_str(&out).map_err(|error| format!("{error}: {out}"))
    }
}

fn options(
    arguments: &StoryArguments,
    image: &Path,
    folder: &Path,
    kvm: bool,
) -> Result<GatewayOptions, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let word = |path: &Path| path.display().to_string();
    let mut args = vec!["machine".to_owned(), "--image".to_owned(), word(image)];
    args.extend(["--folder".to_owned(), word(folder)]);
    args.extend(kvm.then(|| "--kvm".to_owned()));
    Ok(GatewayOptions {
        models: Some(arguments.models.clone()),
        policies: Some(arguments.policies.clone()),
        command: Some(MachineCommand { program, args, env: Vec::new() }),
        logs: Some(folder.join("machines")),
        ..GatewayOptions::at(&arguments.dynamodb, &arguments.sqs)
    })
}

/// Offers the agent for download as a release of ondeck does. Returns its URL and digest.
fn publish_agent(
    github: &GitHub,
    ondeck: &Path,
    folder: &Path,
) -> Result<(String, String), String> {
    let stripped = folder.join("ondeck");
    // With its debug information it would be three times as large.
    let mut strip = Command::new("strip");
    let done = strip.arg("-o").arg(&stripped).arg(ondeck).status();
    if !done.as_ref().is_ok_and(std::process::ExitStatus::success) {
        return Err(format!("cannot strip {}: {done:?}", ondeck.display()));
    }
    let bytes = fs::read(&stripped).map_err(|error| format!("{}: {error}", stripped.display()))?;
    let summed = Command::new("sha256sum").arg(&stripped).output();
    let summed = summed.map_err(|error| format!("cannot run sha256sum: {error}"))?;
    let digest = String::from_utf8_lossy(&summed.stdout);
    let digest = digest.split_whitespace().next().unwrap_or_default().to_owned();
    let path = "/ondeck-ci/ondeck/releases/download/vm/ondeck-agent-x86_64";
    github.serve_file(path, bytes);
    Ok((format!("https://github.com{path}"), digest))
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}
