//! `ondeck teardown`: asks, tears the pool down, and names what it did not create.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::plane::Plane;
use ondeck_core::modes::teardown as mode;
use ondeck_core::ports::Infrastructure;
use ondeck_core::runtime::stop::StopSignal;

use crate::control::backend::{self, ToTearDown};
use crate::control::inputs::secrets;
use crate::control::modes::{begin, finish};
use crate::control::progress::ProgressDisplay;
use crate::control::report::teardown::TeardownReport;
use crate::control::report::{Report, deliver};
use crate::inputs::{Common, rows};
use crate::surroundings::stop_on_signals;

/// Runs the command and returns its exit code.
pub(crate) async fn teardown(common: &Common) -> u8 {
    secrets(&common.given).for_each(|secret| crate::control::github_actions::mask(&secret));
    let watcher = begin("teardown", common);
    let stop = stop_on_signals();
    let result = carry_out(common, &watcher, &stop).await;
    watcher.finish();
    let told = result.as_ref().map(|report| report as &dyn Report).map_err(Clone::clone);
    deliver("teardown", told, common)
}

async fn carry_out(
    common: &Common,
    watcher: &ProgressDisplay,
    stop: &StopSignal,
) -> Result<TeardownReport, Failure> {
    let ToTearDown { name, plane, parts, leftovers } =
        stop.unless_raised(backend::to_tear_down(common, Arc::new(watcher.clone()))).await??;
    let given = &common.given;
    let report = |outcome| TeardownReport::new(&name, outcome, leftovers);
    if given.is_set(&rows::CANCEL) {
        let plane = plane.ok_or_else(|| {
            Failure::invalid(format!("there is no such pool: {name}"))
                .hint("ondeck refresh creates it")
        })?;
        let was_closed = stop.unless_raised(mode::cancel(&plane)).await??;
        return Ok(TeardownReport::cancelled(name, was_closed));
    }
    if given.is_set(&rows::DRY_RUN) {
        let outcome = match &plane {
            Some(plane) => mode::plan(plane, &parts, stop).await?,
            None => mode::files(&parts, true).await,
        };
        return Ok(report(outcome));
    }
    if !given.is_set(&rows::YES) {
        confirm(&name, plane.as_ref(), &parts, stop).await?;
    }
    let outcome = match &plane {
        None => mode::files(&parts, false).await,
        Some(plane) => {
            let minutes = given.text(&rows::WAIT).and_then(|text| text.parse().ok()).unwrap_or(0);
            let wait = Duration::from_secs(60 * minutes);
            let options = mode::Options { force: given.is_set(&rows::FORCE), wait };
            let outcome = mode::teardown(plane, &parts, options, stop).await;
            finish(plane, stop).await;
            outcome
        }
    };
    Ok(report(outcome))
}

/// Shows what would be deleted, and asks for the pool's name. Fails if it is not typed, or if there is
/// no terminal to ask on.
async fn confirm(
    name: &str,
    plane: Option<&Plane>,
    parts: &[Arc<dyn Infrastructure>],
    stop: &StopSignal,
) -> Result<(), Failure> {
    let refused = |message: &str| {
        Failure::invalid(message.to_owned()).hint("type the name of the pool, or give --yes")
    };
    if !std::io::stdin().is_terminal() {
        return Err(refused("teardown asks for a confirmation, and stdin is not a terminal"));
    }
    let plan = match plane {
        Some(plane) => mode::plan(plane, parts, stop).await?,
        None => mode::files(parts, true).await,
    };
    let plan = TeardownReport::new(name, plan, Vec::new());
    let mut stderr = anstream::stderr().lock();
    let asked = writeln!(stderr, "{}", plan.text())
        .and_then(|()| write!(stderr, "type {name} to go on: "))
        .and_then(|()| stderr.flush());
    asked.map_err(|error| refused(&format!("the question cannot be shown: {error}")))?;
    drop(stderr);
    // Another thread waits for the answer, so that a signal ends the command meanwhile.
    let (answer, answered) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line).map(|_| line);
        answer.send(read).ok();
    });
    match stop.unless_raised(answered).await? {
        Ok(Ok(line)) if line.trim() == name => Ok(()),
        _ => Err(refused("the pool was not confirmed, so nothing was changed")),
    }
}
