//! What has happened, read from memory.

use async_trait::async_trait;

use super::{Event, MemoryStore, lock, turn};
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{EventRow, concerning};
use crate::model::settings::Settings;
use crate::model::summary::ProvisionSummary;
use crate::model::timestamp::Timestamp;
use crate::ports::{Events, History, PortResult};

fn row(event: &Event) -> EventRow {
    EventRow {
        instance: event.id.clone(),
        at: event.at,
        transition: event.transition.to_owned(),
        from: event.from,
        to: event.to,
        run: event.run.clone(),
        why: event.why.clone(),
    }
}

impl MemoryStore {
    /// Every summary that was stored, in no order.
    pub fn summaries(&self) -> Vec<ProvisionSummary> {
        lock(&self.0).summaries.values().cloned().collect()
    }

    /// Loses the events that satisfy a condition, as a process that is killed may.
    pub fn lose_events(&self, lost: impl Fn(&Event) -> bool) {
        lock(&self.0).events.retain(|event| !lost(event));
    }

    fn rows(&self) -> Vec<EventRow> {
        lock(&self.0).events.iter().map(row).collect()
    }

    fn latest(
        &self,
        limit: usize,
        condition: impl Fn(&ProvisionSummary) -> bool,
    ) -> Vec<ProvisionSummary> {
        let mut summaries = self.summaries();
        summaries.retain(condition);
        summaries.sort_by_key(ProvisionSummary::key);
        summaries.split_off(summaries.len().saturating_sub(limit))
    }
}

#[async_trait]
impl History for MemoryStore {
    /// As if refresh deleted what is older.
    fn kept_since(&self, settings: &Settings, now: Timestamp) -> Timestamp {
        now.before(settings.times.retention)
    }

    async fn events_of_machine(&self, id: &InstanceId, limit: usize) -> PortResult<Events> {
        turn().await;
        self.answer("events")?;
        let rows = self.rows().into_iter().filter(|row| row.instance == *id);
        Ok(Events::latest(rows.collect(), limit))
    }

    async fn events_of_run(&self, run: &RunId, limit: usize) -> PortResult<Events> {
        turn().await;
        self.answer("events")?;
        Ok(Events::latest(concerning(self.rows(), run), limit))
    }

    async fn events_between(
        &self,
        since: Timestamp,
        until: Timestamp,
        limit: usize,
    ) -> PortResult<Events> {
        turn().await;
        self.answer("events")?;
        let mut rows = self.rows();
        rows.retain(|row| row.at >= since && row.at <= until);
        rows.sort_by_key(|row| row.at);
        Ok(Events::latest(rows, limit))
    }

    async fn summaries_of_run(
        &self,
        run: &RunId,
        limit: usize,
    ) -> PortResult<Vec<ProvisionSummary>> {
        turn().await;
        Ok(self.latest(limit, |summary| summary.run == *run))
    }

    async fn recent_summaries(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> PortResult<Vec<ProvisionSummary>> {
        turn().await;
        let since = now.start_of_day_before();
        Ok(self.latest(limit, |summary| summary.began >= since))
    }
}
