//! What `ondeck doctor --json` prints.

use ondeck_core::modes::doctor::{Area, Finding, Findings, Severity, Unchecked};
use serde::Serialize;

use crate::control::report::wire::SchemaVersion;

/// Printed by `ondeck doctor --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DoctorJson {
    schema_version: SchemaVersion,
    /// The worst severity among the findings; `null` if there are none.
    worst: Option<SeverityJson>,
    /// Who the caller is for AWS, as an ARN. `null` on the local backend, and if AWS does not say.
    caller: Option<String>,
    /// What is wrong, the worst first. A finding that follows from another one is part of that one.
    findings: Vec<FindingJson>,
    /// What was checked.
    checked: Vec<CheckJson>,
    /// What could not be checked.
    not_checked: Vec<NotCheckedJson>,
}

/// One thing that is wrong.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct FindingJson {
    /// One of the ids in docs/guides/doctor.md.
    id: &'static str,
    severity: SeverityJson,
    area: AreaJson,
    what: String,
    /// Why it matters.
    why: &'static str,
    /// A command, or what to change.
    fix: String,
    /// The machines, subnets or other resources that it is about. Empty if it is about the pool.
    about: Vec<String>,
}

/// `error`: runs fail now. `warning`: runs will fail, or money is wasted. `note`: good to know.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum SeverityJson {
    Error,
    Warning,
    Note,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum AreaJson {
    Access,
    SetUp,
    Settings,
    Launches,
    Network,
    Forge,
    Machines,
    Computer,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "DoctorCheckJson"))]
struct CheckJson {
    area: AreaJson,
    what: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct NotCheckedJson {
    area: AreaJson,
    what: String,
    /// A permission, a credential, or a service that answers.
    needs: String,
}

impl From<&Findings> for DoctorJson {
    fn from(findings: &Findings) -> DoctorJson {
        let checked = findings.checked.iter();
        DoctorJson {
            schema_version: SchemaVersion,
            worst: findings.worst().map(SeverityJson::from),
            caller: findings.caller.clone(),
            findings: findings.findings.iter().map(FindingJson::from).collect(),
            checked: checked.map(|(area, what)| CheckJson { area: (*area).into(), what }).collect(),
            not_checked: findings.unchecked.iter().map(NotCheckedJson::from).collect(),
        }
    }
}

impl From<&Finding> for FindingJson {
    fn from(finding: &Finding) -> FindingJson {
        let Finding { kind, severity, what, fix, about } = finding;
        FindingJson {
            id: kind.as_str(),
            severity: (*severity).into(),
            area: kind.area().into(),
            what: what.clone(),
            why: kind.why(),
            fix: fix.clone(),
            about: about.clone(),
        }
    }
}

impl From<&Unchecked> for NotCheckedJson {
    fn from(unchecked: &Unchecked) -> NotCheckedJson {
        let Unchecked { area, what, needs } = unchecked;
        NotCheckedJson { area: (*area).into(), what: what.clone(), needs: needs.clone() }
    }
}

impl From<Severity> for SeverityJson {
    fn from(severity: Severity) -> SeverityJson {
        match severity {
            Severity::Error => SeverityJson::Error,
            Severity::Warning => SeverityJson::Warning,
            Severity::Note => SeverityJson::Note,
        }
    }
}

impl From<Area> for AreaJson {
    fn from(area: Area) -> AreaJson {
        match area {
            Area::Access => AreaJson::Access,
            Area::SetUp => AreaJson::SetUp,
            Area::Settings => AreaJson::Settings,
            Area::Launches => AreaJson::Launches,
            Area::Network => AreaJson::Network,
            Area::Forge => AreaJson::Forge,
            Area::Machines => AreaJson::Machines,
            Area::Computer => AreaJson::Computer,
        }
    }
}
