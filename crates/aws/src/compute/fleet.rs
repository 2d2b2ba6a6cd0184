//! One launch: one `CreateFleet` of type instant, which tries once and reports the outcome.

use ondeck_core::model::ids::{InstanceId, ProviderName};
use ondeck_core::model::record::MachineSpec;
use ondeck_core::model::requirements::{Requirements, UsageClass};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Launched, Machine, Order, PortError, PortResult};

use super::options::SUBNETS;
use super::{MEM_TAG, identity, managed_by, pool_tag, tagged, template};
use crate::ec2::{Ec2, Failed, FleetAnswer, FleetError, FleetInstances, Params, Query, Refusal};
use crate::error::{EC2, is_passing};
use crate::names::{CLASS_TAG, INTENT_TAG, Names, RUN_TAG};

const ACTION: &str = "CreateFleet";

/// Error codes for missing capacity, in the region or in the quotas of the account.
const CAPACITY: [&str; 13] = [
    "InsufficientCapacity",
    "InsufficientFreeAddressesInSubnet",
    "InsufficientHostCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientReservedInstanceCapacity",
    "InstanceLimitExceeded",
    "MaxFleetCountExceeded",
    "MaxSpotFleetRequestCountExceeded",
    "MaxSpotInstanceCountExceeded",
    "SpotMaxPriceTooLow",
    "UnfulfillableCapacity",
    "VcpuLimitExceeded",
    "VolumeLimitExceeded",
];

/// Error codes for resources of a launch that may have been deleted since refresh checked them.
const GONE: [&str; 6] = [
    "InvalidAMIID",
    "InvalidGroup",
    "InvalidKeyPair",
    "InvalidSecurityGroup",
    "InvalidSubnet",
    "InvalidSubnetID",
];

/// The most reasons that are listed for one answer.
const REASONS: usize = 8;

pub(super) async fn launch(
    ec2: &Ec2,
    names: &Names,
    version: Option<u64>,
    subnets: &[String],
    order: &Order,
) -> PortResult<Launched> {
    let query = Query::new(ACTION, params(names, version, subnets, order));
    match ec2.call::<FleetAnswer>(&query).await {
        Ok(answer) => {
            let now = Timestamp::try_from(ec2.now()).unwrap_or(Timestamp::from_millis(0));
            reading(names, order, &answer, now)
        }
        Err(Failed::Refused(refusal)) => refused(names, refusal),
        Err(failed) => Err(failed.into()),
    }
}

