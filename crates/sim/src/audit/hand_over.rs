//! What a provision that reports success hands over to its run.

use std::collections::BTreeSet;
use std::time::Duration;

use ondeck_core::model::heartbeat::idle_period;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::machine_label::MachineLabel;
use ondeck_core::model::record::{MachineSpec, State};
use ondeck_core::model::requirements::UsageClass;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::provision::{self, MachineSource, Provisioned, SourcePolicy};

use super::{Audit, Invariant, SKEW};
use crate::kernel::timestamp;
use crate::plan::Ask;
use crate::simulated_machines::SimulatedMachines;

/// How much older a heartbeat may be than the control plane can know, besides the skew of clocks:
/// calls take time.
const SLACK: Duration = Duration::from_secs(2);

/// A provision that reports success.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HandOver<'a> {
    pub(crate) outcome: &'a provision::Outcome,
    pub(crate) ask: &'a Ask,
    /// When the provision began, and when it reported.
    pub(crate) began: Timestamp,
    pub(crate) now: Timestamp,
    /// Whether nothing had happened to the run before, so that it has no other machine.
    pub(crate) is_first: bool,
    /// Whether requests may arrive after their callers have stopped waiting.
    pub(crate) late: bool,
}

impl Audit {
    /// A provision reports success. It must name as many machines as were requested. If it is the
    /// first of its run, and requests do not arrive late, it must name every machine that its run
    /// has. Every machine that it names must belong to its run, except one that the operator gave
    /// away after this provision had set it running: a provision does not read such a record again.
    pub(crate) fn succeeded(&mut self, hand_over: HandOver<'_>) {
        let HandOver { outcome, ask, began, now, is_first, late } = hand_over;
        let ids: BTreeSet<&InstanceId> = outcome.instances.iter().map(|one| &one.id).collect();
        let wanted = ask.count as usize;
        if ids.len() != wanted || outcome.instances.len() != wanted {
            let how = format!("run {} was given {ids:?} instead of {wanted}", outcome.run);
            self.violated(Invariant::AllOrNothing, how);
        }
        // A machine that lost to another may stay claimed after a fault, until the run's release.
        let is_left = |id: &InstanceId| {
            let claimed = self.records.get(id).is_some_and(|r| r.state == State::Claimed);
            claimed && !self.forbid_waste
        };
        let unknown = |id: &&InstanceId| is_first && !late && !ids.contains(id) && !is_left(id);
        if let Some(id) = self.held_by(&outcome.run, now).iter().find(unknown) {
            let how = format!("run {} has {id}, and was not told", outcome.run);
            self.violated(Invariant::AllOrNothing, how);
        }
        for id in ids {
            let record = self.records.get(id);
            let ours = record.is_some_and(|r| r.run.as_ref() == Some(&outcome.run));
            let lost = self.lost_by_hand.get(&(id.clone(), outcome.run.clone()));
            if !ours && lost.is_none_or(|since| *since < began) {
                let how = format!("run {} was given {id}, which is not its own", outcome.run);
                self.violated(Invariant::AllOrNothing, how);
            }
        }
    }

    /// Checks each machine that a provision hands over: it must run for as long as was promised,
    /// be registered and beating, and be what was asked for.
    pub(crate) fn handed_over(&mut self, hand_over: HandOver<'_>, machines: &SimulatedMachines) {
        for given in &hand_over.outcome.instances {
            if self.lost_by_hand.keys().any(|(id, _)| *id == given.id) {
                continue;
            }
            let faults = [
                self.not_running(hand_over, given),
                self.not_at_work(hand_over, given, machines),
                self.not_asked_for(hand_over, given),
                self.not_from(hand_over, given),
            ];
            if let Some(fault) = faults.into_iter().flatten().next() {
                let how = format!("run {} was given {}, {fault}", hand_over.outcome.run, given.id);
                self.violated(Invariant::HandedOver, how);
            }
        }
    }

    fn not_running(&self, hand_over: HandOver<'_>, given: &Provisioned) -> Option<String> {
        let record = self.records.get(&given.id)?;
        if record.state != State::Running {
            return Some(format!("which is {}", record.state));
        }
        let times = self.settings_since(hand_over.began);
        let promised = |of: fn(&mut dyn Iterator<Item = Duration>) -> Option<Duration>| {
            let asked = times.iter().map(|s| hand_over.ask.time("max-runtime-min", &s.times));
            of(&mut asked.into_iter())
        };
        let left = record.threshold.unwrap_or(hand_over.began);
        let least = hand_over.began + promised(|spans| spans.min())?;
        if left < least {
            return Some(format!("until {left} instead of {least}"));
        }
        // An adopted machine may have been promised for longer.
        let longest = hand_over.now + SKEW + promised(|spans| spans.max())?;
        (given.source != MachineSource::Adopted && left > longest)
            .then(|| format!("until {left}, which is too long"))
    }

