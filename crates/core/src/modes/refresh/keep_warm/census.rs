//! The machines that count towards a minimum: who they are, and which minimum each counts for.

use std::time::Duration;

use crate::lifecycle::{Idle, Instance};
use crate::model::ids::InstanceId;
use crate::model::lifetime::Lifetime;
use crate::model::min_idle::Minimum;
use crate::model::record::{MachineSpec, Record, State};
use crate::model::requirements::{Requirements, TypePatterns};
use crate::model::settings::Settings;
use crate::model::signal::{AgentStatus, Pulse, Signal};
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::ports::PortResult;

use super::is_own_run;

/// A healthy idle machine.
pub(super) struct IdleMachine {
    pub(super) idle: Instance<Idle>,
    /// How long it may stay idle from now on.
    pub(super) left: Duration,
    /// Whether it has reached a limit of its lifetime.
    pub(super) is_over: bool,
    created_at: Timestamp,
}

/// The live machines, as far as they count.
#[derive(Default)]
pub(super) struct Census {
    /// Those that a run could claim, the one with the most time left first. Machines that have
    /// reached a limit come last, the oldest of them first.
    pub(super) available: Vec<IdleMachine>,
    /// Idle machines that no run can claim, because each has served one and none is reused.
    pub(super) used_up: Vec<IdleMachine>,
    /// Those that will soon be available: they are leaving their last run, or a refresh is warming
    /// them up.
    coming: Vec<MachineSpec>,
}

/// A minimum, and what there is for it.
pub(super) struct Share {
    pub(super) minimum: Minimum,
    /// Indices into [`Census::available`].
    pub(super) machines: Vec<usize>,
    /// How many more will soon be available.
    pub(super) coming: u32,
}

impl Census {
    pub(super) async fn take(
        plane: &Plane,
        settings: &Settings,
        live: &[Record],
    ) -> PortResult<Census> {
        let now = plane.now();
        let unexpired = || live.iter().filter(|record| !record.is_expired(now));
        let is_idle = |it: &&Record| it.state == State::Idle && !it.departure.is_drained();
        let idle: Vec<&Record> = unexpired().filter(is_idle).collect();
        let ids: Vec<InstanceId> = idle.iter().map(|record| record.id.clone()).collect();
        let status = match ids.is_empty() {
            true => Vec::new(),
            false => plane.retried(|| plane.store.agent_status(&ids)).await?,
        };
        let warming = unexpired().filter(|record| record.run.as_ref().is_some_and(is_own_run));
        let mut census = Census {
            coming: warming.map(|record| record.spec.clone()).collect(),
            ..Census::default()
        };
        let lifetime = Lifetime::of(settings);
        for (record, status) in idle.into_iter().zip(status) {
            if is_used_up(record, settings) {
                census.used_up.extend(machine(record, &lifetime, now));
                continue;
            }
            match standing(record, &status, settings, now) {
                Standing::Available => census.available.extend(machine(record, &lifetime, now)),
                Standing::Leaving => census.coming.push(record.spec.clone()),
                Standing::Unusable => {}
            }
        }
        let order = |one: &IdleMachine| match one.is_over {
            false => (false, u128::MAX - one.left.as_millis()),
            true => (true, u128::from(one.created_at.millis())),
        };
        census.available.sort_by_key(order);
        Ok(census)
    }

