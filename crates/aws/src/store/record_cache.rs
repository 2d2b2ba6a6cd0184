//! The record that an agent has read last, to make its next reads cheaper.
//!
//! An agent reads its record every 15 s, or every 250 ms if it is not woken, and it has rarely
//! changed. An eventually consistent read costs half of a consistent one. Successive ones may be
//! answered by different replicas and go back in time: to the run that was just released, or to the
//! threshold before the claim. So an eventually consistent read counts only if it equals the last
//! consistent one and no decision depends on it; otherwise a consistent read follows. A stale replica
//! can delay a change, never invent one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::record::{Record, Unreadable};
use ondeck_core::model::settings::version_of;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Clock, PortError, PortResult};

use super::keys::Key;
use super::rows;
use super::table::Table;
use crate::error::DYNAMODB;

/// The record of the last consistent read.
#[derive(Debug, Default)]
pub(super) struct RecordCache(Mutex<Cached>);

#[derive(Debug, Default)]
struct Cached {
    record: Option<Record>,
    /// The settings that were read last.
    settings: Option<BTreeMap<String, String>>,
    /// Grows when a consistent read begins or ends, and with every write.
    version: u64,
}

impl RecordCache {
    /// Returns the record, or `None` if the machine has none.
    pub(super) async fn look(&self, table: &Table, id: &InstanceId) -> PortResult<Option<Record>> {
        if let Some(known) = self.known(id, table.clock.now())
            && read(table, id, false).await?.as_ref() == Some(&known)
        {
            return Ok(Some(known));
        }
        let began = self.next_version();
        let record = read(table, id, true).await?;
        // Of two concurrent reads either may have the newer record, so neither is cached.
        let alone = self.next_version() == began + 1;
        self.cached().record = record.clone().filter(|_| alone);
        Ok(record)
    }

    fn next_version(&self) -> u64 {
        let mut cached = self.cached();
        cached.version += 1;
        cached.version
    }

    /// Drops the cached record after a write of this process.
    pub(super) fn forget(&self) {
        self.next_version();
        self.cached().record = None;
    }

    /// The settings that were read last, if the machine's record names their version: then they have
    /// not changed since its last writer read them.
    pub(super) fn settings(&self) -> Option<BTreeMap<String, String>> {
        let cached = self.cached();
        let named = cached.record.as_ref()?.settings_version.as_ref()?;
        let settings = cached.settings.as_ref()?;
        (version_of(settings).as_ref() == Some(named)).then(|| settings.clone())
    }

    pub(super) fn remember_settings(&self, settings: &BTreeMap<String, String>) {
        self.cached().settings = Some(settings.clone());
    }

    /// The cached record, unless the agent may terminate its machine because of it. Past its
    /// threshold the machine terminates unless a run has just claimed it, and without a record
    /// unless it has just been registered; both need a consistent read.
    fn known(&self, id: &InstanceId, now: Timestamp) -> Option<Record> {
        let cached = self.cached();
        let lasting = |record: &&Record| record.threshold.is_some_and(|until| until > now);
        cached.record.as_ref().filter(|record| record.id == *id).filter(lasting).cloned()
    }

    fn cached(&self) -> MutexGuard<'_, Cached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(table: &Table, id: &InstanceId, consistent: bool) -> PortResult<Option<Record>> {
    let found = table.get(&Key::record(id), consistent).await?;
    found.as_ref().map(rows::record).transpose().map_err(|unreadable| corrupt(table, &unreadable))
}

fn corrupt(table: &Table, unreadable: &Unreadable) -> PortError {
    let Key { pk, sk } = Key::record(&unreadable.id);
    PortError::Unusable {
        service: DYNAMODB,
        reason: unreadable.to_string(),
        hint: format!("delete the item {pk} / {sk} from the table {}", table.name),
    }
}
