//! DescribeImages. Every well-formed image id exists.

use crate::aws::params::Params;
use crate::aws::xml::Xml;

use super::refusal::Refusal;
use super::state::is_id;

/// The root device of every image.
const ROOT_DEVICE: &str = "/dev/xvda";

/// Performs DescribeImages. Fails without image ids.
pub(crate) fn describe(params: &Params) -> Result<String, Refusal> {
    let ids = params.texts("ImageId");
    if ids.is_empty() {
        // EC2 would list thousands of images; ondeck never asks for that.
        return Err(Refusal::missing("ImageId"));
    }
    if let Some(id) = ids.iter().find(|id| !is_id("ami-", id)) {
        let message = format!("Invalid id: \"{id}\" (expecting \"ami-...\")");
        return Err(Refusal::new("InvalidAMIID.Malformed", message));
    }
    Ok(Xml::answer("DescribeImages", |xml| {
        xml.items("imagesSet", ids, |xml, id| {
            xml.text("imageId", id);
            xml.text("imageState", "available");
            xml.text("imageOwnerId", "000000000000");
            xml.text("isPublic", false);
            xml.text("architecture", "x86_64");
            xml.text("imageType", "machine");
            xml.text("rootDeviceType", "ebs");
            xml.text("rootDeviceName", ROOT_DEVICE);
            xml.text("virtualizationType", "hvm");
        });
    }))
}
