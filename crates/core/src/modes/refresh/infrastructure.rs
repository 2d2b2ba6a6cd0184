//! Set-up: table, settings, queues, and what the provider and the forge need.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::{credentials, keep_first};
use crate::model::failure::Failure;
use crate::model::settings::{SET_UP_BY, Settings};
use crate::modes::plane::Plane;
use crate::ports::{PortError, PortResult};

/// Brings it about. What is not given stays as it is; all of it is checked before any of it is
/// written. Gives what is in force, and why the forge could not be set up.
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
    // An empty value takes a setting back to its default.
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
    plane.retried(|| plane.compute.set_up(&settings)).await?;
    // Each by itself: what keeps one queue from answering is no reason to ask for all of them again.
    let queues = settings
        .classes
        .names()
        .map(|class| plane.retried(move || plane.pool.set_up(std::slice::from_ref(class))));
    join_all(queues).await.into_iter().collect::<PortResult<()>>()?;
    let forge_settings = plane.retried(|| plane.forge.set_up(&settings)).await;
    // Only what was given is written: a refresh beside this one may have been given something
    // else, and defaults are the program's to change.
    let mut changes = given.clone();
    changes.insert(SET_UP_BY.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    // A forge that refuses keeps nobody from clearing up.
    let mut forge_failure = None;
    match forge_settings {
        Ok(forge_settings) => changes.extend(forge_settings),
        Err(error) => keep_first(&mut forge_failure, Err(error.into())),
    }
    keep_first(&mut forge_failure, credentials::renew(plane, &settings, &mut changes).await);
    plane.retried(|| plane.store.put_settings(&changes)).await?;
    Ok((settings, forge_failure))
}
