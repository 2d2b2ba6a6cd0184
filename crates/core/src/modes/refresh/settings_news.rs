//! Settings news: an idle machine's record names the settings that its last writer went by, and its
//! agent reads the settings again when the record names others. So a change of settings reaches an
//! idle agent by a write to its record.

use futures_util::future::join_all;

use super::survey::Survey;
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::Failure;
use crate::model::settings::SettingsVersion;
use crate::modes::plane::{NotCommitted, Plane};

/// Writes the version of the settings in force into the records of idle machines that name another
/// one. Nothing else about them changes.
pub(super) async fn tell(plane: &Plane, survey: &Survey) -> Result<(), Failure> {
    let Some(version) = plane.known_settings.version() else { return Ok(()) };
    let now = plane.now();
    let is_behind = |told: &Option<SettingsVersion>| told.as_ref() != Some(&version);
    let behind = survey.live.iter().filter(|record| is_behind(&record.settings_version));
    // One that is not announced yet is still in the hands of its release.
    let behind = behind.filter(|record| !record.is_expired(now) && record.ticketed_at.is_some());
    let idle = behind.filter_map(Instance::<Idle>::believe);
    let telling = idle.filter_map(|idle| {
        let until = idle.threshold()?;
        Some(plane.apply(idle.renew(now, until).because("the settings have changed")))
    });
    for result in join_all(telling).await {
        match result {
            // The write of another process names the settings as well.
            Ok(_) | Err(NotCommitted::Refused(_)) => {}
            Err(NotCommitted::Unreachable(error)) => return Err(error.into()),
        }
    }
    Ok(())
}
