//! Checks that agents can register. With an expired registration token no machine would become
//! ready. Scheduled refreshes often start late, so provision waits a while for one to renew it.

use std::time::Duration;

use super::Request;
use crate::inputs::times::Times;
use crate::model::failure::{Failure, FailureKind};
use crate::model::settings::Settings;
use crate::modes::plane::Plane;
use crate::runtime::poll::{PollInterval, Wait, wait_until};

/// How often the settings are read while waiting.
const LOOK: Duration = Duration::from_secs(2);

/// Waits until the stored token is valid. Fails if it still is not after the configured patience.
/// A provision that refresh calls does not wait: refresh has just tried to renew the token.
pub(super) async fn await_valid(
    plane: &Plane,
    request: &Request,
    settings: &Settings,
    times: &Times,
) -> Result<(), Failure> {
    let now = plane.now();
    let Some(expired) = settings.minted.as_ref().filter(|minted| minted.expires_at <= now) else {
        return Ok(());
    };
    let patience = match request.is_of_refresh() {
        true => Duration::ZERO,
        false => times.registration_token_patience,
    };
    plane.progress.stage("waiting for refresh to renew the registration token");
    let wait = Wait::begin(&*plane.clock, patience, PollInterval::fixed(LOOK));
    let renewed = wait_until(&*plane.clock, wait, || async {
        let minted = plane.settings().await?.minted;
        let valid = minted.is_none_or(|minted| minted.expires_at > plane.now());
        Ok::<_, Failure>(valid.then_some(()))
    });
    renewed.await?.ok_or_else(|| {
        let message = format!("the registration token expired at {}", expired.expires_at);
        Failure::new(FailureKind::Forge, message)
            .hint("run ondeck refresh and check that it is scheduled")
    })
}
