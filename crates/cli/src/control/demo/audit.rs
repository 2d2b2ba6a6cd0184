//! The audit: what the story claims, computed from the events, the jobs, the records and the
//! process list.

use std::collections::BTreeMap;

use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::EventRow;
use ondeck_core::model::record::State;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Forge, Scope};
use ondeck_local::Job;

use super::crew::Crew;
use crate::control::status::Snapshot;

/// One claim, and what speaks against it.
pub(super) struct Finding {
    pub(super) claim: String,
    pub(super) problem: Option<String>,
}

fn finding(claim: String, problems: &[String]) -> Finding {
    let problem = (!problems.is_empty()).then(|| problems.join("; "));
    Finding { claim, problem }
}

pub(super) async fn audit(crew: &Crew) -> Result<Vec<Finding>, Failure> {
    let local = crew.local()?;
    let events = local.store.events().await?;
    let jobs = local.forge.jobs().await?;
    let snapshot = Snapshot::take(&crew.plane().await?, Scope::Live).await?;
    let machines = crew.machines().await?;
    let runners = local.forge.runners().await?;
    let tickets: usize = snapshot.pool.iter().map(|(_, tickets)| tickets).sum();
    let launched = events.iter().filter(|event| event.transition == "register").count();
    let ended = events.iter().filter(|event| event.to == State::Terminated).count();
    let left = |what: &str, count: usize| match count {
        0 => Vec::new(),
        count => vec![format!("{count} {what}")],
    };
    Ok(vec![
        finding(
            format!("{} transitions, every one legal, no owner ever shared", events.len()),
            &illegal(&events),
        ),
        finding(
            format!("{} jobs, each on a machine that its run owned at the time", jobs.len()),
            &misplaced(&jobs, &events),
        ),
        finding(
            format!("{launched} machines launched, {ended} ended"),
            &left("more launched than ended", launched.abs_diff(ended)),
        ),
        finding(
            "no process, no live record, no ticket, no runner is left".to_owned(),
            &[
                left("processes", machines.len()),
                left("live records", snapshot.instances.len()),
                left("tickets", tickets),
                left("runners", runners.len()),
            ]
            .concat(),
        ),
    ])
}

/// Replays the events of each instance: every one must start where the last one ended, and an
/// owner may change only by way of idle.
fn illegal(events: &[EventRow]) -> Vec<String> {
    let mut standing: BTreeMap<&InstanceId, (Option<State>, Option<&RunId>)> = BTreeMap::new();
    let mut problems = Vec::new();
    for event in events {
        let (state, owner) = standing.get(&event.instance).copied().unwrap_or_default();
        let taken_over = owner.is_some() && event.run.is_some() && owner != event.run.as_ref();
        if event.from != state || taken_over {
            problems.push(format!("{} {} at {}", event.instance, event.transition, event.at));
        }
        standing.insert(&event.instance, (Some(event.to), event.run.as_ref()));
    }
    problems
}

/// A job's machine must have belonged to the job's run from the job's start on.
fn misplaced(jobs: &[Job], events: &[EventRow]) -> Vec<String> {
    let owned = |id: &InstanceId, run: &RunId, at: Timestamp| {
        let mut before = events.iter().filter(|event| event.instance == *id && event.at <= at);
        before.next_back().is_some_and(|event| event.run.as_ref() == Some(run))
    };
    jobs.iter()
        .filter(|job| match (&job.instance, job.started_at) {
            (Some(id), Some(at)) => !owned(id, &job.label, at),
            _ => true,
        })
        .map(|job| format!("job {} of run {}", job.id, job.label))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(transition: &str, from: Option<State>, to: State, run: Option<&str>) -> EventRow {
        EventRow {
            instance: InstanceId::new("i-1").unwrap(),
            at: Timestamp::from_millis(1),
            transition: transition.to_owned(),
            from,
            to,
            run: run.map(|run| RunId::new(run).unwrap()),
            why: String::new(),
        }
    }

    #[test]
    fn a_shared_owner_and_a_torn_history_are_found() {
        let sound = [
            event("register", None, State::Created, Some("1")),
            event("activate", Some(State::Created), State::Running, Some("1")),
            event("release", Some(State::Running), State::Idle, None),
            event("claim", Some(State::Idle), State::Claimed, Some("2")),
        ];
        assert!(illegal(&sound).is_empty());
        let stolen = event("claim", Some(State::Claimed), State::Claimed, Some("3"));
        assert_eq!(illegal(&[&sound[..], &[stolen]].concat()).len(), 1);
        let torn = event("commit", Some(State::Idle), State::Running, Some("2"));
        assert_eq!(illegal(&[&sound[..], &[torn]].concat()).len(), 1);
    }
}
