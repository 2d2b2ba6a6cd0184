//! `ondeck demo`: the life of a pool with real processes, in a temporary home.
//!
//! Every step is a command that a user could type, run as a process of its own. Each claim of the
//! story is checked, and at the end the whole history is audited.

mod audit;
mod harness;
mod narrator;
#[cfg_attr(not(feature = "dashboard"), path = "demo/no_page.rs")]
mod page;
mod story;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::runtime::stop::StopSignal;

use self::harness::DemoHarness;
use self::narrator::Narrator;
use self::page::Page;
use crate::inputs::{Common, rows};
use crate::logging;
use crate::surroundings::stop_on_signals;

/// Plays the story. Returns 0 if every check passed.
pub(crate) async fn demo(common: &Common) -> u8 {
    #[cfg(not(feature = "dashboard"))]
    if common.given.is_set(&rows::DASHBOARD) {
        return logging::fail(&page::rebuilt());
    }
    match play(common).await {
        Ok(()) => 0,
        Err(failure) => logging::fail(&failure),
    }
}

async fn play(common: &Common) -> Result<(), Failure> {
    let stop = stop_on_signals();
    let folder = tempfile::Builder::new()
        .prefix("ondeck-demo-")
        .tempdir()
        .map_err(|error| failed(format!("no temporary home: {error}")))?;
    let harness = DemoHarness::new(folder.path())?;
    let page = match common.given.is_set(&rows::DASHBOARD) {
        true => Some(Page::open(harness.common()).await?),
        false => None,
    };
    let narrator = Narrator::start()?;
    let played = tell(&harness, &narrator, page, &stop).await;
    // After a failure or a signal too, no machine stays behind.
    let orphans = harness.terminate_all_machines().await;
    let result = played.and_then(|()| match orphans?.len() {
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
    result.and_then(|()| narrator.written())
}

/// Plays the story, beside the page if there is one.
async fn tell(
    harness: &DemoHarness,
    narrator: &Narrator,
    page: Option<Page>,
    stop: &StopSignal,
) -> Result<(), Failure> {
    let story = async {
        if let Some(page) = &page {
            page.until_open(narrator).await;
        }
        story::play(harness, narrator).await
    };
    match stop.unless_raised(story).await {
        Ok(played) => played?,
        Err(stop) => return Err(stop.into()),
    }
    let Some(page) = &page else { return Ok(()) };
    match stop.unless_raised(page.until_closed(narrator)).await {
        // Enter and a signal end it alike.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(message: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Unexpected, message)
}
