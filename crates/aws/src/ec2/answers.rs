//! Answers of EC2, with the fields that the adapter reads. A field that is missing is
//! empty, for EC2 leaves out what it has nothing to say about.

use serde::Deserialize;

/// The shape of EC2's lists.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Set<T> {
    #[serde(default = "Vec::new")]
    pub(crate) item: Vec<T>,
}

/// An answer that only has to have come, whole.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Done {}

/// `CreateFleet`. Both lists are to be read, always.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FleetAnswer {
    #[serde(rename = "fleetInstanceSet")]
    pub(crate) instances: Set<FleetInstances>,
    #[serde(rename = "errorSet")]
    pub(crate) errors: Set<FleetError>,
}

/// Machines of one kind that were launched.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FleetInstances {
    pub(crate) instance_ids: Set<String>,
    pub(crate) instance_type: String,
    pub(crate) lifecycle: String,
    pub(crate) availability_zone: String,
    launch_template_and_overrides: Origin,
}

/// Why machines of one kind were not.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct FleetError {
    pub(crate) error_code: String,
    pub(crate) error_message: String,
    launch_template_and_overrides: Origin,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Origin {
    overrides: Override,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Override {
    instance_type: String,
    subnet_id: String,
    availability_zone: String,
}

impl FleetInstances {
    /// The zone, which older answers give with the order only.
    pub(crate) fn zone(&self) -> &str {
        let ordered = &self.launch_template_and_overrides.overrides.availability_zone;
        if self.availability_zone.is_empty() { ordered } else { &self.availability_zone }
    }
}

impl FleetError {
    /// What it is about: a type, and where.
    pub(crate) fn place(&self) -> String {
        let ordered = &self.launch_template_and_overrides.overrides;
        let where_to = match ordered.availability_zone.as_str() {
            "" => ordered.subnet_id.as_str(),
            zone => zone,
        };
        match (ordered.instance_type.as_str(), where_to) {
            ("", place) => place.to_owned(),
            (kind, "") => kind.to_owned(),
            (kind, place) => format!("{kind} in {place}"),
        }
    }
}

/// One page of the answer of `DescribeInstances`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct InstancesAnswer {
    #[serde(rename = "reservationSet")]
    reservations: Set<Reservation>,
    pub(crate) next_token: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Reservation {
    #[serde(rename = "instancesSet")]
    instances: Set<Instance>,
}

impl InstancesAnswer {
    /// The machines of the page.
    pub(crate) fn instances(self) -> impl Iterator<Item = Instance> {
        self.reservations.item.into_iter().flat_map(|reservation| reservation.instances.item)
    }
}

/// One machine, as EC2 describes it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Instance {
    pub(crate) instance_id: String,
    pub(crate) instance_type: String,
    pub(crate) image_id: String,
    pub(crate) instance_lifecycle: String,
    pub(crate) launch_time: String,
    pub(crate) instance_state: InstanceState,
    cpu_options: CpuOptions,
    #[serde(rename = "tagSet")]
    tags: Set<Tag>,
}

/// Where a machine is in its life.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct InstanceState {
    pub(crate) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CpuOptions {
    core_count: u32,
    threads_per_core: u32,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Tag {
    key: String,
    value: String,
}

impl Instance {
    /// How many processors a program on it sees.
    pub(crate) fn cpu(&self) -> u32 {
        self.cpu_options.core_count.saturating_mul(self.cpu_options.threads_per_core)
    }

    /// What a tag says.
    pub(crate) fn tag(&self, key: &str) -> Option<&str> {
        self.tags.item.iter().find(|tag| tag.key == key).map(|tag| tag.value.as_str())
    }
}

/// The answer of `CreateLaunchTemplate` and of `ModifyLaunchTemplate`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateAnswer {
    pub(crate) launch_template: Template,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Template {
    pub(crate) default_version_number: u64,
}

/// The answer of `DescribeLaunchTemplateVersions`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct VersionsAnswer {
    #[serde(rename = "launchTemplateVersionSet")]
    pub(crate) versions: Set<Version>,
}

/// The answer of `CreateLaunchTemplateVersion`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersionAnswer {
    pub(crate) launch_template_version: Version,
}

/// One version of a launch template.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Version {
    pub(crate) launch_template_id: String,
    pub(crate) version_number: u64,
    #[serde(default)]
    pub(crate) version_description: String,
    #[serde(default)]
    pub(crate) default_version: bool,
}

