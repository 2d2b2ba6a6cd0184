//! Instead of notices, in a build that has no HTTP client.

use std::time::Duration;

use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::refresh::Outcome;

pub(crate) enum Webhook {}

#[expect(clippy::unused_async, reason = "a build with notices waits for them")]
pub(crate) async fn tell(
    _plane: &Plane,
    _webhook: Result<Option<Webhook>, String>,
    _outcome: &mut Outcome,
    _left: Option<Duration>,
) {
}
