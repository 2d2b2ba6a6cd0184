//! Prune records: deletes what has been terminated for longer than the retention time.

use super::Outcome;
use crate::model::failure::Failure;
use crate::model::settings::Settings;
use crate::modes::plane::Plane;

pub(super) async fn prune(
    plane: &Plane,
    settings: &Settings,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let before = plane.now().before(settings.times.retention);
    outcome.pruned_records = plane.retried(|| plane.store.forget(before)).await?;
    Ok(())
}
