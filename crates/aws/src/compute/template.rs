//! The launch template: what every machine of the pool is, whoever launches it and when.
//!
//! A version carries the digest of its content in its description. So a refresh that changes
//! nothing needs one call to know it, and two refreshes at once come to the same end.

use aws_smithy_types::base64;
use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::settings::InvalidSetting;
use ondeck_core::ports::{PortError, PortResult};
use sha2::{Digest, Sha256};

use super::options::{AMI, MachineOptions};
use super::{managed_by, pool_tag, tagged, user_data};
use crate::ec2::{
    Ec2, Failed, ImagesAnswer, Params, Query, TemplateAnswer, Version, VersionAnswer,
    VersionsAnswer,
};
use crate::error::EC2;
use crate::names::Names;

/// How often to start over because somebody else has made or deleted the template meanwhile.
const ROUNDS: usize = 3;

pub(super) struct Template<'a> {
    ec2: &'a Ec2,
    names: &'a Names,
    options: &'a MachineOptions,
    data: Params,
    /// What the description of a version with this content says.
    description: String,
}

/// What there is already.
struct Standing {
    default: Version,
    latest: Version,
}

impl<'a> Template<'a> {
    pub(super) fn new(ec2: &'a Ec2, names: &'a Names, options: &'a MachineOptions) -> Template<'a> {
        let script = user_data::render(names, ec2.region(), options.agent.as_ref());
        let data = data(names, options, &script);
        // The device of a larger volume is the image's, which its id stands for.
        let content = data.clone().maybe("VolumeSize", options.volume_gb);
        let description = format!("ondeck {}", digest(content.iter()));
        Template { ec2, names, options, data, description }
    }

    /// Makes the default version one with this content. If it is that already, this is one call.
    pub(super) async fn bring_about(&self) -> PortResult<()> {
        for round in 0..ROUNDS {
            let Some(standing) = self.standing().await? else {
                if self.create().await? {
                    return Ok(());
                }
                continue;
            };
            if standing.default.version_description == self.description {
                return Ok(());
            }
            let number = if standing.latest.version_description == self.description {
                Some(standing.latest.version_number)
            } else {
                self.add_version(&standing, round).await?
            };
            if let Some(number) = number
                && self.make_default(number).await?
            {
                return Ok(());
            }
        }
        let reason = format!("others keep changing launch template {}", self.name());
        Err(PortError::Unavailable { service: EC2, reason })
    }

    fn name(&self) -> &str {
        self.names.launch_template()
    }

    fn named(&self) -> Params {
        Params::new().set("LaunchTemplateName", self.name())
    }

    async fn standing(&self) -> PortResult<Option<Standing>> {
        let params = self.named().list("LaunchTemplateVersion", ["$Default", "$Latest"]);
        let query = Query::new("DescribeLaunchTemplateVersions", params);
        let answer: Option<VersionsAnswer> = unless_gone(self.ec2.call(&query).await)?;
        let Some(mut versions) = answer.map(|answer| answer.versions.item) else {
            return Ok(None);
        };
        versions.sort_by_key(|version| version.version_number);
        let default = versions.iter().find(|version| version.default_version).cloned();
        let latest = versions.pop();
        match (default, latest) {
            (Some(default), Some(latest)) => Ok(Some(Standing { default, latest })),
            _ => {
                let reason = format!("launch template {} has no default version", self.name());
                Err(PortError::Unavailable { service: EC2, reason })
            }
        }
    }

    /// Whether this has made it; somebody else may have, at the same moment.
    ///
    /// There is no client token: a template that was deleted must be made again, and the token of
    /// the first time would be answered with the first answer. The name is unique, which is
    /// enough to make a repeat harmless.
    async fn create(&self) -> PortResult<bool> {
        let tags = [pool_tag(self.names), managed_by()];
        let params = self
            .named()
            .set("VersionDescription", &self.description)
            .within("LaunchTemplateData", self.complete_data().await?)
            .each("TagSpecification", [tagged("launch-template", &tags)]);
        let query = Query::new("CreateLaunchTemplate", params);
        match self.ec2.call::<TemplateAnswer>(&query).await {
            Ok(_) => Ok(true),
            Err(Failed::Refused(refusal)) if refusal.code.contains("AlreadyExists") => Ok(false),
            Err(failed) => Err(failed.into()),
        }
    }

    /// The new version's number; none if the template has gone.
    ///
    /// The client token stands for what was found and what it is to become: all who found the
    /// same make one version, and going back to an earlier content makes a new one. Who comes
    /// round again was given a version that somebody has deleted since, and would be given it
    /// again: from then on it stands for the round, too.
    async fn add_version(&self, standing: &Standing, round: usize) -> PortResult<Option<u64>> {
        let Standing { default, latest } = standing;
        let numbers = (default.version_number.to_string(), latest.version_number.to_string());
        let again = (round > 0).then(|| round.to_string());
        let token = digest(
            [
                (latest.launch_template_id.as_str(), self.description.as_str()),
                (&numbers.0, &numbers.1),
            ]
            .into_iter()
            .chain(again.as_deref().map(|round| ("round", round))),
        );
        let params = self
            .named()
            .set("ClientToken", token)
            .set("VersionDescription", &self.description)
            .within("LaunchTemplateData", self.complete_data().await?);
        let query = Query::new("CreateLaunchTemplateVersion", params);
        let answer: Option<VersionAnswer> = unless_gone(self.ec2.call(&query).await)?;
        Ok(answer.map(|answer| answer.launch_template_version.version_number))
    }

    /// Whether that was possible; the template or the version may have gone.
    async fn make_default(&self, number: u64) -> PortResult<bool> {
        let params = self.named().set("SetDefaultVersion", number);
        let query = Query::new("ModifyLaunchTemplate", params);
        let answer: Option<TemplateAnswer> = unless_gone(self.ec2.call(&query).await)?;
        if let Some(answer) = &answer {
            let version = answer.launch_template.default_version_number;
            tracing::info!(template = self.name(), version, "launch template changed");
        }
        Ok(answer.is_some())
    }

    /// With the volume, whose device only the image can tell.
    async fn complete_data(&self) -> PortResult<Params> {
        let data = self.data.clone();
        let Some(size) = self.options.volume_gb else { return Ok(data) };
        let device = self.root_device().await?;
        let ebs = Params::new()
            .set("VolumeSize", size)
            .set("VolumeType", "gp3")
            .set("Encrypted", true)
            .set("DeleteOnTermination", true);
        let mapping = Params::new().set("DeviceName", device).within("Ebs", ebs);
        Ok(data.each("BlockDeviceMapping", [mapping]))
    }

    async fn root_device(&self) -> PortResult<String> {
        let ami = &self.options.ami;
        let query = Query::new("DescribeImages", Params::new().list("ImageId", [ami]));
        let unknown = || {
            let problem = format!("is not an image that can be seen from here: {}", quoted(ami));
            PortError::Setting(InvalidSetting { name: AMI.to_owned(), problem })
        };
        match self.ec2.call::<ImagesAnswer>(&query).await {
            Ok(answer) => match answer.images.item.into_iter().next() {
                Some(image) => Ok(image.root_device_name),
                None => Err(unknown()),
            },
            Err(Failed::Refused(refusal)) if refusal.code.starts_with("InvalidAMIID") => {
                Err(unknown())
            }
            Err(failed) => Err(failed.into()),
        }
    }
}

/// What a machine is launched with, except for its volume.
fn data(names: &Names, options: &MachineOptions, script: &str) -> Params {
    // The agent runs on the machine itself, one hop away. A second one would also give every
    // container of every job the machine's rights.
    let metadata = Params::new()
        .set("HttpEndpoint", "enabled")
        .set("HttpTokens", "required")
        .set("HttpPutResponseHopLimit", 1)
        .set("InstanceMetadataTags", "enabled");
    let profile = options.profile.as_deref().map(|profile| {
        let kind = if profile.starts_with("arn:") { "Arn" } else { "Name" };
        Params::new().set(kind, profile)
    });
    // What tells machines apart is tagged by their launch; a key in both places would be twice.
    let (_, pool) = pool_tag(names);
    let tags = [("Name", format!("ondeck {pool}")), managed_by()];
    let data = Params::new()
        .set("ImageId", &options.ami)
        .set("UserData", base64::encode(script))
        .set("InstanceInitiatedShutdownBehavior", "terminate")
        .maybe("KeyName", options.key_name.as_ref())
        .list("SecurityGroupId", &options.security_groups)
        .within("MetadataOptions", metadata)
        .each("TagSpecification", [tagged("instance", &tags), tagged("volume", &tags)]);
    match profile {
        Some(profile) => data.within("IamInstanceProfile", profile),
        None => data,
    }
}

/// None if EC2 says that the template, or the version, is not there.
fn unless_gone<A>(answer: Result<A, Failed>) -> PortResult<Option<A>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Failed::Refused(refusal)) if is_gone(&refusal.code) => Ok(None),
        Err(failed) => Err(failed.into()),
    }
}

/// Whether a code says that a launch template is not there.
pub(super) fn is_gone(code: &str) -> bool {
    code.starts_with("InvalidLaunchTemplate") && code.contains("NotFound")
}

fn digest<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut hash = Sha256::new();
    for (name, value) in pairs {
        // Lengths keep apart what would run together.
        for part in [name, value] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
