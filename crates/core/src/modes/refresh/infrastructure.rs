//! Infrastructure: the table, the settings, the queues, and what the provider and the forge need.
//!
//! What exists seldom changes by itself. So the table and the queues are checked once an hour, and
//! whenever the settings or the program have changed or the last refresh has failed.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::{ceiling, credentials, keep_first, spend};
use crate::model::credentials::Credentials;
use crate::model::failure::Failure;
use crate::model::settings::{
    CHECKED, CHECKED_EVERY, SET_UP_BY, Settings, SettingsVersion, VERSION, duplicates, is_set_up,
    version_of,
};
use crate::model::timestamp::Timestamp;
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
    /// Whether this refresh checks everything that exists.
    pub(super) checks_all: bool,
    /// Whether the settings say when everything was checked last. Without that, the next refresh
    /// checks everything.
    pub(super) is_noted: bool,
}

/// Creates what is missing, and stores the settings in `given` once everything that they need is
/// there. Settings that are not given stay as they are. `read` are the stored settings, if the caller
/// has read them.
///
/// If any of that fails, or a teardown has closed the pool, no setting is changed and the stored ones
/// stay in force. Fails if there are none, or if the store does not answer.
pub(super) async fn create_missing(
    plane: &Plane,
    read: Option<SettingsMap>,
    given: &SettingsMap,
) -> Result<InForce, Failure> {
    let found = match read {
        Some(stored) => Ok(stored),
        None => plane.retried(|| plane.store.settings()).await,
    };
    if let Ok(stored) = &found
        && let Err(closed) = check_open(stored)
    {
        return keep(plane, stored, closed).await;
    }
    let (stored, checks_all) = match found {
        Ok(stored) if is_checked(&stored, given, plane.now()) => (stored, false),
        found => {
            plane.retried(|| plane.store.set_up()).await?;
            (if let Ok(stored) = found { stored } else { self::stored(plane).await? }, true)
        }
    };
    match apply(plane, given, &stored, checks_all).await {
        Ok(settings) => {
            Ok(InForce { settings, failure: None, has_forge: true, checks_all, is_noted: true })
        }
        Err(failure) => keep(plane, &stored, failure).await,
    }
}

/// Fails if a teardown has closed the pool. Settings that cannot be read are not closed: the caller
/// finds out why they cannot.
fn check_open(stored: &SettingsMap) -> Result<(), Failure> {
    Settings::from_map(stored).map_or(Ok(()), |settings| settings.check_open())
}

/// Whether an earlier refresh of this version has checked, less than an hour ago, everything that
/// these settings need together with those in `given`.
fn is_checked(stored: &SettingsMap, given: &SettingsMap, now: Timestamp) -> bool {
    let at = stored.get(CHECKED).and_then(|text| Timestamp::parse(text).ok());
    let is_recent = at.is_some_and(|at| at <= now && now < at + CHECKED_EVERY);
    let mut merged = stored.clone();
    merge(&mut merged, given);
    let is_same = version_of(stored) == Some(SettingsVersion::of(&merged));
    let is_own = stored.get(SET_UP_BY).is_some_and(|by| by == env!("CARGO_PKG_VERSION"));
    is_recent && is_same && is_own
}

/// Lets the next refresh check everything, because this one has failed. A store that does not take
/// the note keeps the old one for an hour at most.
pub(super) async fn check_next_time(plane: &Plane) {
    let unchecked = SettingsMap::from([(CHECKED.to_owned(), String::new())]);
    if let Err(error) = plane.store.put_settings(&unchecked).await {
        tracing::warn!("the next refresh may not check the infrastructure: {error}");
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
    checks_all: bool,
) -> Result<Settings, Failure> {
    let mut merged = stored.clone();
    merge(&mut merged, given);
    let mut settings = Settings::from_map(&merged).map_err(|error| {
        Failure::invalid(error.to_string()).hint("ondeck refresh --help shows what it takes")
    })?;
    check_together(&settings, given)?;
    if checks_all {
        settings.backend.extend(plane.retried(|| plane.compute.look_up(&settings)).await?);
    }
    spend::check_prices(plane, &settings)?;
    // Only given settings are written: a concurrent refresh may have been given others, and a
    // stored default would outlive a change of the program's default.
    let mut changes = given.clone();
    ceiling::note_setting(&mut settings, plane.now(), &mut changes);
    changes.extend(plane.retried(|| plane.compute.set_up(&settings)).await?);
    if checks_all {
        set_up_queues(plane, &settings).await?;
        changes.insert(CHECKED.to_owned(), plane.now().to_string());
    }
    changes.extend(plane.retried(|| plane.forge.set_up(&settings)).await?);
    let credentials = credentials::renew(plane, &settings, &mut changes).await?;
    changes.insert(SET_UP_BY.to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    merge(&mut merged, &changes);
    let version = SettingsVersion::of(&merged);
    changes.insert(VERSION.to_owned(), version.as_str().to_owned());
    changes.retain(|name, value| stored.get(name).map_or("", String::as_str) != value);
    if credentials.is_some() || !changes.is_empty() {
        store(plane, &changes, credentials.as_ref()).await?;
    }
    settings.version = Some(version.clone());
    plane.known_settings.are(Some(version));
    Ok(settings)
}

/// Sets up each queue by itself, so that only the calls that fail are repeated.
async fn set_up_queues(plane: &Plane, settings: &Settings) -> PortResult<()> {
    let queues = settings
        .classes
        .names()
        .map(|class| plane.retried(move || plane.pool.set_up(std::slice::from_ref(class))));
    join_all(queues).await.into_iter().collect()
}

/// An empty value restores the default.
fn merge(settings: &mut SettingsMap, changes: &SettingsMap) {
    settings.extend(changes.clone());
    settings.retain(|_, value| !value.is_empty());
}

/// Checks what no setting can be checked for by itself. Only contradictions that a setting in `given`
/// is part of count. Fails with the first problem; its message begins with the name of a setting.
pub fn check_together(settings: &Settings, given: &SettingsMap) -> Result<(), Failure> {
    for (class, _) in settings.min_idle.iter() {
        if settings.classes.get(class).is_none() {
            return Err(Failure::invalid(format!("min-idle names an unknown class: {class}"))
                .hint(format!("configured classes are {}", settings.classes.listing())));
        }
    }
    ceiling::check(settings)?;
    spend::check(settings)?;
    if let Some(problem) = duplicates::first(given) {
        return Err(Failure::invalid(problem).hint("state each class and each minimum once"));
    }
    settings.times.refuse_contradictions(|input| given.contains_key(input))
}

async fn keep(plane: &Plane, stored: &SettingsMap, failure: Failure) -> Result<InForce, Failure> {
    if !is_set_up(stored) {
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
    let is_noted = stored.contains_key(CHECKED);
    Ok(InForce { settings, failure, has_forge, checks_all: true, is_noted })
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
