//! Launches, lists and terminates machines on EC2.

mod fleet;
mod image;
mod listing;
mod options;
mod recent_launches;
mod template;
mod termination;
#[cfg(test)]
mod tests;
mod user_data;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use ondeck_core::model::ids::{InstanceId, InvalidId, ProviderName};
use ondeck_core::model::requirements::{Requirements, TypePatterns};
use ondeck_core::model::settings::{AGENT_KEY_PREFIX, Settings};
use ondeck_core::ports::{Compute, Launched, Machine, Order, PortError, PortResult};

use self::image::{Images, KnownImage};
pub use self::options::{DEFAULT_RUNNER_USER, RUNNER_USER_SETTING, check_settings};
pub(crate) use self::options::{LaunchOptions, MachineOptions};
use self::recent_launches::RecentLaunches;
use self::template::{Template, VERSION_SETTING};
pub(crate) use self::template::{delete as delete_template, exists as has_template, is_gone};
use crate::cloud::{Account, Cloud};
use crate::ec2::{Ec2, Params};
use crate::names::{MANAGED_BY, Names, POOL_TAG};
use crate::raw_client::RawClient;

/// The tag with the memory that a machine was required to have. A listing of EC2 does not contain it.
const MEM_TAG: &str = "ondeck:mem";

/// The name under which refresh records the device of the root volume of an image that is given by a
/// parameter. Not an input.
const DEVICE_SETTING: &str = "image-root-device";

/// The instance types of a request that names none: current general-purpose, compute-optimised and
/// memory-optimised families.
const DEFAULT_TYPES: &str = "c* m* r*";

/// The id of an EC2 instance in records: the instance id itself. One pool lies in one region of one
/// account, where instance ids are unique.
pub(crate) fn identity(name: &ProviderName) -> Result<InstanceId, InvalidId> {
    InstanceId::new(name.as_str())
}

/// Launches, lists and terminates EC2 instances.
#[derive(Clone)]
pub struct Ec2Compute {
    ec2: Arc<Ec2>,
    names: Names,
    recent: Arc<RecentLaunches>,
    account: Arc<OnceLock<Account>>,
    region: String,
    known_image: Arc<KnownImage>,
    parameters: Arc<RawClient>,
}

impl Ec2Compute {
    /// Machines of the pool that `cloud` was connected for.
    pub fn new(cloud: &Cloud) -> Ec2Compute {
        Ec2Compute {
            ec2: Arc::new(Ec2::new(cloud)),
            names: cloud.names.clone(),
            recent: Arc::default(),
            account: cloud.account.clone(),
            region: cloud.region().to_owned(),
            known_image: Arc::default(),
            parameters: Arc::new(RawClient::new(cloud)),
        }
    }

    fn images(&self) -> Images<'_> {
        Images { ec2: &self.ec2, parameters: &self.parameters, known: &self.known_image }
    }
}

#[async_trait]
impl Compute for Ec2Compute {
    async fn look_up(&self, settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        let options = MachineOptions::read(&settings.backend).map_err(PortError::Setting)?;
        let Some(_) = options.image_parameter() else { return Ok(BTreeMap::new()) };
        let device = self.images().root_device(&options).await?;
        Ok(BTreeMap::from([(DEVICE_SETTING.to_owned(), device)]))
    }

