//! Cost: what machines, runs, classes and days cost, from events, records and a table of prices. It is
//! an account for people: events may be missing, and no decision depends on it.

mod comparison;
mod life;
mod since;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::try_join_all;

pub use self::comparison::{AlwaysCold, Hosted};
use self::life::Life;
pub use self::life::StateLimits;
pub use self::since::{LONGEST, Since};
pub use self::tally::{Part, Tally, Use};
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, ResourceClass, RunId};
use crate::model::prices::Prices;
use crate::model::record::{EventRow, MachineSpec, Record, State};
use crate::model::settings::Settings;
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::modes::refresh::SpendUse;
use crate::modes::refresh::keep_warm::is_own_run;
use crate::ports::{History, RecordScope};

/// The most events that one account reads.
pub const MOST_EVENTS: usize = 200_000;

/// The most events that are read of a machine that was launched before the others are read.
const EVENTS_OF_OLD: usize = 20_000;

/// How long before an account is made its beginning may have been computed.
const JUST_ASKED: Duration = Duration::from_secs(60);

/// How many of these machines are asked about at the same time.
const AT_ONCE: usize = 20;

/// The time that an account is about, and what is read for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub since: Timestamp,
    pub until: Timestamp,
    /// Since when events were read. It is before `since`, so that the owners of machines at the beginning
    /// are known.
    pub read_since: Timestamp,
    pub limits: StateLimits,
}

/// Why earlier events are not in an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// There are more than were read. The account begins with the first one that was.
    TooMany,
    /// They may have been deleted.
    Deleted,
}

/// What is stored about a time.
#[derive(Debug, Clone)]
pub struct HistoryReading {
    pub window: Window,
    pub events: Vec<EventRow>,
    pub records: Vec<Record>,
    /// Why the window begins later than was asked.
    pub cut: Option<Cut>,
    /// What is spent and reserved today below `max-spend-per-day`. `None` without a cap, and if refresh
    /// has not counted for it yet or the count cannot be read.
    pub spend: Option<SpendUse>,
}

/// What a time has cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Account {
    pub since: Timestamp,
    pub until: Timestamp,
    pub total: Tally,
    /// By the midnight, in UTC, with which the day begins. Days without machines have none.
    pub days: BTreeMap<Timestamp, Tally>,
    /// `None` are machines whose class is not known.
    pub classes: BTreeMap<Option<ResourceClass>, Tally>,
    /// What runs had; `None` is what runs had that the events do not name. The rest is idle time.
    pub runs: BTreeMap<Option<RunId>, RunAccount>,
    /// In the order in which they began.
    pub machines: Vec<MachineAccount>,
    /// How many machines have a type without a price; an unknown type is an empty text.
    pub unpriced: BTreeMap<String, usize>,
    /// `None` if no run was given a machine, or if no boot was seen.
    pub always_cold: Option<AlwaysCold>,
    /// `None` if no machine can be compared.
    pub hosted: Option<Hosted>,
}

/// What one run had.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunAccount {
    pub machines: BTreeSet<InstanceId>,
    pub tally: Tally,
}

/// What one machine cost.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineAccount {
    pub id: InstanceId,
    /// `None` if neither a record nor an event tells it.
    pub spec: Option<MachineSpec>,
    /// The part of its life that is in the account.
    pub from: Timestamp,
    pub to: Timestamp,
    pub is_live: bool,
    pub tally: Tally,
}

impl Window {
    /// From `since` until now.
    pub fn new(since: Timestamp, until: Timestamp, settings: &Settings) -> Window {
        let limits = StateLimits::of(settings);
        Window { since, until, read_since: since.before(limits.longest_owned()), limits }
    }
}

