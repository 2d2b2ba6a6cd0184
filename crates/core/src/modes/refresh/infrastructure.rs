//! Infrastructure: the table, the settings, the queues, and what the provider and the forge need.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::{credentials, keep_first};
use crate::model::failure::Failure;
use crate::model::settings::{SET_UP_BY, Settings, SettingsVersion, VERSION};
use crate::modes::plane::Plane;
use crate::ports::{PortError, PortResult};

/// Creates what is missing, and stores the settings in `given` after checking all of them. Settings
/// that are not given stay as they are.
///
/// Returns the settings in force, and the failure of the forge if there was one: refresh goes on
/// without a forge. Fails if a setting is invalid, or if the store, the provider or the pool does
/// not answer.
pub(super) async fn create_missing(
    plane: &Plane,
    given: &BTreeMap<String, String>,
) -> Result<(Settings, Option<Failure>), Failure> {
    plane.retried(|| plane.store.set_up()).await?;
    let mut merged = match plane.retried(|| plane.store.settings()).await {
        Ok(map) => map,
        Err(PortError::NotSetUp { .. }) => BTreeMap::new(),
        Err(error) => return Err(error.into()),
    };
    merged.extend(given.clone());
    // An empty value restores the default.
    merged.retain(|_, value| !value.is_empty());
    let settings = Settings::from_map(&merged).map_err(|error| {
        Failure::invalid(error.to_string()).hint("ondeck refresh --help shows what it takes")
    })?;
    for (class, _) in settings.min_idle.iter() {
        if settings.classes.get(class).is_none() {
            return Err(Failure::invalid(format!("min-idle names an unknown class: {class}"))
                .hint(format!("configured classes are {}", settings.classes.listing())));
        }
    }
    let compute_settings = plane.retried(|| plane.compute.set_up(&settings)).await?;
    // Each queue by itself, so that only the calls that fail are repeated.
    let queues = settings
        .classes
        .names()
        .map(|class| plane.retried(move || plane.pool.set_up(std::slice::from_ref(class))));
    join_all(queues).await.into_iter().collect::<PortResult<()>>()?;
    let forge_settings = plane.retried(|| plane.forge.set_up(&settings)).await;
    // Only given settings are written: a concurrent refresh may have been given others, and a
    // stored default would outlive a change of the program's default.
    let mut changes = given.clone();
    changes.extend(compute_settings);
    changes.insert(SET_UP_BY.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    // Without the forge, the later steps of refresh are still useful.
    let mut forge_failure = None;
    match forge_settings {
        Ok(forge_settings) => changes.extend(forge_settings),
        Err(error) => keep_first(&mut forge_failure, Err(error.into())),
    }
    keep_first(&mut forge_failure, credentials::renew(plane, &settings, &mut changes).await);
    merged.extend(changes.clone());
    merged.retain(|_, value| !value.is_empty());
    let version = SettingsVersion::of(&merged);
    changes.insert(VERSION.to_owned(), version.as_str().to_owned());
    plane.retried(|| plane.store.put_settings(&changes)).await?;
    plane.known_settings.are(Some(version));
    Ok((settings, forge_failure))
}
