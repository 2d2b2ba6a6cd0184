//! The settings for machines on EC2.

mod agents;
mod launch;
mod proxies;

use std::collections::BTreeMap;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::settings::InvalidSetting;

use crate::inputs;
use crate::machine_logs::LogDestination;

#[cfg(test)]
pub(super) use agents::AgentSource;
pub(crate) use agents::Agents;
pub(crate) use launch::LaunchOptions;
pub(crate) use proxies::Proxies;

pub(super) const AMI: &str = inputs::AMI.name;
pub(super) const SUBNETS: &str = inputs::SUBNET_IDS.name;
pub(super) const SECURITY_GROUPS: &str = inputs::SECURITY_GROUP_IDS.name;
pub(super) const PROFILE: &str = inputs::IAM_INSTANCE_PROFILE.name;
const AGENT_URL: &str = inputs::AGENT_URL.name;
const AGENT_SHA256: &str = inputs::AGENT_SHA256.name;
const AGENT_URL_ARM64: &str = inputs::AGENT_URL_ARM64.name;
const AGENT_SHA256_ARM64: &str = inputs::AGENT_SHA256_ARM64.name;
const HTTP_PROXY: &str = inputs::HTTP_PROXY.name;
const HTTPS_PROXY: &str = inputs::HTTPS_PROXY.name;
const NO_PROXY: &str = inputs::NO_PROXY.name;
pub(super) const PRICE_PROTECTION: &str = inputs::ON_DEMAND_PRICE_PROTECTION.name;
pub(super) const GENERATIONS: &str = inputs::INSTANCE_GENERATIONS.name;
pub(super) const VOLUME_SIZE: &str = inputs::VOLUME_SIZE_GB.name;
pub(super) const KEY_NAME: &str = inputs::KEY_NAME.name;
const FIREWALL: &str = inputs::METADATA_FIREWALL.name;
const MACHINE_LOGS: &str = inputs::MACHINE_LOGS.name;
const CONNECT: &str = inputs::CONNECT.name;

/// The name of the forge's setting for the user that jobs run as.
pub const RUNNER_USER_SETTING: &str = "runner-user";
/// The user that jobs run as on EC2, unless the setting names another.
pub const DEFAULT_RUNNER_USER: &str = "runner";

/// The largest gp3 volume.
const MAX_VOLUME_GB: u32 = 65_536;
/// The prefix of an image whose id EC2 looks up at each launch.
const ALIAS: &str = "resolve:ssm:";

/// What all machines are launched with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MachineOptions {
    pub(crate) ami: String,
    pub(crate) security_groups: Vec<String>,
    pub(crate) profile: Option<String>,
    pub(crate) agents: Agents,
    pub(crate) proxies: Proxies,
    /// The user that jobs run as.
    pub(crate) runner_user: String,
    pub(crate) volume_gb: Option<u32>,
    pub(crate) key_name: Option<String>,
    /// Whether machines keep jobs from the metadata service.
    pub(crate) firewall: bool,
    /// Where machines copy the log of their agent, as the setting says it.
    pub(crate) machine_logs: String,
    /// How `ondeck connect` reaches machines, as the setting says it.
    pub(crate) connect: String,
}

type Settings = BTreeMap<String, String>;

/// Fails with the first stored setting that machines from EC2 could not be launched with, as far as
/// that is known without asking AWS.
pub fn check_settings(settings: &BTreeMap<String, String>) -> Result<(), InvalidSetting> {
    MachineOptions::read(settings).map(drop)?;
    LaunchOptions::read(settings).map(drop)
}

impl MachineOptions {
    /// The parameter of Systems Manager with the image's id; `None` if the id is given.
    pub(crate) fn image_parameter(&self) -> Option<&str> {
        self.ami.strip_prefix(ALIAS)
    }

    /// Whether the image is one that AWS or a vendor publishes under a parameter. All of these names
    /// begin with `/aws/service/` (AWS Systems Manager User Guide, "Discovering public parameters").
    pub(super) fn has_public_image(&self) -> bool {
        self.image_parameter().is_some_and(|parameter| parameter.starts_with("/aws/service/"))
    }

