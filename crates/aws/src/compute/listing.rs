//! The machines of the pool that are not terminated, found by the pool's tag.

use ondeck_core::model::ids::{IntentId, ProviderName, ResourceClass};
use ondeck_core::model::record::MachineSpec;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Machine, PortResult};

use super::{MEM_TAG, filter, identity, pool_tag};
use crate::ec2::{Ec2, Instance, InstancesAnswer, Params, Query};
use crate::error::{EC2, unavailable};
use crate::names::{CLASS_TAG, INTENT_TAG, Names};

const ACTION: &str = "DescribeInstances";

/// The most machines that EC2 puts on one page.
const PAGE: u32 = 1000;

/// The states of a machine that is not terminated. A stopped one still costs its volume and can be
/// started again, so it must be found and terminated. One that is shutting down is left out.
const ALIVE: [&str; 4] = ["pending", "running", "stopping", "stopped"];

pub(super) async fn machines(ec2: &Ec2, names: &Names) -> PortResult<Vec<Machine>> {
    let (tag, pool) = pool_tag(names);
    let filters = [filter(&format!("tag:{tag}"), [pool]), filter("instance-state-name", ALIVE)];
    let found = pages(ec2, &Params::new().set("MaxResults", PAGE).each("Filter", filters)).await?;
    Ok(found.iter().filter_map(machine).collect())
}

/// All instances of a listing, page by page.
pub(super) async fn pages(ec2: &Ec2, params: &Params) -> PortResult<Vec<Instance>> {
    let mut page: InstancesAnswer = ec2.call(&Query::new(ACTION, params.clone())).await?;
    let mut found = Vec::new();
    let mut next = None;
    loop {
        let token = Some(page.next_token.clone()).filter(|token| !token.is_empty());
        found.extend(page.instances());
        if token.is_none() {
            return Ok(found);
        }
        if token == next {
            return Err(unavailable(EC2, ACTION, &"answered with the same page again"));
        }
        let query = Query::new(ACTION, params.clone().maybe("NextToken", token.as_ref()));
        page = ec2.part(&query).await?;
        next = token;
    }
}

/// The machine that a listing describes. A tag that cannot be read does not hide it: the caller lists
/// machines in order to terminate those without a record.
fn machine(instance: &Instance) -> Option<Machine> {
    let id = ProviderName::new(instance.instance_id.as_str())
        .and_then(|name| identity(&name))
        .inspect_err(|error| tracing::warn!("a machine is left alone: {error}"))
        .ok()?;
    let tag = |key| instance.tag(key).unwrap_or_default();
    let unknown = "unknown";
    Some(Machine {
        id,
        spec: MachineSpec {
            resource_class: ResourceClass::new(tag(CLASS_TAG))
                .or_else(|_| ResourceClass::new(unknown))
                .ok()?,
            instance_type: instance.instance_type.clone(),
            usage_class: match instance.instance_lifecycle.as_str() {
                "spot" => UsageClass::Spot,
                _ => UsageClass::OnDemand,
            },
            cpu: instance.cpu(),
            mem: tag(MEM_TAG).parse().unwrap_or(0),
        },
        intent: IntentId::new(tag(INTENT_TAG)).or_else(|_| IntentId::new(unknown)).ok()?,
        // A time that cannot be read counts as long ago, or the machine would never be terminated.
        launched_at: Timestamp::parse(&instance.launch_time).unwrap_or(Timestamp::from_millis(0)),
        image: Some(instance.image_id.clone()).filter(|image| !image.is_empty()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(inner: &str) -> Instance {
        quick_xml::de::from_str(&format!("<item>{inner}</item>")).unwrap()
    }

    #[test]
    fn a_machine_is_read_from_its_description() {
        let machine = machine(&instance(
            "<instanceId>i-0123456789abcdef0</instanceId><instanceType>c6i.large</instanceType>
             <imageId>ami-1</imageId><launchTime>2026-11-01T10:00:00.000Z</launchTime>
             <instanceLifecycle>spot</instanceLifecycle>
             <cpuOptions><coreCount>1</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>
             <tagSet><item><key>ondeck:intent</key><value>abc</value></item>
               <item><key>ondeck:mem</key><value>4096</value></item>
               <item><key>ondeck:resource-class</key><value>large</value></item></tagSet>",
        ))
        .unwrap();
        assert_eq!(machine.spec.instance_type, "c6i.large");
        assert_eq!(machine.spec.usage_class, UsageClass::Spot);
        assert_eq!((machine.spec.cpu, machine.spec.mem), (2, 4096));
        assert_eq!(machine.spec.resource_class.as_str(), "large");
        assert_eq!(machine.intent.as_str(), "abc");
        assert_eq!(machine.image.as_deref(), Some("ami-1"));
        assert_eq!(machine.launched_at.to_string(), "2026-11-01T10:00:00.000Z");
    }

    #[test]
    fn a_machine_without_readable_tags_is_listed() {
        let machine = machine(&instance(
            "<instanceId>i-0123456789abcdef0</instanceId><launchTime>soon</launchTime>
             <tagSet><item><key>ondeck:intent</key><value>not an intent</value></item></tagSet>",
        ))
        .unwrap();
        assert_eq!(machine.intent.as_str(), "unknown");
        assert_eq!(machine.spec.resource_class.as_str(), "unknown");
        assert_eq!(machine.spec.usage_class, UsageClass::OnDemand);
        assert_eq!((machine.spec.cpu, machine.spec.mem), (0, 0));
        assert_eq!(machine.launched_at.millis(), 0, "so that it is swept");
        assert_eq!(machine.image, None);
    }
}
