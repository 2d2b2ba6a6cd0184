//! What the placeholders of the tables stand for in one pool.

use ondeck_core::model::settings::AGENT_KEY_PREFIX;
use ondeck_core::ports::{Compute as _, PortError, PortResult, Store as _};
use serde_json::Value;

use super::{CheckSubject, Decision};
use crate::cloud::{Account, Cloud};
use crate::compute::Ec2Compute;
use crate::inputs::{IAM_INSTANCE_PROFILE, SUBNET_IDS};
use crate::names::{Names, PoolName};
use crate::store::DynamoStore;

/// Ids that EC2 gives to no machine. The tables tell three machines apart.
const NO_MACHINES: [&str; 3] =
    ["i-00000000000000000", "i-00000000000000001", "i-00000000000000002"];
/// A pool that does not exist, because no owner on GitHub has this name.
const NO_POOL: &str = "ondeck--no-owner/permissions-check";
/// The machine ARN of the tables, in parts that are replaced together.
const MACHINE_ARN: &str = "arn:aws:ec2:REGION:ACCOUNT:instance/";
/// The machines' instance profile in the tables, which is called like their role.
const PROFILE: &str = "MACHINE-ROLE";
/// The subnet of the tables.
const SUBNET: &str = "subnet-0a";

/// What the placeholders stand for.
pub(super) struct Placeholders {
    /// In the order in which they are replaced: one that contains another comes first.
    texts: Vec<(&'static str, String)>,
    /// How many of the machines `SELF` and `NEIGHBOUR` exist and are the pool's.
    machines: usize,
    has_other_pool: bool,
    /// Whether the settings name an instance profile.
    has_profile: bool,
}

impl Placeholders {
    /// Reads the settings, and lists the pool's machines where the role may. Fails if the settings
    /// cannot be read, or do not name the account.
    pub(super) async fn find(cloud: &Cloud, subject: &CheckSubject) -> PortResult<Placeholders> {
        let settings = DynamoStore::new(cloud).settings().await?;
        let prefix = settings.get(AGENT_KEY_PREFIX).cloned().unwrap_or_default();
        let account = Account::of_arn(&prefix).ok_or_else(|| PortError::Unusable {
            service: "AWS",
            reason: "the settings do not name the account of the machines".to_owned(),
            hint: "run ondeck refresh --backend aws first".to_owned(),
        })?;
        let subnets = settings.get(SUBNET_IDS.name).map(String::as_str).unwrap_or_default();
        let subnet = subnets.split([' ', ',']).find(|id| !id.is_empty()).unwrap_or(SUBNET);
        let own = machines_of(cloud, subject).await;
        let machine = |n: usize| own.get(n).map_or(NO_MACHINES[n], String::as_str).to_owned();
        let no_pool = || NO_POOL.parse::<PoolName>().expect("a valid name");
        let other = subject.other_pool.clone().unwrap_or_else(no_pool);
        // A profile is known by its name, which follows the last slash of its ARN.
        let profile = settings.get(IAM_INSTANCE_PROFILE.name).map(|it| it.trim());
        let profile = profile.and_then(|it| it.rsplit('/').next()).filter(|it| !it.is_empty());
        let texts = vec![
            (PROFILE, profile.unwrap_or(PROFILE).to_owned()),
            (MACHINE_ARN, prefix.clone()),
            ("OTHER-NAME", other.resource_name()),
            ("OTHER-POOL", other.to_string().to_ascii_lowercase()),
            ("REGION", cloud.region().to_owned()),
            ("ACCOUNT", account.id().to_owned()),
            ("NAME", Names::of(&cloud.names.pool).table().to_owned()),
            ("POOL", cloud.names.pool.to_string().to_ascii_lowercase()),
            ("SELF", machine(0)),
            ("NEIGHBOUR", machine(1)),
            ("FOREIGN", NO_MACHINES[2].to_owned()),
            (SUBNET, subnet.to_owned()),
        ];
        let has_other_pool = subject.other_pool.is_some();
        let (machines, has_profile) = (own.len(), profile.is_some());
        Ok(Placeholders { texts, machines, has_other_pool, has_profile })
    }

    /// A request of the tables about this pool. Fails with the reason to skip it.
    pub(super) fn fill(
        &self,
        call: &str,
        request: &Value,
        expected: Decision,
    ) -> Result<Value, &'static str> {
        let text = request.to_string();
        if text.contains("OTHER-TEMPLATE") && !self.has_other_pool {
            return Err("needs the template of another pool: give --other-pool");
        }
        if text.contains(PROFILE) && !self.has_profile {
            return Err("needs iam-instance-profile to be set");
        }
        // EC2 decides by the tags of the machine, so it must exist.
        let needed = match (text.contains("SELF"), text.contains("NEIGHBOUR")) {
            (_, true) => 2,
            (true, false) => 1,
            (false, false) => 0,
        };
        if call.starts_with("ec2:") && expected == Decision::Allowed && self.machines < needed {
            return Err("needs machines of the pool that are up");
        }
        // A template is known by the name of its pool; only refresh may look up its id.
        let text = text
            .replace(r#"LaunchTemplateId":"OTHER-TEMPLATE""#, r#"LaunchTemplateName":"OTHER-NAME""#)
            .replace(r#"LaunchTemplateId":"TEMPLATE""#, r#"LaunchTemplateName":"NAME""#);
        let replace = |text: String, (name, value): &(&str, String)| text.replace(name, value);
        let text = self.texts.iter().fold(text, replace);
        serde_json::from_str(&text).map_err(|_| "a name in it cannot be put into a request")
    }
}

/// The calling machine, or machines of the pool that are up, as far as the role may list them.
async fn machines_of(cloud: &Cloud, subject: &CheckSubject) -> Vec<String> {
    match (&*subject.role, &subject.machine) {
        ("machine", machine) => machine.iter().map(ToString::to_string).collect(),
        ("operator", _) => Vec::new(),
        _ => match Ec2Compute::new(cloud).machines().await {
            Ok(machines) => machines.iter().map(|machine| machine.id.to_string()).collect(),
            Err(error) => {
                tracing::warn!("the machines of the pool cannot be listed: {error}");
                Vec::new()
            }
        },
    }
}