    pub(crate) fn read(settings: &Settings) -> Result<MachineOptions, InvalidSetting> {
        let ami = given(settings, AMI).ok_or_else(|| invalid(AMI, "is not set"))?;
        if !is_id(ami, "ami-") && !ami.strip_prefix(ALIAS).is_some_and(is_word) {
            let problem = format!("is neither an image's id nor {ALIAS}NAME: {}", quoted(ami));
            return Err(invalid(AMI, problem));
        }
        let volume_gb = given(settings, VOLUME_SIZE).map(volume).transpose()?;
        Ok(MachineOptions {
            ami: ami.to_owned(),
            security_groups: ids(settings, SECURITY_GROUPS, "sg-")?,
            profile: word(settings, PROFILE)?,
            agents: Agents::read(settings)?,
            proxies: Proxies::read(settings)?,
            runner_user: runner_user(settings)?,
            volume_gb,
            key_name: given(settings, KEY_NAME).map(str::to_owned),
            firewall: firewall(settings)?,
            machine_logs: machine_logs(settings)?,
            connect: connect(settings)?,
        })
    }
}

fn given<'a>(settings: &'a Settings, name: &str) -> Option<&'a str> {
    settings.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
}

/// A value that can be used as one word of a script or a request.
fn word(settings: &Settings, name: &str) -> Result<Option<String>, InvalidSetting> {
    match given(settings, name) {
        Some(value) if !is_word(value) => Err(invalid(
            name,
            format!("has characters that do not belong there: {}", quoted(value)),
        )),
        value => Ok(value.map(str::to_owned)),
    }
}

/// The ids of a list, each once, in the given order.
fn ids(settings: &Settings, name: &str, prefix: &str) -> Result<Vec<String>, InvalidSetting> {
    let mut ids: Vec<String> = Vec::new();
    let separators = [' ', ',', '\n', '\t', '\r'];
    let text = given(settings, name).unwrap_or_default();
    for id in text.split(separators).filter(|id| !id.is_empty()) {
        if !is_id(id, prefix) {
            return Err(invalid(
                name,
                format!("holds something else than {prefix}...: {}", quoted(id)),
            ));
        }
        if !ids.iter().any(|other| other == id) {
            ids.push(id.to_owned());
        }
    }
    Ok(ids)
}

fn volume(text: &str) -> Result<u32, InvalidSetting> {
    match text.parse() {
        Ok(size) if (1..=MAX_VOLUME_GB).contains(&size) => Ok(size),
        _ => {
            Err(invalid(VOLUME_SIZE, format!("is not from 1 to {MAX_VOLUME_GB}: {}", quoted(text))))
        }
    }
}

fn runner_user(settings: &Settings) -> Result<String, InvalidSetting> {
    let user = word(settings, RUNNER_USER_SETTING)?;
    let user = user.unwrap_or_else(|| DEFAULT_RUNNER_USER.to_owned());
    if user.starts_with('-') {
        return Err(invalid(RUNNER_USER_SETTING, format!("starts with -: {}", quoted(&user))));
    }
    Ok(user)
}

fn firewall(settings: &Settings) -> Result<bool, InvalidSetting> {
    match given(settings, FIREWALL) {
        None | Some(inputs::ON) => Ok(true),
        Some(inputs::OFF) => Ok(false),
        Some(other) => {
            let (on, off) = (inputs::ON, inputs::OFF);
            Err(invalid(FIREWALL, format!("is neither {on} nor {off}: {}", quoted(other))))
        }
    }
}

fn machine_logs(settings: &Settings) -> Result<String, InvalidSetting> {
    let text = given(settings, MACHINE_LOGS).unwrap_or(inputs::OFF);
    LogDestination::parse(text).map_err(|problem| invalid(MACHINE_LOGS, problem))?;
    Ok(text.to_owned())
}

fn connect(settings: &Settings) -> Result<String, InvalidSetting> {
    match given(settings, CONNECT) {
        None => Ok(inputs::OFF.to_owned()),
        Some(how @ (inputs::OFF | inputs::SSM)) => Ok(how.to_owned()),
        Some(other) => {
            let (off, ssm) = (inputs::OFF, inputs::SSM);
            Err(invalid(CONNECT, format!("is neither {off} nor {ssm}: {}", quoted(other))))
        }
    }
}

fn is_id(text: &str, prefix: &str) -> bool {
    let alphanumeric = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_alphanumeric());
    text.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && alphanumeric(rest))
}

fn is_word(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'\'' | b'"' | b'\\' | b'`');
    !text.is_empty() && text.bytes().all(fits)
}

