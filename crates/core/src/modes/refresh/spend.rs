//! The cap on what machines may cost in a day: adds up what they have cost and may still cost, and
//! drains machines that do not fit.
//!
//! What machines have cost is never read from events: from one count to the next, everything that
//! counted has cost its price. A machine that has ended in between is therefore paid for until the
//! count that misses it, and what it had reserved beyond that is free again.

use std::fmt;

use super::ceiling::Findings;
use super::survey::Survey;
use super::{Outcome, drained};
use crate::lifecycle::{Instance, Live};
use crate::model::ceiling::MachineCount;
use crate::model::departure::Departure;
use crate::model::failure::Failure;
use crate::model::finding::FindingKind;
use crate::model::ids::{InstanceId, ResourceClass};
use crate::model::min_idle::Minimum;
use crate::model::money::Money;
use crate::model::record::{Record, State};
use crate::model::requirements::{Requirements, TypePatterns, UsageClass};
use crate::model::settings::Settings;
use crate::model::spend::{ReservedSpend, Spend, on_day};
use crate::model::timestamp::Timestamp;
use crate::modes::plane::{NotCommitted, Plane};
use crate::modes::tariff::{Priced, Tariff, gone_by, longest, no_price};
use crate::ports::{Compute, Machine, PortResult};

/// Why a machine is drained.
const DOES_NOT_FIT: &str = "what it may still cost today is more than max-spend-per-day leaves";

/// What machines cost today, below the cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpendUse {
    /// The midnight in UTC at which the day begins.
    pub day: Timestamp,
    /// What they have cost since then.
    pub spent: Money,
    /// What they may cost besides until the end of the day.
    pub reserved: Money,
    pub cap: Money,
}

impl SpendUse {
    pub(crate) fn of(spend: &Spend, cap: Money) -> SpendUse {
        SpendUse { day: spend.day, spent: spend.spent, reserved: spend.reserved(), cap }
    }

    /// What a stored count tells about the day of `now`. If it was made on an earlier day, the amounts
    /// are those that the first launch of this day will begin with. `None` if there is no cap, or if the
    /// count was made for another ceiling or cap.
    pub(in crate::modes) fn counted(
        settings: &Settings,
        count: &MachineCount,
        now: Timestamp,
    ) -> Option<SpendUse> {
        let (cap, spend) = (settings.max_spend_per_day?, count.spend.as_ref()?);
        let is_of_ceiling = settings.ceiling_since == Some(count.since);
        let is_of_cap = settings.spend_since == Some(spend.since);
        if !is_of_ceiling || !is_of_cap {
            return None;
        }
        let carried = count.clone().on_day(now.start_of_day(), longest(settings, &settings.times));
        let today = carried.and_then(|count| count.spend);
        Some(SpendUse::of(today.as_ref().unwrap_or(spend), cap))
    }

    /// Whether four fifths of the cap are spent or reserved.
    pub fn is_near_cap(&self) -> bool {
        (self.spent + self.reserved).times(5) >= self.cap.times(4)
    }

    /// The day, as `2026-11-19`.
    pub fn date(&self) -> String {
        self.day.to_string().chars().take(10).collect()
    }
}

/// Fails if `max-spend-per-day` cannot be kept under these settings alone.
pub(super) fn check(settings: &Settings) -> Result<(), Failure> {
    if settings.max_spend_per_day.is_some() && settings.max_machine_age.is_none() {
        let message = "max-spend-per-day needs max-machine-age-min: otherwise a machine could cost a \
                       whole day, and few would fit";
        return Err(Failure::invalid(message)
            .hint("give --max-machine-age-min as well, or --reset max-spend-per-day"));
    }
    Ok(())
}

