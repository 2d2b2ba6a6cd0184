//! Launch templates and their versions.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::aws::params::Params;
use crate::aws::xml::Xml;
use crate::timestamps;

use super::instances::{page, page_size};
use super::refusal::Refusal;
use super::state::{State, Surroundings, new_id};
use super::tags::{self, Tags};
use super::template_data;

#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) id: String,
    name: String,
    created: SystemTime,
    default: usize,
    /// The highest version number so far. Numbers of deleted versions are not reused.
    latest: usize,
    versions: BTreeMap<usize, Version>,
    tags: Tags,
}

#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) number: usize,
    pub(crate) data: Params,
    name: String,
    description: Option<String>,
    created: SystemTime,
}

impl Template {
    /// Finds a version by its number, `$Latest` or `$Default`. Fails if there is none.
    pub(crate) fn version(&self, which: &str) -> Result<&Version, Refusal> {
        let number = match which {
            "$Default" => Some(self.default),
            "$Latest" => self.versions.keys().next_back().copied(),
            number => number.parse().ok(),
        };
        number.and_then(|number| self.versions.get(&number)).ok_or_else(|| {
            Refusal::new(
                "InvalidLaunchTemplateId.VersionNotFound",
                format!("Could not find the specified version {which} for the launch template with ID {}.", self.id),
            )
        })
    }

    pub(crate) fn tags(&self) -> &Tags {
        &self.tags
    }

    fn add(&mut self, params: &Params) -> Result<usize, Refusal> {
        let data = params.at("LaunchTemplateData").filter(|data| !data.members().is_empty());
        let data = data.ok_or_else(|| Refusal::missing("LaunchTemplateData"))?;
        template_data::check(data)?;
        self.latest += 1;
        let version = Version {
            number: self.latest,
            data: data.clone(),
            name: format!("v{}", self.latest),
            description: params.text("VersionDescription").map(str::to_owned),
            created: SystemTime::now(),
        };
        self.versions.insert(self.latest, version);
        Ok(self.latest)
    }

    fn write(&self, xml: &mut Xml) {
        xml.text("launchTemplateId", &self.id);
        xml.text("launchTemplateName", &self.name);
        xml.text("createTime", timestamps::iso(self.created));
        xml.text("createdBy", "arn:aws:iam::000000000000:root");
        xml.text("defaultVersionNumber", self.default);
        xml.text("latestVersionNumber", self.versions.keys().next_back().unwrap_or(&self.latest));
        xml.tags(&self.tags);
    }

    fn write_version(&self, xml: &mut Xml, version: &Version) {
        xml.text("launchTemplateId", &self.id);
        xml.text("launchTemplateName", &self.name);
        xml.text("versionNumber", version.number);
        xml.text_if("versionDescription", version.description.as_ref());
        xml.text("createTime", timestamps::iso(version.created));
        xml.text("createdBy", "arn:aws:iam::000000000000:root");
        xml.text("defaultVersion", version.number == self.default);
        xml.within("launchTemplateData", |xml| template_data::write(xml, &version.data));
    }
}

/// Finds the template that a request names by id or name. Fails if there is none.
pub(crate) fn find<'a>(state: &'a State, params: &Params) -> Result<&'a Template, Refusal> {
    let name = key(state, params)?;
    state.templates.get(&name).ok_or_else(|| not_found(&name))
}

fn find_mut<'a>(state: &'a mut State, params: &Params) -> Result<&'a mut Template, Refusal> {
    let name = key(state, params)?;
    state.templates.get_mut(&name).ok_or_else(|| not_found(&name))
}

fn key(state: &State, params: &Params) -> Result<String, Refusal> {
    match (params.text("LaunchTemplateName"), params.text("LaunchTemplateId")) {
        (Some(name), None) => Ok(name.to_owned()),
        (None, Some(id)) => {
            let found = state.templates.values().find(|template| template.id == id);
            found.map(|template| template.name.clone()).ok_or_else(|| {
                Refusal::new(
                    "InvalidLaunchTemplateId.NotFound",
                    format!(
                        "The specified launch template, with template ID {id}, does not exist."
                    ),
                )
            })
        }
        (Some(_), Some(_)) => Err(Refusal::new(
            "InvalidParameterCombination",
            "You can't specify both LaunchTemplateId and LaunchTemplateName",
        )),
        (None, None) => Err(Refusal::missing("LaunchTemplateId or LaunchTemplateName")),
    }
}

fn not_found(name: &str) -> Refusal {
    Refusal::new(
        "InvalidLaunchTemplateName.NotFoundException",
        format!("The specified launch template, with template name {name}, does not exist."),
    )
}

/// Performs CreateLaunchTemplate. Fails if the name is taken or the data is invalid.
pub(crate) fn create(state: &mut State, params: &Params) -> Result<String, Refusal> {
    let name = params.text("LaunchTemplateName");
    let name = name.ok_or_else(|| Refusal::missing("LaunchTemplateName"))?;
    let is_valid = (3..=128).contains(&name.len())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || "().-/_".contains(it));
    if !is_valid {
        let message = format!("Invalid launch template name: {name}");
        return Err(Refusal::new("InvalidLaunchTemplateName.MalformedException", message));
    }
    if state.templates.contains_key(name) {
        let message = "Launch template name already in use.";
        return Err(Refusal::new("InvalidLaunchTemplateName.AlreadyExistsException", message));
    }
    tags::only_for(params, &["launch-template"])?;
    let mut template = Template {
        id: new_id("lt"),
        name: name.to_owned(),
        created: SystemTime::now(),
        default: 1,
        latest: 0,
        versions: BTreeMap::new(),
        tags: tags::of(params, "launch-template")?,
    };
    template.add(params)?;
    let xml = Xml::answer("CreateLaunchTemplate", |xml| {
        xml.within("launchTemplate", |xml| template.write(xml));
    });
    state.templates.insert(name.to_owned(), template);
    Ok(xml)
}

