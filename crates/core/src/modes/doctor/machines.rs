//! Machines, records and runners against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Known;
use super::facts::{ForgeFacts, Software, Told};
use super::finding::{Area, Finding, FindingKind, Findings, Severity};
use super::provider::Ask;
use super::settings::raise_ceiling;
use crate::model::ceiling::MaxMachines;
use crate::model::demand::Demand;
use crate::model::ids::{InstanceId, RunId};
use crate::model::machine_label::MachineLabel;
use crate::model::record::{Record, State, Unreadable};
use crate::model::settings::Settings;
use crate::model::timestamp::Timestamp;
use crate::modes::refresh::SpendUse;
use crate::modes::status::judgement::{Ceiling, Judgement, Problem, ProblemKind};
use crate::ports::{ListedRunner, Machine, Store, WaitingJobs};

/// How long after a run has asked for machines its jobs may wait without one. Their records are
/// written seconds later.
const SERVED_WITHIN: Duration = Duration::from_secs(120);
/// A token that expires this soon should have been renewed.
const RENEWED_BEFORE: Duration = Duration::from_secs(10 * 60);

/// What the records say about the machines that the provider has, and the reverse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Compared {
    /// Live records without a machine, as read again after the list of machines.
    pub(super) gone: Vec<InstanceId>,
    /// Machines without a live record, as looked up by id.
    pub(super) orphans: Vec<InstanceId>,
}

/// The ids that have to be looked up again before anything follows from their absence: live records
/// whose machine is not listed, and listed machines without a live record.
pub(super) fn suspicious(live: &BTreeSet<InstanceId>, machines: &[Machine]) -> Vec<InstanceId> {
    let listed: BTreeSet<&InstanceId> = machines.iter().map(|machine| &machine.id).collect();
    let unlisted = live.iter().filter(|id| !listed.contains(id));
    let unknown = listed.iter().filter(|id| !live.contains(**id)).copied();
    unlisted.chain(unknown).cloned().collect()
}

/// Compares the machines with the records that were read again. `unreadable` records may be live.
/// `lag`: how long after its launch a machine is listed at the latest.
pub(super) fn compare(
    again: &[Record],
    unreadable: &BTreeSet<String>,
    machines: &[Machine],
    suspicious: &[InstanceId],
    (settings, lag, now): (&Settings, Duration, Timestamp),
) -> Compared {
    let live: BTreeMap<&InstanceId, &Record> =
        again.iter().filter(|it| it.state.is_live()).map(|it| (&it.id, it)).collect();
    let listed: BTreeMap<&InstanceId, &Machine> = machines.iter().map(|it| (&it.id, it)).collect();
    let is_gone = |id: &&InstanceId| {
        let record = live.get(id).filter(|record| now.since(record.created_at) > lag);
        record.is_some() && !listed.contains_key(id)
    };
    // A machine that never gets a record terminates itself at its boot deadline.
    let times = &settings.times;
    let grace = times.boot_deadline.max(times.self_termination_grace);
    let is_orphan = |id: &&InstanceId| {
        let machine = listed.get(id).filter(|machine| now.since(machine.launched_at) > grace);
        machine.is_some() && !live.contains_key(id) && !unreadable.contains(id.as_str())
    };
    Compared {
        gone: suspicious.iter().filter(is_gone).cloned().collect(),
        orphans: suspicious.iter().filter(is_orphan).cloned().collect(),
    }
}

/// Lists the checks that cannot be made without records. `machines`: those that the provider has.
pub(super) fn skip(machines: &Told<Vec<Machine>>, needs: &str, into: &mut Findings) {
    into.skip(Area::Machines, "records", needs);
    into.skip(Area::Machines, "heartbeats", needs);
    into.skip(Area::SetUp, "refresh", needs);
    if !matches!(machines, Told::Nothing) {
        into.skip(Area::Machines, "machines against records", machines.needs().unwrap_or(needs));
    }
}

/// Adds what status finds wrong, and what the comparison has shown.
pub(super) fn judge(judgement: &Judgement, compared: &Compared, into: &mut Findings) {
    into.check(Area::Machines, "records");
    into.check(Area::Machines, "heartbeats");
    into.check(Area::SetUp, "refresh");
    for problem in &judgement.summary.problems {
        into.add(of_problem(problem, judgement, &compared.gone));
    }
    let counted = |ids: &[InstanceId]| match ids.len() {
        1 => "1 machine".to_owned(),
        count => format!("{count} machines"),
    };
    let Compared { gone, orphans } = compared;
    if !gone.is_empty() {
        let what = format!("{} with a live record that the provider does not have", counted(gone));
        let fix = terminate(gone, judgement);
        into.add([Finding::new(FindingKind::MachinesGone, what, fix).about(gone)]);
    }
    if !orphans.is_empty() {
        let what = format!("{} without a live record", counted(orphans));
        into.add([Finding::new(FindingKind::Orphans, what, "ondeck refresh").about(orphans)]);
    }
}

