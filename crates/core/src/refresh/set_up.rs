//! Set-up: table, settings, queues, and what the provider needs.

use std::collections::BTreeMap;

use crate::failure::Failure;
use crate::ids::ResourceClass;
use crate::plane::Plane;
use crate::ports::PortError;
use crate::settings::Settings;

/// Brings it about. What is not given stays as it is; all of it is checked before any of it is
/// written.
pub(super) async fn bring_about(
    plane: &Plane,
    given: &BTreeMap<String, String>,
) -> Result<Settings, Failure> {
    plane.retried(|| plane.store.set_up()).await?;
    let mut map = match plane.retried(|| plane.store.settings()).await {
        Ok(map) => map,
        Err(PortError::NotSetUp { .. }) => BTreeMap::new(),
        Err(error) => return Err(error.into()),
    };
    map.extend(given.clone());
    // An empty value takes a setting back to its default.
    map.retain(|_, value| !value.is_empty());
    let settings = Settings::from_map(&map).map_err(|e| {
        Failure::invalid(e.to_string())
            .hint("ondeck refresh --help shows what it may be; an empty value takes it back")
    })?;
    for (class, _) in settings.min_idle.iter() {
        if settings.classes.get(class).is_none() {
            return Err(Failure::invalid(format!("min-idle names an unknown class: {class}"))
                .hint(format!("configured classes are {}", settings.classes.listing())));
        }
    }
    let classes: Vec<ResourceClass> = settings.classes.names().cloned().collect();
    plane.retried(|| plane.compute.set_up(&settings)).await?;
    plane.retried(|| plane.pool.set_up(&classes)).await?;
    let map = settings.to_map();
    plane.retried(|| plane.store.put_settings(&map)).await?;
    Ok(settings)
}
