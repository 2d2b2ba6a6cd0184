//! The launch template: what all machines of the pool have in common.
//!
//! A version carries the digest of its content in its description. So a refresh that changes
//! nothing needs one call to know it, and two refreshes at once come to the same end.
//!
//! The settings name the version that belongs to them, and launches use that one. A refresh that
//! adds a version and fails before it stores its settings has changed no launch.

use aws_smithy_types::base64;
use ondeck_core::ports::{PortError, PortResult};
use sha2::{Digest, Sha256};

use super::image::Images;
use super::options::MachineOptions;
use super::{managed_by, pool_tag, tagged, user_data};
use crate::ec2::{
    Done, Ec2, Failed, Params, Query, TemplateAnswer, Version, VersionAnswer, VersionsAnswer,
};
use crate::error::EC2;
use crate::names::Names;

/// The name under which refresh records the number of the version that belongs to the settings. Not
/// an input.
pub(super) const VERSION_SETTING: &str = "launch-template-version";

/// How often to start over if another refresh has created or deleted the template meanwhile.
const ROUNDS: usize = 3;

pub(super) struct Template<'a> {
    ec2: &'a Ec2,
    images: &'a Images<'a>,
    names: &'a Names,
    options: &'a MachineOptions,
    data: Params,
    /// The device of the root volume, if the settings know it.
    root_device: Option<&'a str>,
    /// The description of a version with this content.
    description: String,
}

/// The versions that exist.
struct Standing {
    default: Version,
    latest: Version,
    /// The version that the stored settings name, unless it has been deleted.
    in_force: Option<Version>,
}

