//! The credentials that agents register runners with: minted by the forge, stored for the agents,
//! and renewed long before they expire.

use std::collections::BTreeMap;

use crate::model::credentials::{Credentials, Minted};
use crate::model::failure::{Failure, FailureKind};
use crate::model::settings::{MINTED, Settings};
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;

/// Mints new credentials if the stored ones are too old, about to expire, or for another target,
/// and adds a note about them to `changes`. The caller stores both in one write, so that agents
/// never register with the credentials of another target.
pub(super) async fn renew(
    plane: &Plane,
    settings: &Settings,
    changes: &mut BTreeMap<String, String>,
) -> Result<Option<Credentials>, Failure> {
    let Some(target) = plane.forge.target() else {
        if settings.minted.is_some() {
            changes.insert(MINTED.to_owned(), String::new());
        }
        return Ok(None);
    };
    let now = plane.now();
    if settings.minted.as_ref().is_some_and(|minted| will_do(minted, &target, settings, now)) {
        return Ok(None);
    }
    let Some(credentials) = plane.retried(|| plane.forge.mint()).await? else { return Ok(None) };
    let minted = Minted { target, minted_at: now, expires_at: credentials.expires_at };
    let text = serde_json::to_string(&minted)
        .map_err(|error| Failure::new(FailureKind::Unexpected, error.to_string()))?;
    tracing::info!(expires = %minted.expires_at, "new credentials for agents");
    changes.insert(MINTED.to_owned(), text);
    Ok(Some(credentials))
}

fn will_do(minted: &Minted, target: &str, settings: &Settings, now: Timestamp) -> bool {
    let longest = settings.times.registration_token_refresh;
    let fresh = now < minted.minted_at + longest;
    // However old it may get: a machine that is claimed now registers a little later.
    let lasting = now + settings.times.claim_registration_timeout < minted.expires_at;
    minted.target == target && fresh && lasting && now >= minted.minted_at
}