/// Fails if there is a cap, and machines of a class or a minimum cannot be launched below it because no
/// type that they may have has a price.
pub(super) fn check_prices(plane: &Plane, settings: &Settings) -> Result<(), Failure> {
    if settings.max_spend_per_day.is_none() {
        return Ok(());
    }
    let (tariff, any) = (Tariff::new(), plane.compute.default_types());
    let kept = settings.min_idle.all().map(|minimum| {
        let types = minimum.types.clone().unwrap_or_else(|| any.clone());
        (minimum.class.clone(), minimum.usage, types)
    });
    let classes = settings.classes.names();
    let classes = classes.map(|class| (class.clone(), UsageClass::OnDemand, any.clone()));
    for (class, usage, types) in classes.chain(kept) {
        let Some(size) = settings.classes.get(&class) else { continue };
        let requirements = Requirements { class, size, usage, types };
        if tariff.priced(&*plane.compute, &requirements, settings).is_none() {
            let subject = format!("class {}", requirements.class);
            return Err(no_price(&subject, &requirements.types));
        }
    }
    Ok(())
}

/// What a minimum of idle machines costs on its dearest day of a week, and a cap below that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::modes) struct Shortfall {
    /// With the cheapest types that it may have.
    at_least: Money,
    /// With the dearest types that it may have.
    at_most: Money,
    cap: Money,
}

impl Shortfall {
    /// `None` if `max-spend-per-day` may suffice for `min-idle` in the week from `now` on, or if no type of
    /// a minimum has a price.
    pub(in crate::modes) fn of(
        compute: &dyn Compute,
        settings: &Settings,
        now: Timestamp,
    ) -> Option<Shortfall> {
        let cap = settings.max_spend_per_day?;
        settings.min_idle.all().next()?;
        let tariff = Tariff::new();
        let mut prices = Vec::new();
        for minimum in settings.min_idle.all() {
            let priced =
                tariff.priced(compute, &requirements(compute, settings, minimum)?, settings)?;
            prices.push((minimum, priced));
        }
        let total = |price: fn(&Priced) -> Money| {
            settings.min_idle.dearest_day(now, |minimum| {
                let same = |it: &&Minimum| {
                    (&it.class, it.usage, &it.types)
                        == (&minimum.class, minimum.usage, &minimum.types)
                };
                let found = prices.iter().find(|(it, _)| same(it));
                found.map_or(Money::ZERO, |(_, priced)| price(priced))
            })
        };
        let (at_least, at_most) = (total(|it| it.cheapest), total(|it| it.dearest));
        (at_least > cap).then_some(Shortfall { at_least, at_most, cap })
    }

    /// The value of `max-spend-per-day` that suffices for any of the types, in whole cents.
    pub(in crate::modes) fn sufficient(&self) -> String {
        format!("{:.2}", (self.at_most.dollars() * 100.0).ceil() / 100.0)
    }
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shortfall { at_least, at_most, cap } = self;
        let range = match at_least == at_most {
            true => at_least.to_string(),
            false => format!("{at_least} to {at_most}"),
        };
        write!(f, "min-idle costs {range} on its dearest day, and max-spend-per-day allows {cap}")
    }
}

/// What a launch for a minimum asks for. `None` if its class is not configured.
fn requirements(
    compute: &dyn Compute,
    settings: &Settings,
    minimum: &Minimum,
) -> Option<Requirements> {
    let types = minimum.types.clone().unwrap_or_else(|| compute.default_types());
    let (class, usage) = (minimum.class.clone(), minimum.usage);
    let size = settings.classes.get(&class)?;
    Some(Requirements { class, size, usage, types })
}

/// How many machines of a minimum there is money for now. It is a hint: other launches may come first.
pub(super) async fn affordable(
    plane: &Plane,
    settings: &Settings,
    minimum: &Minimum,
) -> PortResult<u32> {
    let count = plane.retried(|| plane.store.machine_count()).await?;
    let affordable = || {
        let (cap, spend) = (settings.max_spend_per_day?, count?.spend?);
        let requirements = requirements(&*plane.compute, settings, minimum)?;
        let priced = Tariff::new().priced(&*plane.compute, &requirements, settings)?;
        let from = plane.now();
        let until = from + longest(settings, &settings.times);
        let one = ReservedSpend { hourly: priced.dearest, from, until }.on(spend.day, spend.day);
        let left = (cap - spend.committed).nanos().checked_div(one.nanos())?;
        u32::try_from(left).ok()
    };
    Ok(affordable().unwrap_or_default())
}

