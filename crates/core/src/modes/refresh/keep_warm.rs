//! Keep warm: launches machines until the configured minimum of idle ones is reached. They are
//! provisioned for a run of refresh's own and then released, so each of them has been validated and
//! has passed the handshake before it enters the pool.

use super::Outcome;
use crate::inputs::times::TimeOverrides;
use crate::model::failure::{Failure, FailureKind};
use crate::model::ids::{ResourceClass, RunId};
use crate::model::record::{Record, State};
use crate::model::requirements::UsageClass;
use crate::model::settings::Settings;
use crate::modes::plane::{Plane, readable};
use crate::modes::provision::{Origin, ProvisionOptions, Request, provision};
use crate::modes::release::release;
use crate::ports::RecordScope;
use crate::runtime::stop::StopSignal;

/// The ids of the runs for which refresh provisions begin with this.
const RUN_PREFIX: &str = "keep-warm-";

pub(super) async fn keep_warm(
    plane: &Plane,
    settings: &Settings,
    stop: &StopSignal,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    for (class, minimum) in settings.min_idle.iter() {
        let live = readable(plane.retried(|| plane.store.list(RecordScope::Live)).await?);
        let now = plane.now();
        let present = live.iter().filter(|r| !r.is_expired(now) && counts(r, class)).count();
        let missing = minimum.saturating_sub(u32::try_from(present).unwrap_or(u32::MAX));
        if missing == 0 {
            continue;
        }
        plane.progress.stage(&format!("launching {class} machines to keep warm: {missing}"));
        match warm_up(plane, settings, class, missing, stop).await {
            Ok(warmed) => outcome.warmed += warmed,
            Err(failure)
                if matches!(failure.kind, FailureKind::Interrupted | FailureKind::Stopped) =>
            {
                return Err(failure);
            }
            Err(failure) => {
                outcome.warnings.push(format!("class {class} is below its minimum: {failure}"));
            }
        }
    }
    Ok(())
}

/// Whether a record counts towards the minimum: it is idle, or a refresh is warming it up.
fn counts(record: &Record, class: &ResourceClass) -> bool {
    let warming = record.run.as_ref().is_some_and(|run| run.as_str().starts_with(RUN_PREFIX));
    record.spec.resource_class == *class && (record.state == State::Idle || warming)
}

async fn warm_up(
    plane: &Plane,
    settings: &Settings,
    class: &ResourceClass,
    count: u32,
    stop: &StopSignal,
) -> Result<usize, Failure> {
    let run = RunId::new(format!("{RUN_PREFIX}{:016x}", plane.random.number()))
        .map_err(|error| Failure::new(FailureKind::Unexpected, error.to_string()))?;
    let request = Request {
        run: run.clone(),
        options: ProvisionOptions {
            count,
            class: class.clone(),
            usage: UsageClass::OnDemand,
            ..ProvisionOptions::default()
        },
        // Long enough to be released, and short enough to expire soon if this process dies first.
        times: TimeOverrides(vec![("max-runtime-min", settings.times.release_timeout * 2)]),
        origin: Origin::KeepWarm,
    };
    let provisioned = provision(plane, &request, stop).await;
    if let Some(failure) = provisioned.failure {
        return Err(failure);
    }
    let released = stop.unless_raised(release(plane, &run, &TimeOverrides::default())).await??;
    match released.failure() {
        Some(failure) => Err(failure),
        None => Ok(released.instances.len()),
    }
}
