//! `ondeck drill`: shows a plan, asks for consent, disturbs machines of the pool, and reports.

mod children;
mod programs;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::model::failure::Failure;
use ondeck_core::modes::drill::{Look, Options, Planned, Scenario, carry_out, plan};
use ondeck_core::modes::plane::Plane;
use ondeck_core::ports::Random;
use ondeck_core::runtime::stop::StopSignal;

use self::programs::Modes;
use crate::control::backend::{self, ToExamine, to_examine};
use crate::control::modes::{begin, finish};
use crate::control::progress::ProgressDisplay;
use crate::control::report::drill::DrillReport;
use crate::control::report::{Report, deliver};
use crate::inputs::{Backend, Common, rows};
use crate::surroundings::{Entropy, stop_on_signals};

/// Runs the command and returns its exit code.
pub(crate) async fn drill(common: &Common) -> u8 {
    let watcher = begin("drill", common);
    let stop = stop_on_signals();
    let result = carried_out(common, &watcher, &stop).await;
    watcher.finish();
    let told = result.as_ref().map(|report| report as &dyn Report).map_err(Clone::clone);
    deliver("drill", told, common)
}

async fn carried_out(
    common: &Common,
    watcher: &ProgressDisplay,
    stop: &StopSignal,
) -> Result<DrillReport, Failure> {
    let pool = name(common)?;
    let options = options(common);
    let opened = stop.unless_raised(to_examine(common)).await??;
    let planned = planned(&opened, &options, stop).await?;
    let report = DrillReport::planned(&pool, &options, planned);
    if common.given.is_set(&rows::DRY_RUN) {
        return Ok(report);
    }
    if let Err(refused) = consent(common, &pool, &report, watcher, stop).await {
        return Ok(report.refused(refused));
    }
    let plane = Plane { progress: Arc::new(watcher.clone()), ..opened.plane.clone() };
    let settings = stop.unless_raised(plane.settings()).await??;
    let modes = Modes::new(common, plane.clone(), &settings.times, stop.clone())?;
    let outcome = carry_out(&plane, &opened.forge(), &modes, &options, stop).await;
    // Also after a failure: the events of what was done until then are still to be written.
    finish(&plane, stop).await;
    Ok(report.played(outcome?))
}

/// What a person types to consent: the pool's name, or the path of a local one.
fn name(common: &Common) -> Result<String, Failure> {
    match common.records {
        Backend::Local => Ok(crate::backend::home_dir(common)?.display().to_string()),
        Backend::Aws => backend::pool_name(common),
    }
}

fn options(common: &Common) -> Options {
    let given = &common.given;
    let named = given.text(&rows::SCENARIO).and_then(|text| rows::scenarios(text).ok());
    let minutes = given.text_or_default(&rows::RECOVERY).and_then(|text| text.parse().ok());
    Options {
        name: format!("drill-{:08x}", Entropy.number() >> 32),
        scenarios: named.unwrap_or_else(|| BTreeSet::from(Scenario::ALL)),
        class: given.text(&rows::CLASS).and_then(|text| text.parse().ok()),
        may_launch: given.is_set(&rows::LAUNCH),
        no_interruption: no_interruption(common),
        patience: Duration::from_secs(60 * minutes.unwrap_or(0)),
    }
}

/// Why no machine can be interrupted.
fn no_interruption(common: &Common) -> Option<String> {
    if common.compute == Backend::Local {
        return Some("machines on this computer get no notice of an interruption".to_owned());
    }
    let is_given = common.given.text(&rows::INTERRUPT_COMMAND).is_some();
    (!is_given).then(|| {
        "EC2 interrupts a machine only through AWS Fault Injection Service; give \
         --interrupt-command"
            .to_owned()
    })
}

/// Asks for the pool's name at a terminal, unless it was given. Fails if it is another one, or if there
/// is no terminal to ask on.
async fn consent(
    common: &Common,
    pool: &str,
    plan: &DrillReport,
    watcher: &ProgressDisplay,
    stop: &StopSignal,
) -> Result<(), Failure> {
    let refused = |message: &str| {
        Failure::invalid(message.to_owned())
            .hint(format!("give --confirm {pool}, or look with --dry-run"))
    };
    match common.given.text(&rows::CONFIRM) {
        Some(named) if named == pool => return Ok(()),
        Some(_) => return Err(refused("--confirm names another pool, so nothing was done")),
        None if !std::io::stdin().is_terminal() => {
            return Err(refused("a drill needs consent, and stdin is not a terminal to ask on"));
        }
        None => {}
    }
    watcher.finish();
    let mut stderr = anstream::stderr().lock();
    let asked = writeln!(stderr, "{}", plan.text())
        .and_then(|()| write!(stderr, "type {pool} to go on: "))
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
        Ok(Ok(line)) if line.trim() == pool => Ok(()),
        _ => Err(refused("the drill was not confirmed, so nothing was done")),
    }
}

async fn planned(
    opened: &ToExamine,
    options: &Options,
    stop: &StopSignal,
) -> Result<Vec<Planned>, Failure> {
    let settings = stop.unless_raised(opened.plane.settings()).await??;
    let look = stop.unless_raised(Look::take(&opened.plane, &opened.forge())).await??;
    Ok(plan(&look, &settings, options))
}
