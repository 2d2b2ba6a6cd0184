//! The inputs of `ondeck init`, and the checks that its answers must pass.

use ondeck_core::inputs::{Input, InputTable, InputValue, Mode};
use ondeck_core::model::excerpt::quoted;

pub(crate) const CLOUDFORMATION: &str = "cloudformation";
pub(crate) const TERRAFORM: &str = "terraform";
pub(crate) const WORKFLOW: &str = "workflow";
pub(crate) const FUNCTION: &str = "function";

pub(crate) const DEFAULT_BRANCH: Input =
    Input::call("default-branch", "BRANCH", "Branch whose ondeck.toml is applied", &[Mode::Init])
        .or_described("as the remote origin says, otherwise main")
        .checked(check_branch);
pub(crate) const REPOSITORY_WITH_IDS: Input = Input::call(
    "repository-with-ids",
    "NAME",
    "The repository with the ids of its owner and its own, such as acme@123456/web@456789: AWS has to \
     know them if the repository was created, renamed or transferred after 15 July 2026",
    &[Mode::Init],
)
.or_described("as gh says, otherwise none")
.checked(|text| without_ids(text).map(drop));
pub(crate) const IMAGE: Input = Input::call(
    "image",
    "IMAGE",
    "Image that machines boot: its id, resolve:ssm:PARAMETER, or the newest ubuntu-24.04, \
     ubuntu-24.04-arm64, amazon-linux-2023 or amazon-linux-2023-arm64",
    &[Mode::Init],
)
.or("ubuntu-24.04")
.checked(|text| image(text).map(drop));
pub(crate) const VPC: Input =
    Input::call("vpc", "VPC", "Existing network of the machines", &[Mode::Init])
        .or_described("a new one")
        .checked(|text| id("vpc", text))
        .requiring(&["subnets"]);
pub(crate) const SUBNETS: Input = Input::call(
    "subnets",
    "SUBNET ...",
    "Subnets of the existing network, no more than one in each availability zone",
    &[Mode::Init],
)
.checked(|text| subnets(text).map(drop))
.requiring(&["vpc"]);
pub(crate) const NEW_NETWORK: Input =
    Input::switch("new-network", "Create a network for the machines", &[Mode::Init])
        .conflicting(&["vpc"]);
pub(crate) const INFRASTRUCTURE: Input = Input::call(
    "infrastructure",
    "",
    "Language of the files that create roles and network",
    &[Mode::Init],
)
.valued(InputValue::Choice("LANGUAGE", &[CLOUDFORMATION, TERRAFORM]), None)
.or(CLOUDFORMATION);
pub(crate) const REFRESH: Input = Input::call(
    "refresh",
    "",
    "What refreshes the pool: a scheduled workflow, which is set up in fewer steps, or a function, which \
     is called each minute and keeps the token out of GitHub",
    &[Mode::Init],
)
.valued(InputValue::Choice("REFRESH", &[WORKFLOW, FUNCTION]), None)
.or(WORKFLOW);
pub(crate) const OUTPUTS: Input = Input::call(
    "outputs",
    "FILE",
    "Outputs of the deployed infrastructure, to put into ondeck.toml: JSON of aws cloudformation \
     describe-stacks or of terraform output; - for stdin",
    &[Mode::Init],
);
pub(crate) const PRINT: Input =
    Input::switch("print", "Print all files and write none", &[Mode::Init]);

pub(crate) const INIT: InputTable = InputTable {
    heading: "",
    rows: &[
        DEFAULT_BRANCH,
        REPOSITORY_WITH_IDS,
        IMAGE,
        VPC,
        SUBNETS,
        NEW_NETWORK,
        INFRASTRUCTURE,
        REFRESH,
        OUTPUTS,
        PRINT,
    ],
};

/// The public parameters in which Canonical and Amazon keep the ids of their newest images. Canonical's
/// "Find Ubuntu images on AWS" and Amazon's "AL2023 on Amazon EC2" document the names.
const IMAGES: [(&str, &str); 4] = [
    (
        "ubuntu-24.04",
        "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id",
    ),
    (
        "ubuntu-24.04-arm64",
        "/aws/service/canonical/ubuntu/server/24.04/stable/current/arm64/hvm/ebs-gp3/ami-id",
    ),
    ("amazon-linux-2023", "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"),
    (
        "amazon-linux-2023-arm64",
        "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64",
    ),
];

/// How a reference to a parameter begins.
pub(crate) const PARAMETER: &str = "resolve:ssm:";

