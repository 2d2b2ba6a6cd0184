//! What the agent remembers between one look at the store and the next.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ondeck_core::inputs::times::Times;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::record::Record;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::timestamp::Timestamp;

use crate::deadline::Standing;

const UNTIL_KNOWN: Duration = Duration::from_millis(100);

/// Shared by the cycle and the watch, which run side by side.
#[derive(Debug)]
pub(crate) struct Memory(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    standing: Standing,
    settings: Option<Settings>,
    serving: Option<RunId>,
    interruption: Option<String>,
    spoke: Timestamp,
}

impl Memory {
    /// The memory of an agent that has read nothing. `born` is steady time.
    pub(crate) fn new(born: Duration) -> Memory {
        Memory(Mutex::new(Inner {
            standing: Standing::Unrecorded { since: born },
            settings: None,
            serving: None,
            interruption: None,
            spoke: Timestamp::from_millis(0),
        }))
    }

    /// When something is being said: later than anything before, even if the clock is set back. A
    /// store takes nothing that is older than what it has.
    pub(crate) fn speaks(&self, now: Timestamp) -> Timestamp {
        let mut inner = self.inner();
        inner.spoke = now.max(inner.spoke + Duration::from_millis(1));
        inner.spoke
    }

    /// Takes note of what the store said about this machine.
    pub(crate) fn saw(&self, record: Option<&Record>, steady: Duration) {
        let mut inner = self.inner();
        inner.standing = inner.standing.after_seeing(record, steady);
    }

    pub(crate) fn standing(&self) -> Standing {
        self.inner().standing
    }

    pub(crate) fn learn(&self, settings: Settings) {
        self.inner().settings = Some(settings);
    }

    /// The times in force. Until they are known, the defaults, but for a heart that beats often
    /// enough for any.
    pub(crate) fn times(&self) -> Times {
        match &self.inner().settings {
            Some(settings) => settings.times.clone(),
            None => Times { heartbeat_period: UNTIL_KNOWN, ..Times::default() },
        }
    }

    pub(crate) fn script(&self) -> String {
        self.inner().settings.as_ref().map(|s| s.pre_runner_script.clone()).unwrap_or_default()
    }

    pub(crate) fn serve(&self, run: Option<&RunId>) {
        self.inner().serving = run.cloned();
    }

    pub(crate) fn serving(&self) -> Option<RunId> {
        self.inner().serving.clone()
    }

    pub(crate) fn interrupt(&self, notice: &str) {
        self.inner().interruption = Some(notice.to_owned());
    }

    pub(crate) fn interruption(&self) -> Option<String> {
        self.inner().interruption.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
