//! Launches: RunInstances, and CreateFleet, which launches by RunInstances with the caller's
//! permissions.
//!
//! `ec2:LaunchTemplate` and `ec2:IsLaunchTemplateResource` are documented in the Amazon EC2 User
//! Guide, "Control launching instances using launch templates": the second says of each resource
//! whether it is the template's. A launch whose template has an instance profile passes its role:
//! IAM User Guide, "Grant a user permissions to pass a role to an AWS service".

use crate::aws::ec2::{State, Template, Version, find_template, first_fitting_type};
use crate::aws::params::Params;

use super::super::{Authorization, Context};
use super::{Asking, Tags, asked, given_tags, resource_tags, tags_for};

/// One way to launch: parameters of the call, and those of the template for what they leave out.
struct Launch<'a> {
    /// What the call itself says, or one of a fleet's overrides.
    own: &'a Params,
    template: Option<(&'a Template, &'a Version)>,
    /// Tags of the call that a fleet gives to all its machines.
    request: &'a Params,
    is_spot: bool,
}

impl Asking<'_> {
    pub(super) fn run_instances(&self) -> Vec<Authorization> {
        let template = self.params.at("LaunchTemplate").map(|named| version(self.state, named));
        let template = match template {
            // There is no such template, and EC2 says so.
            Some(None) => return Vec::new(),
            Some(found) => found,
            None => None,
        };
        let is_spot = self.params.text("InstanceMarketOptions.MarketType") == Some("spot");
        let launch = Launch { own: self.params, template, request: self.params, is_spot };
        self.launch(&launch)
    }

    /// A fleet: what CreateFleet itself needs, and the launches of all its overrides.
    pub(super) fn fleet(&self) -> Vec<Authorization> {
        let capacity = "TargetCapacitySpecification.DefaultTargetCapacityType";
        let is_spot = self.params.text(capacity) == Some("spot");
        let none = Params::default();
        let tags = tags_for(self.params, "fleet");
        let fleet = self.arns.ec2("fleet", "*");
        let mut context = self.context();
        given_tags(&mut context, &tags);
        let mut all = vec![asked("CreateFleet", fleet.clone(), context)];
        all.extend(self.tag_at_creation(fleet, &tags, "CreateFleet"));
        for config in self.params.list("LaunchTemplateConfigs") {
            let named = config.at("LaunchTemplateSpecification").unwrap_or(&none);
            let Some(template) = version(self.state, named) else { return Vec::new() };
            let mut overrides = config.list("Overrides");
            if overrides.is_empty() {
                overrides.push(&none);
            }
            for own in overrides {
                let template = Some(template);
                let launch = Launch { own, template, request: self.params, is_spot };
                all.extend(self.create_fleet(&launch));
                all.extend(self.launch(&launch));
            }
        }
        all
    }

    /// What CreateFleet itself is asked about an override. It does not have the keys of templates.
    fn create_fleet(&self, launch: &Launch<'_>) -> Vec<Authorization> {
        let mut instance = self.context();
        given_tags(&mut instance, &tags_for(self.params, "instance"));
        instance.set_if("ec2:InstanceType", launch.instance_type());
        let mut volume = self.context();
        given_tags(&mut volume, &tags_for(self.params, "volume"));
        let used = |kind: &str, id: Option<String>| {
            Some(asked("CreateFleet", self.arns.ec2(kind, &id?), self.context()))
        };
        let template =
            launch.template.map(|(template, _)| self.about_template("CreateFleet", template));
        let instance = asked("CreateFleet", self.arns.ec2("instance", "*"), instance);
        let volume = asked("CreateFleet", self.arns.ec2("volume", "*"), volume);
        let mut all = vec![instance, volume];
        all.extend(template);
        all.extend(used("image", self.image(launch)));
        all.extend(used("subnet", launch.value("SubnetId").map(|(id, _)| id.to_owned())));
        for (kind, tags) in [
            ("instance", tags_for(self.params, "instance")),
            ("volume", tags_for(self.params, "volume")),
        ] {
            all.extend(self.tag_at_creation(self.arns.ec2(kind, "*"), &tags, "CreateFleet"));
        }
        all
    }

    /// What RunInstances is asked about.
    fn launch(&self, launch: &Launch<'_>) -> Vec<Authorization> {
        let asked = |kind: &str, id: &str, is_templates: bool, more: Context| {
            let mut context = self.context();
            if let Some((template, _)) = launch.template {
                context.set("ec2:LaunchTemplate", self.arns.ec2("launch-template", &template.id));
                context.set("ec2:IsLaunchTemplateResource", is_templates.to_string());
            }
            context.extend(&more);
            asked("RunInstances", self.arns.ec2(kind, id), context)
        };
        let none = Context::default;
        let mut all = Vec::new();
        if let (Some(id), Some((given, is_templates))) =
            (self.image(launch), launch.value("ImageId"))
        {
            all.extend(self.read_image_parameter(Some(given)));
            all.push(asked("image", &id, is_templates, none()));
        }
        let type_is_templates = launch.own.at("InstanceType").is_none()
            && launch.own.at("InstanceRequirements").is_none();
        let instance = self.instance_context(launch);
        all.push(asked("instance", "*", type_is_templates, instance));
        let interfaces = launch.own.at("NetworkInterface").is_none();
        all.push(asked("network-interface", "*", interfaces, none()));
        let (groups, is_templates) = launch.groups();
        for group in groups {
            all.push(asked("security-group", group, is_templates, none()));
        }
        if let Some((subnet, is_templates)) = launch.value("SubnetId") {
            all.push(asked("subnet", subnet, is_templates, none()));
        }
        if let Some((key, is_templates)) = launch.value("KeyName") {
            all.push(asked("key-pair", key, is_templates, none()));
        }
        if let Some((template, _)) = launch.template {
            let mut tags = Context::default();
            resource_tags(&mut tags, template.tags());
            all.push(asked("launch-template", &template.id, true, tags));
        }
        let mut volume = Context::default();
        given_tags(&mut volume, &launch.tags("volume"));
        let mappings = launch.own.at("BlockDeviceMapping").is_none();
        all.push(asked("volume", "*", mappings, volume));
        if launch.is_spot {
            all.push(asked("spot-instances-request", "*", true, none()));
        }
        for kind in ["instance", "volume"] {
            let resource = self.arns.ec2(kind, "*");
            all.extend(self.tag_at_creation(resource, &launch.tags(kind), "RunInstances"));
        }
        all.extend(self.pass_role(launch));
        all
    }

    /// The id of the image, which a parameter may name.
    fn image(&self, launch: &Launch<'_>) -> Option<String> {
        let (given, _) = launch.value("ImageId")?;
        Some(self.state.image_id(given).unwrap_or_else(|| "*".to_owned()))
    }

    fn instance_context(&self, launch: &Launch<'_>) -> Context {
        let mut context = Context::default();
        given_tags(&mut context, &launch.tags("instance"));
        context.set_if("ec2:InstanceType", launch.instance_type());
        let market = if launch.is_spot { "spot" } else { "on-demand" };
        context.set("ec2:InstanceMarketType", market);
        for (key, name) in [
            ("ec2:MetadataHttpTokens", "MetadataOptions.HttpTokens"),
            ("ec2:MetadataHttpEndpoint", "MetadataOptions.HttpEndpoint"),
            ("ec2:MetadataHttpPutResponseHopLimit", "MetadataOptions.HttpPutResponseHopLimit"),
        ] {
            context.set_if(key, launch.value(name).map(|(value, _)| value));
        }
        context
    }

    /// The role of the launch's instance profile, which has the profile's name here.
    fn pass_role(&self, launch: &Launch<'_>) -> Option<Authorization> {
        let names = ["IamInstanceProfile.Name", "IamInstanceProfile.Arn"];
        let profile = names.iter().find_map(|name| launch.value(name))?.0;
        let role = profile.rsplit('/').next().unwrap_or(profile);
        let mut context = Context::default();
        context.set("iam:PassedToService", "ec2.amazonaws.com");
        Some(Authorization {
            action: "iam:PassRole".to_owned(),
            resource: self.arns.role(role),
            context,
        })
    }
}

