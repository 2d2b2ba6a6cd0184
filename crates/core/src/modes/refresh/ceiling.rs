//! Counts the machines for the ceiling: corrects the numbers that reservations have left too high.
//!
//! A launch that the lists of machines may not show yet keeps its reservation. Everything else counts
//! as it is listed. A reservation that is made in the meantime moves the version of the count, so it
//! is never overwritten. Nor is the count of another refresh that has counted in the meantime.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Outcome;
use super::spend::{self, Account, Costs};
use super::survey::Survey;
use crate::model::ceiling::{MachineCount, Reserved};
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, IntentId, ResourceClass};
use crate::model::intent::Intent;
use crate::model::record::Record;
use crate::model::settings::{CEILING_SINCE, SPEND_SINCE, Settings};
use crate::model::signal::{AgentStatus, Pulse};
use crate::model::spend::{ReservedSpend, Spend};
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::ports::PortResult;

/// How often the count is read and replaced before it is left to the next refresh.
const ATTEMPTS: u32 = 10;

/// How far the clocks of a launcher and of this refresh may be apart. Both write into a reservation.
const CLOCKS_APART: Duration = Duration::from_secs(10);

/// How many machines there are below one number of `max-machines`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CeilingUse {
    /// The class that the number is for; `None` for the pool.
    pub class: Option<ResourceClass>,
    pub machines: u32,
    pub max: u32,
}

/// Fails if `max-machines` names a class that is not configured.
pub(super) fn check(settings: &Settings) -> Result<(), Failure> {
    match settings.max_machines.classes.keys().find(|class| settings.classes.get(class).is_none()) {
        None => Ok(()),
        Some(class) => {
            Err(Failure::invalid(format!("max-machines names an unknown class: {class}"))
                .hint(format!("configured classes are {}", settings.classes.listing())))
        }
    }
}

/// Notes in `changes` since when there is a ceiling, and a cap on what machines may cost. Launches are
/// not counted while there is none, so a count from before that is void.
pub(super) fn note_setting(
    settings: &mut Settings,
    now: Timestamp,
    changes: &mut BTreeMap<String, String>,
) {
    let mut note = |name: &str, is_set: bool, since: &mut Option<Timestamp>| {
        if is_set != since.is_some() {
            *since = is_set.then_some(now);
            let text = since.map(|since| since.to_string()).unwrap_or_default();
            changes.insert(name.to_owned(), text);
        }
    };
    let is_capped = settings.max_spend_per_day.is_some();
    let is_counted = is_capped || settings.max_machines.is_set();
    note(CEILING_SINCE, is_counted, &mut settings.ceiling_since);
    note(SPEND_SINCE, is_capped, &mut settings.spend_since);
}

/// What the store says before the survey.
pub(super) struct Earlier {
    count: Option<MachineCount>,
    open_intents: Vec<Intent>,
}

impl Earlier {
    /// Reads the count and the open intents. `None` if there is no ceiling.
    pub(super) async fn read(
        plane: &Plane,
        settings: &Settings,
    ) -> Result<Option<Earlier>, Failure> {
        if !settings.max_machines.is_set() && settings.max_spend_per_day.is_none() {
            return Ok(None);
        }
        let count = plane.retried(|| plane.store.machine_count()).await?;
        let open_intents = plane.retried(|| plane.store.open_intents()).await?;
        Ok(Some(Earlier { count, open_intents }))
    }
}

/// Replaces the count by what the survey found and what is reserved, and drains machines that do not
/// fit below the cap on what they may cost. Does nothing if there is neither a ceiling nor a cap, or if
/// the provider has not listed its machines.
pub(super) async fn recount(
    plane: &Plane,
    settings: &Settings,
    earlier: Result<Option<Earlier>, Failure>,
    survey: &mut Survey,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    let (Some(earlier), Some(since)) = (earlier?, settings.ceiling_since) else { return Ok(()) };
    if !survey.has_machines {
        return Ok(());
    }
    let mut findings = Findings::of(plane, settings, earlier, survey, outcome).await?;
    let fitted = spend::fit(plane, settings, &mut findings, survey, outcome).await;
    replace(plane, settings, &findings, since, outcome).await?;
    fitted
}

