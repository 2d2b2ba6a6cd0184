//! DescribeImages. Every image is there that is asked for by its id.

use crate::aws::params::Params;
use crate::aws::xml::Xml;

use super::refusal::Refusal;
use super::state::is_id;

/// The device of an image's own volume.
const ROOT_DEVICE: &str = "/dev/xvda";

/// Describes images.
pub(crate) fn describe(params: &Params) -> Result<String, Refusal> {
    let ids = params.texts("ImageId");
    if ids.is_empty() {
        // EC2 would list thousands. Whoever asks for that here has made a mistake.
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