impl<'a> Launch<'a> {
    fn data(&self) -> Option<&'a Params> {
        self.template.map(|(_, version)| &version.data)
    }

    /// A parameter, and whether it is the template's.
    fn value(&self, name: &str) -> Option<(&'a str, bool)> {
        let own = self.own.text(name).map(|value| (value, false));
        own.or_else(|| Some((self.data()?.text(name)?, true)))
    }

    /// The security groups, and whether they are the template's. Without any, it is the default
    /// group of the network, whose id the stand-in does not know.
    fn groups(&self) -> (Vec<&'a str>, bool) {
        let own = self.own.texts("SecurityGroupId");
        if !own.is_empty() {
            return (own, false);
        }
        let groups = self.data().map(|data| data.texts("SecurityGroupId")).unwrap_or_default();
        if groups.is_empty() { (vec!["*"], true) } else { (groups, true) }
    }

    /// The type that EC2 would launch first.
    fn instance_type(&self) -> Option<String> {
        match self.own.at("InstanceRequirements") {
            Some(requirements) => first_fitting_type(requirements),
            None => self.value("InstanceType").map(|(name, _)| name.to_owned()),
        }
    }

    /// The tags of a type of resource: the template's, and those of the call, which override them.
    fn tags(&self, resource: &str) -> Tags {
        let mut tags = self.data().map(|data| tags_for(data, resource)).unwrap_or_default();
        tags.extend(tags_for(self.request, resource));
        tags
    }
}

/// The template and the version that a request names; `None` if there is no such template.
fn version<'a>(state: &'a State, named: &Params) -> Option<(&'a Template, &'a Version)> {
    let template = find_template(state, named)?;
    let version = template.version(named.text("Version").unwrap_or("$Default")).ok()?;
    Some((template, version))
}
