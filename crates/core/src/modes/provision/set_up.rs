//! Waits for the first refresh. A workflow that is pushed together with the one that refreshes may
//! start before it.

use std::time::Duration;

use super::Request;
use crate::inputs::times::Times;
use crate::model::failure::{Failure, FailureKind};
use crate::model::settings::Settings;
use crate::modes::plane::Plane;
use crate::ports::{Clock, Progress};
use crate::runtime::poll::{PollInterval, Wait, wait_until};

/// How often it is asked while waiting.
const LOOK: Duration = Duration::from_secs(2);

/// The settings in force. Waits for the first refresh if it has not stored any.
pub(super) async fn settings(plane: &Plane, request: &Request) -> Result<Settings, Failure> {
    let patience = set_up_patience(request);
    await_set_up(&*plane.clock, &*plane.progress, patience, || plane.settings()).await
}

/// How long a provision for this request waits for the first refresh. One that refresh calls does
/// not wait for itself.
pub fn set_up_patience(request: &Request) -> Duration {
    if request.is_of_refresh() {
        return Duration::ZERO;
    }
    let usual = || request.times.over(Times::default()).registration_token_patience;
    request.set_up_patience.unwrap_or_else(usual)
}

/// Asks until the answer is another one than [`FailureKind::NotSetUp`]. Fails with that if it still
/// is after `patience`.
pub async fn await_set_up<T, F>(
    clock: &dyn Clock,
    progress: &dyn Progress,
    patience: Duration,
    mut ask: impl FnMut() -> F,
) -> Result<T, Failure>
where
    F: Future<Output = Result<T, Failure>>,
{
    let missing = match ask().await {
        Err(failure) if failure.kind == FailureKind::NotSetUp => failure,
        answer => return answer,
    };
    if patience.is_zero() {
        return Err(missing);
    }
    progress.stage("waiting for the first refresh to set up the pool");
    let wait = Wait::begin(clock, patience, PollInterval::fixed(LOOK));
    let set_up = wait_until(clock, wait, || {
        let asked = ask();
        async {
            match asked.await {
                Err(failure) if failure.kind == FailureKind::NotSetUp => Ok(None),
                answer => answer.map(Some),
            }
        }
    });
    set_up.await?.ok_or_else(|| {
        let waited = patience.as_secs_f64();
        let message = format!("{}, and no refresh has run within {waited} s", missing.message);
        Failure::new(FailureKind::NotSetUp, message)
            .hint("run ondeck refresh, or start the workflow that does, then re-run this job")
    })
}
