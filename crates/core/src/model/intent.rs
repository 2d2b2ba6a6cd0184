//! The record that a launch is about to happen: written before the launch, so that machines
//! whose control plane died in between can be found and accounted for.

use crate::model::ids::{IntentId, ResourceClass, RunId};
use crate::model::requirements::UsageClass;
use crate::model::timestamp::Timestamp;

/// One decision to launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Names the launch; machines carry it as a tag, and the launch is idempotent under it.
    pub id: IntentId,
    pub run: RunId,
    /// The class that was ordered; `None` if an earlier version of the program wrote the intent.
    pub class: Option<ResourceClass>,
    /// How many machines were ordered.
    pub count: u32,
    /// The purchase option that was ordered.
    pub usage: UsageClass,
    /// After this time, refresh settles the intent if it is still open.
    pub deadline: Timestamp,
    /// What the launch led to. Empty while the intent is open.
    pub outcome: String,
}

impl Intent {
    /// Whether the outcome is still unknown.
    pub fn is_open(&self) -> bool {
        self.outcome.is_empty()
    }
}
