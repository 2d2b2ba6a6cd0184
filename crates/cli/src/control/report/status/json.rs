//! What `ondeck status --json` prints.

use std::collections::BTreeMap;

use ondeck_core::model::record::State;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::status::judgement::{
    Ceiling, ClassSummary, Group, Judged, Judgement, Mark, Problem, ProblemKind, Summary,
};
use serde::Serialize;

use crate::control::report::wire::{
    PurchaseOption, SchemaVersion, SpendJson, UnreadableJson, millis,
};

/// Printed by `ondeck status --json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct StatusJson {
    schema_version: SchemaVersion,
    summary: SummaryJson,
    /// The live machines; with `--all`, terminated ones too. Those of one state are together, the most
    /// urgent first.
    instances: Vec<InstanceJson>,
    /// How many tickets each resource class has in the pool.
    pool: BTreeMap<String, usize>,
    /// Only if there are any: records that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<UnreadableJson>,
}

/// The pool as a whole.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct SummaryJson {
    /// When the pool was read.
    at: String,
    /// How many live machines there are.
    machines: usize,
    /// The same by state. `preserved` counts machines that are `running` in their records and kept for
    /// people.
    states: BTreeMap<&'static str, usize>,
    /// The same by resource class, for each class that has machines or tickets.
    classes: Vec<ClassJson>,
    /// Only with `runner-label` `machine`: how many idle machines are registered, so that a claim need not
    /// wait for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<usize>,
    /// Of the machines that runs were given lately, how many were warm. `null` if no event tells.
    warm_share: Option<WarmShareJson>,
    /// The idle machine whose last transition is the oldest. `null` if no machine is idle.
    oldest_idle: Option<OldestIdleJson>,
    /// When refresh last checked everything, which it does once an hour: the last refresh is not older.
    /// `null` if it has failed since, or never did.
    last_refresh: Option<String>,
    /// Whether refresh has not checked everything for 90 minutes, or has left a machine for 15 minutes
    /// after its threshold.
    refresh_overdue: bool,
    /// For each number of `max-machines`, how many machines count.
    ceilings: Vec<CeilingJson>,
    /// What machines cost on the day of the last count. Absent if there is no cap, or if that is not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none")]
    spend: Option<SpendJson>,
    /// What is wrong, the most urgent first.
    problems: Vec<ProblemJson>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ClassJson {
    resource_class: String,
    /// How many machines it has, by state.
    states: BTreeMap<&'static str, usize>,
    /// How many tickets it has in the pool.
    tickets: usize,
}