    fn not_at_work(
        &self,
        hand_over: HandOver<'_>,
        given: &Provisioned,
        machines: &SimulatedMachines,
    ) -> Option<String> {
        let HandOver { outcome, began, .. } = hand_over;
        let owned = match self.owned_since.get(&given.id) {
            Some((run, since)) if *run == outcome.run => *since,
            _ => return Some("which it never got".to_owned()),
        };
        let Some(condition) = machines.condition(&given.id) else {
            let gone = machines.removed_at(&given.id).map(timestamp);
            let dead = gone.is_none_or(|gone| gone + self.tolerance() < owned.max(began));
            return dead.then(|| format!("which was gone at {gone:?}"));
        };
        let adopted = given.source == MachineSource::Adopted;
        let checked = if adopted { owned.max(began) } else { owned };
        let beat = condition.last_beat.map(timestamp);
        if beat.is_none_or(|beat| beat + self.tolerance() < checked) {
            return Some(format!("whose last heartbeat was at {beat:?}"));
        }
        let registered = condition.registered.as_ref();
        let asked = hand_over.ask.label(&outcome.run);
        let own = MachineLabel::new(given.label.as_str()).ok();
        if own.is_some() {
            let named = condition.named.as_ref().map(|(run, _)| run);
            let is_own = condition.own_label == own && named == Some(&outcome.run);
            // An agent that is restarted registers anew.
            if !is_own && timestamp(condition.troubled_until) < owned {
                let own = &condition.own_label;
                return Some(format!("which has {own:?} for {named:?}, not {}", given.label));
            }
        } else if registered.is_none_or(|(label, at)| *label != asked || timestamp(*at) < owned) {
            return Some(format!("which registered last: {registered:?}"));
        }
        let notice = condition.notice_at.map(timestamp);
        if notice.is_some_and(|notice| self.agents_spared && notice + SLACK * 5 < owned) {
            let how = "which the provider will take away".to_owned();
            return Some(how);
        }
        None
    }

    /// How old a heartbeat may be by the true time.
    pub(super) fn tolerance(&self) -> Duration {
        let periods = self.settings.iter().map(|(_, settings)| settings.times.heartbeat_period);
        let period = periods.map(idle_period).max().unwrap_or_default();
        period.min(Duration::from_secs(60)) * 3 + SKEW + SLACK
    }

    fn not_asked_for(&self, hand_over: HandOver<'_>, given: &Provisioned) -> Option<String> {
        let spec = self.specs.get(&given.id)?;
        let adopted = given.source == MachineSource::Adopted;
        if given.spec != *spec {
            return Some(format!("which is said to be {:?}, and is {spec:?}", given.spec));
        }
        (!self.fits(hand_over.ask, spec, hand_over.began, adopted))
            .then(|| format!("which is not what it asked for: {spec:?}"))
    }

    /// Whether a machine is what a provision that began at `began` asks for. One that the run has
    /// already may have another usage class, if the fallback is allowed.
    pub(super) fn fits(
        &self,
        ask: &Ask,
        spec: &MachineSpec,
        began: Timestamp,
        adopted: bool,
    ) -> bool {
        let usage = spec.usage_class == ask.usage
            || ask.fallback && (adopted || spec.usage_class == UsageClass::OnDemand);
        let large_enough = self.settings_since(began).into_iter().any(|settings| {
            let class = settings.classes.get(&spec.resource_class);
            class.is_some_and(|size| spec.cpu >= size.cpu && spec.mem >= size.mem)
        });
        spec.resource_class.as_str() == ask.class
            && usage
            && ask.allows(&spec.instance_type)
            && large_enough
    }

    /// Checks that a machine comes from where the report says, and from where it may come.
    fn not_from(&self, hand_over: HandOver<'_>, given: &Provisioned) -> Option<String> {
        let since = self.owned_since.get(&given.id).map(|(_, since)| *since)?;
        let launched = self.launched_by_run(&hand_over.outcome.run).contains(&given.id);
        let wrong = match given.source {
            MachineSource::Adopted => since > hand_over.now,
            MachineSource::Warm => launched && hand_over.is_first || since < hand_over.began,
            MachineSource::Cold => !launched || since < hand_over.began,
        };
        let forbidden = match hand_over.ask.source {
            SourcePolicy::Any => false,
            SourcePolicy::Pool => given.source == MachineSource::Cold,
            SourcePolicy::New => given.source == MachineSource::Warm,
        };
        (wrong || forbidden).then(|| format!("which is not {}", given.source.as_str()))
    }
}