/// Stores what was found, unless another refresh knows more.
async fn replace(
    plane: &Plane,
    settings: &Settings,
    findings: &Findings,
    since: Timestamp,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS {
        let found = plane.retried(|| plane.store.machine_count()).await?;
        let count = findings.count(found.as_ref(), since);
        let version = found.as_ref().map(|found| found.version);
        if let Some(better) = found.as_ref().filter(|found| findings.is_better(found, since)) {
            outcome.ceilings = uses(settings, better);
            spend::report(settings, better, outcome);
            return Ok(());
        }
        let same = found.as_ref().is_some_and(|found| {
            let (version, recounts) = (found.version, found.recounts);
            *found == MachineCount { version, recounts, ..count.clone() }
        });
        let replaced =
            same || plane.retried(|| plane.store.replace_machine_count(version, &count)).await?;
        if replaced {
            tracing::info!(machines = count.total, "counted the machines");
            outcome.ceilings = uses(settings, &count);
            spend::report(settings, &count, outcome);
            return Ok(());
        }
    }
    tracing::warn!("the count of machines changes too often, it is left to the next refresh");
    Ok(())
}

/// How many machines of a class may be launched now. It is a hint: other launches may come first.
pub(super) async fn room(
    plane: &Plane,
    settings: &Settings,
    class: &ResourceClass,
) -> PortResult<u32> {
    let Some(count) = plane.retried(|| plane.store.machine_count()).await? else { return Ok(0) };
    let max = &settings.max_machines;
    let of_pool = max.pool.map(|max| max.saturating_sub(count.total));
    let of_class = max.classes.get(class).map(|max| max.saturating_sub(count.of_class(class)));
    Ok(of_pool.into_iter().chain(of_class).min().unwrap_or(u32::MAX))
}

fn uses(settings: &Settings, count: &MachineCount) -> Vec<CeilingUse> {
    let max = &settings.max_machines;
    let pool = max.pool.map(|max| CeilingUse { class: None, machines: count.total, max });
    let classes = max.classes.iter().map(|(class, max)| CeilingUse {
        class: Some(class.clone()),
        machines: count.of_class(class),
        max: *max,
    });
    pool.into_iter().chain(classes).collect()
}

/// A machine that counts.
struct Counted {
    id: InstanceId,
    class: ResourceClass,
    /// `None` if there is no cap.
    cost: Option<ReservedSpend>,
}

/// What exists, by what the lists and the intents say.
pub(super) struct Findings {
    earlier: Option<MachineCount>,
    /// By the intent of their launch.
    listed: BTreeMap<IntentId, Vec<Counted>>,
    /// Of records whose machine is not listed but seems to run.
    unlisted: Vec<Counted>,
    /// What launches may cost that have reserved no money. Empty if there is no cap.
    unknown_costs: BTreeMap<IntentId, ReservedSpend>,
    /// `None` if there is no cap.
    spend_since: Option<Timestamp>,
    /// Not listed, and terminated by their records.
    gone: BTreeSet<InstanceId>,
    /// Launches under way, with or without a reservation.
    open_intents: BTreeMap<IntentId, Intent>,
    taken_at: Timestamp,
    /// How long after its launch, by the launcher's clock, a machine may be missing from the list.
    lag: Duration,
}

impl Findings {
    async fn of(
        plane: &Plane,
        settings: &Settings,
        earlier: Earlier,
        survey: &Survey,
        outcome: &Outcome,
    ) -> PortResult<Findings> {
        let costs = Costs::of(plane, settings);
        let records: BTreeMap<&InstanceId, &Record> =
            survey.live.iter().map(|record| (&record.id, record)).collect();
        let lag = match plane.compute.listing_lag() {
            Duration::ZERO => Duration::ZERO,
            lag => lag + CLOCKS_APART,
        };
        let mut listed: BTreeMap<IntentId, Vec<Counted>> = BTreeMap::new();
        for machine in survey.machines.iter().filter(|it| !outcome.orphans.contains(&it.id)) {
            let class = machine.spec.resource_class.clone();
            let record = records.get(&machine.id).copied();
            let cost = costs.as_ref().map(|costs| costs.machine(machine, record));
            let counted = Counted { id: machine.id.clone(), class, cost };
            listed.entry(machine.intent.clone()).or_default().push(counted);
        }
        let unlisted = seemingly_running(plane, survey).await?.into_iter().map(|record| {
            let cost = costs.as_ref().map(|costs| costs.unlisted(record));
            Counted { id: record.id.clone(), class: record.spec.resource_class.clone(), cost }
        });
        let unlisted = unlisted.collect();
        let gone = gone(plane, earlier.count.as_ref(), survey).await?;
        let later = plane.retried(|| plane.store.open_intents()).await?;
        // The machines of an overdue intent are listed, or terminated by now.
        let open_intents = earlier.open_intents.into_iter().chain(later);
        let open_intents: BTreeMap<IntentId, Intent> = open_intents
            .filter(|intent| survey.taken_at < intent.deadline + lag)
            .map(|intent| (intent.id.clone(), intent))
            .collect();
        let (earlier, taken_at) = (earlier.count, survey.taken_at);
        let unknown_cost = |intent: &Intent| {
            let span = (taken_at, intent.deadline);
            costs.as_ref()?.unknown(intent.class.as_ref(), intent.count, span)
        };
        let unknown_costs = open_intents
            .values()
            .filter_map(|intent| Some((intent.id.clone(), unknown_cost(intent)?)))
            .collect();
        let spend_since = settings.spend_since.filter(|_| costs.is_some());
        Ok(Findings {
            earlier,
            listed,
            unlisted,
            unknown_costs,
            spend_since,
            gone,
            open_intents,
            taken_at,
            lag,
        })
    }

