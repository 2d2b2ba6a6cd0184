//! The settings for machines on EC2.

use std::collections::BTreeMap;

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::settings::InvalidSetting;

use crate::inputs;

pub(super) const AMI: &str = inputs::AMI.name;
pub(super) const SUBNETS: &str = inputs::SUBNET_IDS.name;
pub(super) const SECURITY_GROUPS: &str = inputs::SECURITY_GROUP_IDS.name;
pub(super) const PROFILE: &str = inputs::IAM_INSTANCE_PROFILE.name;
pub(super) const AGENT_URL: &str = inputs::AGENT_URL.name;
pub(super) const AGENT_SHA256: &str = inputs::AGENT_SHA256.name;
pub(super) const VOLUME_SIZE: &str = inputs::VOLUME_SIZE_GB.name;
pub(super) const KEY_NAME: &str = inputs::KEY_NAME.name;
pub(super) const FIREWALL: &str = inputs::METADATA_FIREWALL.name;

/// The largest gp3 volume.
const MAX_VOLUME_GB: u32 = 65_536;
/// The most subnets of one order. Each is an override with requirements, of which EC2 takes four.
const MAX_SUBNETS: usize = 4;
/// The prefix of an image whose id EC2 looks up at each launch.
const ALIAS: &str = "resolve:ssm:";

/// What all machines are launched with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MachineOptions {
    pub(super) ami: String,
    pub(super) security_groups: Vec<String>,
    pub(super) profile: Option<String>,
    pub(super) agent: Option<AgentSource>,
    pub(super) volume_gb: Option<u32>,
    pub(super) key_name: Option<String>,
    /// Whether machines keep jobs from the metadata service.
    pub(super) firewall: bool,
}

/// Where machines download the agent if it is not on the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AgentSource {
    pub(super) url: String,
    pub(super) sha256: String,
}

type Settings = BTreeMap<String, String>;

impl MachineOptions {
    pub(super) fn read(settings: &Settings) -> Result<MachineOptions, InvalidSetting> {
        let ami = given(settings, AMI).ok_or_else(|| invalid(AMI, "is not set"))?;
        if !is_id(ami, "ami-") && !ami.strip_prefix(ALIAS).is_some_and(is_word) {
            let problem = format!("is neither an image's id nor {ALIAS}NAME: {}", quoted(ami));
            return Err(invalid(AMI, problem));
        }
        let volume_gb = given(settings, VOLUME_SIZE).map(volume).transpose()?;
        if volume_gb.is_some() && ami.starts_with(ALIAS) {
            let problem =
                format!("needs an image by its id, whose device can be looked up: {}", quoted(ami));
            return Err(invalid(VOLUME_SIZE, problem));
        }
        Ok(MachineOptions {
            ami: ami.to_owned(),
            security_groups: ids(settings, SECURITY_GROUPS, "sg-")?,
            profile: word(settings, PROFILE)?,
            agent: AgentSource::read(settings)?,
            volume_gb,
            key_name: given(settings, KEY_NAME).map(str::to_owned),
            firewall: firewall(settings)?,
        })
    }
}

impl AgentSource {
    fn read(settings: &Settings) -> Result<Option<AgentSource>, InvalidSetting> {
        let Some(url) = word(settings, AGENT_URL)? else { return Ok(None) };
        if !url.starts_with("https://") && !url.starts_with("s3://") {
            let problem = format!("is neither https:// nor s3://: {}", quoted(&url));
            return Err(invalid(AGENT_URL, problem));
        }
        let sha256 = given(settings, AGENT_SHA256).ok_or_else(|| {
            invalid(AGENT_SHA256, "is not set, and agent-url needs it to check what it gets")
        })?;
        if sha256.len() != 64 || !sha256.chars().all(|c| c.is_ascii_hexdigit()) {
            let problem = format!("is not 64 hexadecimal digits: {}", quoted(sha256));
            return Err(invalid(AGENT_SHA256, problem));
        }
        Ok(Some(AgentSource { url, sha256: sha256.to_ascii_lowercase() }))
    }
}

