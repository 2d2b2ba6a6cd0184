//! What teardown works with: the plane, the places with resources, and what ondeck did not create.

use std::collections::BTreeMap;
use std::sync::Arc;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::refresh::AbsentForge;
use ondeck_core::ports::{Infrastructure, PortError, Progress};

use super::{Records, assemble, forge, records};
use crate::backend::check_reachable;
use crate::control::report::teardown::Leftover;
use crate::inputs::{Backend, Common, rows};

/// A pool to tear down.
pub(crate) struct ToTearDown {
    /// What a person types to confirm: the pool's name, or the path of a local one.
    pub(crate) name: String,
    /// `None` if a local pool has no records, so that only files can be left of it.
    pub(crate) plane: Option<Plane>,
    pub(crate) parts: Vec<Arc<dyn Infrastructure>>,
    pub(crate) leftovers: Vec<Leftover>,
}

/// Connects to the pool. Nothing is created, except for a list of local machines whose records are on
/// AWS, which is deleted with the rest.
pub(crate) async fn to_tear_down(
    common: &Common,
    progress: Arc<dyn Progress>,
) -> Result<ToTearDown, Failure> {
    check_reachable(common)?;
    let found = match records(common, false).await {
        Ok(found) => found,
        Err(failure) if failure.kind == FailureKind::NotSetUp => {
            let (name, plane, leftovers) = (name(common, None)?, None, Vec::new());
            return Ok(ToTearDown { name, plane, parts: parts(common, None)?, leftovers });
        }
        Err(failure) => return Err(failure),
    };
    let stored = match found.store.settings().await {
        Err(PortError::NotSetUp { .. }) => BTreeMap::new(),
        answer => answer?,
    };
    let forge = forge::of_teardown(common, &found, &stored).await?;
    let leftovers = leftovers(&found, &stored, forge.is_none());
    let (name, parts) = (name(common, Some(&found))?, parts(common, Some(&found))?);
    let create = !common.given.is_set(&rows::DRY_RUN);
    let forge = forge.unwrap_or_else(|| Arc::new(AbsentForge));
    let plane = Some(assemble(common, create, found, forge, progress)?);
    Ok(ToTearDown { name, plane, parts, leftovers })
}

fn name(common: &Common, records: Option<&Records>) -> Result<String, Failure> {
    match records {
        Some(records) if common.records == Backend::Aws => Ok(records.label.clone()),
        _ => Ok(crate::backend::home_dir(common)?.display().to_string()),
    }
}

/// The places where the pool has something. The one with the records comes last.
fn parts(
    common: &Common,
    records: Option<&Records>,
) -> Result<Vec<Arc<dyn Infrastructure>>, Failure> {
    let mut parts: Vec<Arc<dyn Infrastructure>> = Vec::new();
    #[cfg(feature = "local")]
    if common.compute == Backend::Local {
        let home = crate::backend::local::home(common)?;
        let shared = records.and_then(|records| records.db.clone());
        let db = shared.or_else(|| ondeck_local::Db::open(&home).ok());
        parts.push(Arc::new(ondeck_local::LocalInfrastructure::new(home, db)));
    }
    #[cfg(feature = "aws")]
    if let Some(cloud) = records.and_then(|records| records.cloud.as_ref()) {
        let has_machines = common.compute == Backend::Aws;
        parts.push(Arc::new(ondeck_aws::AwsInfrastructure::new(cloud, has_machines)));
    }
    #[cfg(feature = "holds")]
    let parts = crate::control::hold_points::wrap_parts(parts);
    Ok(parts)
}

/// What belongs to the pool and was not created by ondeck, each with the command that removes it.
#[cfg(feature = "aws")]
fn leftovers(
    records: &Records,
    stored: &BTreeMap<String, String>,
    keeps_runners: bool,
) -> Vec<Leftover> {
    let Some(cloud) = &records.cloud else { return Vec::new() };
    let region = cloud.region();
    let leftover = |what: &str, command: String| Leftover { what: what.to_owned(), command };
    let mut all = vec![leftover(
        "the schedule that calls ondeck refresh, which would create the pool again",
        "gh workflow disable WORKFLOW".to_owned(),
    )];
    all.push(leftover(
        "the function that refreshes, with its schedule, if they were created from \
         infra/function.yaml; it would create the pool again within a minute",
        format!("aws cloudformation delete-stack --stack-name FUNCTION-STACK --region {region}"),
    ));
    all.push(leftover(
        "the same, if they were created from infra/terraform/function",
        "terraform destroy -target=module.ondeck_function".to_owned(),
    ));
    all.push(leftover(
        "the key of the GitHub App, if the function reads it from a parameter",
        format!("aws ssm delete-parameter --name PARAMETER --region {region}"),
    ));
    if keeps_runners {
        all.push(leftover(
            "runners that GitHub still lists, because no token was given; GitHub removes them after \
             14 days offline",
            "ONDECK_GITHUB_TOKEN=TOKEN ondeck teardown ... --yes".to_owned(),
        ));
    }
    all.push(leftover(
        "roles and network, if they were created from infra/cloudformation.yaml",
        format!("aws cloudformation delete-stack --stack-name STACK --region {region}"),
    ));
    all.push(leftover(
        "roles and network, if they were created from infra/terraform",
        "terraform destroy".to_owned(),
    ));
    let stored = |name: &str| stored.get(name).map(String::as_str).unwrap_or_default();
    if let Some(group) = stored(ondeck_aws::MACHINE_LOGS.name).strip_prefix("cloudwatch:") {
        all.push(leftover(
            "the log group of the machines",
            format!("aws logs delete-log-group --log-group-name {group} --region {region}"),
        ));
    }
    let ami = stored(ondeck_aws::AMI.name);
    if ami.starts_with("ami-") {
        all.push(leftover(
            "the image of the machines, if it was made for this pool",
            format!("aws ec2 deregister-image --image-id {ami} --region {region}"),
        ));
    }
    all
}

#[cfg(not(feature = "aws"))]
fn leftovers(
    _records: &Records,
    _stored: &BTreeMap<String, String>,
    _keeps_runners: bool,
) -> Vec<Leftover> {
    Vec::new()
}
