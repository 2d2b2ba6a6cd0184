//! CreateFleet of type `instant`: one attempt, which may launch fewer machines than requested.

mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use crate::aws::params::Params;
use crate::aws::xml::Xml;

use super::Done;
use super::catalogue::TypeSpec;
use super::images::Image;
use super::refusal::Refusal;
use super::state::{Instance, Lifecycle, Machine, MachineState, State, Surroundings, new_id};
use super::tags;
use super::template_data;
use request::{Override, Request};

/// Launches as many of the requested machines as the capacity allows. Fails if
/// the request is invalid.
pub(crate) fn create(
    state: &mut State,
    around: &Surroundings,
    params: &Params,
) -> Result<Done, Refusal> {
    let request = Request::read(state, params)?;
    if has_duplicate_pools(&request, around) {
        let message = "The fleet configuration contains duplicate instance pools.";
        return Err(Refusal::new("InvalidFleetConfig", message));
    }
    let fleet = new_id("fleet");
    let mut outcome = Outcome::default();
    let mut pools = pools(&request, around, &state.exhausted, &mut outcome);
    if let Some(left) = state.throttled_fleets.checked_sub(1) {
        state.throttled_fleets = left;
        let lifecycle = request.main_lifecycle();
        outcome.errors.extend(pools.drain(..).map(|pool| Failure::throttled(&pool, lifecycle)));
    }
    for (lifecycle, wanted, at_least) in request.shares() {
        let room = state.room(lifecycle);
        let quota = pools.first().map_or(0, |pool| state.quota(lifecycle, pool.spec.vcpus));
        let launched = wanted.min(room).min(quota);
        // If the minimum cannot be met, EC2 launches nothing.
        let launched = if launched < at_least { 0 } else { launched };
        if launched < wanted {
            let failure = |pool| match quota < room {
                true => Failure::quota(pool, lifecycle, state.capacity.vcpus.unwrap_or_default()),
                false => Failure::capacity(pool, lifecycle),
            };
            outcome.errors.extend(pools.iter().map(failure));
        }
        for number in 0..launched {
            let Some(pool) = pools.get(number % pools.len().max(1)) else { break };
            let mut instance = instance(&request, around, &fleet, lifecycle, pool);
            instance.unlisted = state.listing_lags;
            outcome.add(pool.at, &instance.machine);
            state.add(instance);
        }
    }
    let xml = answer(&request, &fleet, &outcome);
    Ok(Done { xml, launched: outcome.launched, ending: Vec::new() })
}

/// A capacity pool: the index of an override, its zone, and the instance type for it.
#[derive(Debug)]
struct Pool {
    at: usize,
    zone: String,
    spec: TypeSpec,
}

/// Whether two overrides with requirements are in the same zone. Seen in
/// github-aws-runners/terraform-aws-github-runner#5297.
fn has_duplicate_pools(request: &Request, around: &Surroundings) -> bool {
    let mut zones = BTreeSet::new();
    let zone = |it: &Override| around.known_zone(it.subnet.as_deref());
    let asking = request.overrides.iter().filter(|it| !it.typed);
    !asking.filter_map(zone).all(|zone| zones.insert(zone))
}

/// The pools of all valid overrides. The others are added to the outcome as errors.
fn pools(
    request: &Request,
    around: &Surroundings,
    exhausted: &BTreeSet<String>,
    outcome: &mut Outcome,
) -> Vec<Pool> {
    let mut pools = Vec::new();
    for (at, it) in request.overrides.iter().enumerate() {
        match pool(at, it, request.main_lifecycle(), around, exhausted) {
            Ok(pool) => pools.push(pool),
            Err(failure) => outcome.errors.push(failure),
        }
    }
    pools
}