/// The subnets to launch machines in: at least one, and no more than one order can name.
pub(super) fn subnets(settings: &Settings) -> Result<Vec<String>, InvalidSetting> {
    let subnets = ids(settings, SUBNETS, "subnet-")?;
    match subnets.len() {
        0 => Err(invalid(SUBNETS, "is not set")),
        1..=MAX_SUBNETS => Ok(subnets),
        count => {
            let problem =
                format!("holds more subnets than EC2 takes, which is {MAX_SUBNETS}: {count}");
            Err(invalid(SUBNETS, problem))
        }
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
        let sha = "AB".repeat(32);
        let all = settings(&[
            (AMI, " ami-0123456789abcdef0 "),
            (SUBNETS, "subnet-1, subnet-2\nsubnet-1"),
            (SECURITY_GROUPS, "sg-1"),
            (PROFILE, "arn:aws:iam::123456789012:instance-profile/ondeck"),
            (AGENT_URL, "s3://bucket/ondeck"),
            (AGENT_SHA256, &sha),
            (VOLUME_SIZE, "40"),
            (KEY_NAME, "my key"),
            (FIREWALL, "off"),
            ("something-else", "of another backend"),
        ]);
        let options = MachineOptions::read(&all).unwrap();
        assert_eq!(options.ami, "ami-0123456789abcdef0");
        assert_eq!(options.security_groups, ["sg-1"]);
        let agent = options.agent.unwrap();
        assert_eq!((agent.url.as_str(), agent.sha256), ("s3://bucket/ondeck", "ab".repeat(32)));
        assert_eq!((options.volume_gb, options.key_name.as_deref()), (Some(40), Some("my key")));
        assert!(!options.firewall);
        assert_eq!(subnets(&all).unwrap(), ["subnet-1", "subnet-2"]);
        let least = MachineOptions::read(&settings(&[(AMI, "resolve:ssm:/img/latest")])).unwrap();
        assert_eq!((least.agent, least.profile, least.volume_gb), (None, None, None));
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
            (vec![(AMI, "resolve:ssm:/a"), (VOLUME_SIZE, "8")], VOLUME_SIZE, "by its id"),
            (vec![(AMI, "ami-1"), (VOLUME_SIZE, "0")], VOLUME_SIZE, "from 1 to 65536: \"0\""),
            (vec![(AMI, "ami-1"), (VOLUME_SIZE, "big")], VOLUME_SIZE, "from 1 to 65536"),
            (vec![(AMI, "ami-1"), (SECURITY_GROUPS, "default")], SECURITY_GROUPS, "sg-"),
            (vec![(AMI, "ami-1"), (FIREWALL, "no")], FIREWALL, "is neither on nor off: \"no\""),
            (vec![(AMI, "ami-1"), (PROFILE, "a b")], PROFILE, "do not belong"),
            (vec![(AMI, "ami-1"), (AGENT_URL, "http://x/y")], AGENT_URL, "neither https://"),
            (vec![(AMI, "ami-1"), (AGENT_URL, "https://x/'$(id)'")], AGENT_URL, "do not belong"),
            (vec![(AMI, "ami-1"), (AGENT_URL, "https://x")], AGENT_SHA256, "is not set"),
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
        assert_eq!(subnets(&settings(&[])).unwrap_err().to_string(), "subnet-ids is not set");
        assert!(subnets(&settings(&[(SUBNETS, "subnet-1 vpc-2")])).is_err());
        let four = "subnet-1 subnet-2 subnet-3 subnet-4";
        assert_eq!(subnets(&settings(&[(SUBNETS, four)])).unwrap().len(), 4);
        let five = format!("{four} subnet-5");
        assert_eq!(
            subnets(&settings(&[(SUBNETS, &five)])).unwrap_err().to_string(),
            "subnet-ids holds more subnets than EC2 takes, which is 4: 5"
        );
    }
}
