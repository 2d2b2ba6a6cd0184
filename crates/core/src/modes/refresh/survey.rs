//! One look at the world, on which every later step of a refresh decides.
//!
//! Records are read last. A machine that is registered, or a runner that appears, while the look
//! is taken is then seen with its record, and not taken for a stray.

use std::collections::BTreeSet;

use super::{Outcome, keep_first};
use crate::model::failure::Failure;
use crate::model::record::Record;
use crate::modes::plane::Plane;
use crate::ports::{ListedRunner, Machine, PortResult, Scope};

/// What there is.
pub(super) struct Survey {
    /// The machines that are alive.
    pub(super) machines: Vec<Machine>,
    /// The runners that the forge lists.
    pub(super) runners: Vec<ListedRunner>,
    /// The live records.
    pub(super) live: Vec<Record>,
    known: BTreeSet<String>,
}

impl Survey {
    /// Looks. A provider or a forge that does not answer counts as empty, which makes nobody a
    /// stray; a store that does not answer leaves nothing to decide on.
    pub(super) async fn take(
        plane: &Plane,
        outcome: &mut Outcome,
        failure: &mut Option<Failure>,
    ) -> Result<Survey, Failure> {
        let machines = or_none(failure, plane.retried(|| plane.compute.machines()).await);
        let runners = or_none(failure, plane.retried(|| plane.forge.runners()).await);
        let listing = plane.retried(|| plane.store.list(Scope::Live)).await?;
        outcome.warnings.extend(listing.unreadable.iter().map(|row| format!("{row}; skipped")));
        // A row that cannot be read may well be live: its machine is left to its own deadline.
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
