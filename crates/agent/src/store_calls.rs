//! The agent's calls of the store: it writes signals, and reads its record and the settings. Errors
//! of the store are logged and never stop the agent.

use ondeck_core::model::label::Label;
use ondeck_core::model::record::Record;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::{Report, Signal, output_tail};
use ondeck_core::ports::PortResult;
use ondeck_core::runtime::retry::{Retry, retry};

use crate::Agent;
use crate::memory::Memory;

impl Agent {
    /// Writes a signal, and retries until the store has it.
    pub(crate) async fn signal(
        &self,
        memory: &Memory,
        signal: Signal,
        label: Option<&Label>,
        detail: &str,
    ) {
        // Stores limit the size of a report. One that is too large would be retried for ever.
        let detail = output_tail(detail);
        let at = memory.next_report_time(self.clock.now());
        let generation = match signal {
            Signal::Deregistered => memory.idle_generation(),
            _ => None,
        };
        let (run, suffix) = label.cloned().map_or((None, None), |it| (Some(it.run), it.suffix));
        let report = Report { signal, run, suffix, detail, at, generation };
        let written = retry(&*self.clock, &*self.random, Retry::PATIENT, |attempt| {
            if attempt > 0 {
                tracing::warn!(%signal, attempt, "signal not written yet");
            }
            self.store.report(&self.id, &report)
        })
        .await;
        let label = label.map(Label::to_string).unwrap_or_default();
        match written {
            Ok(()) => tracing::info!(label, detail = report.detail, "{signal}"),
            Err(error) => tracing::error!(label, "{signal} not written: {error}"),
        }
    }

    /// Reads the settings for the first time, and retries until the store answers: without them the
    /// machine would be prepared wrongly. Fails if the settings are invalid.
    pub(crate) async fn load_settings(&self, memory: &Memory) -> Result<(), String> {
        let map = retry(&*self.clock, &*self.random, Retry::PATIENT, |attempt| {
            if attempt > 0 {
                tracing::warn!(attempt, "settings not read yet");
            }
            self.store.settings()
        })
        .await
        .map_err(|error| error.to_string())?;
        memory.set_settings(Settings::from_map(&map).map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Reads the machine's record once and remembers it. Fails if the store does not answer.
    pub(crate) async fn read_record(&self, memory: &Memory) -> PortResult<Option<Record>> {
        let record = self.store.record(&self.id).await.inspect_err(|error| {
            tracing::warn!("own record not read: {error}");
        })?;
        memory.remember_record(record.as_ref(), self.clock.steady());
        Ok(record)
    }

    /// Reads the settings once, and returns whether the store answered. If it did not or the
    /// settings are invalid, the last known ones stay in force.
    pub(crate) async fn reload_settings(&self, memory: &Memory) -> bool {
        let map = match self.store.settings().await {
            Ok(map) => map,
            Err(error) => {
                tracing::warn!("settings not read: {error}");
                return false;
            }
        };
        match Settings::from_map(&map) {
            Ok(settings) => memory.set_settings(settings),
            Err(error) => tracing::warn!("settings invalid: {error}"),
        }
        true
    }
}
