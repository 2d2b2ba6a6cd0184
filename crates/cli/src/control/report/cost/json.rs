//! An account as JSON.

use std::time::Duration;

use ondeck_core::model::money::Money;
use ondeck_core::model::prices::Prices;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::cost::{AlwaysCold, Hosted, MachineAccount, Tally};
use serde::Serialize;

use super::super::wire::{PurchaseOption, SchemaVersion, SpendJson};
use super::CostReport;

/// Printed by `ondeck cost --json`. Amounts are in US dollars, times in seconds.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in super::super) struct CostJson {
    schema_version: SchemaVersion,
    /// The beginning of the account.
    since: String,
    /// Its end: when it was read.
    until: String,
    /// Whether the account begins later than was asked, because there are too many events or earlier
    /// ones are deleted.
    is_partial: bool,
    prices: PricesJson,
    total: TallyJson,
    /// What is spent and reserved today below `max-spend-per-day`, by list prices on demand. `null`
    /// without a cap, and if it is not known.
    spend: Option<SpendJson>,
    /// The days in UTC on which there were machines.
    days: Vec<DayJson>,
    classes: Vec<ClassJson>,
    /// The runs that had machines. Idle machines belong to none.
    runs: Vec<RunJson>,
    machines: Vec<MachineJson>,
    /// The types whose machines are not counted, because they have no price.
    unpriced: Vec<UnpricedJson>,
    /// Against a new machine for each hand-over. `null` if no hand-over and boot were seen.
    always_cold: Option<AlwaysColdJson>,
    /// Against GitHub-hosted runners. `null` if no job can be compared.
    github_hosted: Option<HostedJson>,
}

/// The table that the amounts go by.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(in super::super) struct PricesJson {
    /// The day that the prices are of.
    as_of: String,
    /// Where they are from.
    source: String,
    region: String,
    /// What spot costs, as a share of the on-demand price, for types without a spot price.
    spot_share: f64,
}