    /// Shares the machines out among the minimums. Each machine counts for one of them only; those
    /// with patterns come first, because fewer machines suit them. The available ones with the indices
    /// in `left_out` count for none.
    pub(super) fn share_out(
        &self,
        minimums: Vec<Minimum>,
        settings: &Settings,
        default_types: &TypePatterns,
        left_out: &[usize],
    ) -> Vec<Share> {
        let mut minimums = minimums;
        minimums.sort_by_key(|minimum| minimum.types.is_none());
        let mut taken: Vec<bool> =
            (0..self.available.len()).map(|index| left_out.contains(&index)).collect();
        let mut coming_taken = vec![false; self.coming.len()];
        let shares = minimums.into_iter().filter_map(|minimum| {
            let requirements = requirements(&minimum, settings, default_types)?;
            let suits = |spec: &MachineSpec| requirements.mismatch(spec).is_none();
            let count = minimum.count as usize;
            let specs = self.available.iter().map(|machine| machine.idle.spec());
            let machines = take(&mut taken, specs, count, suits);
            let coming = take(&mut coming_taken, self.coming.iter(), count - machines.len(), suits);
            let coming = u32::try_from(coming.len()).unwrap_or(u32::MAX);
            Some(Share { minimum, machines, coming })
        });
        shares.collect()
    }
}

impl Share {
    /// Whether as many machines are available as the minimum asks for.
    pub(super) fn is_full(&self) -> bool {
        self.machines.len() >= self.minimum.count as usize
    }

    /// How many machines the minimum lacks.
    pub(super) fn missing(&self) -> u32 {
        let present = u32::try_from(self.machines.len()).unwrap_or(u32::MAX);
        self.minimum.count.saturating_sub(present.saturating_add(self.coming))
    }
}

/// Takes up to `count` machines that suit and are not taken. Returns their indices.
fn take<'a>(
    taken: &mut [bool],
    specs: impl Iterator<Item = &'a MachineSpec>,
    count: usize,
    suits: impl Fn(&MachineSpec) -> bool,
) -> Vec<usize> {
    let mut found = Vec::new();
    for ((index, spec), taken) in specs.enumerate().zip(taken) {
        if found.len() < count && !*taken && suits(spec) {
            *taken = true;
            found.push(index);
        }
    }
    found
}

/// What every machine of the minimum must be; `None` if its class is not configured.
fn requirements(
    minimum: &Minimum,
    settings: &Settings,
    default_types: &TypePatterns,
) -> Option<Requirements> {
    Some(Requirements {
        class: minimum.class.clone(),
        size: settings.classes.get(&minimum.class)?,
        usage: minimum.usage,
        types: minimum.types.clone().unwrap_or_else(|| default_types.clone()),
    })
}

fn machine(record: &Record, lifetime: &Lifetime, now: Timestamp) -> Option<IdleMachine> {
    Some(IdleMachine {
        idle: Instance::believe(record)?,
        left: record.threshold?.since(now),
        is_over: lifetime.is_over(record, now),
        created_at: record.created_at,
    })
}

/// Whether no run can claim the machine any more. One whose agent has not left its run yet is left to
/// the release.
fn is_used_up(record: &Record, settings: &Settings) -> bool {
    let is_used = record.reuse.is_never() || (settings.reuse.is_never() && record.counts.runs > 0);
    is_used && record.ticketed_at.is_some()
}

enum Standing {
    /// A run could claim it now.
    Available,
    /// Its agent has not yet said that it has left its last run.
    Leaving,
    /// Its heartbeat has stopped, it has reported a failure, or its agent does not answer.
    Unusable,
}

fn standing(
    record: &Record,
    status: &AgentStatus,
    settings: &Settings,
    now: Timestamp,
) -> Standing {
    let report = status.report.as_ref();
    // A record is marked as announced only after its agent has left the last run.
    let is_free = record.ticketed_at.is_some()
        || report.is_some_and(|report| report.is_free_in(record.counts.generation, None));
    let leaving = now < record.updated_at + settings.times.release_timeout;
    match (status.pulse(now), report.map(|report| report.signal)) {
        (Pulse::Never | Pulse::Stale(_), _) => Standing::Unusable,
        (_, Some(Signal::PrepareFailed | Signal::DeregisterFailed)) => Standing::Unusable,
        (_, Some(Signal::Deregistered | Signal::Prepared)) if is_free => Standing::Available,
        _ if leaving => Standing::Leaving,
        _ => Standing::Unusable,
    }
}