fn invalid(name: &str, problem: impl Into<String>) -> InvalidSetting {
    InvalidSetting { name: name.to_owned(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn settings_are_read() {
        let (sha, arm_sha) = ("AB".repeat(32), "cd".repeat(32));
        let all = settings(&[
            (AMI, " ami-0123456789abcdef0 "),
            (SECURITY_GROUPS, "sg-1"),
            (PROFILE, "arn:aws:iam::123456789012:instance-profile/ondeck"),
            (AGENT_URL, "s3://bucket/ondeck"),
            (AGENT_SHA256, &sha),
            (AGENT_URL_ARM64, "https://x/arm"),
            (AGENT_SHA256_ARM64, &arm_sha),
            (VOLUME_SIZE, "40"),
            (KEY_NAME, "my key"),
            (FIREWALL, "off"),
            ("something-else", "of another backend"),
        ]);
        let options = MachineOptions::read(&all).unwrap();
        assert_eq!(options.ami, "ami-0123456789abcdef0");
        assert_eq!(options.security_groups, ["sg-1"]);
        let agent = options.agents.x86_64.unwrap();
        assert_eq!((agent.url.as_str(), agent.sha256), ("s3://bucket/ondeck", "ab".repeat(32)));
        assert_eq!((options.volume_gb, options.key_name.as_deref()), (Some(40), Some("my key")));
        assert!(!options.firewall);
        let agent = options.agents.arm64.unwrap();
        assert_eq!((agent.url.as_str(), agent.sha256), ("https://x/arm", "cd".repeat(32)));
        let least = MachineOptions::read(&settings(&[(AMI, "resolve:ssm:/img/latest")])).unwrap();
        assert_eq!((least.profile.as_ref(), least.volume_gb), (None, None));
        assert_eq!((least.agents, least.proxies), (Agents::default(), Proxies::default()));
        assert_eq!(least.runner_user, "runner");
        assert_eq!((least.machine_logs.as_str(), least.connect.as_str()), ("off", "off"));
        assert!(
            least.firewall,
            "jobs reach the metadata service only where an operator permits it"
        );
    }

    #[test]
    fn an_invalid_setting_is_named() {
        let short = "ab".repeat(31);
        for (pairs, name, problem) in [
            (vec![], AMI, "is not set"),
            (vec![(AMI, "ubuntu")], AMI, "neither an image's id"),
            (vec![(AMI, "resolve:ssm:")], AMI, "neither an image's id"),
            (vec![(AMI, "ami-1"), (VOLUME_SIZE, "0")], VOLUME_SIZE, "from 1 to 65536: \"0\""),
            (vec![(AMI, "ami-1"), (VOLUME_SIZE, "big")], VOLUME_SIZE, "from 1 to 65536"),
            (vec![(AMI, "ami-1"), (SECURITY_GROUPS, "default")], SECURITY_GROUPS, "sg-"),
            (vec![(AMI, "ami-1"), (FIREWALL, "no")], FIREWALL, "is neither on nor off: \"no\""),
            (vec![(AMI, "ami-1"), (MACHINE_LOGS, "s3://b")], MACHINE_LOGS, "neither off nor"),
            (vec![(AMI, "ami-1"), (CONNECT, "ssh")], CONNECT, "is neither off nor ssm: \"ssh\""),
            (vec![(AMI, "ami-1"), (PROFILE, "a b")], PROFILE, "do not belong"),
            (
                vec![(AMI, "ami-1"), (RUNNER_USER_SETTING, "-x")],
                RUNNER_USER_SETTING,
                "starts with -",
            ),
            (vec![(AMI, "ami-1"), (AGENT_URL, "http://x/y")], AGENT_URL, "neither https://"),
            (vec![(AMI, "ami-1"), (AGENT_URL, "https://x/'$(id)'")], AGENT_URL, "do not belong"),
            (vec![(AMI, "ami-1"), (AGENT_URL, "https://x")], AGENT_SHA256, "is not set"),
            (
                vec![(AMI, "ami-1"), (AGENT_URL_ARM64, "https://x")],
                AGENT_SHA256_ARM64,
                "is not set, and agent-url-arm64 needs it",
            ),
            (
                vec![(AMI, "ami-1"), (AGENT_URL, "https://x"), (AGENT_SHA256, &short)],
                AGENT_SHA256,
                "64 hexadecimal digits",
            ),
        ] {
            let error = MachineOptions::read(&settings(&pairs)).unwrap_err();
            assert_eq!(error.name, name, "{error}");
            assert!(error.problem.contains(problem), "{error}");
        }
    }
}
