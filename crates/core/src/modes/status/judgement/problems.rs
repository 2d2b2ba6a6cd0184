//! What is wrong with a pool, for people to look at.

use super::{Judged, Problem, ProblemKind, Summary};
use crate::model::ids::InstanceId;
use crate::model::record::Unreadable;
use crate::model::settings::Settings;
use crate::modes::refresh::SpendUse;

/// What is wrong, the most urgent first.
pub(super) fn problems(
    settings: &Settings,
    summary: &Summary,
    machines: &[Judged],
    unreadable: &[Unreadable],
) -> Vec<Problem> {
    let of_pool =
        |kind, message: String, hint| Problem { kind, machines: Vec::new(), message, hint };
    let with = |kind, word: &str, message: &str, hint| {
        let has = |machine: &&Judged| machine.marks.iter().any(|mark| mark.as_str() == word);
        let found: Vec<&Judged> = machines.iter().filter(has).collect();
        let machines: Vec<InstanceId> = found.iter().map(|it| it.record.id.clone()).collect();
        let message = format!("{} {message}", counted(found.len()));
        (!machines.is_empty()).then_some(Problem { kind, machines, message, hint })
    };
    let closed = settings.closed.map(|at| {
        let message = format!("the pool is closed by ondeck teardown, since {at}");
        of_pool(ProblemKind::Closed, message, "ondeck teardown --cancel opens it again")
    });
    let overdue = summary.refresh_overdue.then(|| {
        let message = "refresh is overdue".to_owned();
        of_pool(ProblemKind::RefreshOverdue, message, "check its schedule, or run ondeck refresh")
    });
    let unknown = (summary.refreshed.is_none() && settings.closed.is_none()).then(|| {
        let message = "the last refresh has failed, or none has succeeded yet".to_owned();
        of_pool(ProblemKind::RefreshFailed, message, "run ondeck refresh and see what it reports")
    });
    let full = summary.ceilings.iter().filter(|it| it.machines.is_some_and(|n| n >= it.max));
    let full = full.map(|it| {
        let of = it.class.as_ref().map_or("the pool".to_owned(), |class| format!("class {class}"));
        let message = format!("{of} has as many machines as max-machines allows: {}", it.max);
        of_pool(ProblemKind::AtCeiling, message, "raise max-machines, or wait for machines to end")
    });
    let spend = summary.spend.filter(SpendUse::is_near_cap);
    let spend = spend.map(|it| {
        let message = format!(
            "four fifths of max-spend-per-day or more are spent or reserved on {} (UTC): {}",
            it.date(),
            it.cap
        );
        of_pool(
            ProblemKind::SpendNearCap,
            message,
            "raise max-spend-per-day, or wait for the next day",
        )
    });
    let unreadable = (!unreadable.is_empty()).then(|| {
        let message = format!("records that cannot be read: {}", unreadable.len());
        of_pool(
            ProblemKind::Unreadable,
            message,
            "ondeck doctor gives the command that deletes them",
        )
    });
    let of_machines = [
        with(
            ProblemKind::Silent,
            "silent",
            "without a recent heartbeat",
            "see the machine's log; ondeck refresh terminates it at its threshold",
        ),
        with(
            ProblemKind::Failed,
            "failed",
            "whose agent reports a failure",
            "see the machine's log and the pre-runner script",
        ),
        with(
            ProblemKind::Overdue,
            "overdue",
            "past the threshold",
            "ondeck refresh terminates them",
        ),
        with(
            ProblemKind::Unready,
            "unready",
            "not registered while idle",
            "ondeck explain MACHINE tells why; runs can claim it and wait until it registers",
        ),
    ];
    let first = closed.into_iter().chain(overdue).chain(unknown);
    first
        .chain(of_machines.into_iter().flatten())
        .chain(full)
        .chain(spend)
        .chain(unreadable)
        .collect()
}

fn counted(machines: usize) -> String {
    if machines == 1 { "1 machine".to_owned() } else { format!("{machines} machines") }
}