/// The setting `ami` for an image. Fails if the text names none.
pub(crate) fn image(text: &str) -> Result<String, String> {
    if let Some((_, parameter)) = IMAGES.iter().find(|(name, _)| *name == text) {
        return Ok(format!("{PARAMETER}{parameter}"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    match text.strip_prefix(PARAMETER) {
        Some(name) if name.len() > 1 && name.starts_with('/') && name.chars().all(plain) => {
            Ok(text.to_owned())
        }
        _ if id("ami", text).is_ok() => Ok(text.to_owned()),
        _ => {
            let names = IMAGES.map(|(name, _)| name).join(", ");
            Err(format!("is neither ami-…, {PARAMETER}… nor one of {names}: {}", quoted(text)))
        }
    }
}

/// The ids in a list that is separated by blanks or commas.
pub(crate) fn subnets(text: &str) -> Result<Vec<String>, String> {
    let words = text.split([' ', ',', '\n']).filter(|word| !word.is_empty());
    let ids: Vec<String> = words.map(str::to_owned).collect();
    if ids.is_empty() {
        return Err("names no subnet".to_owned());
    }
    ids.iter().try_for_each(|subnet| id("subnet", subnet)).map(|()| ids)
}

/// Checks an id of EC2: the kind, a hyphen, and hexadecimal digits.
fn id(kind: &str, text: &str) -> Result<(), String> {
    let digits = text.strip_prefix(kind).and_then(|rest| rest.strip_prefix('-'));
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    match digits {
        Some(digits) if !digits.is_empty() && digits.chars().all(is_hex) => Ok(()),
        _ => Err(format!("is not {kind}- and hexadecimal digits: {}", quoted(text))),
    }
}

/// Checks a name as the parameter `Repository` of the infrastructure does.
pub(crate) fn check_repository(text: &str) -> Result<(), String> {
    let owner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_sound = text.split_once('/').is_some_and(|(own, repository)| {
        !own.is_empty()
            && !own.starts_with('-')
            && own.chars().all(owner)
            && !repository.is_empty()
            && repository.chars().all(name)
    });
    if is_sound { Ok(()) } else { Err(format!("is not OWNER/NAME: {}", quoted(text))) }
}

/// The repository OWNER/NAME of a text OWNER@ID/NAME@ID. Fails where the parameter `RepositoryWithIds` of
/// the infrastructure would.
pub(crate) fn without_ids(text: &str) -> Result<String, String> {
    let name = |part: &str| {
        let (name, id) = part.split_once('@')?;
        let is_id = !id.is_empty() && id.chars().all(|c| c.is_ascii_digit());
        is_id.then(|| name.to_owned())
    };
    let names = text.split_once('/').and_then(|(owner, rest)| Some((name(owner)?, name(rest)?)));
    let repository = names.map(|(owner, name)| format!("{owner}/{name}"));
    repository
        .filter(|repository| check_repository(repository).is_ok())
        .ok_or_else(|| format!("is not OWNER@ID/NAME@ID: {}", quoted(text)))
}

/// Checks a name as the parameter `DefaultBranch` of the infrastructure does.
fn check_branch(text: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return Ok(());
    }
    Err(format!(
        "has other characters than letters, digits, '.', '_', '/' and '-': {}",
        quoted(text)
    ))
}

/// Checks the form of a region, such as eu-central-1.
pub(crate) fn check_region(text: &str) -> Result<(), String> {
    let parts: Vec<&str> = text.split('-').collect();
    let (words, number) = parts.split_at(parts.len().saturating_sub(1));
    let is_word = |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase());
    let is_number = number.iter().all(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()));
    if words.len() >= 2 && words.iter().all(is_word) && is_number {
        return Ok(());
    }
    Err(format!("is no region such as us-east-1: {}", quoted(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_ids_parameters_or_names() {
        let ubuntu = image("ubuntu-24.04").unwrap();
        assert!(ubuntu.starts_with("resolve:ssm:/aws/service/canonical/ubuntu/"), "{ubuntu}");
        for text in ["ami-0123456789abcdef0", "resolve:ssm:/images/ci"] {
            assert_eq!(image(text).as_deref(), Ok(text));
        }
        for text in [
            "",
            "ami-",
            "ami-xyz",
            "ubuntu-22.04",
            "resolve:ssm:",
            "resolve:ssm:ci",
            "resolve:ssm:/a b",
        ] {
            assert!(image(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_and_regions_are_checked() {
        for text in ["acme/web", "Acme-1/web.site_2"] {
            assert_eq!(check_repository(text), Ok(()), "{text}");
        }
        for text in ["", "acme", "acme/", "/web", "-a/web", "acme/web/x", "acme/w b", "a_b/web"] {
            assert!(check_repository(text).is_err(), "{text}");
        }
        assert_eq!(without_ids("Acme-1@12/web.site_2@3").as_deref(), Ok("Acme-1/web.site_2"));
        for text in ["", "acme/web", "acme@1/web", "acme@1/web@", "acme@a/web@2", "acme@1/web@2@3"]
        {
            assert!(without_ids(text).is_err(), "{text}");
        }
        for text in ["us-east-1", "eu-central-1", "us-gov-west-1", "ap-southeast-12"] {
            assert_eq!(check_region(text), Ok(()), "{text}");
        }
        for text in ["", "1", "us-1", "us-east", "us-east-", "US-EAST-1", "us--east-1"] {
            assert!(check_region(text).is_err(), "{text}");
        }
        assert_eq!(subnets("subnet-1, subnet-2").unwrap(), ["subnet-1", "subnet-2"]);
        for text in ["", " ", "subnet", "subnet-1 sg-2"] {
            assert!(subnets(text).is_err(), "{text}");
        }
    }
}
