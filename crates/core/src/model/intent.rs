//! The record that a launch is about to happen: written before the launch, so that machines
//! whose control plane died in between can be found and accounted for.

use crate::model::ids::{IntentId, RunId};
use crate::model::requirements::UsageClass;
use crate::model::timestamp::Timestamp;

/// One decision to launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Names the launch; machines carry it as a tag, and the launch is idempotent under it.
    pub id: IntentId,
    /// For which run.
    pub run: RunId,
    /// How many machines.
    pub count: u32,
    /// How they are paid for.
    pub usage: UsageClass,
    /// After this, refresh settles what nobody else has.
    pub deadline: Timestamp,
    /// What came of it; empty while nobody knows.
    pub outcome: String,
}

impl Intent {
    /// Whether somebody has said what came of it.
    pub fn is_open(&self) -> bool {
        self.outcome.is_empty()
    }
}
