//! The image that machines boot: what its launch template must know of it.
//!
//! An image is given by its id, or by the name of a parameter of Systems Manager
//! (`resolve:ssm:PARAMETER`). EC2 reads the parameter at each launch. Refresh reads it to know the
//! device of the root volume and the architecture, which all images that are published under one name
//! should share. ADR 0033 says what happens if they do not.

use std::sync::{Mutex, PoisonError};

use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::settings::InvalidSetting;
use ondeck_core::ports::{PortError, PortResult};
use serde_json::{Value, json};

use super::options::{AMI, MachineOptions};
use crate::ec2::{Ec2, Failed, Image, ImagesAnswer, Params, Query};
use crate::error::SYSTEMS_MANAGER;
use crate::raw_client::RawClient;

/// The image that EC2 has described last, with its id. Set-up is repeated as a whole, and the fewer
/// calls it has to make in a row, the sooner it succeeds where some of them fail.
#[derive(Debug, Default)]
pub(super) struct KnownImage(Mutex<Option<(String, Image)>>);

impl KnownImage {
    /// Whether every account may use the image that was described last.
    pub(super) fn is_public(&self) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().is_some_and(|(_, image)| image.is_public)
    }
}

pub(super) struct Images<'a> {
    pub(super) ec2: &'a Ec2,
    pub(super) parameters: &'a RawClient,
    pub(super) known: &'a KnownImage,
}

impl Images<'_> {
    /// The id of the image that a launch would boot now.
    pub(super) async fn current(&self, options: &MachineOptions) -> PortResult<String> {
        match options.image_parameter() {
            Some(parameter) => self.image_id(parameter, options).await,
            None => Ok(options.ami.clone()),
        }
    }

    /// Returns the device of the image's root volume. Fails with [`PortError::Setting`] if the image
    /// cannot be seen, or if there is no agent for its architecture.
    pub(super) async fn root_device(&self, options: &MachineOptions) -> PortResult<String> {
        let id = self.current(options).await?;
        let image = self.image(&id, options).await?;
        options
            .agents
            .check_image(&image.architecture)
            .map_err(|problem| invalid(options, &problem))?;
        Ok(image.root_device_name)
    }

    /// Reads the parameter, which needs `ssm:GetParameters`: the permission that a caller of a launch
    /// template with this parameter needs as well (Amazon EC2 Auto Scaling User Guide, "Use AWS Systems
    /// Manager parameters instead of AMI IDs in launch templates").
    async fn image_id(&self, parameter: &str, options: &MachineOptions) -> PortResult<String> {
        // The names of members are those of the Systems Manager API Reference. A parameter that does
        // not exist is listed in `InvalidParameters`, and the call succeeds.
        let request = json!({ "Names": [parameter] });
        let answer = self.parameters.send("ssm:GetParameters", &request).await?;
        if !answer.code.is_empty() || answer.status >= 300 {
            return Err(PortError::Unusable {
                service: SYSTEMS_MANAGER,
                reason: format!("{parameter} cannot be read: {} {}", answer.status, answer.code),
                hint: "allow the role ssm:GetParameters on it, see docs/aws-permissions.md"
                    .to_owned(),
            });
        }
        let value = answer.body.pointer("/Parameters/0/Value").and_then(Value::as_str);
        match value.map(str::trim).filter(|value| value.starts_with("ami-")) {
            Some(id) => Ok(id.to_owned()),
            None => Err(invalid(options, "names no parameter with the id of an image")),
        }
    }

    async fn image(&self, id: &str, options: &MachineOptions) -> PortResult<Image> {
        let known = || self.known.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, image)) = known().as_ref().filter(|(known, _)| known == id) {
            return Ok(image.clone());
        }
        let image = self.described(id, options).await?;
        *known() = Some((id.to_owned(), image.clone()));
        Ok(image)
    }

    async fn described(&self, id: &str, options: &MachineOptions) -> PortResult<Image> {
        let query = Query::new("DescribeImages", Params::new().list("ImageId", [id]));
        let unknown = || invalid(options, "is not an image that can be seen from here");
        match self.ec2.call::<ImagesAnswer>(&query).await {
            Ok(answer) => answer.images.item.into_iter().next().ok_or_else(unknown),
            Err(Failed::Refused(refusal)) if refusal.code.starts_with("InvalidAMIID") => {
                Err(unknown())
            }
            Err(failed) => Err(failed.into()),
        }
    }
}

fn invalid(options: &MachineOptions, problem: &str) -> PortError {
    let problem = format!("{problem}: {}", quoted(&options.ami));
    PortError::Setting(InvalidSetting { name: AMI.to_owned(), problem })
}
