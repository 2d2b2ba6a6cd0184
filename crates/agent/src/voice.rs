//! How the agent speaks and listens. Store faults never stop it: it tries again, and says so.

use ondeck_core::model::ids::RunId;
use ondeck_core::model::record::Record;
use ondeck_core::model::settings::Settings;
use ondeck_core::model::signal::{Report, Signal, output_tail};
use ondeck_core::ports::PortResult;
use ondeck_core::runtime::retry::{Retry, retry};

use crate::Agent;
use crate::memory::Memory;

impl Agent {
    /// Says something, until it is heard.
    pub(crate) async fn say(
        &self,
        memory: &Memory,
        signal: Signal,
        run: Option<&RunId>,
        detail: &str,
    ) {
        // Stores have limits, and a report that none takes would be tried for ever.
        let detail = output_tail(detail);
        let at = memory.speaks(self.clock.now());
        let report = Report { signal, run: run.cloned(), detail, at };
        let heard = retry(&*self.clock, &*self.random, Retry::PATIENT, |attempt| {
            if attempt > 0 {
                tracing::warn!(%signal, attempt, "not heard yet");
            }
            self.store.report(&self.id, &report)
        })
        .await;
        let run = run.map_or("", RunId::as_str);
        match heard {
            Ok(()) => tracing::info!(run, detail = report.detail, "{signal}"),
            Err(error) => tracing::error!(run, "{signal} cannot be said: {error}"),
        }
    }

    /// Learns the operator's choices for the first time, however long it takes: without them the
    /// machine would be prepared wrongly. The error is that they make no sense.
    pub(crate) async fn learn_at_first(&self, memory: &Memory) -> Result<(), String> {
        let map = retry(&*self.clock, &*self.random, Retry::PATIENT, |attempt| {
            if attempt > 0 {
                tracing::warn!(attempt, "settings not read yet");
            }
            self.store.settings()
        })
        .await
        .map_err(|error| error.to_string())?;
        memory.learn(Settings::from_map(&map).map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Looks once at what the control plane has written.
    pub(crate) async fn look(&self, memory: &Memory) -> PortResult<Option<Record>> {
        let record = self.store.record(&self.id).await.inspect_err(|error| {
            tracing::warn!("own record not read: {error}");
        })?;
        memory.saw(record.as_ref(), self.clock.steady());
        Ok(record)
    }

    /// Learns what has changed since, or keeps what it knows.
    pub(crate) async fn learn(&self, memory: &Memory) {
        match self.store.settings().await {
            Ok(map) => match Settings::from_map(&map) {
                Ok(settings) => memory.learn(settings),
                Err(error) => tracing::warn!("settings not understood: {error}"),
            },
            Err(error) => tracing::warn!("settings not read: {error}"),
        }
    }
}
