//! One scenario: what it does, and what it sees.

mod afterwards;
mod recovery;

use std::time::Duration;

use super::audit::Look;
use super::plan::{Target, is_free};
use super::play::Drill;
use super::{Ask, Ended, Expectation, How, Scenario, Step};
use crate::inputs::times::Times;
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{InstanceId, RunId};
use crate::model::record::{Record, State};
use crate::modes::plane::readable;
use crate::modes::provision::{SourcePolicy, is_left_to_refresh};
use crate::ports::{PortError, PortResult};
use crate::runtime::poll::{PollInterval, Wait, wait_until};
use crate::runtime::stop::Stop;

/// How long after SIGINT GitHub kills a step.
const UNTIL_KILLED: Duration = Duration::from_secs(10);
/// How often a provision that is over before its signal is tried again.
const ATTEMPTS: usize = 5;
const OFTEN: Duration = Duration::from_millis(200);
const SELDOM: Duration = Duration::from_secs(2);

/// Why a scenario ended before its end.
pub(super) enum End {
    /// It cannot be played, for this reason.
    Skip(String),
    /// An expectation was not met, and what follows depends on it.
    Missed,
    /// The drill itself failed, or was told to stop.
    Failed(Failure),
}

impl From<PortError> for End {
    fn from(error: PortError) -> End {
        End::Failed(error.into())
    }
}