/// The command that terminates these machines. One that a run may still use is taken from it.
fn terminate(machines: &[InstanceId], judgement: &Judgement) -> String {
    let is_free = |record: &Record| record.state == State::Idle && record.ticketed_at.is_some();
    let mut records = judgement.machines.iter().map(|it| &it.record);
    let in_use = records.any(|record| machines.contains(&record.id) && !is_free(record));
    let force = if in_use { " --force" } else { "" };
    let ids: Vec<&str> = machines.iter().map(InstanceId::as_str).collect();
    format!("ondeck terminate {}{force}", ids.join(" "))
}

/// What status has found, but for silent machines that are gone altogether.
fn of_problem(problem: &Problem, judgement: &Judgement, gone: &[InstanceId]) -> Option<Finding> {
    let kind = match problem.kind {
        ProblemKind::Closed => FindingKind::PoolClosed,
        ProblemKind::RefreshOverdue => FindingKind::RefreshOverdue,
        ProblemKind::RefreshFailed => FindingKind::RefreshFailed,
        ProblemKind::Silent => FindingKind::MachinesSilent,
        ProblemKind::Failed => FindingKind::MachinesFailed,
        ProblemKind::Overdue => FindingKind::MachinesOverdue,
        ProblemKind::Unready => FindingKind::MachinesUnready,
        ProblemKind::AtCeiling => FindingKind::AtCeiling,
        ProblemKind::SpendNearCap => FindingKind::SpendNearCap,
        // See `unreadable`.
        ProblemKind::Unreadable => return None,
    };
    let is_about = |id: &&InstanceId| kind != FindingKind::MachinesSilent || !gone.contains(id);
    let about: Vec<InstanceId> = problem.machines.iter().filter(is_about).cloned().collect();
    if about.is_empty() && !problem.machines.is_empty() {
        return None;
    }
    let what = match problem.machines.len() == about.len() {
        true => problem.message.clone(),
        false => format!("{} without a recent heartbeat", about.len()),
    };
    let fix = match problem.kind {
        ProblemKind::Closed => "ondeck teardown --cancel".to_owned(),
        ProblemKind::RefreshOverdue => "ondeck refresh # and check its schedule".to_owned(),
        ProblemKind::RefreshFailed | ProblemKind::Overdue => "ondeck refresh".to_owned(),
        ProblemKind::Silent | ProblemKind::Failed | ProblemKind::Unready => {
            terminate(&about, judgement)
        }
        ProblemKind::AtCeiling => raise_ceiling(&one_more(&judgement.summary.ceilings)),
        ProblemKind::SpendNearCap => {
            let higher = |used: SpendUse| used.cap.max(used.spent + used.reserved).times(2);
            let cap = judgement.summary.spend.map(higher).unwrap_or_default().dollars();
            format!("ondeck refresh --max-spend-per-day {:.2}", (cap * 100.0).ceil() / 100.0)
        }
        ProblemKind::Unreadable => return None,
    };
    Some(Finding::new(kind, what, fix).about(about))
}

/// Records that cannot be read, which no mode repairs. Without its record, a machine is an orphan.
pub(super) fn unreadable(store: &dyn Store, rows: &[Unreadable]) -> Option<Finding> {
    let what = match rows {
        [] => return None,
        [row] => row.to_string(),
        [first, others @ ..] => format!("{first}; and {} more", others.len()),
    };
    let ids: Vec<InstanceId> = rows.iter().filter_map(|row| row.id.parse().ok()).collect();
    let command = (!ids.is_empty()).then(|| store.deletion_command(&ids)).flatten();
    let fix = match command {
        Some(command) => format!("{command} # then refresh terminates what runs without a record"),
        None => "delete them from the store; then ondeck refresh terminates their machines".into(),
    };
    let ids = rows.iter().map(|row| &row.id);
    Some(Finding::new(FindingKind::RecordsUnreadable, what, fix).about(ids))
}

/// These maximums, with room for one machine more where there is none.
fn one_more(ceilings: &[Ceiling]) -> MaxMachines {
    let mut maximums = MaxMachines::default();
    for Ceiling { class, machines, max } in ceilings {
        let most = (*max).max(machines.unwrap_or_default().saturating_add(1));
        match class {
            Some(class) => drop(maximums.classes.insert(class.clone(), most)),
            None => maximums.pool = Some(most),
        }
    }
    maximums
}

/// Adds what is wrong with the stored registration token at `now`.
pub(super) fn judge_token(settings: &Settings, now: Timestamp, into: &mut Findings) {
    let Some(minted) = &settings.minted else { return };
    into.check(Area::Forge, "registration token");
    let at = minted.expires_at;
    into.add(if at <= now {
        let what = format!("the registration token expired at {at}");
        Some(Finding::new(FindingKind::TokenExpired, what, "ondeck refresh"))
    } else if at <= now + RENEWED_BEFORE {
        let what = format!("the registration token expires at {at}");
        Some(Finding::new(FindingKind::TokenOld, what, "ondeck refresh"))
    } else {
        None
    });
}