impl<'a> Template<'a> {
    /// A template for these settings. `root_device` is that of an image that is given by a parameter.
    pub(super) fn new(
        images: &'a Images<'a>,
        names: &'a Names,
        options: &'a MachineOptions,
        root_device: Option<&'a str>,
    ) -> Template<'a> {
        let ec2 = images.ec2;
        let script = user_data::render(names, ec2.region(), options);
        let data = data(names, options, &script);
        // An image's id stands for its device. A parameter may name an image with another device later.
        let content = data.clone().maybe("VolumeSize", options.volume_gb);
        let content = content.set("RootIsEncrypted", true).maybe("RootDevice", root_device);
        let description = format!("ondeck {}", digest(content.iter()));
        Template { ec2, images, names, options, data, root_device, description }
    }

    /// Returns the number of a version with this content, which is created if there is none. Costs
    /// one call if there is. `in_force` is the version that the stored settings name.
    ///
    /// It also makes `in_force` the default, which people and earlier versions of ondeck launch
    /// from. The default thus follows the settings one refresh later.
    pub(super) async fn bring_about(&self, in_force: Option<u64>) -> PortResult<u64> {
        for _ in 0..ROUNDS {
            let Some(standing) = self.standing(in_force).await? else {
                if let Some(number) = self.create().await? {
                    return Ok(number);
                }
                continue;
            };
            if let Some(stored) = &standing.in_force
                && !stored.default_version
                && !self.make_default(stored.version_number).await?
            {
                continue;
            }
            let number = match standing.with(&self.description) {
                Some(version) => Some(version.version_number),
                None => {
                    let deleted = in_force.filter(|_| standing.in_force.is_none());
                    self.add_version(&standing, deleted).await?
                }
            };
            if let Some(number) = number {
                return Ok(number);
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

    async fn standing(&self, in_force: Option<u64>) -> PortResult<Option<Standing>> {
        let stored = in_force.map(|number| number.to_string());
        let asked = ["$Default", "$Latest"].into_iter().chain(stored.as_deref());
        let params = self.named().list("LaunchTemplateVersion", asked);
        let query = Query::new("DescribeLaunchTemplateVersions", params);
        let answer: Option<VersionsAnswer> = match self.ec2.call(&query).await {
            // A person may delete any version but the default one.
            Err(Failed::Refused(refusal)) if stored.is_some() && is_version_gone(&refusal.code) => {
                return Box::pin(self.standing(None)).await;
            }
            answer => unless_gone(answer)?,
        };
        let Some(mut versions) = answer.map(|answer| answer.versions.item) else {
            return Ok(None);
        };
        versions.sort_by_key(|version| version.version_number);
        let default = versions.iter().find(|version| version.default_version).cloned();
        let in_force =
            versions.iter().find(|version| Some(version.version_number) == in_force).cloned();
        let latest = versions.pop();
        match (default, latest) {
            (Some(default), Some(latest)) => Ok(Some(Standing { default, latest, in_force })),
            _ => {
                let reason = format!("launch template {} has no default version", self.name());
                Err(PortError::Unavailable { service: EC2, reason })
            }
        }
    }

    /// Returns the number of its first version; `None` if another refresh has created the template at
    /// the same moment.
    ///
    /// There is no client token: a template that was deleted must be made again, and the token of
    /// the first time would be answered with the first answer. The name is unique, which is
    /// enough to make a repeat harmless.
    async fn create(&self) -> PortResult<Option<u64>> {
        let tags = [pool_tag(self.names), managed_by()];
        let params = self
            .named()
            .set("VersionDescription", &self.description)
            .within("LaunchTemplateData", self.complete_data().await?)
            .each("TagSpecification", [tagged("launch-template", &tags)]);
        let query = Query::new("CreateLaunchTemplate", params);
        match self.ec2.call::<TemplateAnswer>(&query).await {
            Ok(answer) => Ok(Some(answer.launch_template.default_version_number)),
            Err(Failed::Refused(refusal)) if refusal.code.contains("AlreadyExists") => Ok(None),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Returns the number of the new version; `None` if the template is gone.
    ///
    /// The client token is made from the versions that were found and the new content: all refreshes
    /// that found the same create one version, and going back to an earlier content creates a new
    /// one. If the version that was in force has been deleted, the token that created it would
    /// return it again, so the new token includes its number.
    async fn add_version(
        &self,
        standing: &Standing,
        deleted: Option<u64>,
    ) -> PortResult<Option<u64>> {
        let Standing { default, latest, .. } = standing;
        let numbers = (default.version_number.to_string(), latest.version_number.to_string());
        let deleted = deleted.map(|number| number.to_string());
        let token = digest(
            [
                (latest.launch_template_id.as_str(), self.description.as_str()),
                (&numbers.0, &numbers.1),
            ]
            .into_iter()
            .chain(deleted.as_deref().map(|number| ("deleted", number))),
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

    /// Returns whether that was possible: the template or the version may be gone.
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

    /// The content with the root volume, whose device only the image knows. Fails if there is no agent
    /// for the image.
    ///
    /// A volume that is made of an unencrypted snapshot is encrypted with the account's key for EBS:
    /// Amazon EBS User Guide, "Amazon EBS encryption".
    async fn complete_data(&self) -> PortResult<Params> {
        let device = match self.root_device {
            Some(device) => device.to_owned(),
            None => self.images.root_device(self.options).await?,
        };
        let ebs = Params::new()
            .maybe("VolumeSize", self.options.volume_gb)
            .maybe("VolumeType", self.options.volume_gb.map(|_| "gp3"))
            .set("Encrypted", true)
            .set("DeleteOnTermination", true);
        let mapping = Params::new().set("DeviceName", device).within("Ebs", ebs);
        Ok(self.data.clone().each("BlockDeviceMapping", [mapping]))
    }
}

impl Standing {
    /// A version with this description. The one that is in force comes first, so that settings which
    /// do not change keep their version.
    fn with(&self, description: &str) -> Option<&Version> {
        let all = self.in_force.iter().chain([&self.default, &self.latest]);
        all.into_iter().find(|version| version.version_description == description)
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

/// Whether the pool has its launch template.
pub(crate) async fn exists(ec2: &Ec2, names: &Names) -> PortResult<bool> {
    let params = Params::new().set("LaunchTemplateName", names.launch_template());
    let params = params.list("LaunchTemplateVersion", ["$Default"]);
    let query = Query::new("DescribeLaunchTemplateVersions", params);
    let found: Option<VersionsAnswer> = unless_gone(ec2.call(&query).await)?;
    Ok(found.is_some())
}

/// Deletes the pool's launch template with all versions. Machines that were launched from it stay.
pub(crate) async fn delete(ec2: &Ec2, names: &Names) -> PortResult<()> {
    let params = Params::new().set("LaunchTemplateName", names.launch_template());
    let query = Query::new("DeleteLaunchTemplate", params);
    unless_gone(ec2.call::<Done>(&query).await).map(drop)
}

/// `None` if EC2 answers that the template or the version does not exist.
fn unless_gone<A>(answer: Result<A, Failed>) -> PortResult<Option<A>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(Failed::Refused(refusal)) if is_gone(&refusal.code) => Ok(None),
        Err(failed) => Err(failed.into()),
    }
}

/// Whether an error code says that a launch template does not exist.
pub(crate) fn is_gone(code: &str) -> bool {
    code.starts_with("InvalidLaunchTemplate") && code.contains("NotFound")
}

fn is_version_gone(code: &str) -> bool {
    is_gone(code) && code.contains("Version")
}

fn digest<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut hash = Sha256::new();
    for (name, value) in pairs {
        // Without lengths, different pairs could give the same digest.
        for part in [name, value] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}
