//! Plays scenarios one after the other, and cleans up after them.

use std::collections::BTreeSet;

use super::audit::{Look, Own, audit};
use super::plan::{Target, target};
use super::scene::{End, Scene};
use super::{Options, Outcome, Played, Programs, Scenario, Verdict};
use crate::lifecycle::{Idle, Instance};
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::settings::Settings;
use crate::modes::doctor::ForgeAccess;
use crate::modes::plane::{Plane, readable};
use crate::ports::PortResult;
use crate::runtime::stop::StopSignal;

/// The reason in the events of machines that a drill has ended, and that refresh had not found yet.
const WHY: &str = "a drill has ended it";

/// A drill under way.
pub(super) struct Drill<'a> {
    pub(super) plane: &'a Plane,
    pub(super) forge: &'a ForgeAccess<'a>,
    pub(super) programs: &'a dyn Programs,
    pub(super) options: &'a Options,
    pub(super) stop: &'a StopSignal,
    pub(super) settings: Settings,
    /// How many runs it has had.
    runs: u32,
    /// Its runs that may own machines.
    pub(super) open: BTreeSet<RunId>,
    /// The machines that its runs have had.
    pub(super) machines: BTreeSet<InstanceId>,
    /// Those that it has ended at their provider.
    pub(super) ended: BTreeSet<InstanceId>,
    /// What was wrong before, by what it is about.
    pub(super) before: BTreeSet<String>,
}

pub(super) async fn play(
    plane: &Plane,
    forge: &ForgeAccess<'_>,
    programs: &dyn Programs,
    options: &Options,
    stop: &StopSignal,
) -> Result<Outcome, Failure> {
    let settings = stop.unless_raised(plane.settings()).await??;
    settings.check_open()?;
    let look = stop.unless_raised(Look::take(plane, forge)).await??;
    let mut drill = Drill {
        plane,
        forge,
        programs,
        options,
        stop,
        settings,
        runs: 0,
        open: BTreeSet::new(),
        machines: BTreeSet::new(),
        ended: BTreeSet::new(),
        before: BTreeSet::new(),
    };
    let mut outcome = Outcome::default();
    let times = (&drill.settings.times, plane.compute.listing_lag());
    outcome.before = audit(&look, &drill.own(), times);
    drill.before = outcome.before.iter().map(|violation| violation.about.clone()).collect();
    if let ForgeAccess::Closed(needs) = forge {
        outcome.unchecked.push(format!("offline runners, needs {needs}"));
    }
    let asked = Scenario::ALL.into_iter().filter(|it| options.scenarios.contains(it));
    for scenario in asked {
        let (played, failure) = drill.play(scenario).await;
        outcome.scenarios.extend(played);
        if failure.is_some() {
            outcome.failure = failure;
            break;
        }
    }
    plane.progress.stage("cleaning up");
    outcome.left = drill.clean_up().await;
    Ok(outcome)
}

impl Drill<'_> {
    /// Plays one scenario and audits the pool after it. The failure is one of the drill itself.
    async fn play(&mut self, scenario: Scenario) -> (Option<Played>, Option<Failure>) {
        let target = match self.target(scenario).await {
            Ok(Ok(target)) => target,
            Ok(Err(reason)) => {
                let verdict = Verdict::Skipped(reason);
                return (
                    Some(Played { scenario, verdict, machine: None, steps: Vec::new() }),
                    None,
                );
            }
            Err(failure) => return (None, Some(failure)),
        };
        let mut scene = Scene::new(self, scenario);
        let mut ended = scene.play(&target).await;
        if matches!(ended, Ok(()) | Err(End::Missed)) {
            let audited = scene.audit(&target.class).await;
            ended = audited.and(ended);
        }
        let Scene { machine, steps, incomplete, .. } = scene;
        let is_missed = steps.iter().any(|step| !step.is_met);
        let (verdict, failure) = match ended {
            Err(End::Failed(failure)) => {
                let why = format!("the drill failed meanwhile: {failure}");
                let verdict = if is_missed { Verdict::Failed } else { Verdict::Incomplete(why) };
                (verdict, Some(failure))
            }
            _ if is_missed => (Verdict::Failed, None),
            Err(End::Skip(reason)) => (Verdict::Skipped(reason), None),
            Ok(()) | Err(End::Missed) => {
                (incomplete.map_or(Verdict::Passed, Verdict::Incomplete), None)
            }
        };
        (Some(Played { scenario, verdict, machine, steps }), failure)
    }

    /// What the scenario asks for now, or why it cannot be played.
    async fn target(&self, scenario: Scenario) -> Result<Result<Target, String>, Failure> {
        let look = self.stop.unless_raised(Look::take(self.plane, self.forge)).await??;
        Ok(target(scenario, &look, &self.settings, self.options))
    }

    pub(super) fn own(&self) -> Own<'_> {
        Own { name: &self.options.name, machines: &self.machines }
    }

    /// The id of a run that there has not been. Fails only if the drill's name is no id.
    pub(super) fn new_run(&mut self) -> Result<RunId, Failure> {
        self.runs += 1;
        let run = RunId::new(format!("{}-{}", self.options.name, self.runs))
            .map_err(|error| Failure::invalid(error.to_string()))?;
        self.open.insert(run.clone());
        Ok(run)
    }

    /// Releases every run that may own machines, and ends the records of machines that the drill has
    /// ended. Returns what it could not do.
    pub(super) async fn clean_up(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for run in self.open.clone() {
            let ended = self.programs.release(&run).await;
            // With 8, some were expired.
            if matches!(ended.code, 0 | 8) {
                self.open.remove(&run);
            } else {
                left.push(format!("run {run} was not released: {}", ended.words()));
            }
        }
        if let Err(error) = self.end_records().await {
            let ids = crate::modes::plane::listed(&self.ended.iter().cloned().collect::<Vec<_>>());
            left.push(format!("the records of {ids} may be live until their thresholds: {error}"));
        }
        left
    }

    /// Reaps idle records of machines that the drill has ended.
    pub(super) async fn end_records(&self) -> PortResult<()> {
        if self.ended.is_empty() {
            return Ok(());
        }
        let ids: Vec<InstanceId> = self.ended.iter().cloned().collect();
        let found = readable(self.plane.retried(|| self.plane.store.records(&ids)).await?);
        let idle: Vec<Instance<Idle>> = found.iter().filter_map(Instance::believe).collect();
        let retired = self.plane.retire_all(&idle, WHY).await;
        retired.failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }
}
