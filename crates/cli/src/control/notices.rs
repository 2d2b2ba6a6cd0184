//! Notices: tells a webhook what a refresh has found. A webhook that fails is a warning of the refresh.

mod message;

use std::time::Duration;

use async_trait::async_trait;
use ondeck_core::inputs::Given;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::finding::Notice;
use ondeck_core::model::secret::Secret;
use ondeck_core::modes::notices::{REPEAT as REPEAT_TIME, announce};
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::refresh::Outcome;
use ondeck_core::ports::Notifier;

use crate::control::backend::Kept;
use crate::control::outbound;
use crate::inputs::notices::{REPEAT, WEBHOOK};

/// How long one notice may take.
const SEND: Duration = Duration::from_secs(5);
/// How much more time must be left for it, in which the store is asked three times.
const ASIDE: Duration = Duration::from_secs(2);

pub(crate) struct Webhook {
    /// The pool, as people know it.
    pool: String,
    address: Address,
    repeat: Duration,
}

enum Address {
    Given(Secret),
    /// Kept elsewhere. It is read when there is something to tell.
    Kept(Box<Kept>),
}

impl Webhook {
    /// The webhook that was given; `None` if none was. `kept` is where it is kept. Fails if it cannot be
    /// used.
    pub(crate) fn of(
        given: &Given,
        kept: Result<Option<Kept>, Failure>,
        pool: &str,
    ) -> Result<Option<Webhook>, String> {
        let address = match (given.secret(&WEBHOOK), kept.map_err(|failure| failure.to_string())?) {
            (None, None) => return Ok(None),
            (Some(url), None) => {
                outbound::check(&url).map_err(|problem| format!("{} {problem}", WEBHOOK.name))?;
                Address::Given(url)
            }
            (_, Some(kept)) => Address::Kept(Box::new(kept)),
        };
        let repeat = given.text_or_default(&REPEAT).unwrap_or_default();
        let invalid = |problem| format!("{} {problem}", REPEAT.name);
        let repeat = REPEAT_TIME.parse(repeat).map_err(invalid)?;
        Ok(Some(Webhook { pool: pool.to_owned(), address, repeat }))
    }
}

#[async_trait]
impl Notifier for Webhook {
    async fn notify(&self, notice: &Notice) -> Result<(), String> {
        let body = message::json(&self.pool, notice);
        let work = async {
            let url = match &self.address {
                Address::Given(url) => url.clone(),
                Address::Kept(kept) => kept.read().await.map_err(|error| error.to_string())?,
            };
            outbound::post(&url, &[], body, SEND).await
        };
        let late = || format!("no answer within {} s", SEND.as_secs());
        tokio::time::timeout(SEND, work).await.unwrap_or_else(|_| Err(late()))
    }
}

/// Tells the webhook what a refresh has found, if there is one and `left` suffices. What goes wrong
/// becomes a warning of the refresh, and the next one tries again.
pub(crate) async fn tell(
    plane: &Plane,
    webhook: Result<Option<Webhook>, String>,
    outcome: &mut Outcome,
    left: Option<Duration>,
) {
    const NO_TIME: &str = "no time was left for notices, the next refresh sends them";
    let problem = match webhook {
        Ok(None) => return,
        Err(problem) => Some(format!("no notices are sent: {problem}")),
        Ok(Some(_)) if left.is_some_and(|left| left < SEND + ASIDE) => Some(NO_TIME.to_owned()),
        Ok(Some(webhook)) => {
            let announced = announce(plane, &outcome.findings, webhook.repeat, &webhook);
            let limit = left.unwrap_or(Duration::MAX);
            match tokio::time::timeout(limit, announced).await {
                Ok(Ok(count)) => {
                    tracing::debug!(count, "findings told");
                    None
                }
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(NO_TIME.to_owned()),
            }
        }
    };
    outcome.warnings.extend(problem);
}
