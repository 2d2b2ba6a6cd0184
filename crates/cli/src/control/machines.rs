//! `ondeck drain`, `ondeck retire` and `ondeck terminate`: selects machines, asks, changes them.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use ondeck_core::inputs::Input;
use ondeck_core::model::failure::Failure;
use ondeck_core::model::ids::InstanceId;
use ondeck_core::modes::operate::{Command, Order, Outcome, Selection, carry_out, plan};
use ondeck_core::runtime::stop::StopSignal;

use crate::control::modes::{begin, finish};
use crate::control::progress::ProgressDisplay;
use crate::control::report::machines::MachinesReport;
use crate::control::report::{Report, deliver};
use crate::control::{backend, github_actions};
use crate::inputs::{Common, rows};
use crate::surroundings::stop_on_signals;

/// More machines are not changed without consent.
const HANDFUL: usize = 5;

/// Runs the command and returns its exit code.
pub(crate) async fn change(command: Command, common: &Common, arguments: &[String]) -> u8 {
    let name = name(command);
    let watcher = begin(name, common);
    let stop = stop_on_signals();
    let result = carried_out(command, common, arguments, &watcher, &stop).await;
    watcher.finish();
    let told = result.as_ref().map(|report| report as &dyn Report).map_err(Clone::clone);
    deliver(name, told, common)
}

fn name(command: Command) -> &'static str {
    match command {
        Command::Drain => "drain",
        Command::Retire => "retire",
        Command::Terminate => "terminate",
    }
}

async fn carried_out(
    command: Command,
    common: &Common,
    arguments: &[String],
    watcher: &ProgressDisplay,
    stop: &StopSignal,
) -> Result<MachinesReport, Failure> {
    let mut order = order(command, common, arguments)?;
    let plane = match named_actor(common.given.text(&rows::ACTOR)) {
        Some(actor) => {
            order.actor = actor;
            let opened = backend::plane(common, Arc::new(watcher.clone()));
            stop.unless_raised(opened).await??
        }
        None => {
            let opened = backend::plane_and_caller(common, Arc::new(watcher.clone()));
            let (plane, caller) = stop.unless_raised(opened).await??;
            order.actor = caller.unwrap_or_else(user);
            plane
        }
    };
    let report = |outcome: Outcome| MachinesReport::new(name(command), &order, outcome);
    if common.given.is_set(&rows::DRY_RUN) {
        return Ok(report(plan(&plane, &order, stop).await?));
    }
    if !common.given.is_set(&rows::YES) {
        let planned = plan(&plane, &order, stop).await?;
        confirm(&planned, &report(planned.clone()), watcher, stop).await?;
    }
    let outcome = carry_out(&plane, &order, stop).await;
    // Also after a failure: the events of what was done until then are still to be written.
    finish(&plane, stop).await;
    Ok(report(outcome?))
}

/// What to do to which machines. Who asks is still to be found out.
fn order(command: Command, common: &Common, arguments: &[String]) -> Result<Order, Failure> {
    let given = &common.given;
    let minutes = |row: &Input| {
        let minutes = given.text(row).and_then(|text| text.parse::<u32>().ok());
        minutes.map(|minutes| Duration::from_secs(60 * u64::from(minutes)))
    };
    let ids = arguments.iter().map(|text| text.parse::<InstanceId>());
    let selection = Selection {
        ids: ids.collect::<Result<_, _>>().map_err(|error| Failure::invalid(error.to_string()))?,
        class: given.text(&rows::CLASS).and_then(|text| text.parse().ok()),
        usage: given.text(&rows::USAGE).and_then(|text| text.parse().ok()),
        older_than: minutes(&rows::OLDER_THAN),
        old_image: given.is_set(&rows::OLD_IMAGE),
        old_agent: given.is_set(&rows::OLD_AGENT),
    };
    let is_all = given.is_set(&rows::ALL);
    if selection == Selection::default() && !is_all {
        return Err(Failure::invalid("no machine is selected").hint(
            "name machines, or give --class, --usage, --older-than-min, --old-image, --old-agent \
             or --all",
        ));
    }
    if is_all && selection != Selection::default() {
        return Err(Failure::invalid("--all cannot be combined with other conditions")
            .hint("leave out --all: conditions select among all machines"));
    }
    Ok(Order {
        command,
        selection,
        force: given.is_set(&rows::FORCE),
        wait: minutes(&rows::WAIT).unwrap_or_default(),
        actor: String::new(),
        reason: given.owned(&rows::REASON).unwrap_or_default(),
    })
}

/// Who asks, if that is said: the given name, or in a workflow its actor.
fn named_actor(given: Option<&str>) -> Option<String> {
    let of_workflow = || variable("GITHUB_ACTOR").filter(|_| github_actions::is_active());
    given.map(str::to_owned).filter(|name| !name.is_empty()).or_else(of_workflow)
}

/// The user of this process.
fn user() -> String {
    let named = variable("USER").or_else(|| variable("LOGNAME"));
    named.unwrap_or_else(|| "an unknown user".to_owned())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Asks before more than a handful of machines, or machines that runs have, are changed. Fails if the
/// answer is not yes, or if there is no terminal to ask on.
async fn confirm(
    planned: &Outcome,
    report: &MachinesReport,
    watcher: &ProgressDisplay,
    stop: &StopSignal,
) -> Result<(), Failure> {
    let (affected, busy) = (planned.affected().count(), planned.busy().count());
    // What cannot be done at all is reported as such, and nothing is asked.
    if (affected <= HANDFUL && busy == 0) || affected == 0 {
        return Ok(());
    }
    let question = format!("this changes {affected} machines, of which runs have {busy}");
    if !std::io::stdin().is_terminal() {
        let message = format!("{question}, and stdin is not a terminal to ask on");
        return Err(Failure::invalid(message).hint("look with --dry-run, then give --yes"));
    }
    watcher.finish();
    let refused = || Failure::invalid("not confirmed, so nothing was changed");
    let mut stderr = anstream::stderr().lock();
    let asked = writeln!(stderr, "{}", report.text())
        .and_then(|()| write!(stderr, "{question}; type yes to go on: "))
        .and_then(|()| stderr.flush());
    asked.map_err(|error| {
        Failure::invalid(format!("the question cannot be shown: {error}")).hint("give --yes")
    })?;
    drop(stderr);
    // Another thread waits for the answer, so that a signal ends the command meanwhile.
    let (answer, answered) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line).map(|_| line);
        answer.send(read).ok();
    });
    match stop.unless_raised(answered).await? {
        Ok(Ok(line)) if line.trim().eq_ignore_ascii_case("yes") => Ok(()),
        _ => Err(refused()),
    }
}