/// The last machines that runs were given: at most 100, of the last 24 hours. Machines that refresh
/// launched for the pool itself do not count.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct WarmShareJson {
    handed_over: usize,
    /// How many of them came from the pool.
    warm: usize,
    /// When the first of them was handed over.
    since: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OldestIdleJson {
    instance_id: String,
    /// The time since its last transition. A machine that refresh keeps for longer has one at that
    /// moment.
    idle_ms: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CeilingJson {
    /// `null` for the pool.
    resource_class: Option<String>,
    /// How many machines count, with those that are about to be launched. `null` if that is unknown.
    machines: Option<u32>,
    max: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ProblemJson {
    kind: ProblemKindJson,
    message: String,
    hint: String,
    /// The machines that it is about. Empty if it is about the pool.
    instance_ids: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum ProblemKindJson {
    Closed,
    RefreshOverdue,
    RefreshFailed,
    Silent,
    Failed,
    Overdue,
    Unready,
    AtCeiling,
    SpendNearCap,
    Unreadable,
}

/// One machine: its record, and what its agent last reported. Times are RFC 3339 in UTC.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct InstanceJson {
    instance_id: String,
    state: StateJson,
    /// Only if there is something unusual about it: what that is, the most urgent first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    marks: Vec<MarkJson>,
    /// The run that owns the machine. Empty if none does.
    run_id: String,
    /// Until when the state may last. Empty once the machine is terminated.
    threshold: String,
    resource_class: String,
    instance_type: String,
    /// The machine's purchase option.
    usage_class: PurchaseOption,
    /// How many vCPUs it has.
    cpu: u32,
    /// How much memory it has, in MiB.
    mem: u32,
    /// When the machine was registered.
    created_at: String,
    /// When its record last changed.
    updated_at: String,
    /// When its ticket was put into the pool. Empty if it has none.
    ticketed_at: String,
    /// Only if it is so: its run failed, and it is kept for people to examine until the threshold.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    preserved: bool,
    /// Only of an idle machine with `runner-label` `machine`: whether it is registered, so that a claim need
    /// not wait for that.
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<bool>,
    /// How long ago the agent's last heartbeat was. `null` if there was none.
    heartbeat_age_ms: Option<u64>,
    /// The agent's last signal. `null` if there was none.
    signal: Option<String>,
    /// Only if there is one: what the agent added to its signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Something unusual about a machine.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MarkJson {
    mark: MarkKindJson,
    /// Only if there is more to say than the word.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Only of `overdue`: how long ago the threshold passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    overdue_ms: Option<u64>,
}

/// `silent`: the last heartbeat is older than the agent's own period allows. `failed`: the agent
/// reports that the machine cannot be used. `overdue`: the threshold has passed, and the machine is
/// still there. `unready`: idle and not registered, with `runner-label` `machine`. `retiring`: the machine will not return to the pool. `preserved`: kept for people.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum MarkKindJson {
    Silent,
    Failed,
    Overdue,
    Unready,
    Retiring,
    Preserved,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum StateJson {
    Created,
    Idle,
    Claimed,
    Running,
    Terminated,
}

impl From<&Judgement> for StatusJson {
    fn from(judgement: &Judgement) -> StatusJson {
        StatusJson {
            schema_version: SchemaVersion,
            summary: summary(&judgement.summary, judgement.at),
            instances: judgement.machines.iter().map(|it| instance(it, judgement.at)).collect(),
            pool: judgement.tickets.iter().map(|(class, n)| (class.to_string(), *n)).collect(),
            unreadable: judgement.unreadable.iter().map(UnreadableJson::from).collect(),
        }
    }
}

fn summary(summary: &Summary, at: Timestamp) -> SummaryJson {
    let warm_share = summary.warm.map(|warm| WarmShareJson {
        handed_over: warm.handed_over,
        warm: warm.warm,
        since: warm.since.to_string(),
    });
    let oldest_idle = summary
        .oldest_idle
        .as_ref()
        .map(|(id, age)| OldestIdleJson { instance_id: id.to_string(), idle_ms: millis(*age) });
    SummaryJson {
        at: at.to_string(),
        machines: summary.groups.values().sum(),
        states: states(&summary.groups),
        classes: summary.classes.iter().map(ClassJson::from).collect(),
        ready: summary.ready,
        warm_share,
        oldest_idle,
        last_refresh: summary.refreshed.map(|at| at.to_string()),
        refresh_overdue: summary.refresh_overdue,
        ceilings: summary.ceilings.iter().map(CeilingJson::from).collect(),
        spend: summary.spend.as_ref().map(SpendJson::from),
        problems: summary.problems.iter().map(ProblemJson::from).collect(),
    }
}

fn states(groups: &BTreeMap<Group, usize>) -> BTreeMap<&'static str, usize> {
    groups.iter().map(|(group, count)| (group.as_str(), *count)).collect()
}

impl From<&ClassSummary> for ClassJson {
    fn from(class: &ClassSummary) -> ClassJson {
        let (resource_class, states) = (class.class.to_string(), states(&class.groups));
        ClassJson { resource_class, states, tickets: class.tickets }
    }
}

impl From<&Ceiling> for CeilingJson {
    fn from(ceiling: &Ceiling) -> CeilingJson {
        let resource_class = ceiling.class.as_ref().map(ToString::to_string);
        CeilingJson { resource_class, machines: ceiling.machines, max: ceiling.max }
    }
}

impl From<&Problem> for ProblemJson {
    fn from(problem: &Problem) -> ProblemJson {
        ProblemJson {
            kind: match problem.kind {
                ProblemKind::Closed => ProblemKindJson::Closed,
                ProblemKind::RefreshOverdue => ProblemKindJson::RefreshOverdue,
                ProblemKind::RefreshFailed => ProblemKindJson::RefreshFailed,
                ProblemKind::Silent => ProblemKindJson::Silent,
                ProblemKind::Failed => ProblemKindJson::Failed,
                ProblemKind::Overdue => ProblemKindJson::Overdue,
                ProblemKind::Unready => ProblemKindJson::Unready,
                ProblemKind::AtCeiling => ProblemKindJson::AtCeiling,
                ProblemKind::SpendNearCap => ProblemKindJson::SpendNearCap,
                ProblemKind::Unreadable => ProblemKindJson::Unreadable,
            },
            message: problem.message.clone(),
            hint: problem.hint.to_owned(),
            instance_ids: problem.machines.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&Mark> for MarkJson {
    fn from(mark: &Mark) -> MarkJson {
        let overdue_ms = match mark {
            Mark::Overdue(by) => Some(millis(*by)),
            _ => None,
        };
        let kind = match mark {
            Mark::Silent(_) => MarkKindJson::Silent,
            Mark::Failed(_) => MarkKindJson::Failed,
            Mark::Overdue(_) => MarkKindJson::Overdue,
            Mark::Unready(_) => MarkKindJson::Unready,
            Mark::Retiring(_) => MarkKindJson::Retiring,
            Mark::Preserved => MarkKindJson::Preserved,
        };
        MarkJson { mark: kind, reason: mark.reason().map(str::to_owned), overdue_ms }
    }
}

fn instance(machine: &Judged, now: Timestamp) -> InstanceJson {
    let time = |time: Option<Timestamp>| time.map(|t| t.to_string()).unwrap_or_default();
    let (record, status) = (&machine.record, &machine.status);
    let report = status.report.as_ref();
    InstanceJson {
        instance_id: record.id.to_string(),
        state: match record.state {
            State::Created => StateJson::Created,
            State::Idle => StateJson::Idle,
            State::Claimed => StateJson::Claimed,
            State::Running => StateJson::Running,
            State::Terminated => StateJson::Terminated,
        },
        marks: machine.marks.iter().map(MarkJson::from).collect(),
        run_id: record.run.as_ref().map(ToString::to_string).unwrap_or_default(),
        threshold: time(record.threshold),
        resource_class: record.spec.resource_class.to_string(),
        instance_type: record.spec.instance_type.clone(),
        usage_class: record.spec.usage_class.into(),
        cpu: record.spec.cpu,
        mem: record.spec.mem,
        created_at: record.created_at.to_string(),
        updated_at: record.updated_at.to_string(),
        ticketed_at: time(record.ticketed_at),
        preserved: record.is_preserved(),
        ready: machine.is_ready,
        heartbeat_age_ms: status.heartbeat.map(|beat| millis(now.since(beat.at))),
        signal: report.map(|report| report.signal.as_str().to_owned()),
        detail: report.map(|report| report.detail.clone()).filter(|detail| !detail.is_empty()),
    }
}
