//! An account as text.

use std::time::Duration;

use ondeck_core::model::money::Money;
use ondeck_core::model::prices::Prices;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::modes::cost::{AlwaysCold, Hosted, Tally};
use ondeck_core::modes::refresh::SpendUse;

use super::super::markdown::{counted, machines};
use super::super::wire::spend_words;
use super::super::{span, table};
use super::CostReport;
use crate::inputs::Backend;

/// The most rows of the tables of runs and machines.
const ROWS: usize = 10;

/// The characters of the longest bar.
const BAR: f64 = 30.0;

const LOCAL: &str = "Local machines are processes and cost nothing; the amounts are for the EC2 types \
                     that they are named after.";

pub(super) fn text(report: &CostReport) -> String {
    let account = &report.account;
    let total = account.total.total();
    let mut parts = vec![format!(
        "{} to {} UTC\n{}, {}: {}",
        minute(account.since),
        minute(account.until),
        machines(account.machines.len()),
        span(total.time),
        cost(&account.total),
    )];
    if !account.machines.is_empty() {
        parts.extend([days(report), classes(report), runs(report), machine_rows(report)]);
    }
    parts.extend(report.spend.as_ref().map(|used| cap(used, report.prices_of_cap())));
    parts.push(comparisons(report));
    parts.push(small_print(report));
    parts.join("\n\n")
}

fn minute(at: Timestamp) -> String {
    at.to_string()[..16].replace('T', " ")
}

/// The amount of a tally, with a mark if it contains time that events do not tell.
fn cost(tally: &Tally) -> String {
    let all = tally.total();
    let mark = if tally.is_approximate() { "~" } else { "" };
    match tally.unpriced {
        Duration::ZERO => format!("{mark}{}", all.money),
        unpriced if unpriced >= all.time => "no price".to_owned(),
        unpriced => format!("{mark}{} + {} without a price", all.money, span(unpriced)),
    }
}

fn cells(name: String, tally: &Tally) -> Vec<String> {
    let parts = [tally.busy, tally.idle, tally.booting].map(|part| part.money.to_string());
    let time = span(tally.total().time);
    [vec![name, time], parts.into(), vec![cost(tally)]].concat()
}

fn columns(first: &'static str) -> [&'static str; 6] {
    [first, "time", "busy", "idle", "booting", "cost"]
}

fn days(report: &CostReport) -> String {
    let days = &report.account.days;
    let most = days.values().map(|tally| tally.total().money).max().unwrap_or(Money::ZERO);
    let rows = days.iter().map(|(day, tally)| {
        let name = day.to_string()[..10].to_owned();
        vec![name, span(tally.total().time), cost(tally), bar(tally, most)]
    });
    let rows = table(&["day (UTC)", "time", "cost", ""], rows.collect());
    format!("{rows}\n█ busy  ▒ idle  ░ booting")
}

/// The parts of a day's cost, in proportion to the dearest day.
fn bar(tally: &Tally, most: Money) -> String {
    let mut bar = String::new();
    let (mut sum, mut drawn) = (Money::ZERO, 0);
    for (part, mark) in [(tally.busy, "█"), (tally.idle, "▒"), (tally.booting, "░")] {
        sum += part.money;
        let end = (sum.dollars() / most.dollars().max(1e-9) * BAR).round() as usize;
        bar += &mark.repeat(end - drawn);
        drawn = end;
    }
    bar
}

fn classes(report: &CostReport) -> String {
    let rows = report.account.classes.iter().map(|(class, tally)| {
        cells(class.as_ref().map_or("unknown".to_owned(), ToString::to_string), tally)
    });
    table(&columns("class"), rows.collect())
}

fn runs(report: &CostReport) -> String {
    let mut runs: Vec<_> = report.account.runs.iter().collect();
    runs.sort_by_key(|(_, run)| std::cmp::Reverse(run.tally.total().money));
    let rows = runs.iter().map(|(id, run)| {
        let name = id.as_ref().map_or("unknown".to_owned(), ToString::to_string);
        let mut cells = cells(name, &run.tally);
        cells.insert(1, run.machines.len().to_string());
        // A run has no idle machines.
        cells.remove(4);
        cells
    });
    let header = ["run", "machines", "time", "busy", "booting", "cost"];
    if runs.is_empty() { "no run had a machine".to_owned() } else { first(&header, rows.collect()) }
}