/// Reads what is stored since a time, the latest `most` events at the most. Takes a list of all records,
/// one of the events, a query for each machine that was launched before, and with a cap a read of the
/// count. Fails if the store does not answer; the count is only missing then.
pub async fn read(
    plane: &Plane,
    history: &dyn History,
    since: Timestamp,
    most: usize,
) -> Result<HistoryReading, Failure> {
    let settings = plane.settings().await?;
    let now = plane.now();
    let kept = history.kept_since(&settings, now);
    let mut cut = (kept.since(since) > JUST_ASKED).then_some(Cut::Deleted);
    let since = if cut.is_some() { kept } else { since };
    let mut window = Window::new(since, now, &settings);
    let (first, last) = (window.read_since, window.until);
    let found = plane.retried(|| history.events_between(first, last, most)).await?;
    let mut events = found.rows;
    if let Some(oldest) = events.first().filter(|_| found.is_partial) {
        if oldest.at > window.since {
            (window.since, cut) = (oldest.at, Some(Cut::TooMany));
        }
        window.read_since = oldest.at;
    }
    let listing = plane.retried(|| plane.store.list(RecordScope::All)).await?;
    let mut records = listing.records;
    let left = unlisted(&events, &records);
    if !left.is_empty() {
        records.extend(plane.retried(|| plane.store.records(&left)).await?.records);
    }
    for ids in registered_before(&events, &records).chunks(AT_ONCE) {
        let asked = ids
            .iter()
            .map(|id| plane.retried(move || history.events_of_machine(id, EVENTS_OF_OLD)));
        let lives = try_join_all(asked).await?;
        let registered = lives.into_iter().flat_map(|events| events.rows);
        events.extend(registered.filter(|row| row.at < window.read_since && is_registration(row)));
    }
    let spend = spend_of_today(plane, &settings, now).await;
    Ok(HistoryReading { window, events, records, cut, spend })
}

async fn spend_of_today(plane: &Plane, settings: &Settings, now: Timestamp) -> Option<SpendUse> {
    settings.max_spend_per_day?;
    let count = plane.retried(|| plane.store.machine_count()).await;
    let count = count.inspect_err(|error| tracing::debug!("count of machines not read: {error}"));
    SpendUse::counted(settings, &count.ok()??, now)
}

/// The machines whose last event does not say that they are terminated, and that have no record among
/// these.
fn unlisted(events: &[EventRow], records: &[Record]) -> Vec<InstanceId> {
    let listed: BTreeSet<&InstanceId> = records.iter().map(|record| &record.id).collect();
    let ended: BTreeSet<&InstanceId> =
        events.iter().filter(|row| !row.to.is_live()).map(|row| &row.instance).collect();
    let seen: BTreeSet<&InstanceId> = events.iter().map(|row| &row.instance).collect();
    seen.into_iter().filter(|id| !listed.contains(id) && !ended.contains(id)).cloned().collect()
}

/// The machines without a record that were registered before these events: an earlier one tells what
/// they are.
fn registered_before(events: &[EventRow], records: &[Record]) -> Vec<InstanceId> {
    let recorded = records.iter().map(|record| &record.id);
    let registered = events.iter().filter(|row| is_registration(row)).map(|row| &row.instance);
    let known: BTreeSet<&InstanceId> = recorded.chain(registered).collect();
    let seen: BTreeSet<&InstanceId> = events.iter().map(|row| &row.instance).collect();
    seen.difference(&known).map(|id| (*id).clone()).collect()
}

fn is_registration(row: &EventRow) -> bool {
    row.transition == "register"
}

/// What machines are, by their records or by the event of their registration.
fn specs(events: &[EventRow], records: &[Record]) -> BTreeMap<InstanceId, MachineSpec> {
    let told = events.iter().filter_map(|row| Some((row.instance.clone(), told_spec(row)?)));
    let recorded = records.iter().map(|record| (record.id.clone(), record.spec.clone()));
    told.chain(recorded).collect()
}

fn told_spec(row: &EventRow) -> Option<MachineSpec> {
    is_registration(row).then(|| MachineSpec::told_in(&row.why))?
}

