//! The story of a machine.

use ondeck_core::model::departure::Departure;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::record::{EventRow, Record, State};
use ondeck_core::model::reuse::Reuse;
use ondeck_core::model::signal::{AgentStatus, Pulse};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::explain::{MachineStory, Step};

use super::words::{because, clock, one_line, span};
use super::{INTERRUPTED, Line, LineKind, gap, saw_late, when};

/// The life of the machine, oldest first.
pub(super) fn timeline(story: &MachineStory) -> Vec<Line> {
    let id = story.id.to_string();
    let line = |step: &Step| match step {
        Step::Gap(missing) => gap(missing, &id),
        Step::Event { event, before } => {
            let text = sentence(event, before.as_ref());
            Line::new(event.at, LineKind::Event, text).about([&id])
        }
    };
    let mut lines: Vec<Line> = story.life.iter().map(line).collect();
    let late = story.sight.as_ref().and_then(|sight| saw_late(sight, &id));
    if lines.is_empty() {
        let text = "No event of this machine is stored, so its life is unknown.";
        lines.push(Line::new(None, LineKind::Unknown, text).about([&id]));
    }
    lines.extend(late);
    // Stable: what happened in the same millisecond stays in this order.
    lines.sort_by_key(Line::order);
    lines
}

/// What happened to the machine, to which run, and why.
fn sentence(event: &EventRow, before: Option<&RunId>) -> String {
    let run = |run: Option<&RunId>| match run {
        Some(run) => format!("run {run}"),
        None => "an unknown run".to_owned(),
    };
    let (after, earlier) = (run(event.run.as_ref()), run(before));
    let why = because(&event.why);
    match event.transition.as_str() {
        "register" => format!("It was launched for {after} and got its record{why}."),
        "activate" => format!("It was ready, and was handed to {after}{why}."),
        "claim" => format!("{} claimed it from the pool{why}.", capital(&after)),
        "commit" => format!("It passed its checks and was handed to {after}{why}."),
        "release" => format!("{} released it into the pool{why}.", capital(&earlier)),
        "give-back" => format!("{} gave it back to the pool{why}.", capital(&earlier)),
        "renew" => format!("It got more time as {}{why}.", event.to),
        "preserve" => format!("It is kept for people to examine, after {after}{why}."),
        "retire" => format!("It is to be replaced when it is idle{why}."),
        "drain" => format!("It is to serve no further run{why}."),
        "expire" => format!("Its time as {} was declared over{why}.", event.to),
        "reap" => format!("Its record was set to terminated{why}."),
        other => format!("{} made it {}{why}.", one_line(other), event.to),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}", first.unwrap_or_default(), letters.as_str())
}

/// Its state, its deadline, and why it is still there.
pub(super) fn present(story: &MachineStory) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(problem) = &story.unreadable {
        lines.push(format!("Its state is unknown: {problem}."));
    }
    match &story.record {
        Some(record) => {
            lines.push(described(record));
            lines.extend(still_there(record, story));
            lines.extend(registration(record, story));
            if record.state.is_live() {
                lines.push(agent(&story.status, story.now));
            }
        }
        None if story.unreadable.is_none() => {
            let ended = story.life.iter().rev().find_map(Step::event).map(|(event, _)| event.to);
            lines.push(match ended {
                Some(State::Terminated) => {
                    "It is terminated, and its record was deleted.".to_owned()
                }
                _ => "It has no record now; whether the machine exists is unknown.".to_owned(),
            });
        }
        None => {}
    }
    lines
}

fn described(record: &Record) -> String {
    let spec = &record.spec;
    let owner = record.label().map(|label| format!(", of run {label}")).unwrap_or_default();
    let served = match record.counts.runs {
        1 => "given to 1 run so far".to_owned(),
        runs => format!("given to {runs} runs so far"),
    };
    format!(
        "It is {}{owner}: {}, {}, class {}, {served}.",
        if record.is_preserved() { "preserved" } else { record.state.as_str() },
        spec.instance_type,
        spec.usage_class,
        spec.resource_class,
    )
}

