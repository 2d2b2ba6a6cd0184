//! The DescribeInstances action, and paging for all lists.

use crate::aws::params::Params;
use crate::aws::xml::Xml;
use crate::timestamps;

use super::catalogue::matches;
use super::refusal::Refusal;
use super::state::{Instance, Lifecycle, State, Surroundings};
use super::terminate::all_known;

/// Performs DescribeInstances, one page per request. Fails for unknown ids and filters.
pub(crate) fn describe(
    state: &State,
    around: &Surroundings,
    params: &Params,
) -> Result<String, Refusal> {
    let ids = params.texts("InstanceId");
    all_known(state, &ids)?;
    if let Some(id) = ids.iter().find(|id| state.find(id).is_some_and(|it| it.unlisted)) {
        let message = format!("The instance ID '{id}' does not exist");
        return Err(Refusal::new("InvalidInstanceID.NotFound", message));
    }
    let size = page_size(around, params, 5..=1_000)?;
    if size.is_some() && !ids.is_empty() {
        return Err(Refusal::new(
            "InvalidParameterCombination",
            "The parameter instancesSet cannot be used with the parameter maxResults",
        ));
    }
    let filters = Filter::all(params)?;
    let found: Vec<&Instance> = state
        .instances()
        .iter()
        .filter(|instance| !instance.unlisted)
        .filter(|instance| ids.is_empty() || ids.contains(&&*instance.machine.id))
        .filter(|instance| filters.iter().all(|filter| filter.admits(instance)))
        .collect();
    let size = size.unwrap_or(around.page);
    let (page, next) = page(found, size, params.text("NextToken"), |it| &it.machine.id)?;
    Ok(Xml::answer("DescribeInstances", |xml| {
        // EC2 lists the machines of one launch under one reservation.
        let groups: Vec<&[&Instance]> =
            page.chunk_by(|one, other| one.machine.fleet == other.machine.fleet).collect();
        xml.items("reservationSet", groups, |xml, group| {
            let fleet = group.first().map_or("", |instance| &*instance.machine.fleet);
            xml.text("reservationId", fleet.replace("fleet-", "r-"));
            xml.text("ownerId", "000000000000");
            xml.within("groupSet", |_| {});
            xml.items("instancesSet", group, |xml, instance| write(xml, instance));
        });
        xml.text_if("nextToken", next);
    }))
}

fn write(xml: &mut Xml, instance: &Instance) {
    let Instance { machine, spec, .. } = instance;
    xml.text("instanceId", &machine.id);
    xml.text("imageId", &instance.image);
    xml.within("instanceState", |xml| {
        xml.text("code", machine.state.code());
        xml.text("name", machine.state.name());
    });
    xml.text("privateDnsName", "");
    xml.text("dnsName", "");
    xml.text("reason", &machine.reason);
    xml.text("instanceType", &machine.instance_type);
    xml.text("launchTime", timestamps::iso_millis(machine.launched));
    xml.within("placement", |xml| {
        xml.text("availabilityZone", &machine.zone);
        xml.text("tenancy", "default");
    });
    xml.text("subnetId", &machine.subnet);
    if machine.reason.contains(": ") {
        let (code, _) = machine.reason.split_once(": ").unwrap_or_default();
        xml.within("stateReason", |xml| {
            xml.text("code", code);
            xml.text("message", &machine.reason);
        });
    }
    // EC2 omits this element for on-demand machines.
    if machine.lifecycle == Lifecycle::Spot {
        xml.text("instanceLifecycle", "spot");
    }
    xml.text("clientToken", &machine.fleet);
    xml.tags(&machine.tags);
    xml.within("cpuOptions", |xml| {
        xml.text("coreCount", spec.vcpus / spec.threads_per_core);
        xml.text("threadsPerCore", spec.threads_per_core);
    });
    xml.within("metadataOptions", |xml| {
        xml.text("state", "applied");
        xml.text("httpTokens", "required");
        let tags = if instance.metadata_tags { "enabled" } else { "disabled" };
        xml.text("instanceMetadataTags", tags);
    });
}

/// One filter, which admits machines that match any of its values.
struct Filter<'a> {
    name: &'a str,
    values: Vec<&'a str>,
}

impl<'a> Filter<'a> {
    fn all(params: &'a Params) -> Result<Vec<Filter<'a>>, Refusal> {
        let filters = params.list("Filter").into_iter().map(|filter| {
            let name = filter.text("Name").ok_or_else(|| Refusal::missing("Filter.Name"))?;
            let known = [
                "instance-id",
                "instance-lifecycle",
                "instance-state-name",
                "instance-type",
                "availability-zone",
                "subnet-id",
                "tag-key",
            ];
            if !known.contains(&name) && !name.starts_with("tag:") {
                let message = format!("The filter '{name}' is invalid");
                return Err(Refusal::new("InvalidParameterValue", message));
            }
            let values = filter.texts("Value");
            if values.is_empty() {
                return Err(Refusal::new("InvalidParameterValue", "The filter value is empty"));
            }
            Ok(Filter { name, values })
        });
        filters.collect()
    }

    fn admits(&self, instance: &Instance) -> bool {
        let machine = &instance.machine;
        let any = |value: &str| self.values.iter().any(|pattern| matches(pattern, value));
        match self.name {
            "instance-id" => any(&machine.id),
            "instance-lifecycle" => machine.lifecycle == Lifecycle::Spot && any("spot"),
            "instance-state-name" => any(machine.state.name()),
            "instance-type" => any(&machine.instance_type),
            "availability-zone" => any(&machine.zone),
            "subnet-id" => any(&machine.subnet),
            "tag-key" => machine.tags.keys().any(|key| any(key)),
            tag => {
                let key = tag.strip_prefix("tag:").unwrap_or_default();
                machine.tags.get(key).is_some_and(|value| any(value))
            }
        }
    }
}

/// The page size that a request asks for, capped by the options; `None` if it asks for none.
/// Fails outside the range.
pub(crate) fn page_size(
    around: &Surroundings,
    params: &Params,
    range: std::ops::RangeInclusive<usize>,
) -> Result<Option<usize>, Refusal> {
    let Some(text) = params.text("MaxResults") else { return Ok(None) };
    match text.parse() {
        Ok(size) if range.contains(&size) => Ok(Some(size.min(around.page))),
        _ => {
            let (min, max) = (range.start(), range.end());
            let message = format!(
                "Value ( {text} ) for parameter maxResults is invalid. \
                 Expecting a value between {min} and {max}."
            );
            Err(Refusal::new("InvalidParameterValue", message))
        }
    }
}

/// Returns one page and the token of the next. The token names the next entry, so that no entry is
/// skipped if others appear or disappear in between. Fails if the token's entry is gone.
pub(crate) fn page<'a, T>(
    mut entries: Vec<T>,
    size: usize,
    token: Option<&str>,
    name: impl Fn(&T) -> &'a str,
) -> Result<(Vec<T>, Option<String>), Refusal>
where
    T: 'a,
{
    const PREFIX: &str = "next-";
    if let Some(token) = token {
        let at = token
            .strip_prefix(PREFIX)
            .and_then(|next| entries.iter().position(|entry| name(entry) == next));
        let Some(at) = at else {
            let message = "The specified pagination token is not valid or is expired.";
            return Err(Refusal::new("InvalidPaginationToken", message));
        };
        entries.drain(..at);
    }
    let next = entries.get(size).map(|entry| format!("{PREFIX}{}", name(entry)));
    entries.truncate(size);
    Ok((entries, next))
}
