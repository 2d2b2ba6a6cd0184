//! Parses and validates a CreateFleet request.

use crate::aws::ec2::catalogue::{self, Requirements, TypeSpec};
use crate::aws::ec2::images::Image;
use crate::aws::ec2::refusal::Refusal;
use crate::aws::ec2::state::{Lifecycle, State};
use crate::aws::ec2::tags::{self, Tags};
use crate::aws::ec2::templates::{self, Template, Version};
use crate::aws::params::Params;

/// A CreateFleet request that has been validated.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) overrides: Vec<Override>,
    pub(super) instance_tags: Tags,
    default: Lifecycle,
    spot: usize,
    on_demand: usize,
    spot_at_least: usize,
    on_demand_at_least: usize,
}

/// One override of the request: a way to launch a machine.
#[derive(Debug)]
pub(super) struct Override {
    pub(super) template_id: String,
    pub(super) version: Version,
    pub(super) subnet: Option<String>,
    /// The instance types that fit, the cheapest first.
    pub(super) types: Vec<TypeSpec>,
    /// Whether the request names the instance type.
    pub(super) typed: bool,
    /// The image's id or the parameter that should name it, and the image unless it does not exist.
    pub(super) image: (String, Option<Image>),
}

/// The most requirements of one request. EC2's documentation does not name it; its error does, as
/// quoted in osbuild/osbuild-composer#3946.
const MOST_REQUIREMENTS: usize = 4;

impl Request {
    pub(super) fn read(state: &State, params: &Params) -> Result<Request, Refusal> {
        match params.text("Type") {
            Some("instant") => {}
            // EC2 has other types, but ondeck uses none of them.
            other => return Err(Refusal::invalid("Type", other.unwrap_or("maintain"))),
        }
        if let Some(token) = params.text("ClientToken")
            && (token.len() > 64 || !token.is_ascii())
        {
            return Err(Refusal::invalid("ClientToken", token));
        }
        tags::only_for(params, &["fleet", "instance", "volume", "network-interface"])?;
        tags::of(params, "fleet")?;
        let instance_tags = tags::of(params, "instance")?;
        let configs = params.list("LaunchTemplateConfigs");
        if configs.is_empty() {
            return Err(Refusal::missing("LaunchTemplateConfigs"));
        }
        let asking = configs.iter().flat_map(|config| config.list("Overrides"));
        let asking = asking.filter(|it| it.at("InstanceRequirements").is_some()).count();
        if asking > MOST_REQUIREMENTS {
            let message = format!(
                "Your request contains more than the maximum allowed number of \
                 InstanceRequirements ({MOST_REQUIREMENTS})"
            );
            return Err(Refusal::new("InvalidParameterValue", message));
        }
        let default = default_lifecycle(params)?;
        let mut overrides = Vec::new();
        for config in configs {
            overrides.extend(read_config(state, config, &instance_tags, default)?);
        }
        // EC2 looks for matching types before it launches any machine.
        if overrides.iter().all(|it| it.types.is_empty() && it.image.1.is_some()) {
            return Err(Refusal::new(
                "InvalidParameterValue",
                "We couldn't find any instance pools that match your instance requirements. \
                 Change your instance requirements, and try again.",
            ));
        }
        let mut request = Request {
            overrides,
            instance_tags,
            default,
            spot: 0,
            on_demand: 0,
            spot_at_least: params.number("SpotOptions.MinTargetCapacity").unwrap_or(0),
            on_demand_at_least: params.number("OnDemandOptions.MinTargetCapacity").unwrap_or(0),
        };
        request.read_capacity(params)?;
        Ok(request)
    }