/// Why the machine is still there, and until when.
fn still_there(record: &Record, story: &MachineStory) -> Vec<String> {
    let Some(threshold) = record.threshold else {
        return vec![
            "The machine itself should be gone. If it still runs, its agent ends it when it reads the \
             record, and refresh terminates it as an orphan."
                .to_owned(),
        ];
    };
    let (deadline, own) = (when(threshold, story.now), clock(threshold + story.grace));
    if record.is_expired(story.now) {
        return vec![format!(
            "Its time was over at {deadline}. It is there until the next refresh terminates it, or \
             its agent does so itself from {own} on."
        )];
    }
    let mut lines = vec![match record.state {
        State::Created => {
            format!("It starts up for its run, and has time for that until {deadline}.")
        }
        State::Claimed => format!(
            "Its run is checking it, until {deadline} at the latest. If that provision was killed, the \
             run's release gives it back."
        ),
        State::Running if record.is_preserved() => {
            format!("Its run failed, and it is kept for people to examine until {deadline}.")
        }
        State::Running => {
            format!("Its run may use it until it releases it, or until {deadline}.")
        }
        State::Idle if record.reuse == Reuse::Never => {
            format!("It has served its run and serves no other. It is there until {deadline}.")
        }
        State::Idle if record.departure.is_drained() => {
            format!("It was drained, so no run may claim it. It is there until {deadline}.")
        }
        State::Idle => format!("It waits for a run to claim it, until {deadline}."),
        State::Terminated => String::new(),
    }];
    lines.extend(leaves(record));
    let may_be_claimed = record.reuse != Reuse::Never && !record.departure.is_drained();
    if record.state == State::Idle && may_be_claimed {
        lines.push(match record.ticketed_at {
            Some(at) => format!("The pool announces it since {}.", clock(at)),
            None => "The pool does not announce it, so no run can find it until a refresh does."
                .to_owned(),
        });
    }
    lines.push(format!(
        "Past that time, refresh terminates it, or its agent does so itself from {own} on."
    ));
    lines
}

/// What its runner is registered with, in a pool where that is a label of the machine.
fn registration(record: &Record, story: &MachineStory) -> Option<String> {
    if let Some(label) = record.requested.named() {
        return Some(format!("Jobs of the run reach it under the label {label}."));
    }
    let is_idle = record.state == State::Idle && !record.is_expired(story.now);
    if !is_idle || !story.registers_idle {
        return None;
    }
    let generation = record.counts.generation;
    if let Some((since, why)) =
        story.status.why_not_ready((generation, record.updated_at), story.now)
    {
        return Some(format!(
            "It is not registered, since {}{}. A run that claims it waits until it is.",
            when(since, story.now),
            because(why)
        ));
    }
    let registered = story.status.readiness.as_ref()?.registration(generation)?;
    story.status.is_ready_in(generation, story.now).then(|| {
        format!("It is online under the label {}, so a claim need not wait.", registered.label)
    })
}

/// What an operator has decided about it.
fn leaves(record: &Record) -> Option<String> {
    let what = match (record.departure, record.state) {
        (Departure::None, _) => return None,
        (Departure::Drained, State::Idle) => "The next refresh terminates it.",
        (Departure::Drained, _) => {
            "It was drained: it serves no further run, and is terminated after its present one."
        }
        (Departure::Retired, State::Idle) => {
            "It is retired: refresh replaces it, and until then a run may claim it."
        }
        (Departure::Retired, _) => "It is retired: after its run it does not return to the pool.",
    };
    Some(what.to_owned())
}

fn agent(status: &AgentStatus, now: Timestamp) -> String {
    let pulse = match (status.pulse(now), status.heartbeat) {
        (Pulse::Healthy, Some(beat)) => {
            format!("Its agent is alive: heartbeat {} ago", span(now.since(beat.at)))
        }
        (Pulse::Never, _) | (_, None) => "Its agent has sent no heartbeat".to_owned(),
        (Pulse::Stale(_), Some(_)) => {
            format!("Its agent may be dead: {}", one_line(&status.why_unhealthy(now)))
        }
    };
    let signal = match &status.report {
        None => ", and no signal".to_owned(),
        Some(report) => {
            let about = report.label().map(|label| format!(" for run {label}")).unwrap_or_default();
            let detail = because(&report.detail);
            format!("; last signal {}{about} at {}{detail}", report.signal, clock(report.at))
        }
    };
    let interrupted = match status.is_interrupted() {
        true => format!(" {INTERRUPTED}"),
        false => String::new(),
    };
    format!("{pulse}{signal}.{interrupted}")
}