/// Adds what is wrong with the forge, of a pool whose live machines are `known`.
pub(super) fn judge_forge(
    facts: &ForgeFacts,
    known: &Known,
    demands: &[Demand],
    now: Timestamp,
    into: &mut Findings,
) {
    if let Some((reason, fix)) = &facts.refused {
        return into.add([Finding::new(FindingKind::ForgeRefused, reason.clone(), fix.clone())]);
    }
    let mut ask = Ask { into };
    ask.about(Area::Forge, "runner version", &facts.software, |software| {
        let fix = "ondeck refresh --actions-runner-version latest";
        let finding = |kind, what: &String| Some(Finding::new(kind, what.clone(), fix));
        let found = match software {
            Software::Usable => None,
            Software::Warned(what) => finding(FindingKind::RunnerDeadline, what),
            Software::Unusable(what) => finding(FindingKind::RunnerVersion, what),
        };
        found.into_iter()
    });
    ask.about(Area::Forge, "runners", &facts.runners, |it| offline(it, &known.ids).into_iter());
    ask.about(Area::Forge, "waiting jobs", &facts.waiting, |waiting| {
        unserved(waiting, known, demands, now).into_iter()
    });
}

fn offline(runners: &[ListedRunner], known: &BTreeSet<String>) -> Option<Finding> {
    let is_left = |it: &&ListedRunner| !it.online && !known.contains(it.instance.as_str());
    let names: Vec<&str> = runners.iter().filter(is_left).map(|it| it.name.as_str()).collect();
    let what = match names.len() {
        1 => "1 offline runner, whose machine is gone".to_owned(),
        count => format!("{count} offline runners, whose machines are gone"),
    };
    let finding = Finding::new(FindingKind::OfflineRunners, what, "ondeck refresh");
    (!names.is_empty()).then(|| finding.about(names))
}

/// A label that jobs of a run wait for.
struct Awaited<'a> {
    /// As people know it.
    label: String,
    jobs: u32,
    /// What the run has asked for under it; `None` if it was never given such a label.
    demand: Option<&'a Demand>,
    is_carried: bool,
}

/// The labels that jobs wait for and no machine has, unless their run has just asked for machines.
fn unserved(
    waiting: &BTreeMap<RunId, WaitingJobs>,
    known: &Known,
    demands: &[Demand],
    now: Timestamp,
) -> Option<Finding> {
    let is_fresh = |demand: &Demand| now.since(demand.at) < SERVED_WITHIN;
    let is_served = |it: &Awaited<'_>| it.is_carried || it.demand.is_some_and(is_fresh);
    let all = waiting.iter().flat_map(|(run, jobs)| awaited(run, jobs, known, demands));
    let left: Vec<Awaited<'_>> = all.filter(|it| !is_served(it)).collect();
    let jobs: u32 = left.iter().map(|it| it.jobs).sum();
    let noun = if jobs == 1 { "1 job waits".to_owned() } else { format!("{jobs} jobs wait") };
    let labels: Vec<String> = left.iter().map(|it| it.label.clone()).collect();
    let what = format!("{noun} for labels that no machine has: {}", labels.join(", "));
    // Of a run that has never asked, the job that calls provision may not have begun.
    let severity = match left.iter().any(|it| it.demand.is_some()) {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let fix = "ondeck refresh # rescues them, if their run has asked for machines";
    let finding = Finding::new(FindingKind::JobsUnserved, what, fix).about(labels).with(severity);
    (!left.is_empty()).then_some(finding)
}

/// What jobs of the run wait for: labels of the run, and labels of machines, of which only the run's demands
/// tell that it was given them.
fn awaited<'a>(
    run: &'a RunId,
    waiting: &'a WaitingJobs,
    known: &'a Known,
    demands: &'a [Demand],
) -> impl Iterator<Item = Awaited<'a>> {
    let of_run = waiting.labels.iter().map(|(label, jobs)| Awaited {
        label: label.to_string(),
        jobs: *jobs,
        demand: demands.iter().find(|demand| demand.label() == *label),
        is_carried: known.labels.contains(label),
    });
    let gave = move |label: &MachineLabel| {
        let mut of_run = demands.iter().filter(move |demand| demand.run == *run);
        of_run.find(|demand| demand.labels.contains(label))
    };
    let of_machines = waiting.machine_labels.iter().map(move |(label, jobs)| Awaited {
        label: format!("{label} (run {run})"),
        jobs: *jobs,
        demand: gave(label),
        is_carried: known.machine_labels.contains(label),
    });
    of_run.chain(of_machines)
}

/// What is told about runs by a forge whose answers are these.
pub(super) fn told<T>(answer: Result<T, crate::ports::PortError>) -> Told<T> {
    answer.map_or_else(|error| Told::Untold(error.to_string()), Told::Known)
}

#[cfg(test)]
mod tests;
