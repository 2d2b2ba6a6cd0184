//! What the agent remembers between one look at the store and the next.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ondeck_core::ids::RunId;
use ondeck_core::record::Record;
use ondeck_core::settings::Settings;
use ondeck_core::time::Timestamp;
use ondeck_core::times::Times;

use crate::deadline::Standing;

/// Shared by the cycle and the watch, which run side by side.
#[derive(Debug)]
pub(crate) struct Memory(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    standing: Standing,
    settings: Option<Settings>,
    serving: Option<RunId>,
    interruption: Option<String>,
}

impl Memory {
    pub(crate) fn new(born: Timestamp) -> Memory {
        Memory(Mutex::new(Inner {
            standing: Standing::Unrecorded { since: born },
            settings: None,
            serving: None,
            interruption: None,
        }))
    }

    /// Takes note of what the store said about this machine.
    pub(crate) fn saw(&self, record: Option<&Record>, now: Timestamp) {
        let mut inner = self.inner();
        inner.standing = inner.standing.after_seeing(record, now);
    }

    pub(crate) fn standing(&self) -> Standing {
        self.inner().standing
    }

    pub(crate) fn learn(&self, settings: Settings) {
        self.inner().settings = Some(settings);
    }

    pub(crate) fn has_learned(&self) -> bool {
        self.inner().settings.is_some()
    }

    /// The times in force; the defaults, as long as nothing else is known.
    pub(crate) fn times(&self) -> Times {
        let inner = self.inner();
        inner.settings.as_ref().map_or_else(Times::default, |settings| settings.times.clone())
    }

    pub(crate) fn script(&self) -> String {
        let inner = self.inner();
        inner.settings.as_ref().map_or_else(String::new, |s| s.pre_runner_script.clone())
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
