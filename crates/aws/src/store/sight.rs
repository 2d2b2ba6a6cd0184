//! What an agent sees of its record.
//!
//! An agent looks every 250 ms, and almost always at what it has seen before. A read that may be
//! a moment old costs half of one that is not; but successive ones may come from different
//! copies, and go back in time: to the run that has just been left, or to the threshold before
//! the claim. So such a read is believed only where it says what a sure one has said, and
//! nothing hangs on it; otherwise a sure one follows. A stale copy can delay the news, never
//! invent any.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::{Record, Unreadable};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{PortError, PortResult};

use super::keys::Kind;
use super::rows;
use super::table::Table;
use crate::fault::DYNAMODB;

/// The record that was last seen for sure, and the time by the last heartbeat: an agent's
/// store has no other clock.
#[derive(Debug, Default)]
pub(super) struct Sight(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    record: Option<Record>,
    now: Option<Timestamp>,
    /// Grows with every sure look that begins or ends, and with everything that is written.
    moment: u64,
}

impl Sight {
    /// Looks at a record.
    pub(super) async fn look(&self, table: &Table, id: &InstanceId) -> PortResult<Option<Record>> {
        if let Some(known) = self.known(id)
            && read(table, id, false).await?.as_ref() == Some(&known)
        {
            return Ok(Some(known));
        }
        let began = self.pass();
        let record = read(table, id, true).await?;
        // Of two looks at once nobody can tell which has seen the later record, so neither is
        // what later ones are held against.
        let alone = self.pass() == began + 1;
        self.seen().record = record.clone().filter(|_| alone);
        Ok(record)
    }

    fn pass(&self) -> u64 {
        let mut seen = self.seen();
        seen.moment += 1;
        seen.moment
    }

    /// Takes note of the time.
    pub(super) fn beat(&self, at: Timestamp) {
        self.seen().now = Some(at);
    }

    /// Somebody has written here, so that what was seen may be history.
    pub(super) fn forget(&self) {
        self.pass();
        self.seen().record = None;
    }

    /// What was seen, unless a decision may hang on it: where its time is up, the machine ends
    /// itself unless somebody has just claimed it. Where there is no record at all, it ends
    /// itself unless somebody has just registered it; so that is never taken for known.
    fn known(&self, id: &InstanceId) -> Option<Record> {
        let seen = self.seen();
        let now = seen.now.unwrap_or(Timestamp::from_millis(0));
        let lasting = |record: &&Record| record.threshold.is_some_and(|until| until > now);
        seen.record.as_ref().filter(|record| record.id == *id).filter(lasting).cloned()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(table: &Table, id: &InstanceId, surely: bool) -> PortResult<Option<Record>> {
    let found = table.get(&Kind::Instance.key(id), surely).await?;
    found.as_ref().map(rows::record).transpose().map_err(|unreadable| spoilt(table, &unreadable))
}

fn spoilt(table: &Table, unreadable: &Unreadable) -> PortError {
    let (pk, sk) = (Kind::Instance.pk(), Kind::Instance.key(&unreadable.id).sk);
    PortError::Unusable {
        service: DYNAMODB,
        reason: unreadable.to_string(),
        hint: format!("delete the item {pk} / {sk} from the table {}", table.name),
    }
}
