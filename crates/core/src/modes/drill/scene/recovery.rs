//! How a pool recovers: what is to be seen after a disturbance.

use std::time::Duration;

use super::{End, Scene, standing};
use crate::model::heartbeat::{Heartbeat, idle_period};
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::State;
use crate::model::signal::{AgentStatus, Pulse};
use crate::modes::drill::Expectation;
use crate::modes::drill::plan::Target;
use crate::modes::provision::SourcePolicy;

/// The longest time from asking a provider for an interruption to the agent's report: the provider's
/// own preparations, and two minutes of notice.
const NOTICE: Duration = Duration::from_secs(240);
/// What the last look of a wait may take beyond it.
const READING: Duration = Duration::from_secs(5);

impl Scene<'_, '_> {
    pub(super) async fn falls_silent(
        &mut self,
        id: &InstanceId,
        since: Duration,
    ) -> Result<(), End> {
        let times = self.times();
        let beat = Heartbeat::new(self.drill.plane.now(), idle_period(times.heartbeat_period));
        let limit = beat.healthy_within() + times.self_termination_grace + READING;
        self.stage(&format!("waiting until the heartbeat of {id} stops"));
        let silent = self
            .wait(since, limit.saturating_sub(READING), async |scene: &Self| {
                let plane = scene.drill.plane;
                let ids = std::slice::from_ref(id);
                let status = plane.retried(|| plane.store.agent_status(ids)).await?;
                let beats = status.iter().any(|it| it.pulse(plane.now()) == Pulse::Healthy);
                Ok(!beats && !scene.is_listed(id).await?)
            })
            .await?;
        let seen = if silent { "it has stopped" } else { "it goes on, or its machine is listed" };
        let took = self.steady().saturating_sub(since);
        self.expect(Expectation::Silent, silent, seen, took, Some(limit))
    }

    pub(super) async fn is_noticed(&mut self, id: &InstanceId, since: Duration) -> Result<(), End> {
        self.stage(&format!("waiting until the agent of {id} reports its interruption"));
        let noticed = self
            .wait(since, NOTICE.saturating_sub(READING), async |scene: &Self| {
                let plane = scene.drill.plane;
                let ids = std::slice::from_ref(id);
                let status = plane.retried(|| plane.store.agent_status(ids)).await?;
                Ok(status.iter().any(AgentStatus::is_interrupted))
            })
            .await?;
        let seen = if noticed { "it has reported it" } else { "it has not reported it" };
        let took = self.steady().saturating_sub(since);
        self.expect(Expectation::Noticed, noticed, seen, took, Some(NOTICE))
    }

    /// The next run that asks for such a machine gets another one, or none.
    pub(super) async fn is_not_handed_out(
        &mut self,
        id: &InstanceId,
        target: &Target,
    ) -> Result<(), End> {
        let ask = self.ask(SourcePolicy::Pool, target)?;
        self.stage(&format!("asking for an idle machine for run {}", ask.run));
        let ended = self.drill.programs.provision(&ask).await;
        self.check_stop().await?;
        self.drill.machines.extend(ended.machines.iter().cloned());
        let (is_met, seen) = match ended.code {
            0 if ended.machines.contains(id) => (false, format!("run {} got {id}", ask.run)),
            0 => (true, format!("run {} got another machine", ask.run)),
            4 => (true, format!("run {} got no machine", ask.run)),
            _ => (false, ended.words()),
        };
        let limit = Some(self.times().claim_timeout);
        self.note(Expectation::NotHandedOut, is_met, seen, (ended.took, limit));
        // One that failed otherwise may have left a claim.
        if ended.code == 4 && ended.clean_up_failures.is_empty() {
            self.drill.open.remove(&ask.run);
        } else {
            self.release(&ask.run).await?;
        }
        Ok(())
    }

    pub(super) async fn refreshes(&mut self) -> Result<(), End> {
        self.stage("refreshing");
        let ended = self.drill.programs.refresh().await;
        self.check_stop().await?;
        self.note(Expectation::Refreshed, ended.code == 0, ended.words(), (ended.took, None));
        Ok(())
    }

    /// Nothing is left of the machine, at the latest when refresh has met its record past the threshold.
    pub(super) async fn is_gone(&mut self, id: &InstanceId, since: Duration) -> Result<(), End> {
        let patience = self.drill.options.patience;
        self.stage(&format!("waiting until nothing is left of {id}"));
        if let Some(is_gone) = self.wait_unless_idle(id, since, patience).await? {
            return self.saw_gone(id, since, is_gone).await;
        }
        let threshold = self.record(id).await?.and_then(|record| record.threshold);
        let left = threshold.map(|it| it.since(self.drill.plane.now())).unwrap_or_default();
        if self.waited(since) + left >= patience {
            let left = left.as_secs();
            let why = format!(
                "the record of {id} may last for {left} s more, longer than --recovery-min; the drill \
                 has ended it"
            );
            self.incomplete = Some(why);
            self.drill.end_records().await?;
            return Ok(());
        }
        self.stage(&format!("waiting {} s for the threshold of {id}", left.as_secs()));
        self.drill.stop.unless_raised(self.drill.plane.clock.sleep(left)).await?;
        self.refreshes().await?;
        let is_gone = self
            .wait(since, patience, async |scene: &Self| {
                Ok(scene.live(id).await?.is_none() && !scene.is_listed(id).await?)
            })
            .await?;
        self.saw_gone(id, since, is_gone).await
    }

    /// Waits until the machine is gone, and returns whether it is. `None` if its record is idle, so that
    /// it waits for its threshold.
    async fn wait_unless_idle(
        &self,
        id: &InstanceId,
        since: Duration,
        patience: Duration,
    ) -> Result<Option<bool>, End> {
        let answer = async |scene: &Self| {
            let record = scene.live(id).await?;
            Ok(match record {
                None if !scene.is_listed(id).await? => Some(Some(true)),
                Some(record) if record.state == State::Idle => Some(None),
                _ => None,
            })
        };
        Ok(self.until(since, patience, answer).await?.unwrap_or(Some(false)))
    }

    async fn saw_gone(
        &mut self,
        id: &InstanceId,
        since: Duration,
        is_gone: bool,
    ) -> Result<(), End> {
        let (took, limit) = (self.waited(since), Some(self.drill.options.patience));
        let seen = match is_gone {
            true => "nothing is left".to_owned(),
            false => {
                let listed = if self.is_listed(id).await? { "listed" } else { "not listed" };
                let record = self.record(id).await?;
                format!("it is {}, and {listed} by its provider", standing(record.as_ref()))
            }
        };
        self.note(Expectation::Gone, is_gone, seen, (took, limit));
        Ok(())
    }

    pub(super) async fn is_given_back(
        &mut self,
        id: &InstanceId,
        run: &RunId,
        since: Duration,
    ) -> Result<(), End> {
        let record = self.live(id).await?;
        let took = self.waited(since);
        let is_met = record.as_ref().is_none_or(|it| it.run.as_ref() != Some(run));
        let seen = format!("it is {}", standing(record.as_ref()));
        self.note(Expectation::GivenBack, is_met, seen, (took, None));
        match record {
            Some(idle) if idle.state == State::Idle && !idle.is_expired(self.drill.plane.now()) => {
                let is_met = idle.ticketed_at.is_some();
                let seen = if is_met { "it was sent" } else { "none was sent" };
                self.note(Expectation::Announced, is_met, seen, (took, None));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
