//! The three modes as commands: reads the inputs, calls the mode, reports the outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ondeck_core::inputs::times::TimeOverrides;
use ondeck_core::model::failure::Failure;
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::provision::{Outcome, Request, await_set_up, set_up_patience};
use ondeck_core::modes::refresh as mode;
use ondeck_core::modes::release::{RUN_FAILED, release as mode_release, release_failed};
use ondeck_core::modes::status::judgement::{Judgement, judge};
use ondeck_core::modes::status::{Asked, Reading};
use ondeck_core::ports::{Progress, RecordScope};
use ondeck_core::runtime::stop::StopSignal;

use crate::control::backend::{self, ForRefresh};
use crate::control::github_actions;
use crate::control::inputs::{run_id, run_to_provision, secrets, settings};
use crate::control::metrics::CallResult;
use crate::control::notices;
use crate::control::observation::Observation;
use crate::control::progress::ProgressDisplay;
use crate::control::report::refresh::RefreshReport;
use crate::control::report::{Report, deliver};
use crate::inputs::Common;
use crate::logging;
use crate::surroundings::{WallClock, stop_on_signals};

/// Runs `ondeck refresh` and returns its exit code.
pub(crate) async fn refresh(common: &Common) -> u8 {
    // Before anything is printed, so that no output can show one.
    secrets(&common.given).for_each(|secret| crate::control::github_actions::mask(&secret));
    let observation = Observation::begin("refresh");
    let watcher = begin("refresh", common);
    let stop = stop_on_signals();
    let progress = observation.watch(Arc::new(watcher.clone()));
    let result = match mode::time_limit(&common.given) {
        Ok(limit) => refresh_for(common, limit, &stop, progress).await,
        Err(failure) => Err(failure),
    };
    let ended = Instant::now();
    watcher.finish();
    let told = result.as_ref().map(|it| &it.report as &dyn Report).map_err(Clone::clone);
    let code = deliver("refresh", told, common);
    let outcome = result.as_ref().ok().map(|it| &it.report.outcome);
    let failure = result.as_ref().err().or(outcome.and_then(|it| it.failure.as_ref()));
    let status = result.as_ref().ok().and_then(|it| it.status.as_ref());
    observation.end(common, ended, CallResult::Refresh(outcome), failure, status).await;
    code
}

/// What a refresh came to.
pub(crate) struct Refreshed {
    pub(crate) report: RefreshReport,
    /// The pool after it, if the metrics of this call are to have it.
    pub(crate) status: Option<Judgement>,
}

/// The pool as it is. `None` if it does not answer within a few seconds, or within `left`. The role of
/// refresh may not read hand-overs.
async fn look(plane: &Plane, left: Option<Duration>) -> Option<Judgement> {
    const LONGEST: Duration = Duration::from_secs(5);
    let asked = Asked { scope: RecordScope::Live, hand_overs: false, retries: false };
    let at_most = left.unwrap_or(LONGEST).min(LONGEST);
    match tokio::time::timeout(at_most, Reading::take(plane, asked)).await {
        Ok(Ok(reading)) => Some(judge(reading)),
        Ok(Err(failure)) => {
            tracing::warn!("the metrics are without the pool: {failure}");
            None
        }
        Err(_) => {
            tracing::warn!("the metrics are without the pool: no answer in time");
            None
        }
    }
}

/// Refreshes with the settings that are given or applied, or under the stored ones if those cannot be
/// used.
pub(crate) async fn refresh_for(
    common: &Common,
    limit: Option<Duration>,
    stop: &StopSignal,
    progress: Arc<dyn Progress>,
) -> Result<Refreshed, Failure> {
    let began = Instant::now();
    let invalid = settings(common).err();
    let opened = backend::plane_of_refresh(common, invalid.is_none(), progress).await;
    // A person can correct the inputs, so that failure is the one to report.
    let opened = opened.map_err(|failure| invalid.unwrap_or(failure))?;
    let ForRefresh { plane, stored, enforcement, webhook } = opened;
    let given = enforcement.settings.as_ref().map_err(Clone::clone);
    // Refresh handles the signal itself, because it may have machines to clean up.
    let mut result = match (limit, given) {
        (Some(limit), given) => mode::refresh_within(&plane, stored, given, limit, stop).await,
        (None, Ok(given)) => mode::refresh_from(&plane, stored, given, stop).await,
        (None, Err(failure)) => mode::refresh_unchanged(&plane, failure, stop).await,
    };
    // After a signal there is no time for it.
    if let (Ok(outcome), false) = (&mut result, stop.is_raised()) {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        notices::tell(&plane, webhook, outcome, left).await;
    }
    let status = match stop.is_raised() || !Observation::shows_pool(common) {
        true => None,
        false => look(&plane, limit.map(|limit| limit.saturating_sub(began.elapsed()))).await,
    };
    finish(&plane, stop).await;
    Ok(Refreshed { report: RefreshReport::new(result?, enforcement), status })
}