    async fn set_up(&self, settings: &Settings) -> PortResult<BTreeMap<String, String>> {
        let options = MachineOptions::read(&settings.backend).map_err(PortError::Setting)?;
        LaunchOptions::read(&settings.backend).map_err(PortError::Setting)?;
        if options.profile.is_none() {
            tracing::warn!("machines have no permissions: iam-instance-profile is not set");
        }
        let images = self.images();
        let device = match (options.image_parameter(), settings.backend.get(DEVICE_SETTING)) {
            (None, _) => None,
            (Some(_), Some(known)) => Some(known.clone()),
            (Some(_), None) => Some(images.root_device(&options).await?),
        };
        let template = Template::new(&images, &self.names, &options, device.as_deref());
        let version = template.bring_about(template_version(settings)).await?;
        // IAM knows a machine by its ARN, and lets its agent write under that name only.
        let prefix = self.account.get().map(|account| account.instance_arn_prefix(&self.region));
        if prefix.is_none() {
            tracing::warn!("the account is not known: what agents report will not be found");
        }
        let prefix = prefix.map(|prefix| (AGENT_KEY_PREFIX.to_owned(), prefix));
        let version = (VERSION_SETTING.to_owned(), version.to_string());
        let device = (DEVICE_SETTING.to_owned(), device.unwrap_or_default());
        Ok(prefix.into_iter().chain([version, device]).collect())
    }

    fn notice(&self, settings: &Settings) -> Option<String> {
        let options = MachineOptions::read(&settings.backend).ok()?;
        let is_public = options.has_public_image() || self.known_image.is_public();
        (is_public && !options.agents.are_downloaded()).then(|| {
            format!(
                "machines will not start: their image is a public one, which has no agent, and \
                 agent-url is not set: {}; call refresh or apply by the action, which sets it, or \
                 set agent-url and agent-sha256",
                options.ami
            )
        })
    }

    fn default_types(&self) -> TypePatterns {
        DEFAULT_TYPES.parse().expect("sound patterns")
    }

    fn launchable(
        &self,
        requirements: &Requirements,
        _settings: &Settings,
        types: &[&str],
    ) -> Vec<String> {
        fleet::launchable(requirements, types)
    }

    fn identity(&self, name: &ProviderName) -> Result<InstanceId, InvalidId> {
        identity(name)
    }

    async fn launch(&self, order: &Order, settings: &Settings) -> PortResult<Launched> {
        let options = LaunchOptions::read(&settings.backend)
            .map_err(|missing| PortError::NotSetUp { what: missing.to_string() })?;
        let version = template_version(settings);
        let launched = fleet::launch(&self.ec2, &self.names, version, &options, order).await?;
        self.recent.note(&launched.machines, Instant::now());
        Ok(launched)
    }

    async fn terminate(&self, ids: &[InstanceId]) -> PortResult<()> {
        termination::terminate(&self.ec2, &self.names, &self.recent, ids).await
    }

    async fn machines(&self) -> PortResult<Vec<Machine>> {
        listing::machines(&self.ec2, &self.names).await
    }

    async fn current_image(&self, settings: &Settings) -> PortResult<Option<String>> {
        let options = MachineOptions::read(&settings.backend).map_err(PortError::Setting)?;
        self.images().current(&options).await.map(Some)
    }

    fn listing_lag(&self) -> Duration {
        recent_launches::YOUNG
    }
}

impl fmt::Debug for Ec2Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ec2Compute({})", self.names.pool)
    }
}

/// The version of the launch template that belongs to these settings; `None` if an earlier version of
/// ondeck has stored them.
pub(crate) fn template_version(settings: &Settings) -> Option<u64> {
    settings.backend.get(VERSION_SETTING).and_then(|number| number.parse().ok())
}

/// The pool's tag, in lower case: GitHub's names ignore case, and filters do not.
fn pool_tag(names: &Names) -> (&'static str, String) {
    (POOL_TAG, names.pool.to_string().to_ascii_lowercase())
}

fn managed_by() -> (&'static str, String) {
    (MANAGED_BY.0, MANAGED_BY.1.to_owned())
}

/// Tags for one type of resource that a request creates.
fn tagged(kind: &str, tags: &[(&str, String)]) -> Params {
    let tag = |(key, value): &(&str, String)| Params::new().set("Key", key).set("Value", value);
    Params::new().set("ResourceType", kind).each("Tag", tags.iter().map(tag))
}

/// A filter of a listing that admits each of the values.
pub(crate) fn filter<T: fmt::Display>(name: &str, values: impl IntoIterator<Item = T>) -> Params {
    Params::new().set("Name", name).list("Value", values)
}
