//! Finds and deletes what a pool has on AWS: its launch template, its queues and its table.
//!
//! Queues are found by their names and by the classes of the settings, because the list of SQS may
//! lack a queue of the last minute and show a deleted one for as long: API Reference of SQS,
//! "ListQueues" and "DeleteQueue".

use std::fmt;

use async_trait::async_trait;
use aws_sdk_sqs::Client;
use futures_util::future::join_all;
use ondeck_core::model::ids::ResourceClass;
use ondeck_core::ports::{Infrastructure, PortResult, Resource, ResourceKind};

use crate::cloud::Cloud;
use crate::compute::{delete_template, has_template};
use crate::ec2::Ec2;
use crate::error::{SQS, port_error};
use crate::names::POOL_TAG;
use crate::pool::is_missing;
use crate::store::{delete_table, has_table};
use crate::wake_ups::list_queues;

/// What a pool has on AWS. Machines are not part of it.
pub struct AwsInfrastructure {
    cloud: Cloud,
    client: Client,
    /// Whether machines are launched on EC2, from a template.
    has_machines: bool,
}

impl AwsInfrastructure {
    /// The resources of the pool that `cloud` was connected for. The launch template is among them if
    /// machines are launched there.
    pub fn new(cloud: &Cloud, has_machines: bool) -> AwsInfrastructure {
        AwsInfrastructure { cloud: cloud.clone(), client: cloud.sqs(), has_machines }
    }

    /// The names of the queues that belong to the pool.
    async fn queues(&self, classes: &[ResourceClass]) -> PortResult<Vec<Resource>> {
        let names = &self.cloud.names;
        let of_classes: Vec<String> = classes.iter().map(|class| names.queue(class)).collect();
        let listed = list_queues(&self.client, names.table().to_owned()).await?;
        let listed = listed.iter().filter_map(|url| url.rsplit('/').next()).map(str::to_owned);
        let (of_machines, others): (Vec<String>, Vec<String>) =
            listed.partition(|name| name.starts_with(&names.wake_queue_prefix()));
        let others = others.into_iter().filter(|name| !of_classes.contains(name));
        let candidates = of_classes.clone().into_iter().chain(others);
        let owned = candidates.map(|name| async {
            let is_own = self.is_own(&name, of_classes.contains(&name)).await?;
            Ok(is_own.then_some(name))
        });
        let owned: PortResult<Vec<Option<String>>> = join_all(owned).await.into_iter().collect();
        let resource = |kind| move |name| Resource { kind, name };
        let own = owned?.into_iter().flatten().map(resource(ResourceKind::Queue));
        let wake_ups = of_machines.into_iter().map(resource(ResourceKind::WakeUpQueue));
        Ok(own.chain(wake_ups).collect())
    }

    /// Whether a queue exists and is this pool's. One of a class that the settings name is; another
    /// one whose name begins alike may be of a pool whose own name does, and its tag tells.
    async fn is_own(&self, name: &str, is_named: bool) -> PortResult<bool> {
        let Some(url) = self.url(name).await? else { return Ok(false) };
        if is_named {
            return Ok(true);
        }
        let _turn = self.cloud.gate.acquire().await.expect("the gate is never closed");
        let tags = match self.client.list_queue_tags().queue_url(url).send().await {
            Ok(answer) => answer.tags.unwrap_or_default(),
            Err(error) if is_missing(&error) => return Ok(false),
            Err(error) => return Err(port_error(SQS, "ListQueueTags", &error)),
        };
        let pool = self.cloud.names.pool.to_string();
        Ok(tags.get(POOL_TAG).is_some_and(|tag| tag.eq_ignore_ascii_case(&pool)))
    }

    async fn url(&self, name: &str) -> PortResult<Option<String>> {
        let _turn = self.cloud.gate.acquire().await.expect("the gate is never closed");
        match self.client.get_queue_url().queue_name(name).send().await {
            Ok(answer) => Ok(answer.queue_url),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(port_error(SQS, "GetQueueUrl", &error)),
        }
    }

    /// The address of a machine's queue. No role may ask for it by name.
    async fn wake_up_url(&self, name: &str) -> PortResult<Option<String>> {
        let urls = list_queues(&self.client, name.to_owned()).await?;
        Ok(urls.into_iter().find(|url| url.rsplit('/').next() == Some(name)))
    }

    async fn delete_queue(&self, url: Option<String>) -> PortResult<()> {
        let Some(url) = url else { return Ok(()) };
        match self.client.delete_queue().queue_url(url).send().await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(port_error(SQS, "DeleteQueue", &error)),
        }
    }
}

#[async_trait]
impl Infrastructure for AwsInfrastructure {
    async fn existing(&self, classes: &[ResourceClass]) -> PortResult<Vec<Resource>> {
        let mut found = Vec::new();
        let mut note = |exists: bool, kind, name: &str| {
            found.extend(exists.then(|| Resource { kind, name: name.to_owned() }));
        };
        let names = &self.cloud.names;
        let has_template = self.has_machines && has_template(&Ec2::new(&self.cloud), names).await?;
        note(has_template, ResourceKind::LaunchTemplate, names.launch_template());
        let has_table = has_table(&self.cloud).await?;
        note(has_table, ResourceKind::Table, names.table());
        found.extend(self.queues(classes).await?);
        Ok(found)
    }

    async fn delete(&self, resource: &Resource) -> PortResult<()> {
        match resource.kind {
            ResourceKind::LaunchTemplate => {
                delete_template(&Ec2::new(&self.cloud), &self.cloud.names).await
            }
            ResourceKind::Queue => self.delete_queue(self.url(&resource.name).await?).await,
            ResourceKind::WakeUpQueue => {
                self.delete_queue(self.wake_up_url(&resource.name).await?).await
            }
            ResourceKind::Table => delete_table(&self.cloud).await,
            ResourceKind::Files => Ok(()),
        }
    }
}

impl fmt::Debug for AwsInfrastructure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AwsInfrastructure({})", self.cloud.names.pool)
    }
}
