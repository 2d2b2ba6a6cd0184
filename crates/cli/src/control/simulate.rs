//! `ondeck simulate`: what settings would have meant for a history of runs.

mod source;

use std::collections::BTreeMap;
use std::path::Path;

use ondeck_core::inputs::Input;
use ondeck_core::model::failure::{Failure, FailureKind};
use ondeck_core::model::prices::Prices;
use ondeck_core::ports::Progress;
use ondeck_replay::{Candidate, Grid, Measured, Model, Point, play_all, recommend};

use self::source::{Sourced, read};
use crate::control::config;
use crate::control::cost::{prices, write_plots};
use crate::control::modes::begin;
use crate::control::progress::ProgressDisplay;
use crate::control::report::simulate::{HistoryText, Played, SimulateReport};
use crate::control::report::{Report, deliver};
use crate::inputs::simulate as inputs;
use crate::inputs::{Common, rows};

/// The most points of a grid.
const MOST_POINTS: usize = 200;

/// Runs the command and returns its exit code.
pub(crate) async fn simulate(common: &Common) -> u8 {
    let watcher = begin("simulate", common);
    let result = work(common, &watcher).await;
    watcher.finish();
    let shown = result.as_ref().map(|report| &**report).map_err(Clone::clone);
    deliver("simulate", shown, common)
}

async fn work(common: &Common, watcher: &ProgressDisplay) -> Result<Box<dyn Report>, Failure> {
    let (grid, model, aim) = (grid(common)?, model(common)?, aim(common)?);
    let (prices, points) = (prices(common)?, grid.points());
    if points.len() > MOST_POINTS {
        let message = format!("the grid has more than {MOST_POINTS} points: {}", points.len());
        return Err(Failure::invalid(message)
            .hint("give fewer of --idle-times-min, --min-idle-counts or --usage-classes"));
    }
    let sourced = read(common, watcher).await?;
    if common.given.is_set(&inputs::PRINT_HISTORY) {
        return Ok(Box::new(HistoryText::new(&sourced.history, sourced.warning)));
    }
    let played = play(&sourced, points, model, &prices, watcher).await?;
    let report = report(sourced, played, model, prices, aim)?;
    if let Some(folder) = common.given.text(&rows::PLOT) {
        write_plots(Path::new(folder), report.plots())?;
    }
    Ok(Box::new(report))
}

/// Plays all points beside this task, which shows how far they are.
async fn play(
    sourced: &Sourced,
    points: Vec<Point>,
    model: Model,
    prices: &Prices,
    watcher: &ProgressDisplay,
) -> Result<Vec<Played>, Failure> {
    let (history, prices, watcher) = (sourced.history.clone(), prices.clone(), watcher.clone());
    let all = points.len();
    watcher.stage(&format!("playing {} runs at {all} points", history.runs().len()));
    let playing = tokio::task::spawn_blocking(move || {
        let done = |count: usize| watcher.stage(&format!("{count} of {all} points are played"));
        let measured = play_all(&history, &points, model, &prices, &done);
        points.into_iter().zip(measured).collect::<Vec<(Point, Measured)>>()
    });
    let played = playing.await.map_err(|error| {
        Failure::new(FailureKind::Unexpected, format!("the simulation has failed: {error}"))
    })?;
    Ok(played.into_iter().map(|(point, measured)| Played { point, measured }).collect())
}

fn report(
    sourced: Sourced,
    points: Vec<Played>,
    model: Model,
    prices: Prices,
    aim: u32,
) -> Result<SimulateReport, Failure> {
    let candidate =
        |it: &Played| Candidate { waiting: it.measured.mean_wait(), cost: it.measured.cost };
    let candidates: Vec<Candidate> = points.iter().map(candidate).collect();
    let recommended = recommend(&candidates, model.boot, aim)
        .ok_or_else(|| Failure::invalid("the grid has no points"))?;
    let toml = lines(&points[recommended.index].point, &sourced);
    let Sourced { history, name, warning } = sourced;
    Ok(SimulateReport {
        history,
        source: name,
        warning,
        model,
        prices,
        points,
        recommended,
        aim,
        toml,
    })
}

/// The lines of `ondeck.toml` that have a point's settings.
fn lines(point: &Point, sourced: &Sourced) -> String {
    let minimum = point.min_idle_setting(&sourced.history.classes());
    config::file_of(&BTreeMap::from([
        ("idle-time-sec".to_owned(), point.idle_time.as_secs_f64().to_string()),
        ("min-idle".to_owned(), minimum),
    ]))
}

/// What an input is given, or its default. The command line has checked it.
fn value<T>(
    common: &Common,
    row: &Input,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Failure> {
    let text = common.given.text_or_default(row).unwrap_or_default();
    parse(text).map_err(|problem| Failure::invalid(format!("--{} {problem}", row.name)))
}

fn grid(common: &Common) -> Result<Grid, Failure> {
    Ok(Grid {
        idle_times: value(common, &inputs::IDLE_TIMES, inputs::idle_times)?,
        min_idle: value(common, &inputs::MINIMUMS, inputs::minimums)?,
        window: common.given.owned(&inputs::WINDOW).unwrap_or_default(),
        usage: value(common, &inputs::USAGE_CLASSES, inputs::usage_classes)?,
    })
}

fn model(common: &Common) -> Result<Model, Failure> {
    let most = f64::INFINITY;
    Ok(Model {
        boot: value(common, &inputs::BOOT, |text| inputs::seconds(text, most))?,
        registration: value(common, &inputs::REGISTRATION, |text| inputs::seconds(text, most))?,
        refresh_every: value(common, &inputs::REFRESH_EVERY, inputs::refresh_every)?,
        interruptions: value(common, &inputs::INTERRUPTIONS, |text| {
            inputs::number(text, u32::MAX)
        })?,
        ..Model::default()
    })
}

fn aim(common: &Common) -> Result<u32, Failure> {
    value(common, &inputs::AIM, |text| inputs::number(text, 100))
}
