//! One reading of machines, runners and records, on which the later steps of a refresh decide.
//!
//! Records are read last. A machine that is registered during the survey is therefore seen with its
//! record and not taken for an orphan.

use std::collections::BTreeSet;

use super::{Outcome, keep_first};
use crate::model::failure::Failure;
use crate::model::record::Record;
use crate::modes::plane::Plane;
use crate::ports::{ListedRunner, Machine, PortResult, RecordScope};

pub(super) struct Survey {
    pub(super) machines: Vec<Machine>,
    pub(super) runners: Vec<ListedRunner>,
    /// Every readable record that is not terminated.
    pub(super) live: Vec<Record>,
    known: BTreeSet<String>,
}

impl Survey {
    /// Reads machines, runners and live records. If the provider or the forge does not answer, its
    /// list is empty, so that no machine counts as an orphan; the failure goes to `failure`. Fails
    /// if the store does not answer.
    pub(super) async fn take(
        plane: &Plane,
        outcome: &mut Outcome,
        failure: &mut Option<Failure>,
    ) -> Result<Survey, Failure> {
        let machines = or_none(failure, plane.retried(|| plane.compute.machines()).await);
        let runners = or_none(failure, plane.retried(|| plane.forge.runners()).await);
        let listing = plane.retried(|| plane.store.list(RecordScope::Live)).await?;
        outcome.warnings.extend(listing.unreadable.iter().map(|row| format!("{row}; skipped")));
        // An unreadable row may be live, so its machine is left to its own deadline.
        let mut known: BTreeSet<String> =
            listing.unreadable.into_iter().map(|row| row.id).collect();
        known.extend(listing.records.iter().map(|record| record.id.to_string()));
        Ok(Survey { machines, runners, live: listing.records, known })
    }

    /// Whether the instance has a live record, or one that cannot be read and may be live.
    pub(super) fn knows(&self, instance: &crate::model::ids::InstanceId) -> bool {
        self.known.contains(instance.as_str())
    }
}

fn or_none<T>(failure: &mut Option<Failure>, found: PortResult<Vec<T>>) -> Vec<T> {
    found.unwrap_or_else(|error| {
        keep_first(failure, Err(error.into()));
        Vec::new()
    })
}