/// The pool of the cheapest type of an override that has capacity. Fails with the reason why nothing can
/// be launched by the override.
fn pool(
    at: usize,
    it: &Override,
    lifecycle: Lifecycle,
    around: &Surroundings,
    exhausted: &BTreeSet<String>,
) -> Result<Pool, Failure> {
    let failure = |code: &'static str, message: String| Failure { at, lifecycle, code, message };
    let zone = around.zone(it.subnet.as_deref()).ok_or_else(|| {
        let subnet = it.subnet.as_deref().unwrap_or_default();
        failure("InvalidSubnetID.NotFound", format!("The subnet ID '{subnet}' does not exist"))
    })?;
    let (id, image) = &it.image;
    let image = image.ok_or_else(|| {
        failure("InvalidAMIID.NotFound", format!("The image id '[{id}]' does not exist"))
    })?;
    if !has_sound_volumes(&it.version.data, image) {
        let message = "The request must contain the parameter size or snapshotId";
        return Err(failure("MissingParameter", message.to_owned()));
    }
    let available = it.types.iter().find(|spec| !exhausted.contains(&spec.name));
    let Some(spec) = available.or(it.types.first()) else {
        let message = "Unable to fulfill capacity due to your request configuration. \
                       Please adjust your request and try again.";
        return Err(failure("UnfulfillableCapacity", message.to_owned()));
    };
    if spec.architecture() != image.architecture {
        let message = format!(
            "The architecture '{}' of the specified instance type does not match the architecture \
             '{}' of the specified AMI.",
            spec.architecture().name(),
            image.architecture.name()
        );
        return Err(failure("InvalidParameterValue", message));
    }
    let pool = Pool { at, zone, spec: spec.clone() };
    match available {
        Some(_) => Ok(pool),
        None => Err(Failure::capacity(&pool, lifecycle)),
    }
}

fn instance(
    request: &Request,
    around: &Surroundings,
    fleet: &str,
    lifecycle: Lifecycle,
    pool: &Pool,
) -> Instance {
    let Pool { at, zone, spec } = pool;
    let first_subnet = around.subnets.keys().next().map_or("subnet-0", |id| id);
    let chosen = request.overrides.get(*at);
    let data = chosen.map(|it| it.version.data.clone()).unwrap_or_default();
    let (image_id, image) = chosen.map(|it| it.image.clone()).unwrap_or_default();
    // The request's tags override the template's.
    let mut tags = tags::of(&data, "instance").unwrap_or_default();
    tags.extend(request.instance_tags.clone());
    tags.insert("aws:ec2:fleet-id".to_owned(), fleet.to_owned());
    let profile = ["IamInstanceProfile.Name", "IamInstanceProfile.Arn"];
    let profile = profile.iter().find_map(|name| data.text(name));
    Instance {
        machine: Machine {
            id: new_id("i"),
            state: MachineState::Pending,
            reason: String::new(),
            lifecycle,
            instance_type: spec.name.clone(),
            subnet: chosen.and_then(|it| it.subnet.as_deref()).unwrap_or(first_subnet).to_owned(),
            zone: zone.clone(),
            tags,
            fleet: fleet.to_owned(),
            launched: SystemTime::now(),
            pid: None,
            metadata: None,
            log: std::path::PathBuf::new(),
            volumes: volumes(&data),
            root_is_encrypted: image.is_some_and(|image| root_is_encrypted(&data, image)),
            user_data: data.text("UserData").map(template_data::decoded),
        },
        spec: spec.clone(),
        image: image_id,
        profile: profile.map(|it| it.rsplit('/').next().unwrap_or(it).to_owned()),
        metadata_tags: data.text("MetadataOptions.InstanceMetadataTags") == Some("enabled"),
        terminates_on_shutdown: data.text("InstanceInitiatedShutdownBehavior") == Some("terminate"),
        notice: None,
        rebalance: None,
        metadata: None,
        ended: None,
        unlisted: false,
    }
}

/// Whether each volume has a size or is the image's own. The error is quoted in hashicorp/packer#7802,
/// whose template names the root device of another image.
fn has_sound_volumes(data: &Params, image: Image) -> bool {
    data.list("BlockDeviceMapping").into_iter().all(|mapping| {
        mapping.text("DeviceName") == Some(image.root_device)
            || mapping.at("Ebs.VolumeSize").is_some()
            || mapping.at("Ebs.SnapshotId").is_some()
    })
}

fn volumes(data: &Params) -> BTreeMap<String, usize> {
    let volume = |mapping: &Params| {
        let device = mapping.text("DeviceName")?;
        Some((device.to_owned(), mapping.number("Ebs.VolumeSize")?))
    };
    data.list("BlockDeviceMapping").into_iter().filter_map(volume).collect()
}