impl From<Stop> for End {
    fn from(stop: Stop) -> End {
        End::Failed(stop.into())
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

pub(super) struct Scene<'a, 'd> {
    drill: &'a mut Drill<'d>,
    scenario: Scenario,
    pub(super) machine: Option<InstanceId>,
    pub(super) steps: Vec<Step>,
    /// Why something could not be seen to its end.
    pub(super) incomplete: Option<String>,
}

impl<'a, 'd> Scene<'a, 'd> {
    pub(super) fn new(drill: &'a mut Drill<'d>, scenario: Scenario) -> Scene<'a, 'd> {
        Scene { drill, scenario, machine: None, steps: Vec::new(), incomplete: None }
    }

    pub(super) async fn play(&mut self, target: &Target) -> Result<(), End> {
        match self.scenario {
            Scenario::KillIdle => self.kill_idle(target).await,
            Scenario::InterruptSpot => self.interrupt_spot(target).await,
            Scenario::CancelProvision => self.cancel_provision(target).await,
            Scenario::CancelLaunch => self.end_launch(target, How::Interrupt).await,
            Scenario::KillLaunch => self.end_launch(target, How::Kill).await,
        }
    }

    async fn kill_idle(&mut self, target: &Target) -> Result<(), End> {
        let id = self.take(target).await?;
        self.stage(&format!("ending {id} at its provider"));
        let since = self.steady();
        self.drill.ended.insert(id.clone());
        self.drill.programs.kill(&id).await?;
        self.falls_silent(&id, since).await?;
        self.is_not_handed_out(&id, target).await?;
        self.refreshes().await?;
        self.is_gone(&id, since).await
    }

    /// Refresh comes before the next run here: it has to find the machine by itself.
    async fn interrupt_spot(&mut self, target: &Target) -> Result<(), End> {
        let id = self.take(target).await?;
        self.stage(&format!("letting the provider interrupt {id}"));
        let since = self.steady();
        self.drill.programs.interrupt(&id).await.map_err(|reason| {
            Failure::new(FailureKind::InvalidInput, format!("{id} was not interrupted: {reason}"))
                .hint("run the command of --interrupt-command by hand")
        })?;
        self.drill.ended.insert(id.clone());
        self.is_noticed(&id, since).await?;
        self.refreshes().await?;
        self.is_not_handed_out(&id, target).await?;
        self.is_gone(&id, since).await
    }

    async fn cancel_provision(&mut self, target: &Target) -> Result<(), End> {
        let (run, id) = self.catch(SourcePolicy::Pool, target, How::Interrupt).await?;
        let since = self.steady();
        self.release(&run).await?;
        self.refreshes().await?;
        self.is_given_back(&id, &run, since).await
    }

    async fn end_launch(&mut self, target: &Target, how: How) -> Result<(), End> {
        let (run, id) = self.catch(SourcePolicy::New, target, how).await?;
        let since = self.steady();
        self.release(&run).await?;
        self.refreshes().await?;
        self.is_gone(&id, since).await
    }

    /// Claims a machine of this kind for a run of the drill, and releases it. Returns with the machine
    /// idle, and announced.
    async fn take(&mut self, target: &Target) -> Result<InstanceId, End> {
        let candidates = self.candidates(target).await?;
        let ask = self.ask(SourcePolicy::Pool, target)?;
        self.stage(&format!("claiming an idle machine for run {}", ask.run));
        let ended = self.drill.programs.provision(&ask).await;
        self.check_stop().await?;
        let (0, [id]) = (ended.code, &ended.machines[..]) else {
            return Err(self.not_claimed(&candidates, &ended).await);
        };
        self.machine = Some(id.clone());
        self.drill.machines.insert(id.clone());
        let record = self.record(id).await?;
        let is_ours = |record: &Record| {
            record.state == State::Running && record.run.as_ref() == Some(&ask.run)
        };
        let seen = match &record {
            Some(record) if is_ours(record) => format!("{id} for run {}", ask.run),
            record => format!("provision reported {id}, which is {}", standing(record.as_ref())),
        };
        let limit = Some(self.times().claim_timeout);
        let is_claimed = record.as_ref().is_some_and(is_ours);
        self.expect(Expectation::Claimed, is_claimed, seen, ended.took, limit)?;
        self.release(&ask.run).await?;
        self.is_idle(id, &ask.run).await?;
        Ok(id.clone())
    }

    /// Why a run of the drill got no idle machine. It is no fault if other runs were faster.
    async fn not_claimed(&mut self, candidates: &[InstanceId], ended: &Ended) -> End {
        let is_others = |record: &Record| {
            let run = record.run.as_ref();
            run.is_some_and(|run| !run.as_str().starts_with(&self.drill.options.name))
        };
        let now = match self.records(candidates).await {
            Ok(records) => records,
            Err(error) => return error.into(),
        };
        if ended.code == 4 && now.len() == candidates.len() && now.iter().all(is_others) {
            return End::Skip("other runs have claimed the idle machines meanwhile".to_owned());
        }
        let seen = format!("idle machines: {}; {}", candidates.len(), ended.words());
        self.miss(Expectation::Claimed, seen, ended.took)
    }

    /// Runs provision, and ends it while it holds a machine. Returns the run and the machine.
    async fn catch(
        &mut self,
        source: SourcePolicy,
        target: &Target,
        how: How,
    ) -> Result<(RunId, InstanceId), End> {
        let candidates = self.candidates(target).await?;
        for _ in 0..ATTEMPTS {
            let ask = self.ask(source, target)?;
            let doing = match how {
                How::Interrupt => "interrupting",
                How::Kill => "killing",
            };
            self.stage(&format!("{doing} the provision of run {}", ask.run));
            let cancelled = self.drill.programs.cancel(&ask, how).await;
            self.check_stop().await?;
            let ended = cancelled.ended;
            self.drill.machines.extend(cancelled.machine.iter().cloned());
            match cancelled.machine {
                Some(id) if ended.code != 0 => {
                    self.machine = Some(id.clone());
                    if how == How::Interrupt {
                        self.is_cancelled(&ended)?;
                    }
                    return Ok((ask.run, id));
                }
                None if ended.code != 0 && source == SourcePolicy::Pool => {
                    return Err(self.not_claimed(&candidates, &ended).await);
                }
                // The provider has none, or the ceiling is reached.
                None if ended.code == 4 => {
                    return Err(End::Skip(format!("no machine was launched: {}", ended.error)));
                }
                None if ended.code != 0 => {
                    return Err(self.miss(Expectation::Launched, ended.words(), ended.took));
                }
                _ => {
                    self.drill.machines.extend(ended.machines);
                    self.released(&ask.run).await?;
                }
            }
        }
        Err(End::Skip(format!("provision was over before its signal, {ATTEMPTS} times")))
    }

    fn is_cancelled(&mut self, ended: &Ended) -> Result<(), End> {
        let limit = Some(UNTIL_KILLED);
        let is_met = ended.code == 130;
        self.note(
            Expectation::Cancelled,
            is_met,
            format!("exit code {}", ended.code),
            (ended.took, limit),
        );
        // What an agent takes longer for is refresh's to finish.
        let failures = ended.clean_up_failures.iter().filter(|it| !is_left_to_refresh(it));
        let failures: Vec<&str> = failures.map(String::as_str).collect();
        let seen = match failures.is_empty() {
            true => "nothing was reported as left".to_owned(),
            false => failures.join("; "),
        };
        self.note(Expectation::CleanedUp, failures.is_empty(), seen, (ended.took, None));
        Ok(())
    }

    /// Releases a run. It goes on after a release that fails, because refresh has to repair that.
    async fn release(&mut self, run: &RunId) -> Result<(), End> {
        let ended = self.released(run).await?;
        let (is_met, limit) = (ended.code == 0, Some(self.times().release_timeout));
        self.note(Expectation::Released, is_met, ended.words(), (ended.took, limit));
        Ok(())
    }

    async fn released(&mut self, run: &RunId) -> Result<Ended, End> {
        self.stage(&format!("releasing run {run}"));
        let ended = self.drill.programs.release(run).await;
        if matches!(ended.code, 0 | 8) {
            self.drill.open.remove(run);
        }
        self.check_stop().await?;
        Ok(ended)
    }

    /// The machine is idle after its release, and announced.
    async fn is_idle(&mut self, id: &InstanceId, run: &RunId) -> Result<(), End> {
        let record = self.record(id).await?;
        match &record {
            Some(record)
                if record.state == State::Idle && !record.is_expired(self.drill.plane.now()) =>
            {
                let is_met = record.ticketed_at.is_some();
                let seen = if is_met { "it was sent" } else { "none was sent" };
                self.expect(Expectation::Announced, is_met, seen, Duration::ZERO, None)
            }
            Some(other) if other.run.is_some() && other.run.as_ref() != Some(run) => {
                Err(End::Skip(format!("another run has claimed it right after its release: {id}")))
            }
            // The release has said so already.
            _ if self.steps.iter().any(|step| !step.is_met) => Err(End::Missed),
            record => {
                let why = "reuse is never, or it had reached a limit of its lifetime";
                let standing = standing(record.as_ref());
                Err(End::Skip(format!("{id} is {standing} after its release: {why}")))
            }
        }
    }
}

/// What all scenarios use.
impl Scene<'_, '_> {
    fn stage(&self, doing: &str) {
        self.drill.plane.progress.stage(&format!("{}: {doing}", self.scenario));
    }

    fn times(&self) -> &Times {
        &self.drill.settings.times
    }

    fn steady(&self) -> Duration {
        self.drill.plane.clock.steady()
    }

    fn waited(&self, since: Duration) -> Duration {
        self.steady().saturating_sub(since)
    }

    /// Notes an expectation. One that took longer than its limit is not met.
    fn note(
        &mut self,
        expectation: Expectation,
        is_met: bool,
        seen: impl Into<String>,
        (took, limit): (Duration, Option<Duration>),
    ) {
        let is_late = limit.is_some_and(|limit| took > limit);
        let is_met = is_met && !is_late;
        let seen = seen.into();
        self.steps.push(Step { expectation, is_met, seen, took, limit });
    }

    /// The same for one that the rest depends on.
    fn expect(
        &mut self,
        expectation: Expectation,
        is_met: bool,
        seen: impl Into<String>,
        took: Duration,
        limit: Option<Duration>,
    ) -> Result<(), End> {
        self.note(expectation, is_met, seen, (took, limit));
        if is_met { Ok(()) } else { Err(End::Missed) }
    }

    fn miss(&mut self, expectation: Expectation, seen: String, took: Duration) -> End {
        self.note(expectation, false, seen, (took, None));
        End::Missed
    }

    fn ask(&mut self, source: SourcePolicy, target: &Target) -> Result<Ask, End> {
        let run = self.drill.new_run()?;
        let Target { class, usage, instance_type } = target.clone();
        Ok(Ask { run, source, class, usage, instance_type })
    }

    /// Fails if the drill was told to stop. The programs that it has called have cleaned up then.
    async fn check_stop(&self) -> Result<(), End> {
        match self.drill.stop.is_raised() {
            true => Err(self.drill.stop.raised().await.into()),
            false => Ok(()),
        }
    }

    /// The machines that a run which asks for this kind should get.
    async fn candidates(&self, target: &Target) -> Result<Vec<InstanceId>, End> {
        let look = Look::take(self.drill.plane, self.drill.forge).await?;
        let fits = |record: &Record| {
            let spec = &record.spec;
            spec.resource_class == target.class
                && spec.usage_class == target.usage
                && target.instance_type.as_ref().is_none_or(|it| *it == spec.instance_type)
        };
        let free = look
            .live
            .iter()
            .filter(|(record, status)| fits(record) && is_free(record, status, look.now));
        Ok(free.map(|(record, _)| record.id.clone()).collect())
    }

    async fn records(&self, ids: &[InstanceId]) -> PortResult<Vec<Record>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let plane = self.drill.plane;
        Ok(readable(plane.retried(|| plane.store.records(ids)).await?))
    }

    async fn record(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        Ok(self.records(std::slice::from_ref(id)).await?.pop())
    }

    async fn live(&self, id: &InstanceId) -> PortResult<Option<Record>> {
        Ok(self.record(id).await?.filter(|record| record.state.is_live()))
    }

    async fn is_listed(&self, id: &InstanceId) -> PortResult<bool> {
        let plane = self.drill.plane;
        let machines = plane.retried(|| plane.compute.machines()).await?;
        Ok(machines.iter().any(|machine| machine.id == *id))
    }

    /// Waits until it is so, for `at_most` since then. Returns whether it is.
    async fn wait(
        &self,
        since: Duration,
        at_most: Duration,
        so: impl AsyncFn(&Self) -> PortResult<bool>,
    ) -> Result<bool, End> {
        let answer =
            self.until(since, at_most, async |scene: &Self| Ok(so(scene).await?.then_some(())));
        Ok(answer.await?.is_some())
    }

    async fn until<T>(
        &self,
        since: Duration,
        at_most: Duration,
        ask: impl AsyncFn(&Self) -> PortResult<Option<T>>,
    ) -> Result<Option<T>, End> {
        let clock = &*self.drill.plane.clock;
        let interval = PollInterval::backing_off(OFTEN, 8).up_to(SELDOM);
        let left = at_most.saturating_sub(self.waited(since));
        let wait = Wait::begin(clock, left, interval);
        let waiting = wait_until(clock, wait, || ask(self));
        Ok(self.drill.stop.unless_raised(waiting).await??)
    }
}

/// What a record says, in a few words.
fn standing(record: Option<&Record>) -> String {
    match record {
        None => "without a record".to_owned(),
        Some(Record { state, run: Some(run), .. }) => format!("{state} for run {run}"),
        Some(Record { state, .. }) => state.to_string(),
    }
}
