//! Refresh as a function of AWS Lambda: this program as a custom runtime. Each call is one refresh
//! under a time limit; the inputs are variables.
//!
//! Nothing is kept from one call to the next but the program's inputs and secrets that AWS keeps: the
//! process is frozen in between, for hours perhaps, and connections, tokens and clocks of before are of
//! no use then.

#[cfg(test)]
mod template_tests;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ondeck_aws::{FunctionCall, RuntimeApi};
use ondeck_core::model::excerpt::one_line;
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::modes::refresh::{Outcome, SHORTEST_LIMIT};
use ondeck_core::ports::Progress;
use ondeck_core::runtime::stop::StopSignal;
use serde_json::{Value, json};

use crate::backend::aws::named_pool;
use crate::control::metrics::CallResult;
use crate::control::metrics::emf::{self, Declared};
use crate::control::modes::refresh_for;
use crate::control::observation::Observation;
use crate::inputs::{Common, Invocation};
use crate::logging;
use crate::surroundings::stop_on_signals;

/// What Lambda starts in a package for a custom runtime.
const BOOTSTRAP: &str = "bootstrap";

/// The longest that a call takes, so that one each minute never overlaps with the next.
const LONGEST: Duration = Duration::from_secs(50);

/// The end of a call: the refresh has ended, or is about to.
const END: Duration = Duration::from_secs(5);

/// The longest that the answer of a call takes. It is sent on loopback.
const ANSWER: Duration = Duration::from_secs(2);

/// What a trace takes at the most. It is not sent if that is not left.
const OBSERVATION: Duration = Duration::from_secs(2);

/// The name of the event that EventBridge sends when EC2 takes a spot machine away.
const SPOT_WARNING: &str = "EC2 Spot Instance Interruption Warning";

/// Whether this process was started as a custom runtime.
pub(crate) fn is_function() -> bool {
    let program = std::env::args_os().next().unwrap_or_default();
    Path::new(&program).file_name().is_some_and(|name| name == BOOTSTRAP)
        && RuntimeApi::of_environment().is_some()
}

/// Serves calls until the process is told to stop. Returns its exit code, which is not 0 if the
/// runtime API cannot be reached or the inputs cannot be used.
pub(crate) async fn serve(invocation: Result<Invocation, Failure>) -> u8 {
    let Some(api) = RuntimeApi::of_environment() else { return 1 };
    let mut common = match invocation {
        Ok(invocation) => invocation.common,
        Err(failure) => {
            if let Err(error) = api.fail_to_start(failure.kind.as_str(), &in_words(&failure)).await
            {
                logging::error(&error, "");
            }
            return logging::fail(&failure);
        }
    };
    // What was done is read later, and a call cannot be asked for more.
    common.verbose = common.verbose.max(1);
    logging::start(&common, std::io::stderr);
    let stop = stop_on_signals();
    loop {
        let call = match stop.unless_raised(api.next()).await {
            Ok(Ok(call)) => call,
            Ok(Err(error)) => {
                logging::error(&error, "");
                return FailureKind::Unavailable.exit_code();
            }
            Err(_) => return 0,
        };
        let answered = answer(&api, &common, &call, &stop).await;
        if let Err(error) = answered {
            tracing::error!("the call was not answered: {error}");
        }
    }
}

async fn answer(
    api: &RuntimeApi,
    common: &Common,
    call: &FunctionCall,
    stop: &StopSignal,
) -> Result<(), String> {
    let cause = cause(&call.event);
    tracing::info!("refreshes because of {cause}");
    let (began, observation) = (Instant::now(), Observation::begin("refresh"));
    let left = call.time_left();
    let result = refresh(common, left, stop, &observation).await;
    let ended = Instant::now();
    // Without a pool, the refresh has failed, and there is nothing to tell of.
    if let Ok(pool) = named_pool(common) {
        let (now, outcome) = (SystemTime::now(), result.as_ref().ok());
        let line = emf::line(&pool.to_string(), outcome, began.elapsed(), now, Declared::Alarms);
        emf::print(&line);
    }
    let warnings = result.iter().flat_map(|outcome| &outcome.warnings);
    warnings.for_each(|warning| tracing::warn!("{warning}"));
    // Before the answer, because the process is frozen after it.
    if ended + OBSERVATION + ANSWER <= began + Times::whole(left) {
        let (outcome, failure) = (result.as_ref().ok(), result.as_ref().err());
        let failure = failure.or(outcome.and_then(|it| it.failure.as_ref()));
        observation.end(common, ended, CallResult::Refresh(outcome), failure, None).await;
    }
    let result = result.and_then(|outcome| match &outcome.failure {
        None => Ok(outcome),
        Some(failure) => Err(failure.clone()),
    });
    let answered = async {
        match result {
            Ok(outcome) => api.respond(call, &told(&outcome, &cause)).await,
            Err(failure) => {
                tracing::error!("{}", in_words(&failure));
                api.fail(call, failure.kind.as_str(), &in_words(&failure)).await
            }
        }
    };
    tokio::time::timeout(ANSWER, answered)
        .await
        .unwrap_or_else(|_| Err("the runtime API does not take the answer".to_owned()))
}