/// What a refresh knows about prices, if there is a cap.
pub(super) struct Costs<'a> {
    plane: &'a Plane,
    settings: &'a Settings,
    tariff: Tariff,
}

impl<'a> Costs<'a> {
    /// `None` if there is no cap.
    pub(super) fn of(plane: &'a Plane, settings: &'a Settings) -> Option<Costs<'a>> {
        settings.max_spend_per_day?;
        Some(Costs { plane, settings, tariff: Tariff::new() })
    }

    /// What a listed machine may cost. Without a record it may last as long as a new one.
    pub(super) fn machine(&self, machine: &Machine, record: Option<&Record>) -> ReservedSpend {
        let hourly = self.tariff.of(&*self.plane.compute, self.settings, &machine.spec);
        let (settings, from) = (self.settings, machine.launched_at);
        let until = match record {
            Some(record) => gone_by(settings, from, record),
            None => from + longest(settings, &settings.times),
        };
        ReservedSpend { hourly, from, until }
    }

    /// The same of a machine that is not listed.
    pub(super) fn unlisted(&self, record: &Record) -> ReservedSpend {
        let hourly = self.tariff.of(&*self.plane.compute, self.settings, &record.spec);
        let until = gone_by(self.settings, record.created_at, record);
        ReservedSpend { hourly, from: record.created_at, until }
    }

    /// What a launch may cost that has reserved no money.
    pub(super) fn unknown(
        &self,
        class: Option<&ResourceClass>,
        count: u32,
        (from, deadline): (Timestamp, Timestamp),
    ) -> Option<ReservedSpend> {
        let class = class?.clone();
        let size = self.settings.classes.get(&class)?;
        let (usage, types) = (UsageClass::OnDemand, TypePatterns::any());
        let requirements = Requirements { class, size, usage, types };
        let priced = self.tariff.priced(&*self.plane.compute, &requirements, self.settings)?;
        let hourly = priced.dearest.times(count.into());
        let until = deadline + longest(self.settings, &self.settings.times);
        Some(ReservedSpend { hourly, from, until })
    }

    /// The types of machines that have no price, each once.
    fn unpriced(&self, survey: &Survey) -> Vec<String> {
        let specs = survey.machines.iter().map(|machine| &machine.spec);
        let unknown = specs.filter(|spec| self.tariff.list_price(spec).is_none());
        let mut names: Vec<String> = unknown.map(|spec| spec.instance_type.clone()).collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Adds up what counts at one moment.
#[derive(Debug)]
pub(super) struct Account {
    since: Timestamp,
    now: Timestamp,
    day: Timestamp,
    hourly: Money,
    future: Money,
    /// What listed machines have cost today, for a cap that is counted for the first time.
    past: Money,
}

impl Account {
    /// Begins at `now`, or when `found` was counted if that is later.
    pub(super) fn begin(since: Timestamp, now: Timestamp, found: Option<&MachineCount>) -> Account {
        let as_of = found.and_then(|found| found.spend.as_ref()).map(|spend| spend.as_of);
        let now = as_of.map_or(now, |as_of| now.max(as_of));
        let (hourly, future, past) = (Money::ZERO, Money::ZERO, Money::ZERO);
        Account { since, now, day: now.start_of_day(), hourly, future, past }
    }

    /// A machine, or machines, without a reservation.
    pub(super) fn add(&mut self, cost: &ReservedSpend) {
        self.hourly += cost.hourly;
        self.future += cost.on(self.day, self.now);
        self.past += on_day(cost.hourly, self.day, cost.from, self.now);
    }

    /// A launch with a reservation.
    pub(super) fn add_reserved(&mut self, cost: &ReservedSpend) {
        self.future += cost.on(self.day, self.now);
    }

    /// The spend to store in place of that of `found`.
    pub(super) fn spend(self, found: Option<&MachineCount>) -> Spend {
        let known = found.and_then(|found| {
            let spend = found.spend.as_ref().filter(|spend| spend.since == self.since)?;
            Some(spend.spent_until(self.now, found.reserved_spends()))
        });
        let spent = known.unwrap_or(self.past);
        Spend {
            since: self.since,
            day: self.day,
            as_of: self.now,
            spent,
            hourly: self.hourly,
            committed: spent + self.future,
        }
    }
}

/// Drains machines until what all of them may cost today fits below the cap, idle ones first, and
/// terminates those that are idle. A machine that a run has keeps it.
pub(super) async fn fit(
    plane: &Plane,
    settings: &Settings,
    findings: &mut Findings,
    survey: &mut Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let Some(costs) = Costs::of(plane, settings) else { return Ok(()) };
    for name in costs.unpriced(survey) {
        let problem = "has no price, and counts as the dearest type of its class";
        outcome.warnings.push(format!("instance type {name} {problem}"));
    }
    let (Some(cap), Some(spend)) = (settings.max_spend_per_day, findings.projected(settings))
    else {
        return Ok(());
    };
    let mut excess = spend.committed - cap;
    if excess <= Money::ZERO {
        return Ok(());
    }
    for (id, saves, without) in savings(settings, findings, survey, &spend) {
        if excess <= Money::ZERO {
            break;
        }
        let Some(record) = survey.live.iter_mut().find(|record| record.id == id) else { continue };
        let Some(live) = Instance::<Live>::believe(record) else { continue };
        match plane.apply(live.drain(plane.now()).because(DOES_NOT_FIT)).await {
            Ok(_) => {
                record.departure = Departure::Drained;
                findings.costs_no_more_than(&id, without);
                excess = excess - saves;
                outcome.drained.push(id);
            }
            // It has changed meanwhile, so the next refresh looks at it again.
            Err(NotCommitted::Refused(_)) => {}
            Err(NotCommitted::Unreachable(error)) => return Err(error.into()),
        }
    }
    drained::terminate(plane, survey, outcome).await
}

/// What each machine that stays would not cost if it was drained, and what it would cost then: idle
/// machines first, and of each kind those with which most is saved.
fn savings(
    settings: &Settings,
    findings: &Findings,
    survey: &Survey,
    spend: &Spend,
) -> Vec<(InstanceId, Money, Timestamp)> {
    let stays = |record: &&Record| {
        !record.departure.is_drained() && !record.is_expired_by_any_clock(spend.as_of)
    };
    let mut found: Vec<(bool, Money, InstanceId, Timestamp)> = Vec::new();
    for record in survey.live.iter().filter(stays) {
        let Some(cost) = findings.cost_of(&record.id) else { continue };
        let drained = Record { departure: Departure::Drained, ..record.clone() };
        let until = gone_by(settings, cost.from, &drained);
        let without = ReservedSpend { until, ..cost };
        let (day, now) = (spend.day, spend.as_of);
        let saves = cost.on(day, now) - without.on(day, now);
        if saves > Money::ZERO {
            found.push((record.state != State::Idle, saves, record.id.clone(), until));
        }
    }
    found.sort_by(|one, other| (one.0, other.1, &one.2).cmp(&(other.0, one.1, &other.2)));
    found.into_iter().map(|(_, saves, id, until)| (id, saves, until)).collect()
}

/// Reports what machines cost today.
pub(super) fn report(settings: &Settings, count: &MachineCount, outcome: &mut Outcome) {
    const KIND: FindingKind = FindingKind::SpendNearCap;
    let (Some(spend), Some(cap)) = (&count.spend, settings.max_spend_per_day) else { return };
    let used = SpendUse::of(spend, cap);
    if used.is_near_cap() {
        let text = format!(
            "machines of {} (UTC) have cost {} and may cost {} more, of {cap} a day",
            used.date(),
            used.spent,
            used.reserved
        );
        outcome.findings.add(KIND, &used.date(), &text);
    }
    outcome.findings.complete(KIND);
    outcome.spend = Some(used);
}
