//! Where a history comes from: a file, a seed, or GitHub.

use ondeck_core::model::failure::Failure;
use ondeck_replay::{History, InvalidHistory, generate};

use crate::control::progress::ProgressDisplay;
use crate::inputs::Common;
use crate::inputs::simulate as inputs;

/// The most that is read of a file. A line of the most runs has less than 100 bytes.
const LARGEST_FILE: u64 = 16 * 1024 * 1024;

/// A history, and where it is from.
pub(super) struct Sourced {
    pub(super) history: History,
    /// Its name, for people.
    pub(super) name: String,
    /// What it does not contain, if that matters.
    pub(super) warning: Option<String>,
}

/// Reads the history that was asked for. Fails if none was.
pub(super) async fn read(common: &Common, watcher: &ProgressDisplay) -> Result<Sourced, Failure> {
    let given = &common.given;
    if let Some(file) = given.text(&inputs::HISTORY) {
        let history = from_file(file)?;
        return Ok(Sourced { history, name: file.to_owned(), warning: None });
    }
    if let Some(seed) = given.text(&inputs::GENERATE) {
        let number = seed.parse::<u64>().map_err(|error| Failure::invalid(error.to_string()))?;
        let name = format!("generated from seed {number}");
        return Ok(Sourced { history: generate(number), name, warning: None });
    }
    if given.is_set(&inputs::FROM_GITHUB) {
        return from_github(common, watcher).await;
    }
    Err(Failure::invalid("no history given")
        .hint("give --history FILE, --generate SEED, or --from-github"))
}

fn from_file(file: &str) -> Result<History, Failure> {
    let hint = "give --history a CSV file, such as one of examples/histories";
    let unread = |error: &dyn std::fmt::Display| {
        Failure::invalid(format!("the history cannot be read: {error}: {file}")).hint(hint)
    };
    let size = std::fs::metadata(file).map_err(|error| unread(&error))?.len();
    if size > LARGEST_FILE {
        return Err(unread(&format!("it has more than {LARGEST_FILE} bytes")));
    }
    let text = std::fs::read_to_string(file).map_err(|error| unread(&error))?;
    History::from_csv(&text).map_err(|error| named(file, error))
}

fn named(place: &str, error: InvalidHistory) -> Failure {
    let message = match error.line {
        0 => format!("{}: {place}", error.problem),
        line => format!("{place}:{line}: {}", error.problem),
    };
    Failure::invalid(message).hint(error.hint)
}

#[cfg(not(feature = "github"))]
async fn from_github(_common: &Common, _watcher: &ProgressDisplay) -> Result<Sourced, Failure> {
    Err(Failure::invalid("this build of ondeck has no GitHub")
        .hint("build it with --features github,simulate, or give --history FILE"))
}

#[cfg(feature = "github")]
use self::github::from_github;

#[cfg(feature = "github")]
mod github {
    use std::sync::Arc;

    use ondeck_core::model::ids::ResourceClass;
    use ondeck_core::modes::cost::Since;
    use ondeck_core::ports::{Clock, Progress};
    use ondeck_github::{PastRun, PastRunsOptions, inputs as of_github, past_runs};
    use ondeck_replay::HistoryRun;

    use super::{Common, Failure, History, ProgressDisplay, Sourced, named};
    use crate::control::backend::github_addresses;
    use crate::inputs::rows;
    use crate::surroundings::{Entropy, WallClock};

    /// The class of runs whose jobs say nothing about a class of this pool.
    const CLASS: &str = "large";

    pub(super) async fn from_github(
        common: &Common,
        watcher: &ProgressDisplay,
    ) -> Result<Sourced, Failure> {
        let given = &common.given;
        let invalid = |problem: String| Failure::invalid(format!("--since {problem}"));
        let since = given.text_or_default(&rows::SINCE).unwrap_or_default();
        let since: Since = since.parse().map_err(invalid)?;
        let now = WallClock.now();
        let since = since.moment(now).map_err(invalid)?;
        let named_by = given
            .owned(&of_github::REPOSITORY)
            .or_else(|| std::env::var("GITHUB_REPOSITORY").ok().filter(|name| !name.is_empty()));
        let repository = named_by.ok_or_else(|| {
            Failure::invalid("no repository given")
                .hint("give --repository OWNER/NAME, or set GITHUB_REPOSITORY")
        })?;
        let token = given.secret(&of_github::JOBS_TOKEN).or(given.secret(&of_github::TOKEN));
        let (server_url, api_url) = github_addresses(given);
        let options = PastRunsOptions { server_url, api_url, repository, token };
        let name = format!("{}, since {since}", options.repository);
        let show = |doing: &str| watcher.stage(doing);
        let found = past_runs(options, Arc::new(WallClock), &Entropy, (since, now), &show).await?;
        let class = CLASS.parse::<ResourceClass>();
        let class = class.map_err(|error| Failure::invalid(error.to_string()))?;
        let run = |it: &PastRun| HistoryRun {
            start: it.start,
            machines: it.machines,
            length: it.length,
            class: class.clone(),
        };
        let history = History::new(found.runs.iter().map(run).collect())
            .map_err(|error| named(&name, error))?;
        Ok(Sourced { history, name, warning: found.warning })
    }
}
