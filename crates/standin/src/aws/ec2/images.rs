//! DescribeImages. Every well-formed image id exists, unless a test has deregistered it.

use crate::aws::params::Params;
use crate::aws::xml::Xml;

use super::refusal::Refusal;
use super::state::{State, is_id};

/// The root device of every image.
pub(crate) const ROOT_DEVICE: &str = "/dev/xvda";

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
        let architecture = state.architecture(id).ok_or_else(|| {
            let message = format!("The image id '[{id}]' does not exist");
            Refusal::new("InvalidAMIID.NotFound", message)
        })?;
        images.push((id, architecture));
    }
    Ok(Xml::answer("DescribeImages", |xml| {
        xml.items("imagesSet", images, |xml, (id, architecture)| {
            xml.text("imageId", id);
            xml.text("imageState", "available");
            xml.text("imageOwnerId", "000000000000");
            xml.text("isPublic", false);
            xml.text("architecture", architecture.name());
            xml.text("imageType", "machine");
            xml.text("rootDeviceType", "ebs");
            xml.text("rootDeviceName", ROOT_DEVICE);
            xml.text("virtualizationType", "hvm");
        });
    }))
}
