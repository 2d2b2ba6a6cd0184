//! What the folder, git, the AWS CLI and the GitHub CLI know already. git must be there; all else is a default for an
//! answer, and its absence is no failure.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::failure::Failure;
use serde_json::Value;
use tokio::process::Command;

use crate::inputs::init::{check_repository, without_ids};

/// How long a question to the AWS CLI or the GitHub CLI may take. Without credentials, the former may
/// look for a metadata service that is not there.
const PATIENCE: Duration = Duration::from_secs(10);

/// The repository that the current folder is part of.
pub(super) struct Checkout {
    pub(super) root: PathBuf,
    /// OWNER/NAME of the remote origin, or why it has none.
    pub(super) repository: Result<String, Failure>,
    pub(super) default_branch: Option<String>,
}

impl Checkout {
    /// Asks git. Fails outside of a repository.
    pub(super) async fn find() -> Result<Checkout, Failure> {
        let here = Path::new(".");
        let Some(root) = output(here, "git", &["rev-parse", "--show-toplevel"]).await else {
            return Err(Failure::invalid("not a folder of a git repository")
                .hint("change to your repository, or run git init; git must be installed"));
        };
        let root = PathBuf::from(root);
        let url = output(&root, "git", &["remote", "get-url", "origin"]).await;
        let head = ["symbolic-ref", "--short", "refs/remotes/origin/HEAD"];
        let head = output(&root, "git", &head).await;
        let default_branch = head.and_then(|head| head.strip_prefix("origin/").map(str::to_owned));
        Ok(Checkout { root, repository: repository(url.as_deref()), default_branch })
    }
}

/// What the AWS CLI finds with the user's own configuration and credentials.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// The default network of the region, with a subnet for each zone.
    pub(super) network: Option<(String, Vec<String>)>,
    /// Whether the account has an identity provider for GitHub's tokens.
    pub(super) has_provider: Option<bool>,
    /// Whether the account has the role of spot machines.
    pub(super) has_spot_role: Option<bool>,
}

impl Account {
    /// Asks the AWS CLI about the account, all questions at once.
    pub(super) async fn find(region: &str) -> Account {
        let subnets = [
            "ec2",
            "describe-subnets",
            "--region",
            region,
            "--output",
            "json",
            "--filters",
            "Name=default-for-az,Values=true",
        ];
        let providers = ["iam", "list-open-id-connect-providers", "--output", "json"];
        let roles = [
            "iam",
            "list-roles",
            "--path-prefix",
            "/aws-service-role/spot.amazonaws.com/",
            "--output",
            "json",
        ];
        let here = Path::new(".");
        let (subnets, providers, roles) = tokio::join!(
            output(here, "aws", &subnets),
            output(here, "aws", &providers),
            output(here, "aws", &roles)
        );
        let parsed = |text: Option<String>| serde_json::from_str::<Value>(&text?).ok();
        let count = |list: &Value| list.as_array().map(|list| !list.is_empty());
        Account {
            network: parsed(subnets).and_then(|found| default_network(&found)),
            has_provider: providers.map(|found| found.contains(PROVIDER)),
            has_spot_role: parsed(roles).and_then(|found| count(&found["Roles"])),
        }
    }
}

/// The repository as OWNER@ID/NAME@ID, by the GitHub CLI with the user's own credentials. GitHub's
/// OpenID Connect reference ("Immutable subject claims") has the form. Fails with what to do if GitHub
/// does not answer, or knows the repository by another name.
pub(super) async fn with_ids(repository: &str) -> Result<String, String> {
    let path = format!("repos/{repository}");
    // Only github.com has such subjects, also if another host is the user's default.
    let answer = output(Path::new("."), "gh", &["api", "--hostname", "github.com", &path]).await;
    let Some(text) = answer.and_then(|text| spelled(&serde_json::from_str(&text).ok()?)) else {
        return Err(format!(
            "the ids of {repository} are not known, and AWS denies every role to a repository created, \
             renamed or transferred after 15 July 2026 without them: run gh auth login, then ondeck init \
             again"
        ));
    };
    match without_ids(&text) {
        Ok(name) if name == repository => Ok(text),
        Ok(name) => Err(format!(
            "GitHub spells the repository {name}, and AWS compares that: run ondeck init --repository \
             {name}"
        )),
        Err(problem) => Err(format!("the answer of gh api {path} {problem}")),
    }
}

