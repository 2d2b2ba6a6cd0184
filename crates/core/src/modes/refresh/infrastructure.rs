//! Infrastructure: the table, the settings, the queues, and what the provider and the forge need.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::{ceiling, credentials, keep_first};
use crate::model::credentials::Credentials;
use crate::model::failure::Failure;
use crate::model::settings::{SET_UP_BY, Settings, SettingsVersion, VERSION, duplicates};
use crate::modes::plane::Plane;
use crate::ports::{PortError, PortResult};

type SettingsMap = BTreeMap<String, String>;

/// The settings that the rest of a refresh goes by.
pub(super) struct InForce {
    pub(super) settings: Settings,
    /// Why the settings that were given are not stored. Then `settings` are those stored before.
    pub(super) failure: Option<Failure>,
    /// Whether the runners of these settings are registered with the forge that refresh was given.
    pub(super) has_forge: bool,
}

/// Creates what is missing, and stores the settings in `given` once everything that they need is
/// there. Settings that are not given stay as they are.
///
/// If any of that fails, no setting is changed and the stored ones stay in force. Fails if there
/// are none, or if the store does not answer.
pub(super) async fn create_missing(plane: &Plane, given: &SettingsMap) -> Result<InForce, Failure> {
    plane.retried(|| plane.store.set_up()).await?;
    let stored = stored(plane).await?;
    match apply(plane, given, &stored).await {
        Ok(settings) => Ok(InForce { settings, failure: None, has_forge: true }),
        Err(failure) => keep(plane, &stored, failure).await,
    }
}

/// Keeps the stored settings in force because of `failure`. Fails with it if there are none.
pub(super) async fn keep_stored(plane: &Plane, failure: Failure) -> Result<InForce, Failure> {
    match stored(plane).await {
        Ok(stored) => keep(plane, &stored, failure).await,
        Err(error) => {
            tracing::warn!("{error}");
            Err(failure)
        }
    }
}

/// The stored settings; empty before the first refresh.
async fn stored(plane: &Plane) -> PortResult<SettingsMap> {
    match plane.retried(|| plane.store.settings()).await {
        Err(PortError::NotSetUp { .. }) => Ok(SettingsMap::new()),
        answer => answer,
    }
}

/// The one write comes last. Everything before it leaves the stored settings usable, so a refresh
/// that fails or is killed on the way has changed nothing for provision and the agents.
async fn apply(
    plane: &Plane,
    given: &SettingsMap,
    stored: &SettingsMap,
) -> Result<Settings, Failure> {
    let mut merged = stored.clone();
    merge(&mut merged, given);
    let mut settings = Settings::from_map(&merged).map_err(|error| {
        Failure::invalid(error.to_string()).hint("ondeck refresh --help shows what it takes")
    })?;
    check(&settings, given)?;
    // Only given settings are written: a concurrent refresh may have been given others, and a
    // stored default would outlive a change of the program's default.
    let mut changes = given.clone();
    ceiling::note_setting(&mut settings, plane.now(), &mut changes);
    changes.extend(plane.retried(|| plane.compute.set_up(&settings)).await?);
    // Each queue by itself, so that only the calls that fail are repeated.
    let queues = settings
        .classes
        .names()
        .map(|class| plane.retried(move || plane.pool.set_up(std::slice::from_ref(class))));
    join_all(queues).await.into_iter().collect::<PortResult<()>>()?;
    changes.extend(plane.retried(|| plane.forge.set_up(&settings)).await?);
    let credentials = credentials::renew(plane, &settings, &mut changes).await?;
    changes.insert(SET_UP_BY.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    merge(&mut merged, &changes);
    let version = SettingsVersion::of(&merged);
    changes.insert(VERSION.to_owned(), version.as_str().to_owned());
    store(plane, &changes, credentials.as_ref()).await?;
    plane.known_settings.are(Some(version));
    Ok(settings)
}

/// An empty value restores the default.
fn merge(settings: &mut SettingsMap, changes: &SettingsMap) {
    settings.extend(changes.clone());
    settings.retain(|_, value| !value.is_empty());
}

/// Checks what no setting can be checked for by itself.
fn check(settings: &Settings, given: &SettingsMap) -> Result<(), Failure> {
    for (class, _) in settings.min_idle.iter() {
        if settings.classes.get(class).is_none() {
            return Err(Failure::invalid(format!("min-idle names an unknown class: {class}"))
                .hint(format!("configured classes are {}", settings.classes.listing())));
        }
    }
    ceiling::check(settings)?;
    if let Some(problem) = duplicates::first(given) {
        return Err(Failure::invalid(problem).hint("state each class and each minimum once"));
    }
    settings.times.refuse_contradictions(|input| given.contains_key(input))
}

async fn keep(plane: &Plane, stored: &SettingsMap, failure: Failure) -> Result<InForce, Failure> {
    if stored.is_empty() {
        return Err(failure);
    }
    let Ok(settings) = Settings::from_map(stored) else { return Err(failure) };
    plane.known_settings.are(settings.version.clone());
    let target = settings.minted.as_ref().map(|minted| minted.target.clone());
    let has_forge = plane.forge.target() == target;
    let mut failure = Some(failure);
    if has_forge {
        keep_first(&mut failure, renew_credentials(plane, &settings).await);
    }
    Ok(InForce { settings, failure, has_forge })
}

/// Agents need credentials for as long as the stored settings are in force, whether or not others
/// could be stored.
async fn renew_credentials(plane: &Plane, settings: &Settings) -> Result<(), Failure> {
    let mut changes = SettingsMap::new();
    let credentials = credentials::renew(plane, settings, &mut changes).await?;
    if credentials.is_some() {
        store(plane, &changes, credentials.as_ref()).await?;
    }
    Ok(())
}

async fn store(
    plane: &Plane,
    changes: &SettingsMap,
    credentials: Option<&Credentials>,
) -> PortResult<()> {
    match credentials {
        Some(credentials) => {
            plane.retried(|| plane.store.put_credentials(credentials, changes)).await
        }
        None => plane.retried(|| plane.store.put_settings(changes)).await,
    }
}