/// What the machines of these events and records cost within a window. `events` are those since
/// [`Window::read_since`], in any order, and may be earlier ones of registrations.
pub fn account(
    events: &[EventRow],
    records: &[Record],
    prices: &Prices,
    window: &Window,
) -> Account {
    let specs = specs(events, records);
    let records: BTreeMap<&InstanceId, &Record> =
        records.iter().map(|record| (&record.id, record)).collect();
    let mut rows: BTreeMap<&InstanceId, Vec<EventRow>> =
        records.keys().map(|id| (*id, Vec::new())).collect();
    for row in events.iter().filter(|row| row.at >= window.read_since) {
        rows.entry(&row.instance).or_default().push(row.clone());
    }
    let mut books = Books::new(prices, window);
    for (id, rows) in rows {
        let life = life::of(rows, records.get(id).copied(), window);
        books.enter(id, specs.get(id), &life);
    }
    books.close()
}

/// An account in the making.
struct Books<'a> {
    prices: &'a Prices,
    window: &'a Window,
    account: Account,
    comparison: comparison::Basis,
}

impl<'a> Books<'a> {
    fn new(prices: &'a Prices, window: &'a Window) -> Books<'a> {
        let account = Account {
            since: window.since,
            until: window.until,
            total: Tally::default(),
            days: BTreeMap::new(),
            classes: BTreeMap::new(),
            runs: BTreeMap::new(),
            machines: Vec::new(),
            unpriced: BTreeMap::new(),
            always_cold: None,
            hosted: None,
        };
        Books { prices, window, account, comparison: comparison::Basis::default() }
    }

    /// Adds one machine, if it existed within the window.
    fn enter(&mut self, id: &InstanceId, spec: Option<&MachineSpec>, life: &Life) {
        let spans = life::within(&life.spans, self.window);
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return };
        let per_hour = spec.and_then(|spec| self.prices.per_hour(spec));
        let (from, to) = (first.from, last.to);
        let mut machine = Tally::default();
        for span in &spans {
            let (used, owner) = used(span.state, span.run.as_ref());
            let price = tally::Priced { used, per_hour, is_certain: span.is_certain };
            for (day, length) in days(span.from, span.to) {
                self.account.days.entry(day).or_default().add(price, length);
                machine.add(price, length);
                if used != Use::Idle {
                    let run = self.account.runs.entry(owner.cloned()).or_default();
                    run.machines.insert(id.clone());
                    run.tally.add(price, length);
                }
            }
        }
        if per_hour.is_none() {
            let name = spec.map_or(String::new(), |spec| spec.instance_type.clone());
            *self.account.unpriced.entry(name).or_default() += 1;
        }
        self.comparison.enter(self.prices, self.window, spec, &machine, life, &spans);
        let class = spec.map(|spec| spec.resource_class.clone());
        *self.account.classes.entry(class).or_default() += machine;
        self.account.total += machine;
        let is_live = life.is_live;
        let (id, spec) = (id.clone(), spec.cloned());
        self.account.machines.push(MachineAccount { id, spec, from, to, is_live, tally: machine });
    }

    fn close(self) -> Account {
        let Books { prices, mut account, comparison, .. } = self;
        account.machines.sort_by_key(|machine| machine.from);
        account.always_cold = comparison.always_cold();
        account.hosted = comparison.hosted(prices);
        account
    }
}

/// What a machine in this state is used for, and by which run. Until a machine that refresh warms up is
/// idle, it is used by no run.
fn used(state: State, run: Option<&RunId>) -> (Use, Option<&RunId>) {
    let is_warming_up = run.is_some_and(is_own_run);
    match state {
        State::Created => (Use::Booting, run),
        State::Claimed | State::Running if !is_warming_up => (Use::Busy, run),
        State::Idle | State::Claimed | State::Running | State::Terminated => (Use::Idle, None),
    }
}

/// The parts of a time by the day, in UTC, that they are in.
fn days(from: Timestamp, to: Timestamp) -> Vec<(Timestamp, Duration)> {
    let mut parts = Vec::new();
    let mut at = from;
    while at < to {
        let day = at.start_of_day();
        let end = (day + Duration::from_secs(24 * 3_600)).min(to);
        if end <= at {
            break;
        }
        parts.push((day, end.since(at)));
        at = end;
    }
    parts
}