    /// What machines may cost today, going by the count before the survey. `None` if there is no cap.
    pub(super) fn projected(&self, settings: &Settings) -> Option<Spend> {
        self.count(self.earlier.as_ref(), settings.ceiling_since?).spend
    }

    /// What a machine may cost; `None` if its launch has a reservation that still counts for it.
    pub(super) fn cost_of(&self, id: &InstanceId) -> Option<ReservedSpend> {
        let earlier = self.earlier.as_ref().map(|earlier| &earlier.reservations);
        let is_reserved = |intent: &IntentId| {
            let reserved = earlier.and_then(|reservations| reservations.get(intent));
            reserved.is_some_and(|reserved| self.kept(intent, reserved).is_some())
        };
        let free = self.listed.iter().filter(|(intent, _)| !is_reserved(intent));
        let mut counted = free.flat_map(|(_, counted)| counted).chain(&self.unlisted);
        counted.find(|counted| counted.id == *id)?.cost
    }

    /// Notes that a machine is gone by then.
    pub(super) fn costs_no_more_than(&mut self, id: &InstanceId, until: Timestamp) {
        let all = self.listed.values_mut().flatten().chain(&mut self.unlisted);
        for cost in all.filter(|counted| counted.id == *id).filter_map(|it| it.cost.as_mut()) {
            cost.until = until;
        }
    }

    /// Whether another refresh knows more: of a ceiling that was set later; or it has counted since this
    /// one began, and the machines of launches in between are in its list and not in this one's.
    fn is_better(&self, found: &MachineCount, since: Timestamp) -> bool {
        let recounts = self.earlier.as_ref().map_or(0, |earlier| earlier.recounts);
        found.since > since || (found.since == since && found.recounts != recounts)
    }

    /// The count to store in place of `found`.
    fn count(&self, found: Option<&MachineCount>, since: Timestamp) -> MachineCount {
        let version = found.map_or(0, |found| found.version) + 1;
        let recounts = found.map_or(0, |found| found.recounts) + 1;
        let mut count = MachineCount { version, recounts, ..MachineCount::empty(since) };
        let mut account = self.spend_since.map(|since| Account::begin(since, self.taken_at, found));
        let mut covered: BTreeSet<&IntentId> = BTreeSet::new();
        let mut named: BTreeSet<InstanceId> = BTreeSet::new();
        for (intent, reserved) in found.iter().flat_map(|found| &found.reservations) {
            let Some(reserved) = self.kept(intent, reserved) else { continue };
            covered.insert(intent);
            add(&mut count, Some(&reserved.class), self.at_least(intent, reserved.count));
            named.extend(reserved.machines.iter().cloned());
            if let Some(account) = &mut account {
                match (&reserved.spend, self.unknown_costs.get(intent)) {
                    (Some(cost), _) => account.add_reserved(cost),
                    (None, Some(cost)) => account.add(cost),
                    (None, None) => self.costs_of(intent).for_each(|cost| account.add(cost)),
                }
            }
            count.reservations.insert(intent.clone(), reserved);
        }
        for (id, intent) in &self.open_intents {
            if !self.is_reserved(found, id) && covered.insert(id) {
                add(&mut count, intent.class.as_ref(), self.at_least(id, intent.count));
                if let (Some(account), Some(cost)) = (&mut account, self.unknown_costs.get(id)) {
                    account.add(cost);
                }
            }
        }
        let uncovered = self.listed.iter().filter(|(intent, _)| !covered.contains(intent));
        let unlisted = self.unlisted.iter().filter(|counted| !named.contains(&counted.id));
        for counted in uncovered.flat_map(|(_, counted)| counted).chain(unlisted) {
            add(&mut count, Some(&counted.class), 1);
            if let (Some(account), Some(cost)) = (&mut account, &counted.cost) {
                account.add(cost);
            }
        }
        count.spend = account.map(|account| account.spend(found));
        count
    }

