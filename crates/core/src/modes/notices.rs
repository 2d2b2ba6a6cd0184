//! Notices: tells operators once what refresh has found, again while it lasts, and when it has ended.
//!
//! What was told is a setting. Before a notice is sent, a lease is written into it under the condition
//! that it is as it was read, so that of two refreshes at once only one sends. After that, the setting
//! gets what was told. A refresh that is killed in between leaves its lease, and once that is over the
//! next one sends the notice again: each notice arrives at least once.

mod log;

use std::time::Duration;

use self::log::NoticeLog;
use crate::inputs::times::{TimeSpec, Unit};
use crate::model::finding::Findings;
use crate::model::settings::NOTICES;
use crate::modes::plane::Plane;
use crate::ports::{Notifier, PortError};

/// How long a refresh keeps others from sending. It is longer than a [`Notifier`] takes.
const LEASE: Duration = Duration::from_secs(15);

/// How the time after which a lasting finding is told again is read.
pub const REPEAT: TimeSpec =
    TimeSpec { input: "notice-repeat-min", unit: Unit::Minutes, may_be_zero: false };

/// Why findings were not told, or may be told again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotTold {
    #[error("a notice was not sent, the next refresh tries again: {0}")]
    NotSent(String),
    #[error("what was told is not known, so no notice was sent: {0}")]
    LogUnread(PortError),
    #[error("a notice was sent, but that is not recorded, and it may be sent again: {0}")]
    NotRecorded(PortError),
}

/// Sends one notice with all news among the findings: those that are new, those that were told longer
/// ago than `repeat` and last, and what has ended. Sends nothing if there is no news, or if another
/// refresh is sending. Returns how many findings were told.
pub async fn announce(
    plane: &Plane,
    findings: &Findings,
    repeat: Duration,
    notifier: &dyn Notifier,
) -> Result<usize, NotTold> {
    let stored = plane.retried(|| plane.store.settings()).await.map_err(NotTold::LogUnread)?;
    let found = stored.get(NOTICES).map_or("", String::as_str);
    let log = NoticeLog::read(found);
    let now = plane.now();
    let (notice, next) = log.news(findings, now, repeat);
    if log.is_leased(now, LEASE) {
        return Ok(0);
    }
    if notice.is_empty() {
        // What is left are entries to forget, which can wait if the store does not answer.
        let next = next.text();
        if next != found && log.has_forgotten(&NoticeLog::read(&next)) {
            drop(replace(plane, found, &next).await);
        }
        return Ok(0);
    }
    let leased = log.leased(Some(now + LEASE)).text();
    match replace(plane, found, &leased).await {
        Ok(true) => {}
        Ok(false) => return Ok(0),
        Err(error) => return Err(NotTold::LogUnread(error)),
    }
    let sent = notifier.notify(&notice).await;
    let (after, told) = match &sent {
        Ok(()) => (next, notice.len()),
        Err(_) => (log.leased(None), 0),
    };
    // If it is another text by now, the lease was over, and another refresh has sent as well.
    let recorded = replace(plane, &leased, &after.text()).await;
    sent.map_err(NotTold::NotSent)?;
    recorded.map_err(NotTold::NotRecorded)?;
    Ok(told)
}

async fn replace(plane: &Plane, current: &str, next: &str) -> Result<bool, PortError> {
    plane.retried(|| plane.store.replace_setting(NOTICES, current, next)).await
}
