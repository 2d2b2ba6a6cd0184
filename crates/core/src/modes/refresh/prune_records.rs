//! Prune records: deletes what has been terminated for longer than the retention time. Nothing depends
//! on the moment, so it is done once an hour, or at each refresh if records are kept for less than that.

use super::Outcome;
use crate::model::failure::Failure;
use crate::model::settings::{CHECKED_EVERY, Settings};
use crate::modes::plane::Plane;

pub(super) async fn prune(
    plane: &Plane,
    settings: &Settings,
    checks_all: bool,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    if !checks_all && settings.times.retention >= CHECKED_EVERY {
        return Ok(());
    }
    let before = plane.now().before(settings.times.retention);
    outcome.pruned_records = plane.retried(|| plane.store.forget(before)).await?;
    Ok(())
}
