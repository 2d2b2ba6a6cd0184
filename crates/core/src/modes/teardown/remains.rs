//! What is left of a pool: live records, machines, launches under way, and runners.

use std::fmt;

use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::intent::Intent;
use crate::model::record::{Record, State};
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::modes::refresh;
use crate::modes::refresh::survey::{Lists, Survey};
use crate::ports::{ListedRunner, Machine, RecordScope};

/// A machine that a run owns, or a launch for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineInUse {
    /// The machine; `None` for a launch whose machines are not known yet.
    pub id: Option<InstanceId>,
    /// The run, if the record can be read.
    pub run: Option<RunId>,
    /// What it is in, in a word for people.
    pub state: &'static str,
}

impl fmt::Display for MachineInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id.as_ref().map_or("machines", InstanceId::as_str);
        write!(f, "{id} ({}", self.state)?;
        match &self.run {
            Some(run) => write!(f, " for run {run})"),
            None => f.write_str(")"),
        }
    }
}

pub(super) struct Remains {
    pub(super) live: Vec<Record>,
    /// Machines without a live record.
    pub(super) orphans: Vec<Machine>,
    /// Machines whose records cannot be read.
    pub(super) unreadable: Vec<InstanceId>,
    pub(super) runners: Vec<ListedRunner>,
    /// Launches whose outcome is not known and whose deadline has not passed.
    pub(super) launches: Vec<Intent>,
    pub(super) warnings: Vec<String>,
}

impl Remains {
    /// Reads everything. Fails if the store, the provider or the forge does not answer.
    ///
    /// The intents come first: a launch that has its outcome by then has its machines' records, which
    /// are read afterwards.
    pub(super) async fn take(plane: &Plane, has_records: bool) -> Result<Remains, Failure> {
        if !has_records {
            return Ok(Remains {
                live: Vec::new(),
                orphans: plane.retried(|| plane.compute.machines()).await?,
                unreadable: Vec::new(),
                runners: plane.retried(|| plane.forge.runners()).await?,
                launches: Vec::new(),
                warnings: Vec::new(),
            });
        }
        let mut launches = plane.retried(|| plane.store.open_intents()).await?;
        let now = plane.now();
        launches.retain(|intent| intent.deadline > now);
        let (mut noted, mut failure) = (refresh::Outcome::default(), None);
        let live = plane.retried(|| plane.store.list(RecordScope::Live)).await;
        let lists = Lists::read(plane).await;
        let survey = Survey::take(plane, live, lists, &mut noted, &mut failure).await?;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let orphans: Vec<Machine> = survey.orphans().cloned().collect();
        let is_readable = |id: &InstanceId| survey.live.iter().any(|record| record.id == *id);
        let known = survey.machines.iter().filter(|machine| survey.knows(&machine.id));
        let unreadable =
            known.filter(|machine| !is_readable(&machine.id)).map(|it| it.id.clone()).collect();
        let Survey { live, runners, .. } = survey;
        let warnings = noted.warnings;
        Ok(Remains { live, orphans, unreadable, runners, launches, warnings })
    }

    /// Whether no machine is left, and none is being launched unless that is to be ignored.
    pub(super) fn is_empty(&self, ignores_launches: bool) -> bool {
        let no_launch = ignores_launches || self.launches.is_empty();
        self.live.is_empty() && self.orphans.is_empty() && self.unreadable.is_empty() && no_launch
    }

    /// Whether the machine is of a launch that is under way.
    pub(super) fn is_being_launched(&self, machine: &Machine) -> bool {
        self.launches.iter().any(|intent| intent.id == machine.intent)
    }

    /// The machines, with those that only a record shows.
    pub(super) fn machines(&self) -> Vec<InstanceId> {
        let live = self.live.iter().map(|record| record.id.clone());
        let orphans = self.orphans.iter().map(|machine| machine.id.clone());
        let mut ids: Vec<_> = live.chain(orphans).chain(self.unreadable.iter().cloned()).collect();
        ids.sort();
        ids
    }

    /// What only force terminates.
    pub(super) fn in_use(&self, now: Timestamp) -> Vec<MachineInUse> {
        let owned = self.live.iter().filter(|record| is_owned(record, now));
        let owned = owned.map(|record| MachineInUse {
            id: Some(record.id.clone()),
            run: record.run.clone(),
            state: if record.is_preserved() { "kept for debugging" } else { record.state.as_str() },
        });
        let unreadable = self.unreadable.iter().map(|id| MachineInUse {
            id: Some(id.clone()),
            run: None,
            state: "its record cannot be read",
        });
        let launches = self.launches.iter().map(|intent| MachineInUse {
            id: None,
            run: Some(intent.run.clone()),
            state: "being launched",
        });
        owned.chain(unreadable).chain(launches).collect()
    }
}

/// Whether a run has a use for the machine: it owns it, and its time is not up.
pub(super) fn is_owned(record: &Record, now: Timestamp) -> bool {
    record.state != State::Idle && !record.is_expired(now)
}

/// Says of a launch that teardown did not wait for what becomes of its machines.
pub(super) fn unfinished(intent: &Intent) -> String {
    format!(
        "a launch for run {} has no known outcome; a machine of it that appears later terminates \
         itself, since it has no record",
        intent.run
    )
}
