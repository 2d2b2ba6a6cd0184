//! A grid as JSON.

use ondeck_replay::{Model, Reason};
use serde::Serialize;

use super::super::cost::PricesJson;
use super::super::wire::{PurchaseOption, SchemaVersion};
use super::{Played, SimulateReport};

/// Printed by `ondeck simulate --json`. Amounts are in US dollars, times in seconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in super::super) struct SimulateJson {
    schema_version: SchemaVersion,
    history: HistoryJson,
    /// What was assumed.
    model: ModelJson,
    prices: PricesJson,
    /// Every combination of the settings that were tried.
    points: Vec<PointJson>,
    /// The place of the recommended point among them, from 0.
    recommended: usize,
    /// Why that one.
    reason: ReasonJson,
    /// How much of the waiting that the best point spares a recommended one must spare, in percent.
    aim_percent: u32,
    /// The lines of `ondeck.toml` with the settings of the recommended point.
    ondeck_toml: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum ReasonJson {
    /// It is the cheapest that spares enough of the waiting that the best one spares.
    SparesEnough,
    /// It is the cheapest of all: even the best one spares less than a quarter of a boot.
    LittleToSpare,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HistoryJson {
    /// Where it is from.
    source: String,
    runs: usize,
    /// How many machines the runs ask for together.
    machines: usize,
    /// When the first run begins.
    since: String,
    /// When the last run would end if none had to wait. Cost is counted from `since` until then.
    until: String,
    resource_classes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ModelJson {
    boot_seconds: f64,
    registration_seconds: f64,
    refresh_every_seconds: f64,
    /// How many spot machines are interrupted in a thousand hours of one.
    spot_interruptions: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PointJson {
    usage_class: PurchaseOption,
    idle_time_seconds: f64,
    /// How many idle machines of each class of the history are kept.
    min_idle: u32,
    /// The same as the setting `min-idle` has it; empty for none.
    min_idle_setting: String,
    /// The runs that were given all of their machines.
    runs: usize,
    /// Runs and refreshes that failed.
    failed: usize,
    /// How often a run began again because a machine was interrupted.
    repeated: usize,
    machines_launched: usize,
    /// How many machines runs were given.
    machines_handed_over: usize,
    /// How many of these came from the pool.
    machines_warm: usize,
    /// The share of these, from 0 to 1.
    warm_share: f64,
    mean_wait_seconds: f64,
    median_wait_seconds: f64,
    p95_wait_seconds: f64,
    total_dollars: f64,
    /// The part of it for which machines were busy.
    busy_dollars: f64,
    /// The time of machines without a price, which are not in the amounts.
    unpriced_seconds: f64,
}

impl From<&SimulateReport> for SimulateJson {
    fn from(report: &SimulateReport) -> SimulateJson {
        let history = &report.history;
        let classes = history.classes();
        SimulateJson {
            schema_version: SchemaVersion,
            history: HistoryJson {
                source: report.source.clone(),
                runs: history.runs().len(),
                machines: report.machines(),
                since: history.since().to_string(),
                until: history.until().to_string(),
                resource_classes: classes.iter().map(ToString::to_string).collect(),
            },
            model: ModelJson::from(&report.model),
            prices: PricesJson::from(&report.prices),
            points: report
                .points
                .iter()
                .map(|it| PointJson::new(it, it.point.min_idle_setting(&classes)))
                .collect(),
            recommended: report.recommended.index,
            reason: match report.recommended.reason {
                Reason::SparesEnough => ReasonJson::SparesEnough,
                Reason::LittleToSpare => ReasonJson::LittleToSpare,
            },
            aim_percent: report.aim,
            ondeck_toml: report.toml.clone(),
        }
    }
}

impl From<&Model> for ModelJson {
    fn from(model: &Model) -> ModelJson {
        ModelJson {
            boot_seconds: model.boot.as_secs_f64(),
            registration_seconds: model.registration.as_secs_f64(),
            refresh_every_seconds: model.refresh_every.as_secs_f64(),
            spot_interruptions: model.interruptions,
        }
    }
}

impl PointJson {
    fn new(Played { point, measured }: &Played, min_idle_setting: String) -> PointJson {
        PointJson {
            usage_class: point.usage.into(),
            idle_time_seconds: point.idle_time.as_secs_f64(),
            min_idle: point.min_idle,
            min_idle_setting,
            runs: measured.runs,
            failed: measured.failed,
            repeated: measured.repeated,
            machines_launched: measured.launched,
            machines_handed_over: measured.handed_over,
            machines_warm: measured.warm,
            warm_share: measured.warm_share(),
            mean_wait_seconds: measured.mean_wait().as_secs_f64(),
            median_wait_seconds: measured.percentile(50).as_secs_f64(),
            p95_wait_seconds: measured.percentile(95).as_secs_f64(),
            total_dollars: measured.cost.dollars(),
            busy_dollars: measured.busy.dollars(),
            unpriced_seconds: measured.unpriced.as_secs_f64(),
        }
    }
}
