//! `ondeck demo`: the whole life of a pool, with real processes, in a home of its own.
//!
//! Every step is a command that a user could have typed, run as a process of its own. What the
//! story claims is checked on the way, and at its end against the store and the process list.

mod audit;
mod crew;
mod narrator;
mod story;

use ondeck_core::model::failure::{Failure, FailureKind};

use self::crew::Crew;
use self::narrator::Narrator;
use crate::inputs::{Common, rows};
use crate::logging;
use crate::surroundings::stop_on_signals;

/// Plays the story; the exit code says whether all of it held.
pub(crate) async fn demo(common: &Common) -> u8 {
    match play(common).await {
        Ok(()) => 0,
        Err(failure) => {
            logging::error(&failure.message, &failure.hint);
            failure.kind.exit_code()
        }
    }
}

async fn play(common: &Common) -> Result<(), Failure> {
    let stop = stop_on_signals();
    let folder = tempfile::Builder::new()
        .prefix("ondeck-demo-")
        .tempdir()
        .map_err(|error| failed(format!("no temporary home: {error}")))?;
    let narrator = Narrator::start();
    let crew = Crew::new(folder.path())?;
    let told = match stop.unless_raised(story::tell(&crew, &narrator)).await {
        Ok(told) => told,
        Err(stop) => Err(stop.into()),
    };
    // Whatever happened, nothing stays behind.
    let strays = crew.end_all_machines().await;
    let result = told.and_then(|()| match strays?.len() {
        0 => Ok(()),
        count => Err(failed(format!("machines were left behind: {count}"))),
    });
    if common.given.is_set(&rows::KEEP) {
        let path = folder.keep();
        narrator.aside(&format!("kept: {}", path.display()));
    } else if let Err(error) = folder.close() {
        return Err(failed(format!("the temporary home was not removed: {error}")));
    }
    if result.is_ok() {
        narrator.end();
    }
    result
}

fn failed(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Unexpected, message)
}