/// Whether the launch encrypts the image's own volume. The images of the stand-in and the account do
/// not.
fn root_is_encrypted(data: &Params, image: Image) -> bool {
    data.list("BlockDeviceMapping").into_iter().any(|mapping| {
        mapping.text("DeviceName") == Some(image.root_device)
            && mapping.text("Ebs.Encrypted") == Some("true")
    })
}

#[derive(Debug, Default)]
struct Outcome {
    launched: Vec<String>,
    groups: Vec<Group>,
    errors: Vec<Failure>,
}

impl Outcome {
    fn add(&mut self, at: usize, machine: &Machine) {
        let lifecycle = machine.lifecycle;
        self.launched.push(machine.id.clone());
        match self.groups.iter_mut().find(|it| it.at == at && it.lifecycle == lifecycle) {
            Some(group) => group.ids.push(machine.id.clone()),
            None => self.groups.push(Group {
                at,
                lifecycle,
                instance_type: machine.instance_type.clone(),
                zone: machine.zone.clone(),
                ids: vec![machine.id.clone()],
            }),
        }
    }
}

#[derive(Debug)]
struct Group {
    at: usize,
    lifecycle: Lifecycle,
    instance_type: String,
    zone: String,
    ids: Vec<String>,
}

#[derive(Debug)]
struct Failure {
    at: usize,
    lifecycle: Lifecycle,
    code: &'static str,
    message: String,
}

impl Failure {
    fn throttled(pool: &Pool, lifecycle: Lifecycle) -> Failure {
        let message = "Request limit exceeded. Account 000000000000 has been throttled on \
                       ec2:RunInstances because it exceeded its request rate limit.";
        let message = message.to_owned();
        Failure { at: pool.at, lifecycle, code: "RequestLimitExceeded", message }
    }

    /// The words are those that users report, for example in scrapoxy/scrapoxy#202.
    fn quota(pool: &Pool, lifecycle: Lifecycle, limit: usize) -> Failure {
        let (code, message) = match lifecycle {
            Lifecycle::Spot => {
                ("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded".to_owned())
            }
            Lifecycle::OnDemand => (
                "VcpuLimitExceeded",
                format!(
                    "You have requested more vCPU capacity than your current vCPU limit of {limit} \
                     allows for the instance bucket that the specified instance type belongs to. \
                     Please visit http://aws.amazon.com/contact-us/ec2-request to request an \
                     adjustment to this limit."
                ),
            ),
        };
        Failure { at: pool.at, lifecycle, code, message }
    }

    fn capacity(pool: &Pool, lifecycle: Lifecycle) -> Failure {
        let message = match lifecycle {
            Lifecycle::Spot => "There is no Spot capacity available that matches your request.",
            Lifecycle::OnDemand => "We currently do not have sufficient capacity.",
        };
        let message = format!("{message} ({} in {})", pool.spec.name, pool.zone);
        Failure { at: pool.at, lifecycle, code: "InsufficientInstanceCapacity", message }
    }
}

fn answer(request: &Request, fleet: &str, outcome: &Outcome) -> String {
    Xml::answer("CreateFleet", |xml| {
        xml.text("fleetId", fleet);
        xml.items("errorSet", &outcome.errors, |xml, failure| {
            origin(xml, request.overrides.get(failure.at));
            xml.text("lifecycle", failure.lifecycle.name());
            xml.text("errorCode", failure.code);
            xml.text("errorMessage", &failure.message);
        });
        xml.items("fleetInstanceSet", &outcome.groups, |xml, group| {
            origin(xml, request.overrides.get(group.at));
            xml.text("lifecycle", group.lifecycle.name());
            xml.texts("instanceIds", &group.ids);
            xml.text("instanceType", &group.instance_type);
            xml.text("availabilityZone", &group.zone);
        });
    })
}

/// Writes the template and override that a machine or error belongs to.
fn origin(xml: &mut Xml, it: Option<&Override>) {
    let Some(it) = it else { return };
    xml.within("launchTemplateAndOverrides", |xml| {
        xml.within("launchTemplateSpecification", |xml| {
            xml.text("launchTemplateId", &it.template_id);
            xml.text("version", it.version.number);
        });
        xml.within("overrides", |xml| {
            if it.typed {
                xml.text_if("instanceType", it.types.first().map(|spec| &spec.name));
            }
            xml.text_if("subnetId", it.subnet.as_ref());
        });
    });
}
