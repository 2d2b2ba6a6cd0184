//! `ondeck cost`: shows what the pool has cost.

use std::path::Path;

use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::prices::Prices;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::cost::{self as mode, Since};
use ondeck_core::modes::plane::Plane;
use ondeck_core::ports::History;

use crate::control::backend;
use crate::control::report::cost::{CostReport, PriceTable};
use crate::control::report::{Report, deliver};
use crate::inputs::{Backend, Common, rows};
use crate::logging;

/// Runs the command and returns its exit code.
pub(crate) async fn cost(common: &Common) -> u8 {
    logging::start(common, std::io::stderr);
    if common.given.is_set(&rows::PRINT_PRICES) {
        return deliver("cost", Ok(&PriceTable), common);
    }
    let result = reckon(common).await;
    let shown = result.as_ref().map(|report| report as &dyn Report).map_err(Clone::clone);
    deliver("cost", shown, common)
}

async fn reckon(common: &Common) -> Result<CostReport, Failure> {
    let prices = prices(common)?;
    let invalid = |problem: String| Failure::invalid(format!("--since {problem}"));
    let since = common.given.text_or_default(&rows::SINCE).unwrap_or_default();
    let since: Since = since.parse().map_err(invalid)?;
    let (plane, history) = backend::plane_and_history(common).await?;
    let since = since.moment(plane.now()).map_err(invalid)?;
    let (span, around) = ((since, mode::MOST_EVENTS), (prices, common.compute));
    let report = account(&plane, &*history, span, around).await?;
    if let Some(folder) = common.given.text(&rows::PLOT) {
        write_plots(Path::new(folder), report.plots())?;
    }
    Ok(report)
}

/// What the pool has cost since a time, by at most `most` events: the account begins later if there are
/// more, or if earlier ones may have been deleted.
pub(crate) async fn account(
    plane: &Plane,
    history: &dyn History,
    (since, most): (Timestamp, usize),
    (prices, backend): (Prices, Backend),
) -> Result<CostReport, Failure> {
    let reading = mode::read(plane, history, since, most).await?;
    let account = mode::account(&reading.events, &reading.records, &prices, &reading.window);
    let (cut, spend) = (reading.cut, reading.spend);
    Ok(CostReport { account, prices, cut, spend, backend })
}

/// The table of the program, or the file that was given in its place.
pub(super) fn prices(common: &Common) -> Result<Prices, Failure> {
    let Some(file) = common.given.text(&rows::PRICES) else { return Ok(Prices::built_in()) };
    let text = std::fs::read_to_string(file).map_err(|error| {
        let message = format!("the prices cannot be read: {error}: {file}");
        Failure::invalid(message).hint("ondeck cost --print-prices shows what such a file has")
    })?;
    Prices::from_json(&text).map_err(|problem| {
        Failure::invalid(format!("{file} is no table of prices: {problem}"))
            .hint("ondeck cost --print-prices shows what such a file has")
    })
}

/// Writes plots, by the names of their files, into a folder that exists.
pub(super) fn write_plots(
    folder: &Path,
    plots: impl IntoIterator<Item = (&'static str, String)>,
) -> Result<(), Failure> {
    for (name, plot) in plots {
        let file = folder.join(name);
        std::fs::write(&file, plot).map_err(|error| {
            let message = format!("the plot cannot be written: {error}: {}", file.display());
            Failure::new(FailureKind::Unreported, message).hint("give --plot another directory")
        })?;
    }
    Ok(())
}