    /// What each listed machine of a launch may cost.
    fn costs_of(&self, intent: &IntentId) -> impl Iterator<Item = &ReservedSpend> {
        let listed = self.listed.get(intent).into_iter().flatten();
        listed.filter_map(|counted| counted.cost.as_ref())
    }

    /// The places that a launch keeps. `None` if the list of machines cannot lack any of it, because
    /// it was settled before the survey, and long enough before it or with machines that are gone.
    fn kept(&self, intent: &IntentId, reserved: &Reserved) -> Option<Reserved> {
        let earlier = self.earlier.as_ref().and_then(|earlier| earlier.reservations.get(intent));
        if earlier != Some(reserved) {
            return Some(reserved.clone());
        }
        if !reserved.may_be_unlisted(self.taken_at, self.lag) {
            return None;
        }
        let machines = reserved.machines.iter().filter(|id| !self.gone.contains(id));
        let machines: Vec<InstanceId> = machines.cloned().collect();
        let gone = reserved.machines.len() - machines.len();
        let count = reserved.count.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX));
        (count > 0).then(|| Reserved { count, machines, ..reserved.clone() })
    }

    fn is_reserved(&self, found: Option<&MachineCount>, intent: &IntentId) -> bool {
        let counts = found.into_iter().chain(&self.earlier);
        counts.into_iter().any(|count| count.reservations.contains_key(intent))
    }

    /// `count`, or how many machines are listed under the intent if those are more.
    fn at_least(&self, intent: &IntentId, count: u32) -> u32 {
        let listed = self.listed.get(intent).map_or(0, Vec::len);
        count.max(u32::try_from(listed).unwrap_or(u32::MAX))
    }
}

fn add(count: &mut MachineCount, class: Option<&ResourceClass>, machines: u32) {
    count.total = count.total.saturating_add(machines);
    if let Some(class) = class {
        let of_class = count.classes.entry(class.clone()).or_default();
        *of_class = of_class.saturating_add(machines);
    }
}

/// The live records whose machines are not listed, without those whose heartbeat has stopped: such a
/// machine is gone.
async fn seemingly_running<'a>(plane: &Plane, survey: &'a Survey) -> PortResult<Vec<&'a Record>> {
    let listed: BTreeSet<&str> = survey.machines.iter().map(|it| it.id.as_str()).collect();
    let unlisted: Vec<&Record> =
        survey.live.iter().filter(|record| !listed.contains(record.id.as_str())).collect();
    if unlisted.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<_> = unlisted.iter().map(|record| record.id.clone()).collect();
    let status = plane.retried(|| plane.store.agent_status(&ids)).await?;
    let now = plane.now();
    let stopped = |status: &AgentStatus| matches!(status.pulse(now), Pulse::Stale(_));
    let running = unlisted.iter().zip(status).filter(|(_, status)| !stopped(status));
    Ok(running.map(|(record, _)| *record).collect())
}

/// The machines of reservations that are not listed and whose records were terminated before the
/// survey.
async fn gone(
    plane: &Plane,
    earlier: Option<&MachineCount>,
    survey: &Survey,
) -> PortResult<BTreeSet<InstanceId>> {
    let listed: BTreeSet<&InstanceId> = survey.machines.iter().map(|machine| &machine.id).collect();
    let reservations = earlier.into_iter().flat_map(|earlier| earlier.reservations.values());
    let unlisted: Vec<InstanceId> = reservations
        .flat_map(|reserved| &reserved.machines)
        .filter(|id| !listed.contains(id) && !survey.knows(id))
        .cloned()
        .collect();
    if unlisted.is_empty() {
        return Ok(BTreeSet::new());
    }
    let found = plane.retried(|| plane.store.records(&unlisted)).await?;
    let ended = |record: &Record| !record.state.is_live() && record.updated_at <= survey.taken_at;
    Ok(found.records.into_iter().filter(ended).map(|record| record.id).collect())
}
