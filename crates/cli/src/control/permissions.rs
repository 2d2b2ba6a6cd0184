//! `ondeck permissions check`: asks AWS what the role of the current credentials may do.

use std::sync::Arc;

use ondeck_aws::{
    CheckResult, CheckSubject, Cloud, Decision, Imds, PermissionCheck, PoolName, ROLES,
    check_permissions,
};
use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;

use crate::backend::aws::{named_pool, options};
use crate::control::report::permissions::{
    CheckRow, ExpectedDecision, PermissionsReport, RowResult,
};
use crate::control::report::{Report, deliver};
use crate::inputs::{Backend, Common, rows};
use crate::logging;
use crate::surroundings::Entropy;

/// Runs the command and returns its exit code.
pub(crate) async fn check(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    let result = report(common).await;
    let told = result.as_ref().map(|report| report as &dyn Report).map_err(Clone::clone);
    deliver("permissions", told, common)
}

async fn report(common: &Common) -> Result<PermissionsReport, Failure> {
    if common.records != Backend::Aws {
        return Err(Failure::invalid("only the aws backend has permissions to check")
            .hint("give --backend aws"));
    }
    let role = common.given.owned(&rows::ROLE).ok_or_else(|| {
        Failure::invalid("no role given").hint(format!("give --role {}", ROLES.join("|")))
    })?;
    let other_pool = common.given.text(&rows::OTHER_POOL).map(str::parse::<PoolName>).transpose();
    let other_pool = other_pool.map_err(|error| Failure::invalid(error.to_string()))?;
    let cloud = Cloud::connect(options(common, named_pool(common)?), Arc::new(Entropy)).await?;
    let machine = if role == "machine" { Some(machine(common).await?) } else { None };
    let subject = CheckSubject { role, machine, other_pool };
    let checks = check_permissions(&cloud, &subject).await?;
    let checks = checks.into_iter().map(row).collect();
    Ok(PermissionsReport { role: subject.role, checks })
}

/// The machine that was named, or the one that this process is on.
async fn machine(common: &Common) -> Result<InstanceId, Failure> {
    match common.given.text(&rows::INSTANCE_ID) {
        Some(id) => InstanceId::new(id).map_err(|error| Failure::invalid(error.to_string())),
        None => Imds::new().instance_id().await.map_err(|error| {
            Failure::from(error).hint("run it on a machine of the pool, outside its jobs")
        }),
    }
}

fn row(check: PermissionCheck) -> CheckRow {
    let PermissionCheck { call, what, expected, result, answer } = check;
    let expected = match expected {
        Decision::Denied => ExpectedDecision::Denied,
        Decision::Allowed => ExpectedDecision::Allowed,
    };
    let result = match result {
        CheckResult::AsExpected => RowResult::AsExpected,
        CheckResult::Wrong => RowResult::Wrong,
        CheckResult::Unclear => RowResult::Unclear,
        CheckResult::Skipped => RowResult::Skipped,
    };
    CheckRow { call, what, expected, result, answer }
}

#[cfg(test)]
mod tests {
    use ondeck_core::inputs::InputValue;

    use super::*;

    #[test]
    fn the_command_line_takes_the_roles_of_the_tables() {
        let InputValue::Choice(_, roles) = rows::ROLE.value else { panic!("a choice") };
        assert_eq!(roles, ROLES);
    }
}
