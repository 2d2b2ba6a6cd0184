//! The machines that runs own, and which of them can take jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::inputs::times::Times;
use crate::model::demand::Demand;
use crate::model::heartbeat::LONGEST_PERIOD;
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::Label;
use crate::model::machine_label::MachineLabel;
use crate::model::record::{Record, State};
use crate::model::signal::{AgentStatus, Pulse, Signal};
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::modes::refresh::limit::Limit;
use crate::ports::PortResult;

/// How long a running machine that has never sent a heartbeat counts as alive.
const WITHOUT_HEARTBEAT: Duration = LONGEST_PERIOD.saturating_mul(3);

/// The machines of runs that are not expired, each with what its agent has written.
pub(super) struct Machines {
    seen: Vec<(Record, AgentStatus)>,
    labels: BTreeMap<Label, Serving>,
    /// The labels of machines that can take jobs, now or soon.
    machine_labels: BTreeSet<MachineLabel>,
}

/// The machines under one label that can take jobs, now or soon.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Serving {
    pub(super) live: u32,
    /// Those that have no job.
    pub(super) free: u32,
}

impl Serving {
    /// Whether there are fewer machines than the run has asked for.
    pub(super) fn lacks(self, demand: &Demand) -> bool {
        self.live < demand.options.count
    }

    /// How many machines to add for `jobs` waiting jobs: no more than the run has asked for, and none
    /// for jobs that free machines are about to take.
    pub(super) fn missing(self, demand: &Demand, jobs: u32) -> u32 {
        let lacking = demand.options.count.saturating_sub(self.live);
        lacking.min(jobs.saturating_sub(self.free))
    }
}

impl Machines {
    /// Reads the agent status of the machines that belong to runs. One that the run's release has just
    /// expired is none of them, also if the release's clock is ahead. With a limit, refresh waits for no
    /// machine, so one that is overdue does not serve its run.
    pub(super) async fn look(
        plane: &Plane,
        times: &Times,
        limit: Option<Limit>,
        records: &[Record],
    ) -> PortResult<Machines> {
        let asked_at = plane.now();
        let lives = |record: &&Record| !record.is_expired_by_any_clock(asked_at);
        let owned = records.iter().filter(|record| record.run.is_some()).filter(lives);
        let owned: Vec<Record> = owned.cloned().collect();
        let ids: Vec<InstanceId> = owned.iter().map(|record| record.id.clone()).collect();
        let status = match ids.as_slice() {
            [] => Vec::new(),
            ids => plane.retried(|| plane.store.agent_status(ids)).await?,
        };
        let now = plane.now();
        let mut machines =
            Machines { seen: Vec::new(), labels: BTreeMap::new(), machine_labels: BTreeSet::new() };
        for (record, status) in owned.into_iter().zip(status) {
            let label = record.label().filter(|label| {
                can_serve(&record, &status, label, times, now)
                    && !(limit.is_some() && is_overdue(&record, &status, times, now))
            });
            if let Some(label) = label {
                let serving = machines.labels.entry(label).or_default();
                serving.live += 1;
                machines.machine_labels.extend(status.machine_label(&record));
                serving.free += u32::from(!status.heartbeat.is_some_and(|beat| beat.busy));
            }
            machines.seen.push((record, status));
        }
        Ok(machines)
    }

    /// The runs that own a machine, other than one that is only preserved: such a run is released.
    pub(super) fn owners(&self) -> BTreeSet<&RunId> {
        let owned = self.seen.iter().filter(|(record, _)| !record.is_preserved());
        owned.filter_map(|(record, _)| record.run.as_ref()).collect()
    }

    /// The machines that are `created` for a run, with what their agents have written.
    pub(super) fn created(&self) -> impl Iterator<Item = (&Record, &AgentStatus)> {
        let created = self.seen.iter().filter(|(record, _)| record.state == State::Created);
        created.map(|(record, status)| (record, status))
    }

    /// The running machines that their providers have announced to take away, other than those that
    /// are preserved: their jobs had failed before.
    pub(super) fn interrupted(&self) -> impl Iterator<Item = &Record> {
        let running = self.seen.iter().filter(|(record, _)| record.state == State::Running);
        let running = running.filter(|(record, _)| !record.is_preserved());
        running.filter(|(_, status)| status.is_interrupted()).map(|(record, _)| record)
    }

    /// Whether no machine takes jobs under this label of a machine, or is about to.
    pub(super) fn is_unserved(&self, label: &MachineLabel) -> bool {
        !self.machine_labels.contains(label)
    }

    pub(super) fn serving(&self, label: &Label) -> Serving {
        self.labels.get(label).copied().unwrap_or_default()
    }

    /// The machines whose agents have reported that they cannot serve their run, with the reason. Of one
    /// that is claimed or preserved, a provision or its release reports that. An agent that has left its
    /// run is none of them: the record may be older than its report.
    pub(super) fn failing(&self) -> impl Iterator<Item = (&Record, String)> {
        let owned = self.seen.iter().filter(|(record, _)| {
            matches!(record.state, State::Created | State::Running) && !record.is_preserved()
        });
        owned.filter_map(|(record, status)| {
            let report = status.report.as_ref()?;
            let has_left = report.signal == Signal::DeregisterFailed;
            Some((record, report.failure_for(&record.label()?).filter(|_| !has_left)?))
        })
    }

    /// The running machines whose heartbeat has stopped, with its age.
    pub(super) fn silent(&self, now: Timestamp) -> impl Iterator<Item = (&Record, Duration)> {
        let running = self.seen.iter().filter(|(record, _)| record.state == State::Running);
        running.filter_map(move |(record, status)| Some((record, silence(record, status, now)?)))
    }
}

/// How long the agent has been silent; `None` if it is not. Each is judged by the period that its own
/// heartbeat announces.
fn silence(record: &Record, status: &AgentStatus, now: Timestamp) -> Option<Duration> {
    match status.pulse(now) {
        Pulse::Healthy => None,
        Pulse::Stale(age) => Some(age),
        Pulse::Never => Some(now.since(record.updated_at)).filter(|age| *age > WITHOUT_HEARTBEAT),
    }
}

/// Whether a new machine has not sent a heartbeat in the time that a provision would have waited for
/// it. No provision that it could belong to does so any more.
fn is_overdue(record: &Record, status: &AgentStatus, times: &Times, now: Timestamp) -> bool {
    record.state == State::Created
        && status.pulse(now) == Pulse::Never
        && now.since(record.updated_at) > times.validation_timeout
}

/// Whether the machine takes jobs of the label, or is about to. One that its provider takes away takes
/// no further job, and neither does one that is preserved. A running one whose agent cannot restart its
/// runner takes none until it can.
fn can_serve(
    record: &Record,
    status: &AgentStatus,
    label: &Label,
    times: &Times,
    now: Timestamp,
) -> bool {
    let pulse = status.pulse(now);
    let is_silent = match record.state {
        State::Running => silence(record, status, now).is_some(),
        // Its provision is under way, and waits for its first heartbeat.
        _ => matches!(pulse, Pulse::Stale(_)),
    };
    let report = status.report.as_ref();
    let is_registered = report.is_some_and(|report| report.says(Signal::Registered, label));
    let has_time =
        record.state != State::Running || now.since(record.updated_at) < times.created_timeout;
    let has_failed = record.state == State::Running
        && report.is_some_and(|report| report.failure_for(label).is_some());
    let is_preserved = record.is_preserved();
    !is_preserved
        && !is_silent
        && !status.is_interrupted()
        && !has_failed
        && (is_registered || has_time)
}
