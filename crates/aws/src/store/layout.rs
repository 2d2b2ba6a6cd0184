//! What the stored settings say about the layout of the table.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::settings::{AGENT_KEY_PREFIX, INDEX_SHARDS};
use ondeck_core::ports::PortResult;

use super::keys::{Key, read_text};
use super::table::Table;

/// Remembered from the last time that the settings were read.
#[derive(Debug)]
pub(super) struct Layout {
    shards: AtomicU32,
    /// What precedes the id of a machine in what AWS knows it by; `None` if it was not read yet.
    agent_prefix: Mutex<Option<String>>,
    /// What AWS knows this machine by, on a machine of AWS.
    own_identity: Option<String>,
}

impl Layout {
    pub(super) fn of_agent(own_identity: Option<String>) -> Layout {
        Layout { own_identity, ..Layout::default() }
    }

    pub(super) fn learn(&self, settings: &BTreeMap<String, String>) {
        let shards = settings.get(INDEX_SHARDS).and_then(|text| text.parse().ok());
        self.shards.store(shards.unwrap_or(1), Ordering::Relaxed);
        let prefix = settings.get(AGENT_KEY_PREFIX).cloned().unwrap_or_default();
        *self.prefix() = Some(prefix);
    }

    /// Over how many keys of the index each list is spread.
    pub(super) fn shards(&self) -> u32 {
        self.shards.load(Ordering::Relaxed).max(1)
    }

    /// What precedes the id of a machine in the key of what its agent writes: empty unless machines
    /// are known to AWS by more than their id.
    pub(super) async fn agent_prefix(&self, table: &Table) -> PortResult<String> {
        if let Some(prefix) = self.prefix().clone() {
            return Ok(prefix);
        }
        let found = table.get(&Key::setting(AGENT_KEY_PREFIX), true).await?;
        let prefix = found.as_ref().and_then(|item| read_text(item, "value").ok());
        let prefix = prefix.unwrap_or_default().to_owned();
        *self.prefix() = Some(prefix.clone());
        Ok(prefix)
    }

    /// What AWS knows this machine by; `None` on a machine that is not of AWS.
    pub(super) fn own_identity(&self) -> Option<&str> {
        self.own_identity.as_deref()
    }

    /// The key under which the agent of this machine writes.
    pub(super) fn own_key(&self, id: &InstanceId) -> Key {
        Key::agent(self.own_identity.as_deref().unwrap_or(id.as_str()))
    }

    fn prefix(&self) -> MutexGuard<'_, Option<String>> {
        self.agent_prefix.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Layout {
    fn default() -> Layout {
        Layout { shards: AtomicU32::new(1), agent_prefix: Mutex::default(), own_identity: None }
    }
}