fn params(names: &Names, version: Option<u64>, subnets: &[String], order: &Order) -> Params {
    let requirements = &order.requirements;
    let class = requirements.class.to_string();
    let shared =
        [pool_tag(names), (INTENT_TAG, order.intent.to_string()), (RUN_TAG, order.run.to_string())];
    let with = |more: Vec<(&'static str, String)>| [shared.to_vec(), more].concat();
    let mem = requirements.size.mem.to_string();
    // Name and managed-by of machine and volume come from the launch template, that of the fleet
    // from nowhere else.
    let tags = [
        tagged("fleet", &with(vec![managed_by()])),
        tagged("instance", &with(vec![(CLASS_TAG, class), (MEM_TAG, mem)])),
        tagged("volume", &shared),
    ];
    let version = version.map_or_else(|| "$Default".to_owned(), |number| number.to_string());
    let template =
        Params::new().set("LaunchTemplateName", names.launch_template()).set("Version", version);
    let wanted = wanted(requirements);
    let overrides = subnets.iter().map(|subnet| {
        Params::new().set("SubnetId", subnet).within("InstanceRequirements", wanted.clone())
    });
    let config =
        Params::new().within("LaunchTemplateSpecification", template).each("Overrides", overrides);
    let (kind, options, strategy) = match requirements.usage {
        UsageClass::Spot => ("spot", "SpotOptions", "price-capacity-optimized"),
        UsageClass::OnDemand => ("on-demand", "OnDemandOptions", "lowest-price"),
    };
    let target = Params::new()
        .set("TotalTargetCapacity", order.count)
        .set("DefaultTargetCapacityType", kind);
    Params::new()
        .set("Type", "instant")
        .set("ClientToken", &order.intent)
        .each("LaunchTemplateConfigs", [config])
        .within("TargetCapacitySpecification", target)
        .within(options, Params::new().set("AllocationStrategy", strategy))
        .each("TagSpecification", tags)
}

/// The instance types that EC2 may choose from. EC2 itself leaves out types that cannot run the
/// image, so the processor's architecture is not among the requirements.
fn wanted(requirements: &Requirements) -> Params {
    let cpu = requirements.size.cpu;
    Params::new()
        .within("VCpuCount", Params::new().set("Min", cpu).set("Max", cpu))
        .within("MemoryMiB", Params::new().set("Min", requirements.size.mem))
        .list("AllowedInstanceType", requirements.types.iter())
        .set("BurstablePerformance", "excluded")
        .set("BareMetal", "excluded")
}

/// The machines and the errors of an answer. Errors of single launches do not make it an error: under
/// this client token there will be no other answer.
fn reading(
    names: &Names,
    order: &Order,
    answer: &FleetAnswer,
    now: Timestamp,
) -> PortResult<Launched> {
    let mut launched = Launched::default();
    for group in &answer.instances.item {
        for id in &group.instance_ids.item {
            match ProviderName::new(id.as_str()).and_then(|name| identity(&name)) {
                Ok(id) => launched.machines.push(machine(order, group, id, now)),
                // It has the pool's tag, so refresh finds and terminates it as an orphan.
                Err(error) => launched.shortfalls.push(format!("{ACTION}: {error}")),
            }
        }
    }
    let errors = &answer.errors.item;
    if launched.machines.is_empty()
        && let Some(first) = errors.first()
        && errors.iter().all(|error| is_for_a_person(&error.error_code, &error.error_message))
    {
        return Err(for_a_person(names, &first.error_code, &first.error_message));
    }
    let (passing, lasting): (Vec<_>, Vec<_>) =
        errors.iter().partition(|error| is_passing(&error.error_code));
    launched.passing = reasons(&passing);
    launched.shortfalls.extend(reasons(&lasting));
    let (got, count) = (launched.machines.len(), order.count);
    let silent = launched.shortfalls.is_empty() && launched.passing.is_empty();
    if silent && got < count as usize {
        launched.shortfalls.push(format!("{ACTION}: launched {got} of {count} and gave no reason"));
    }
    Ok(launched)
}

fn machine(order: &Order, group: &FleetInstances, id: InstanceId, now: Timestamp) -> Machine {
    let requirements = &order.requirements;
    let usage_class = match group.lifecycle.as_str() {
        "spot" => UsageClass::Spot,
        _ => UsageClass::OnDemand,
    };
    tracing::debug!(instance = %id, kind = group.instance_type, zone = group.zone(), "launched");
    Machine {
        id,
        spec: MachineSpec {
            resource_class: requirements.class.clone(),
            instance_type: group.instance_type.clone(),
            usage_class,
            cpu: requirements.size.cpu,
            mem: requirements.size.mem,
        },
        intent: order.intent.clone(),
        launched_at: now,
    }
}

/// Why machines are missing: each reason once, with an example. There is an error for each type in
/// each subnet, which may be hundreds.
fn reasons(errors: &[&FleetError]) -> Vec<String> {
    let mut groups: Vec<(&FleetError, usize)> = Vec::new();
    for &error in errors {
        let same = |other: &FleetError| {
            other.error_code == error.error_code && other.error_message == error.error_message
        };
        match groups.iter_mut().find(|(first, _)| same(first)) {
            Some((_, count)) => *count += 1,
            None => groups.push((error, 1)),
        }
    }
    let told = |(first, count): &(&FleetError, usize)| {
        let what = format!("{}: {}", first.error_code, first.error_message);
        match (first.place().as_str(), count) {
            ("", 1) => what,
            ("", count) => format!("{what} ({count} times)"),
            (place, 1) => format!("{what} ({place})"),
            (place, count) => format!("{what} ({place}, and {} more)", count - 1),
        }
    };
    let mut lines: Vec<String> = groups.iter().take(REASONS).map(told).collect();
    if groups.len() > REASONS {
        lines.push(format!("other reasons that are not shown: {}", groups.len() - REASONS));
    }
    lines
}

/// The outcome of a request that was refused as a whole.
fn refused(names: &Names, refusal: Refusal) -> PortResult<Launched> {
    let Refusal { code, message, .. } = &refusal;
    if CAPACITY.contains(&code.as_str()) || is_unmatched(code, message) {
        let shortfalls = vec![format!("{code}: {message}")];
        return Ok(Launched { shortfalls, ..Launched::default() });
    }
    if code == "IdempotentParameterMismatch" {
        return Err(PortError::Unusable {
            service: EC2,
            reason: refusal.said(),
            hint:
                "the same launch was ordered before with other settings; its machines expire on their \
                   own: run the step again"
                    .to_owned(),
        });
    }
    if is_for_a_person(code, message) {
        return Err(for_a_person(names, code, message));
    }
    Err(refusal.into_error())
}

/// Whether neither waiting nor another instance type would help.
fn is_for_a_person(code: &str, message: &str) -> bool {
    let kind = code.split('.').next().unwrap_or(code);
    template::is_gone(code)
        || GONE.contains(&kind)
        || has_two_subnets_in_a_zone(kind, message)
        || matches!(kind, "UnauthorizedOperation" | "AuthFailure")
        || (kind == "InvalidParameterValue" && message.contains("iamInstanceProfile"))
}

/// Whether no instance type meets the requirements. EC2 says so before it tries.
fn is_unmatched(code: &str, message: &str) -> bool {
    code == "InvalidParameterValue" && message.contains("find any instance pools that match")
}

/// Whether two subnets are in the same zone. EC2 takes them for one pool that was given twice, and
/// reports that as duplicate pools or as overlapping requirements. Only EC2 knows the zones.
fn has_two_subnets_in_a_zone(kind: &str, message: &str) -> bool {
    (kind.starts_with("InvalidFleetConfig") && message.contains("duplicate instance pools"))
        || (kind == "InvalidParameterValue"
            && message.contains("InstanceRequirements")
            && message.contains("overlapping values"))
}

fn for_a_person(names: &Names, code: &str, message: &str) -> PortError {
    if template::is_gone(code) {
        let what =
            format!("the launch template {} or its version is gone", names.launch_template());
        return PortError::NotSetUp { what };
    }
    let kind = code.split('.').next().unwrap_or(code);
    let hint = match kind {
        "AuthFailure" if code.contains("ServiceLinkedRole") => {
            "have an administrator of the account run this once: \
             aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
                .to_owned()
        }
        // A fleet launches with the permissions of its caller.
        "AuthFailure" | "UnauthorizedOperation" => {
            "check the AWS credentials, and that they allow ec2:CreateFleet, ec2:RunInstances, \
             ec2:CreateTags and iam:PassRole"
                .to_owned()
        }
        "InvalidSubnet" | "InvalidSubnetID" => {
            format!("run ondeck refresh with existing {SUBNETS}")
        }
        _ if has_two_subnets_in_a_zone(kind, message) => {
            format!("run ondeck refresh with no more than one of {SUBNETS} in each zone")
        }
        _ => "run ondeck refresh with resources that exist: EC2 names the missing one".to_owned(),
    };
    PortError::Unusable { service: EC2, reason: format!("{ACTION}: {code}: {message}"), hint }
}

#[cfg(test)]
mod tests;