/// Runs `ondeck provision` and returns its exit code.
pub(crate) async fn provision(common: &Common) -> u8 {
    let observation = Observation::begin("provision");
    let watcher = begin("provision", common);
    let stop = stop_on_signals();
    let progress = observation.watch(Arc::new(watcher.clone()));
    let request =
        run_to_provision(&common.given).and_then(|run| Request::from_inputs(run, &common.given));
    let mut request = match request {
        Ok(request) => request,
        Err(failure) => {
            let ended = Instant::now();
            watcher.finish();
            let code = deliver("provision", Err(failure.clone()), common);
            let result = CallResult::Provision(None);
            observation.end(common, ended, result, Some(&failure), None).await;
            return code;
        }
    };
    let opened = stop.unless_raised(open_once_set_up(common, &mut request, progress)).await;
    let mut ended = Instant::now();
    let outcome = match opened.unwrap_or_else(|stop| Err(stop.into())) {
        // Provision handles the signal itself, because it must clean up.
        Ok(plane) => {
            let outcome = ondeck_core::modes::provision::provision(&plane, &request, &stop).await;
            ended = Instant::now();
            finish(&plane, &stop).await;
            outcome
        }
        Err(failure) => Outcome::refused(&request, failure),
    };
    watcher.finish();
    let code = deliver("provision", Ok(&outcome), common);
    let (result, failure) = (CallResult::Provision(Some(&outcome)), outcome.failure.as_ref());
    observation.end(common, ended, result, failure, None).await;
    code
}

/// Runs `ondeck release` and returns its exit code.
pub(crate) async fn release(common: &Common) -> u8 {
    let observation = Observation::begin("release");
    let watcher = begin("release", common);
    let stop = stop_on_signals();
    let progress = observation.watch(Arc::new(watcher.clone()));
    let work = async {
        let run = run_id(&common.given)?;
        let plane = stop.unless_raised(open(common, progress)).await??;
        let times = TimeOverrides::from_inputs(&common.given).map_err(Failure::invalid)?;
        let released = async {
            match common.given.is_set(&RUN_FAILED) {
                true => release_failed(&plane, &run, &times).await,
                false => mode_release(&plane, &run, &times).await,
            }
        };
        let result = stop.unless_raised(released).await;
        // Also after a signal: the events of what was done until then are still to be written.
        finish(&plane, &stop).await;
        result?
    };
    let result: Result<_, Failure> = work.await;
    let ended = Instant::now();
    watcher.finish();
    let told = result.as_ref().map(|outcome| outcome as &dyn Report).map_err(Clone::clone);
    let code = deliver("release", told, common);
    let outcome = result.as_ref().ok();
    let failure = result
        .as_ref()
        .err()
        .cloned()
        .or_else(|| outcome.and_then(ondeck_core::modes::release::Outcome::failure));
    observation.end(common, ended, CallResult::Release(outcome), failure.as_ref(), None).await;
    code
}

/// Starts logs and progress.
pub(crate) fn begin(mode: &'static str, common: &Common) -> ProgressDisplay {
    let watcher = ProgressDisplay::start(mode, common);
    logging::start(common, watcher.clone());
    watcher
}

async fn open(common: &Common, progress: Arc<dyn Progress>) -> Result<Plane, Failure> {
    backend::plane(common, progress).await
}

/// Connects, and waits for the first refresh if there is no store to connect to. Outside of a
/// workflow it fails at once, because a person waits for the answer, unless the patience was given.
async fn open_once_set_up(
    common: &Common,
    request: &mut Request,
    progress: Arc<dyn Progress>,
) -> Result<Plane, Failure> {
    let is_given =
        request.times.0.iter().any(|(input, _)| *input == "registration-token-patience-sec");
    if !is_given && !github_actions::is_active() {
        request.set_up_patience = Some(Duration::ZERO);
    }
    let patience = set_up_patience(request);
    await_set_up(&WallClock, &*progress, patience, || open(common, progress.clone())).await
}

/// Lets the store write the events that it batches. A failure costs only events, so it is a warning.
/// After a signal it has half of the time: the clean-up may have taken 5 s, and GitHub sends SIGTERM
/// after 7.5 s.
pub(crate) async fn finish(plane: &Plane, stop: &StopSignal) {
    let at_most = Duration::from_secs(if stop.is_raised() { 1 } else { 2 });
    match tokio::time::timeout(at_most, plane.store.finish()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!("not every event was written: {error}"),
        Err(_) => tracing::warn!("not every event was written in time"),
    }
}