/// The answer of `DescribeImages`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ImagesAnswer {
    #[serde(rename = "imagesSet")]
    pub(crate) images: Set<Image>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Image {
    pub(crate) root_device_name: String,
    pub(crate) architecture: String,
    /// Whether every account may use it.
    pub(crate) is_public: bool,
}

impl<T> Default for Set<T> {
    fn default() -> Set<T> {
        Set { item: Vec::new() }
    }
}

/// Code and message of an answer that is an error. EC2 has a shape of its own; what stands before
/// it answers in the shape of the other services.
pub(crate) fn problem(text: &str) -> Option<(String, String)> {
    let found: Problem = quick_xml::de::from_str(text).ok()?;
    let problem = found.errors.and_then(|errors| errors.error).or(found.error)?;
    Some((problem.code, problem.message))
}

#[derive(Deserialize)]
struct Problem {
    #[serde(rename = "Errors")]
    errors: Option<Problems>,
    #[serde(rename = "Error")]
    error: Option<OneProblem>,
}

#[derive(Deserialize)]
struct Problems {
    #[serde(rename = "Error")]
    error: Option<OneProblem>,
}

#[derive(Deserialize)]
struct OneProblem {
    #[serde(rename = "Code", default)]
    code: String,
    #[serde(rename = "Message", default)]
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_of_an_error_are_read_and_nothing_else_is_one() {
        let ec2 = r#"<?xml version="1.0" encoding="UTF-8"?>
            <Response><Errors><Error><Code>InvalidInstanceID.NotFound</Code><Message>The instance
            ID 'i-1' does not exist &amp; more</Message></Error></Errors>
            <RequestID>ea966190-f9aa-478e-9ede-example</RequestID></Response>"#;
        let (code, message) = problem(ec2).unwrap();
        assert_eq!(code, "InvalidInstanceID.NotFound");
        assert!(message.contains("'i-1' does not exist & more"), "{message}");
        let others = r#"<ErrorResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
            <Error><Type>Sender</Type><Code>Throttling</Code><Message>Rate exceeded</Message>
            </Error><RequestId>1</RequestId></ErrorResponse>"#;
        assert_eq!(problem(others), Some(("Throttling".to_owned(), "Rate exceeded".to_owned())));
        for nothing in ["", "<html><body>Bad Gateway</body></html>", "<Response><Errors", "oops"] {
            assert_eq!(problem(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn instances_are_read_across_reservations() {
        let page: InstancesAnswer = quick_xml::de::from_str(
            r#"<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
            <requestId>8f7724cf-496f-496e-8fe3-example</requestId>
            <reservationSet>
              <item><reservationId>r-1</reservationId><groupSet/><instancesSet>
                <item><instanceId>i-1</instanceId><instanceState><code>16</code><name>running</name>
                  </instanceState><instanceType>c6i.large</instanceType>
                  <launchTime>2026-11-01T10:00:00.000Z</launchTime>
                  <instanceLifecycle>spot</instanceLifecycle>
                  <tagSet><item><key>ondeck:intent</key><value>a</value></item>
                    <item><key>Name</key><value/></item></tagSet>
                  <cpuOptions><coreCount>1</coreCount><threadsPerCore>2</threadsPerCore></cpuOptions>
                </item>
                <item><instanceId>i-2</instanceId></item></instancesSet></item>
              <item><reservationId>r-2</reservationId><instancesSet>
                <item><instanceId>i-3</instanceId><tagSet/></item></instancesSet></item>
            </reservationSet><nextToken>more</nextToken></DescribeInstancesResponse>"#,
        )
        .unwrap();
        assert_eq!(page.next_token, "more");
        let instances: Vec<Instance> = page.instances().collect();
        let ids: Vec<&str> = instances.iter().map(|i| i.instance_id.as_str()).collect();
        assert_eq!(ids, ["i-1", "i-2", "i-3"]);
        assert_eq!(instances[0].cpu(), 2);
        assert_eq!(instances[0].tag("ondeck:intent"), Some("a"));
        assert_eq!(instances[0].tag("Name"), Some(""));
        assert_eq!((instances[1].cpu(), instances[1].tag("Name")), (0, None));
        let none: InstancesAnswer = quick_xml::de::from_str(
            "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>",
        )
        .unwrap();
        assert_eq!(none.instances().count(), 0);
    }
}
