//! Whether machines can register at all. Where the token for it has expired, no machine would ever
//! get ready; but refresh may be about to renew it, since schedules are late, and who knows that
//! has refresh run beside provision.

use std::time::Duration;

use super::Request;
use crate::inputs::times::Times;
use crate::model::failure::{Failure, FailureKind};
use crate::model::settings::Settings;
use crate::modes::plane::Plane;
use crate::runtime::poll::{PollInterval, Wait, wait_until};

/// How often to look for a new one.
const LOOK: Duration = Duration::from_secs(2);

/// Waits until there is a token that has not expired, for as long as that may take. Refresh, when
/// it provisions itself, has just tried to renew it, and has nobody to wait for.
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