/// Performs CreateLaunchTemplateVersion. The default version does not change.
pub(crate) fn create_version(state: &mut State, params: &Params) -> Result<String, Refusal> {
    let template = find_mut(state, params)?;
    let number = template.add(params)?;
    let version = template.version(&number.to_string())?;
    Ok(Xml::answer("CreateLaunchTemplateVersion", |xml| {
        xml.within("launchTemplateVersion", |xml| template.write_version(xml, version));
    }))
}

/// Performs DescribeLaunchTemplates, one page per request.
pub(crate) fn describe(
    state: &State,
    around: &Surroundings,
    params: &Params,
) -> Result<String, Refusal> {
    let names = params.texts("LaunchTemplateName");
    let ids = params.texts("LaunchTemplateId");
    if let Some(name) = names.iter().find(|name| !state.templates.contains_key(**name)) {
        return Err(not_found(name));
    }
    for id in &ids {
        key(state, &Params::parse(format!("LaunchTemplateId={id}").as_bytes()))?;
    }
    let found: Vec<&Template> = state
        .templates
        .values()
        .filter(|it| names.is_empty() || names.contains(&&*it.name))
        .filter(|it| ids.is_empty() || ids.contains(&&*it.id))
        .collect();
    let size = page_size(around, params, 1..=200)?.unwrap_or(around.page);
    let (page, next) = page(found, size, params.text("NextToken"), |it| &it.name)?;
    Ok(Xml::answer("DescribeLaunchTemplates", |xml| {
        xml.items("launchTemplates", page, |xml, template| template.write(xml));
        xml.text_if("nextToken", next);
    }))
}

/// Performs DescribeLaunchTemplateVersions for one template.
pub(crate) fn describe_versions(
    state: &State,
    around: &Surroundings,
    params: &Params,
) -> Result<String, Refusal> {
    let template = find(state, params)?;
    let bound = |name| params.number(name);
    let asked = params.texts("LaunchTemplateVersion");
    let found: Vec<&Version> = if asked.is_empty() {
        let range = bound("MinVersion").unwrap_or(1)..=bound("MaxVersion").unwrap_or(usize::MAX);
        // The newest come first.
        let all = template.versions.values().rev();
        all.filter(|version| range.contains(&version.number)).collect()
    } else {
        asked.into_iter().map(|which| template.version(which)).collect::<Result<_, _>>()?
    };
    let size = page_size(around, params, 1..=200)?.unwrap_or(around.page);
    let (page, next) = page(found, size, params.text("NextToken"), |it| &it.name)?;
    Ok(Xml::answer("DescribeLaunchTemplateVersions", |xml| {
        xml.items("launchTemplateVersionSet", page, |xml, version| {
            template.write_version(xml, version);
        });
        xml.text_if("nextToken", next);
    }))
}

/// Performs ModifyLaunchTemplate, which sets the default version.
pub(crate) fn modify(state: &mut State, params: &Params) -> Result<String, Refusal> {
    let template = find_mut(state, params)?;
    if let Some(which) = params.text("SetDefaultVersion") {
        template.default = template.version(which)?.number;
    }
    Ok(Xml::answer("ModifyLaunchTemplate", |xml| {
        xml.within("launchTemplate", |xml| template.write(xml));
    }))
}

/// Performs DeleteLaunchTemplate, which deletes all versions too.
pub(crate) fn delete(state: &mut State, params: &Params) -> Result<String, Refusal> {
    let name = key(state, params)?;
    let template = state.templates.remove(&name).ok_or_else(|| not_found(&name))?;
    Ok(Xml::answer("DeleteLaunchTemplate", |xml| {
        xml.within("launchTemplate", |xml| template.write(xml));
    }))
}

/// Performs DeleteLaunchTemplateVersions. Versions that cannot be deleted are listed as errors.
pub(crate) fn delete_versions(state: &mut State, params: &Params) -> Result<String, Refusal> {
    let template = find_mut(state, params)?;
    let asked = params.texts("LaunchTemplateVersion");
    if asked.is_empty() {
        return Err(Refusal::missing("LaunchTemplateVersion"));
    }
    let (mut deleted, mut kept) = (Vec::new(), Vec::new());
    for which in asked {
        match which.parse::<usize>() {
            Ok(number) if number == template.default => {
                kept.push((which, "unexpectedError", "the default version cannot be deleted"));
            }
            Ok(number) if template.versions.remove(&number).is_some() => deleted.push(which),
            _ => kept.push((which, "launchTemplateVersionDoesNotExist", "no such version")),
        }
    }
    let (id, name) = (&template.id, &template.name);
    Ok(Xml::answer("DeleteLaunchTemplateVersions", |xml| {
        xml.items("successfullyDeletedLaunchTemplateVersionSet", deleted, |xml, number| {
            xml.text("launchTemplateId", id);
            xml.text("launchTemplateName", name);
            xml.text("versionNumber", number);
        });
        let unsuccessful = "unsuccessfullyDeletedLaunchTemplateVersionSet";
        xml.items(unsuccessful, kept, |xml, (number, code, message)| {
            xml.text("launchTemplateId", id);
            xml.text("launchTemplateName", name);
            xml.text("versionNumber", number);
            xml.within("responseError", |xml| {
                xml.text("code", code);
                xml.text("message", message);
            });
        });
    }))
}