fn machine_rows(report: &CostReport) -> String {
    let mut machines: Vec<_> = report.account.machines.iter().collect();
    machines.sort_by_key(|machine| std::cmp::Reverse(machine.tally.total().money));
    let rows = machines.iter().map(|machine| {
        let kind = machine.spec.as_ref().map_or("unknown".to_owned(), |spec| {
            format!("{} {}", spec.instance_type, spec.usage_class)
        });
        let mut cells = cells(machine.id.to_string(), &machine.tally);
        cells.insert(1, kind);
        cells
    });
    let header = ["machine", "type", "time", "busy", "idle", "booting", "cost"];
    first(&header, rows.collect())
}

fn first(header: &[&str], mut rows: Vec<Vec<String>>) -> String {
    let more = rows.len().saturating_sub(ROWS);
    rows.truncate(ROWS);
    let shown = table(header, rows);
    if more == 0 { shown } else { format!("{shown}\n{more} cheaper ones: --json has them") }
}

/// What is left of today's cap. It counts otherwise than the account: at list prices on demand, also for
/// spot machines, and never too little.
fn cap(used: &SpendUse, other_prices: Option<Prices>) -> String {
    let of_program = other_prices.map(|Prices { as_of, region, .. }| {
        format!(" Prices are those of the program here: {as_of}, {region}.")
    });
    let of_program = of_program.unwrap_or_default();
    format!("Cap: {}. Spot counts as on-demand here.{of_program}", spend_words(used))
}

fn comparisons(report: &CostReport) -> String {
    let account = &report.account;
    let cold = match &account.always_cold {
        Some(cold) => always_cold(cold),
        None => {
            "Against always cold: not known, because no hand-over and boot were seen.".to_owned()
        }
    };
    let hosted = match &account.hosted {
        Some(hosted) => self::hosted(hosted),
        None => {
            "Against GitHub-hosted runners: not known, because no job can be compared.".to_owned()
        }
    };
    format!("{cold}\n{hosted}")
}

fn always_cold(cold: &AlwaysCold) -> String {
    format!(
        "Against always cold: {}. A boot for each of {} ({} on average, of {}) would have cost {}; boots \
         and idle machines cost {}. {} from the pool spared runs {} of waiting.{}",
        saved(cold.saving()),
        counted(cold.hand_overs, "hand-over", "hand-overs"),
        span(cold.mean_boot),
        counted(cold.boots, "boot", "boots"),
        cold.boots_would_cost,
        cold.boots_and_idle_cost,
        machines(cold.warm),
        span(cold.waiting_saved),
        left_out(cold.left_out),
    )
}

fn hosted(hosted: &Hosted) -> String {
    format!(
        "Against GitHub-hosted runners: {}. {} ({} in all) would have cost {}; the machines cost {}, and the \
         jobs that provision and release {}.{}",
        saved(hosted.saving()),
        counted(hosted.jobs, "job", "jobs"),
        counted(usize::try_from(hosted.minutes).unwrap_or(usize::MAX), "minute", "minutes"),
        hosted.would_cost,
        hosted.machines_cost,
        hosted.control_jobs_cost,
        left_out(hosted.left_out),
    )
}

fn saved(saving: Money) -> String {
    match saving >= Money::ZERO {
        true => format!("the pool saved {saving}"),
        false => format!("the pool cost {} more", Money::ZERO - saving),
    }
}

fn left_out(count: usize) -> String {
    match count {
        0 => String::new(),
        left => format!(" {} could not be compared.", machines(left)),
    }
}

fn small_print(report: &CostReport) -> String {
    let prices = &report.prices;
    let mut lines = vec![
        format!("Prices of {}: {}.", prices.as_of, prices.source),
        format!(
            "Spot is estimated at {:.0} % of on-demand, unless the table has a price.",
            100.0 * prices.spot_share
        ),
        "Each time that a run had a machine counts as one job. Not included: disks, traffic, addresses, \
         records, refresh."
            .to_owned(),
    ];
    if report.account.total.is_approximate() {
        let part = report.account.total.uncertain;
        lines.push(format!(
            "~ Events are missing: the use of {}, or whether it was used at all, is a guess ({}).",
            span(part.time),
            part.money
        ));
    }
    if report.backend == Backend::Local {
        lines.push(LOCAL.to_owned());
    }
    lines.join("\n")
}
