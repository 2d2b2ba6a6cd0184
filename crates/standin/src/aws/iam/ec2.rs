//! What EC2 asks IAM about a call.
//!
//! The actions, resources and condition keys are those of the Service Authorization Reference,
//! "Actions, resources, and condition keys for Amazon EC2". Tags at creation need `ec2:CreateTags`
//! with the key `ec2:CreateAction`: Amazon EC2 User Guide, "Grant permission to tag Amazon EC2
//! resources during creation". Each resource of a call is asked about by itself, with condition keys
//! of its own.

mod launch;

use crate::aws::ec2::{State, Template, find_template, image_parameter};
use crate::aws::params::Params;

use super::arns::Arns;
use super::{Authorization, Context};

/// The tags of a resource.
type Tags = std::collections::BTreeMap<String, String>;

/// Everything that a call needs. A call that names a launch template which does not exist needs
/// nothing: EC2 answers that it does not exist.
pub(crate) fn authorizations(
    state: &State,
    action: &str,
    params: &Params,
    arns: &Arns,
) -> Vec<Authorization> {
    let asking = Asking { state, params, arns };
    match action {
        "CreateFleet" => asking.fleet(),
        "RunInstances" => asking.run_instances(),
        "CreateLaunchTemplate" => asking.create_template(),
        "CreateLaunchTemplateVersion"
        | "ModifyLaunchTemplate"
        | "DeleteLaunchTemplate"
        | "DeleteLaunchTemplateVersions" => {
            let template = find_template(state, params);
            let asked = |template| asking.about_template(action, template);
            let image = params.text("LaunchTemplateData.ImageId");
            template.map(asked).into_iter().chain(asking.read_image_parameter(image)).collect()
        }
        "CreateTags" | "DeleteTags" => asking.change_tags(action),
        _ if action.starts_with("Describe") => {
            vec![asked(action, "*".to_owned(), asking.context())]
        }
        _ => asking.about_instances(action),
    }
}

struct Asking<'a> {
    state: &'a State,
    params: &'a Params,
    arns: &'a Arns,
}

impl Asking<'_> {
    /// The key that every request has.
    fn context(&self) -> Context {
        let mut context = Context::default();
        context.set("ec2:Region", self.arns.region());
        context
    }

    fn about_template(&self, action: &str, template: &Template) -> Authorization {
        let mut context = self.context();
        resource_tags(&mut context, template.tags());
        asked(action, self.arns.ec2("launch-template", &template.id), context)
    }

    fn create_template(&self) -> Vec<Authorization> {
        let tags = tags_for(self.params, "launch-template");
        let resource = self.arns.ec2("launch-template", "*");
        let mut context = self.context();
        given_tags(&mut context, &tags);
        let create = asked("CreateLaunchTemplate", resource.clone(), context);
        let tag = self.tag_at_creation(resource, &tags, "CreateLaunchTemplate");
        let image = self.params.text("LaunchTemplateData.ImageId");
        std::iter::once(create).chain(tag).chain(self.read_image_parameter(image)).collect()
    }

    /// The permission to read the parameter that a launch template names in place of an image's id. A
    /// caller that specifies it in a template needs it, and so does one that uses the template: Amazon
    /// EC2 Auto Scaling User Guide, "Use AWS Systems Manager parameters instead of AMI IDs in launch
    /// templates".
    fn read_image_parameter(&self, image: Option<&str>) -> Option<Authorization> {
        Some(Authorization {
            action: "ssm:GetParameters".to_owned(),
            resource: self.arns.parameter(image_parameter(image?)?),
            context: Context::default(),
        })
    }

    /// The permission to tag a resource while creating it; nothing if there are no tags.
    fn tag_at_creation(
        &self,
        resource: String,
        tags: &Tags,
        create: &str,
    ) -> Option<Authorization> {
        let mut context = self.context();
        given_tags(&mut context, tags);
        context.set("ec2:CreateAction", create);
        (!tags.is_empty()).then(|| asked("CreateTags", resource, context))
    }

    /// A direct change of tags, which has no `ec2:CreateAction`.
    fn change_tags(&self, action: &str) -> Vec<Authorization> {
        let tags = self.params.list("Tag");
        let tags: Tags = tags.into_iter().filter_map(tag).collect();
        let one = |id: &str| {
            let mut context = self.context();
            given_tags(&mut context, &tags);
            let (kind, found) = self.resource(id);
            resource_tags(&mut context, found.unwrap_or(&Tags::new()));
            asked(action, self.arns.ec2(kind, id), context)
        };
        self.params.texts("ResourceId").into_iter().map(one).collect()
    }

    /// An action on machines. A machine that EC2 does not list has no tags.
    fn about_instances(&self, action: &str) -> Vec<Authorization> {
        let mut ids = self.params.texts("InstanceId");
        ids.extend(self.params.text("InstanceId"));
        if ids.is_empty() {
            return vec![asked(action, "*".to_owned(), self.context())];
        }
        let one = |id: &str| {
            let mut context = self.context();
            if let Some(instance) = self.state.find(id) {
                resource_tags(&mut context, &instance.machine.tags);
                context.set("ec2:InstanceType", &*instance.machine.instance_type);
                context.set("ec2:AvailabilityZone", &*instance.machine.zone);
            }
            asked(action, self.arns.ec2("instance", id), context)
        };
        ids.into_iter().map(one).collect()
    }

    /// The type of a resource by its id, with its tags as far as the stand-in knows it.
    fn resource(&self, id: &str) -> (&'static str, Option<&Tags>) {
        let prefix = id.split('-').next().unwrap_or_default();
        match prefix {
            "i" => ("instance", self.state.find(id).map(|instance| &instance.machine.tags)),
            "lt" => {
                let template = self.state.templates.values().find(|template| template.id == id);
                ("launch-template", template.map(Template::tags))
            }
            "vol" => ("volume", None),
            "fleet" => ("fleet", None),
            "ami" => ("image", None),
            "subnet" => ("subnet", None),
            "sg" => ("security-group", None),
            _ => ("*", None),
        }
    }
}

fn asked(action: &str, resource: String, context: Context) -> Authorization {
    Authorization { action: format!("ec2:{action}"), resource, context }
}

/// The keys for the tags that a resource has. EC2 knows each under two names.
fn resource_tags(context: &mut Context, tags: &Tags) {
    for (key, value) in tags {
        context.set(&format!("aws:ResourceTag/{key}"), &**value);
        context.set(&format!("ec2:ResourceTag/{key}"), &**value);
    }
}

/// The keys for the tags that a request gives to a resource.
fn given_tags(context: &mut Context, tags: &Tags) {
    super::request_tags(context, tags.iter().map(|(key, value)| (key.as_str(), value.as_str())));
}

/// The tags that a request or a launch template gives to one type of resource.
fn tags_for(params: &Params, resource: &str) -> Tags {
    let lists = params.list("TagSpecification");
    let ours = lists.into_iter().filter(|it| it.text("ResourceType") == Some(resource));
    ours.flat_map(|it| it.list("Tag")).filter_map(tag).collect()
}

fn tag(tag: &Params) -> Option<(String, String)> {
    Some((tag.text("Key")?.to_owned(), tag.text("Value").unwrap_or_default().to_owned()))
}
