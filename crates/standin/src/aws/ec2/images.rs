//! DescribeImages. Every well-formed image id exists, unless a test has deregistered it.

use std::time::{Duration, SystemTime};

use crate::aws::params::Params;
use crate::aws::xml::Xml;
use crate::timestamps;

use super::catalogue::Architecture;
use super::refusal::Refusal;
use super::state::{State, is_id};

/// What is known of an image. Those that no test mentions are for x86-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) architecture: Architecture,
    /// The device of its root volume.
    pub(crate) root_device: &'static str,
    /// How old it is, in days.
    pub(crate) age_days: u32,
    /// Whether its publisher has deprecated it.
    pub(crate) is_deprecated: bool,
}

impl Default for Image {
    fn default() -> Image {
        Image {
            architecture: Architecture::X86_64,
            root_device: "/dev/xvda",
            age_days: 30,
            is_deprecated: false,
        }
    }
}

/// Performs DescribeImages. Fails without image ids, and for an image that does not exist.
pub(crate) fn describe(state: &State, params: &Params) -> Result<String, Refusal> {
    let ids = params.texts("ImageId");
    if ids.is_empty() {
        // EC2 would list thousands of images; ondeck never asks for that.
        return Err(Refusal::missing("ImageId"));
    }
    if let Some(id) = ids.iter().find(|id| !is_id("ami-", id)) {
        let message = format!("Invalid id: \"{id}\" (expecting \"ami-...\")");
        return Err(Refusal::new("InvalidAMIID.Malformed", message));
    }
    let mut images = Vec::new();
    for id in ids {
        let image = state.image(id).ok_or_else(|| {
            let message = format!("The image id '[{id}]' does not exist");
            Refusal::new("InvalidAMIID.NotFound", message)
        })?;
        images.push((id, image));
    }
    Ok(Xml::answer("DescribeImages", |xml| {
        xml.items("imagesSet", images, |xml, (id, image)| {
            xml.text("imageId", id);
            xml.text("imageState", "available");
            xml.text("imageOwnerId", "000000000000");
            xml.text("isPublic", false);
            xml.text("architecture", image.architecture.name());
            xml.text("imageType", "machine");
            xml.text("rootDeviceType", "ebs");
            xml.text("rootDeviceName", image.root_device);
            xml.text("virtualizationType", "hvm");
            let day = Duration::from_secs(86_400);
            let created = SystemTime::now() - day * image.age_days;
            xml.text("creationDate", timestamps::iso_millis(created));
            if image.is_deprecated {
                xml.text("deprecationTime", timestamps::iso_millis(SystemTime::now() - day));
            }
        });
    }))
}