/// Owner and name of GitHub's answer about a repository, each with its id.
fn spelled(repository: &Value) -> Option<String> {
    let owner = &repository["owner"];
    let (login, owner_id) = (owner["login"].as_str()?, owner["id"].as_u64()?);
    let (name, id) = (repository["name"].as_str()?, repository["id"].as_u64()?);
    Some(format!("{login}@{owner_id}/{name}@{id}"))
}

/// The end of the provider's ARN.
const PROVIDER: &str = "oidc-provider/token.actions.githubusercontent.com";

/// The region that the environment or the AWS CLI's configuration names.
pub(super) async fn region() -> Option<String> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    match variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION")) {
        Some(region) => Some(region),
        None => output(Path::new("."), "aws", &["configure", "get", "region"]).await,
    }
}

/// The network and its subnets, in the order of their zones.
fn default_network(found: &Value) -> Option<(String, Vec<String>)> {
    let mut subnets: Vec<(&str, &str, &str)> = Vec::new();
    for subnet in found["Subnets"].as_array()? {
        let text = |name: &str| subnet[name].as_str();
        subnets.push((text("AvailabilityZone")?, text("SubnetId")?, text("VpcId")?));
    }
    subnets.sort_unstable();
    let vpc = subnets.first()?.2.to_owned();
    Some((vpc, subnets.iter().map(|(_, id, _)| (*id).to_owned()).collect()))
}

/// OWNER/NAME of a remote on github.com. A URL may contain a token, so no failure quotes it.
fn repository(url: Option<&str>) -> Result<String, Failure> {
    let hint = "give --repository OWNER/NAME";
    let url = url.ok_or_else(|| Failure::invalid("there is no remote origin").hint(hint))?;
    // A URL, or the short form of ssh, user@host:path.
    let parts = match url.split_once("://") {
        Some((_, rest)) => rest.split_once('/'),
        None => url.split_once(':'),
    };
    let Some((authority, path)) = parts else {
        return Err(Failure::invalid("the remote origin is no repository of a host").hint(hint));
    };
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let host = host.split(':').next().unwrap_or(host);
    // ssh.github.com takes ssh on the port of https.
    if !["github.com", "ssh.github.com"].contains(&host.to_ascii_lowercase().as_str()) {
        let message = format!("the host of the remote origin is not github.com: {}", quoted(host));
        return Err(Failure::invalid(message).hint(hint));
    }
    let name = path.trim_matches('/').trim_end_matches(".git");
    check_repository(name)
        .map(|()| name.to_owned())
        .map_err(|problem| Failure::invalid(format!("the remote origin {problem}")).hint(hint))
}

/// What a program prints, without blanks around it. `None` if it does not exist, fails, prints nothing
/// or takes too long.
async fn output(folder: &Path, program: &str, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let done = tokio::time::timeout(PATIENCE, command.output()).await.ok()?.ok()?;
    let text = String::from_utf8(done.stdout).ok()?;
    let text = text.trim();
    (done.status.success() && !text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::repository;

    #[test]
    fn remotes_on_github_name_their_repository() {
        for url in [
            "https://github.com/acme/web",
            "https://github.com/acme/web.git",
            "https://x-access-token:s3cret@github.com/acme/web.git",
            "git@github.com:acme/web.git",
            "ssh://git@github.com/acme/web",
            "ssh://git@ssh.github.com:443/acme/web.git",
            "https://GitHub.com/acme/web/",
        ] {
            assert_eq!(repository(Some(url)).unwrap(), "acme/web", "{url}");
        }
    }

    #[test]
    fn other_remotes_are_refused_without_what_they_keep_secret() {
        for url in [
            "https://user:s3cret@gitlab.com/acme/web",
            "git@example.com:acme/web.git",
            "../web",
            "s3cret",
            "https://github.com/acme",
        ] {
            let failure = repository(Some(url)).unwrap_err();
            assert!(!failure.message.contains("s3cret"), "{failure:?}");
            assert_eq!(failure.hint, "give --repository OWNER/NAME");
        }
        assert!(repository(None).is_err());
    }
}
