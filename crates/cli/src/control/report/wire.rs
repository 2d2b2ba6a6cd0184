//! Words and types that several JSON outputs share. They are separate from core's types, because
//! programs read them: a rename in core must not change the output.

use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::record::Unreadable;
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::modes::refresh::SpendUse;
use serde::{Serialize, Serializer};

/// Serialises an output. The types here have string keys and no failing parts.
pub(super) fn to_json(output: &impl Serialize) -> String {
    serde_json::to_string(output).unwrap_or_default()
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The version of the output's format: 1. It grows when a field is removed or changes its meaning;
/// new fields do not change it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaVersion;

impl Serialize for SchemaVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(1)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for SchemaVersion {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SchemaVersion".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "integer", "const": 1 })
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) enum ResultStatus {
    Success,
    Failed,
}

impl From<Option<&Failure>> for ResultStatus {
    fn from(failure: Option<&Failure>) -> ResultStatus {
        if failure.is_none() { ResultStatus::Success } else { ResultStatus::Failed }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) enum PurchaseOption {
    Spot,
    OnDemand,
}

impl From<UsageClass> for PurchaseOption {
    fn from(usage: UsageClass) -> PurchaseOption {
        match usage {
            UsageClass::Spot => PurchaseOption::Spot,
            UsageClass::OnDemand => PurchaseOption::OnDemand,
        }
    }
}

/// A record that cannot be read.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct UnreadableJson {
    instance_id: String,
    /// What is wrong with it.
    problem: String,
}

impl From<&Unreadable> for UnreadableJson {
    fn from(row: &Unreadable) -> UnreadableJson {
        UnreadableJson { instance_id: row.id.clone(), problem: row.problem.clone() }
    }
}

/// What machines cost on a day in UTC, at list prices on demand, below `max-spend-per-day`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SpendJson {
    /// The day, such as `2026-11-19`.
    day: String,
    /// What they have cost since midnight, in dollars.
    spent_usd: f64,
    /// What they may cost besides until the next midnight, in dollars.
    reserved_usd: f64,
    /// The cap, in dollars.
    cap_usd: f64,
}

/// What is spent, what is reserved, the cap and the day.
pub(super) fn spend_words(used: &SpendUse) -> String {
    let SpendUse { spent, reserved, cap, .. } = used;
    format!("{spent} spent and {reserved} reserved of {cap} on {} (UTC)", used.date())
}

impl From<&SpendUse> for SpendJson {
    fn from(used: &SpendUse) -> SpendJson {
        SpendJson {
            day: used.date(),
            spent_usd: used.spent.dollars(),
            reserved_usd: used.reserved.dollars(),
            cap_usd: used.cap.dollars(),
        }
    }
}
