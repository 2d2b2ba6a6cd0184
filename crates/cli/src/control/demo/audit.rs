//! The closing audit: checks the event log, the jobs, the records and the process list.

use ondeck_core::audit::{JobSighting, Ownership, illegal_events, jobs_outside_ownership};
use ondeck_core::model::failure::Failure;
use ondeck_core::model::record::{EventRow, State};
use ondeck_core::ports::{Forge, RecordScope};
use ondeck_local::Job;

use super::harness::DemoHarness;
use crate::control::status::judged;

/// A claim, and the violations found. `None` if it holds.
pub(super) struct Finding {
    pub(super) claim: String,
    pub(super) problem: Option<String>,
}

fn finding(claim: String, problems: &[String]) -> Finding {
    let problem = (!problems.is_empty()).then(|| problems.join("; "));
    Finding { claim, problem }
}

pub(super) async fn audit(harness: &DemoHarness) -> Result<Vec<Finding>, Failure> {
    let local = harness.local()?;
    let events = local.store.events().await?;
    let jobs = local.forge.jobs().await?;
    let status = judged(&harness.plane().await?, RecordScope::Live).await?;
    let machines = harness.machines().await?;
    let runners = local.forge.runners().await?;
    let tickets: usize = status.tickets.iter().map(|(_, tickets)| tickets).sum();
    let launched = events.iter().filter(|event| event.transition == "register").count();
    let ended = events.iter().filter(|event| event.to == State::Terminated).count();
    let left = |what: &str, count: usize| match count {
        0 => Vec::new(),
        count => vec![format!("{count} {what}")],
    };
    Ok(vec![
        finding(
            format!("{} transitions: all legal, no machine ever shared", events.len()),
            &illegal_events(&events),
        ),
        finding(
            format!("{} jobs: each ran on a machine that its run owned at the time", jobs.len()),
            &misplaced(&jobs, &events),
        ),
        finding(
            format!("{launched} machines launched, {ended} terminated"),
            &left("launched but not terminated", launched.abs_diff(ended)),
        ),
        finding(
            "no process, no live record, no ticket and no runner is left".to_owned(),
            &[
                left("processes", machines.len()),
                left("live records", status.machines.len()),
                left("tickets", tickets),
                left("runners", runners.len()),
            ]
            .concat(),
        ),
    ])
}

/// Where each job ran, when it started. A job that never started has no sighting, and is a problem
/// of its own.
fn misplaced(jobs: &[Job], events: &[EventRow]) -> Vec<String> {
    let (mut sightings, mut problems) = (Vec::new(), Vec::new());
    for job in jobs {
        match (&job.instance, job.started_at) {
            (Some(instance), Some(at)) => sightings.push(JobSighting {
                job: job.id.to_string(),
                run: job.label.clone(),
                instance: instance.clone(),
                at,
            }),
            _ => problems.push(format!("job {} of run {} never started", job.id, job.label)),
        }
    }
    problems.extend(jobs_outside_ownership(&Ownership::from_events(events), &sightings));
    problems
}