    fn read_capacity(&mut self, params: &Params) -> Result<(), Refusal> {
        let of = |name: &str| format!("TargetCapacitySpecification.{name}");
        let total = params
            .number(&of("TotalTargetCapacity"))
            .ok_or_else(|| Refusal::missing(&of("TotalTargetCapacity")))?;
        if total == 0 {
            return Err(Refusal::invalid("TotalTargetCapacity", "0"));
        }
        let spot = params.number(&of("SpotTargetCapacity"));
        let on_demand = params.number(&of("OnDemandTargetCapacity"));
        let named = spot.unwrap_or(0) + on_demand.unwrap_or(0);
        let Some(rest) = total.checked_sub(named) else {
            let message = "The total target capacity must not be less than its parts";
            return Err(Refusal::new("InvalidTargetCapacitySpecification", message));
        };
        (self.spot, self.on_demand) = match self.default {
            Lifecycle::Spot => (spot.unwrap_or(0) + rest, on_demand.unwrap_or(0)),
            Lifecycle::OnDemand => (spot.unwrap_or(0), on_demand.unwrap_or(0) + rest),
        };
        Ok(())
    }

    /// For each purchase option, the number of machines to launch and the minimum.
    pub(super) fn shares(&self) -> Vec<(Lifecycle, usize, usize)> {
        let all = [
            (Lifecycle::OnDemand, self.on_demand, self.on_demand_at_least),
            (Lifecycle::Spot, self.spot, self.spot_at_least),
        ];
        all.into_iter().filter(|(_, wanted, _)| *wanted > 0).collect()
    }

    pub(super) fn main_lifecycle(&self) -> Lifecycle {
        self.default
    }
}

fn default_lifecycle(params: &Params) -> Result<Lifecycle, Refusal> {
    match params.text("TargetCapacitySpecification.DefaultTargetCapacityType") {
        Some("spot") => Ok(Lifecycle::Spot),
        None | Some("on-demand") => Ok(Lifecycle::OnDemand),
        Some(other) => Err(Refusal::invalid("DefaultTargetCapacityType", other)),
    }
}

fn read_config(
    state: &State,
    config: &Params,
    instance_tags: &Tags,
    lifecycle: Lifecycle,
) -> Result<Vec<Override>, Refusal> {
    let none = Params::default();
    let specification = config.at("LaunchTemplateSpecification").unwrap_or(&none);
    let template = templates::find(state, specification)?;
    let version = specification
        .text("Version")
        .ok_or_else(|| Refusal::missing("LaunchTemplateSpecification.Version"))?;
    let version = template.version(version)?;
    if version.data.text("MetadataOptions.InstanceMetadataTags") == Some("enabled") {
        tags::check_for_metadata(instance_tags)?;
        tags::check_for_metadata(&tags::of(&version.data, "instance")?)?;
    }
    let image = version.data.text("ImageId").ok_or_else(|| Refusal::missing("ImageId"))?;
    let id = state.image_id(image);
    let found = id.as_deref().and_then(|id| state.image(id));
    let image = (id.unwrap_or_else(|| image.to_owned()), found);
    let read = |params| read_override(template, version, &image, lifecycle, params);
    let overrides = config.list("Overrides");
    if overrides.is_empty() {
        return Ok(vec![read(&none)?]);
    }
    overrides.into_iter().map(read).collect()
}

fn read_override(
    template: &Template,
    version: &Version,
    image: &(String, Option<Image>),
    lifecycle: Lifecycle,
    params: &Params,
) -> Result<Override, Refusal> {
    let named = params.text("InstanceType");
    let asked = params.at("InstanceRequirements");
    let types = match (named, asked) {
        (Some(_), Some(_)) => {
            return Err(Refusal::new(
                "InvalidParameterCombination",
                "You can't specify both InstanceType and InstanceRequirements",
            ));
        }
        (None, Some(requirements)) => {
            let requirements = Requirements::read(requirements)?;
            image.1.map(|it| requirements.matching(it.architecture, lifecycle)).unwrap_or_default()
        }
        (named, None) => {
            let name = named.or_else(|| version.data.text("InstanceType"));
            let name = name.ok_or_else(|| Refusal::missing("InstanceType"))?;
            vec![catalogue::named(name).ok_or_else(|| Refusal::invalid("InstanceType", name))?]
        }
    };
    Ok(Override {
        template_id: template.id.clone(),
        version: version.clone(),
        subnet: params.text("SubnetId").map(str::to_owned),
        types,
        typed: named.is_some(),
        image: image.clone(),
    })
}