/// How long the refresh of one call may take.
#[derive(Debug, PartialEq, Eq)]
struct Times {
    /// The limit that the refresh keeps by itself.
    limit: Duration,
    /// When it is cut off, connections to AWS and to GitHub included. The answer follows.
    cut_off: Duration,
}

impl Times {
    /// The times of a call that Lambda ends after `left`, so that the call ends within
    /// [`LONGEST`]. Fails if that is too little for a refresh.
    fn of(left: Option<Duration>) -> Result<Times, Failure> {
        let whole = Times::whole(left);
        let limit = whole.saturating_sub(END);
        if limit < SHORTEST_LIMIT {
            let message = format!("too little time for a refresh: {} s", whole.as_secs());
            let hint = "give the function a timeout of 60 seconds";
            return Err(Failure::new(FailureKind::Unavailable, message).hint(hint));
        }
        Ok(Times { limit, cut_off: whole.saturating_sub(ANSWER) })
    }

    /// How long the call may take.
    fn whole(left: Option<Duration>) -> Duration {
        left.unwrap_or(LONGEST).min(LONGEST)
    }
}

/// One refresh, within the time that is left for the call.
async fn refresh(
    common: &Common,
    left: Option<Duration>,
    stop: &StopSignal,
    observation: &Observation,
) -> Result<Outcome, Failure> {
    let Times { limit, cut_off } = Times::of(left)?;
    let progress = observation.watch(Arc::new(LoggedProgress));
    let refreshing = refresh_for(common, Some(limit), stop, progress);
    // Its limit does not cover the connection to AWS and to GitHub.
    let late = || Failure::new(FailureKind::Unavailable, "the refresh did not end in time");
    let refreshed = tokio::time::timeout(cut_off, refreshing).await;
    refreshed.map_err(|_| late())?.map(|refreshed| refreshed.report.outcome)
}

/// Why the function was called.
fn cause(event: &Value) -> String {
    match event["detail-type"].as_str() {
        Some(SPOT_WARNING) => {
            let machine = event["detail"]["instance-id"].as_str().unwrap_or("a machine");
            format!("a spot interruption: {}", one_line(&machine))
        }
        Some(other) => format!("an event: {}", one_line(&other)),
        None => "its schedule".to_owned(),
    }
}

/// The answer to a call.
fn told(outcome: &Outcome, cause: &str) -> Value {
    json!({
        "status": "ok",
        "cause": cause,
        "reaped": outcome.reaped.len(),
        "orphansTerminated": outcome.orphans.len(),
        "requeued": outcome.requeued.len(),
        "interrupted": outcome.interrupted.len(),
        "warmed": outcome.warmed,
        "starting": outcome.starting,
        "rescued": outcome.rescued.len(),
        "stranded": outcome.stranded.len(),
        "warnings": outcome.warnings.len(),
    })
}

/// A failure and its hint.
fn in_words(failure: &Failure) -> String {
    match failure.hint.as_str() {
        "" => failure.message.clone(),
        hint => format!("{}; hint: {hint}", failure.message),
    }
}

/// Writes each stage to the log.
struct LoggedProgress;

impl Progress for LoggedProgress {
    fn stage(&self, doing: &str) {
        tracing::info!("{doing}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_within_fifty_seconds_and_before_lambda_ends_it() {
        let seconds = Duration::from_secs;
        for (left, limit) in [
            (None, Some(45)),
            (Some(900), Some(45)),
            (Some(60), Some(45)),
            (Some(50), Some(45)),
            (Some(40), Some(35)),
            (Some(END.as_secs() + SHORTEST_LIMIT.as_secs()), Some(SHORTEST_LIMIT.as_secs())),
            (Some(END.as_secs() + SHORTEST_LIMIT.as_secs() - 1), None),
            (Some(0), None),
        ] {
            let times = Times::of(left.map(seconds)).ok();
            assert_eq!(times.as_ref().map(|it| it.limit), limit.map(seconds), "{left:?}");
            let Some(Times { limit, cut_off }) = times else { continue };
            assert!(limit < cut_off, "{left:?}");
            let end = cut_off + ANSWER;
            assert!(end <= LONGEST && left.is_none_or(|it| end <= seconds(it)), "{left:?}");
        }
    }

    #[test]
    fn the_log_says_why_a_refresh_ran() {
        let spot = json!({ "detail-type": SPOT_WARNING, "detail": { "instance-id": "i-1\n2" } });
        for (event, expected) in [
            (spot, "a spot interruption: i-1 2"),
            (json!({ "detail-type": "Scheduled Event" }), "an event: Scheduled Event"),
            (json!({}), "its schedule"),
            (Value::Null, "its schedule"),
            (json!(["any", 1]), "its schedule"),
        ] {
            assert_eq!(cause(&event), expected);
        }
    }
}