/// What machines were used for, and what that cost.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct TallyJson {
    booting_seconds: f64,
    idle_seconds: f64,
    busy_seconds: f64,
    booting_dollars: f64,
    idle_dollars: f64,
    busy_dollars: f64,
    total_dollars: f64,
    /// Whether events are missing.
    is_approximate: bool,
    /// The part of the time whose use, or whose existence, is a guess.
    uncertain_seconds: f64,
    uncertain_dollars: f64,
    /// The part of the time that has no price, and is not in the amounts.
    unpriced_seconds: f64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DayJson {
    day: String,
    cost: TallyJson,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ClassJson {
    /// `null` if it is not known.
    resource_class: Option<String>,
    cost: TallyJson,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct RunJson {
    /// `null` for what runs had that the events do not name.
    run_id: Option<String>,
    machines: Vec<String>,
    cost: TallyJson,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MachineJson {
    instance_id: String,
    /// `null`, as the next two, if it is not known.
    resource_class: Option<String>,
    instance_type: Option<String>,
    usage_class: Option<PurchaseOption>,
    /// The part of its life that is in the account.
    from: String,
    to: String,
    is_live: bool,
    cost: TallyJson,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UnpricedJson {
    /// `null` if it is not known.
    instance_type: Option<String>,
    machines: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct AlwaysColdJson {
    /// What the pool saved; negative if it cost more.
    saving_dollars: f64,
    hand_overs: usize,
    /// How many of them were machines from the pool.
    warm: usize,
    /// How many boots were seen.
    boots: usize,
    mean_boot_seconds: f64,
    boots_would_cost_dollars: f64,
    boots_and_idle_cost_dollars: f64,
    /// For how long runs would have waited for boots, added up.
    waiting_saved_seconds: f64,
    /// Machines that are not compared.
    left_out: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HostedJson {
    /// What the pool saved; negative if it cost more.
    saving_dollars: f64,
    /// Each time that a run had a machine, as one job.
    jobs: usize,
    /// The minutes that GitHub would have charged for, rounded up for each job.
    minutes: u64,
    would_cost_dollars: f64,
    machines_cost_dollars: f64,
    control_jobs_cost_dollars: f64,
    /// Machines that are not compared.
    left_out: usize,
}

impl From<&CostReport> for CostJson {
    fn from(report: &CostReport) -> CostJson {
        let account = &report.account;
        let days = account.days.iter().map(|(day, tally)| DayJson {
            day: day.to_string()[..10].to_owned(),
            cost: tally.into(),
        });
        let classes = account.classes.iter().map(|(class, tally)| ClassJson {
            resource_class: class.as_ref().map(ToString::to_string),
            cost: tally.into(),
        });
        let runs = account.runs.iter().map(|(id, run)| RunJson {
            run_id: id.as_ref().map(ToString::to_string),
            machines: run.machines.iter().map(ToString::to_string).collect(),
            cost: (&run.tally).into(),
        });
        let unpriced = account.unpriced.iter().map(|(name, machines)| UnpricedJson {
            instance_type: Some(name.clone()).filter(|name| !name.is_empty()),
            machines: *machines,
        });
        CostJson {
            schema_version: SchemaVersion,
            since: account.since.to_string(),
            until: account.until.to_string(),
            is_partial: report.cut.is_some(),
            prices: (&report.prices).into(),
            total: (&account.total).into(),
            spend: report.spend.as_ref().map(SpendJson::from),
            days: days.collect(),
            classes: classes.collect(),
            runs: runs.collect(),
            machines: account.machines.iter().map(MachineJson::from).collect(),
            unpriced: unpriced.collect(),
            always_cold: account.always_cold.as_ref().map(AlwaysColdJson::from),
            github_hosted: account.hosted.as_ref().map(HostedJson::from),
        }
    }
}

impl From<&Prices> for PricesJson {
    fn from(prices: &Prices) -> PricesJson {
        PricesJson {
            as_of: prices.as_of.clone(),
            source: prices.source.clone(),
            region: prices.region.clone(),
            spot_share: prices.spot_share,
        }
    }
}

impl From<&Tally> for TallyJson {
    fn from(tally: &Tally) -> TallyJson {
        TallyJson {
            booting_seconds: seconds(tally.booting.time),
            idle_seconds: seconds(tally.idle.time),
            busy_seconds: seconds(tally.busy.time),
            booting_dollars: tally.booting.money.dollars(),
            idle_dollars: tally.idle.money.dollars(),
            busy_dollars: tally.busy.money.dollars(),
            total_dollars: tally.total().money.dollars(),
            is_approximate: tally.is_approximate(),
            uncertain_seconds: seconds(tally.uncertain.time),
            uncertain_dollars: tally.uncertain.money.dollars(),
            unpriced_seconds: seconds(tally.unpriced),
        }
    }
}

impl From<&MachineAccount> for MachineJson {
    fn from(machine: &MachineAccount) -> MachineJson {
        let spec = machine.spec.as_ref();
        MachineJson {
            instance_id: machine.id.to_string(),
            resource_class: spec.map(|spec| spec.resource_class.to_string()),
            instance_type: spec.map(|spec| spec.instance_type.clone()),
            usage_class: spec.map(|spec| spec.usage_class.into()),
            from: text(machine.from),
            to: text(machine.to),
            is_live: machine.is_live,
            cost: (&machine.tally).into(),
        }
    }
}

impl From<&AlwaysCold> for AlwaysColdJson {
    fn from(cold: &AlwaysCold) -> AlwaysColdJson {
        AlwaysColdJson {
            saving_dollars: dollars(cold.saving()),
            hand_overs: cold.hand_overs,
            warm: cold.warm,
            boots: cold.boots,
            mean_boot_seconds: seconds(cold.mean_boot),
            boots_would_cost_dollars: dollars(cold.boots_would_cost),
            boots_and_idle_cost_dollars: dollars(cold.boots_and_idle_cost),
            waiting_saved_seconds: seconds(cold.waiting_saved),
            left_out: cold.left_out,
        }
    }
}

impl From<&Hosted> for HostedJson {
    fn from(hosted: &Hosted) -> HostedJson {
        HostedJson {
            saving_dollars: dollars(hosted.saving()),
            jobs: hosted.jobs,
            minutes: hosted.minutes,
            would_cost_dollars: dollars(hosted.would_cost),
            machines_cost_dollars: dollars(hosted.machines_cost),
            control_jobs_cost_dollars: dollars(hosted.control_jobs_cost),
            left_out: hosted.left_out,
        }
    }
}

fn text(at: Timestamp) -> String {
    at.to_string()
}

fn dollars(money: Money) -> f64 {
    money.dollars()
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}
