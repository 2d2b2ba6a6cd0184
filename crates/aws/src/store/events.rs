//! Events: one for each committed change, for operators. Writing an event with its change needs a
//! transaction, at twice the price, so events are collected and written in batches a little later. Only
//! the hand-over at the end of a provision, which would have to wait for that, writes them at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{join, join_all};
use ondeck_core::lifecycle::Transition;
use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::{EventRow, State};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{Events, PortResult};

use super::keys::{Item, Key, List, event_pk, id_of, item, read_text, text, ttl};
use super::set_up::EVENTS_BY_RUN;
use super::table::{Table, put};

/// The most events of one batched write.
const BATCH: usize = 25;
/// How long an event waits for others to be written with. The answers to writes that were made
/// together arrive within this, and the mode that made them waits for its agents then.
const LINGER: Duration = Duration::from_millis(10);
pub(super) const RETENTION: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Events that are not written yet.
#[derive(Debug)]
pub(super) struct Outbox {
    table: Table,
    waiting: Mutex<Waiting>,
    /// Held by a write that is under way. Events that are added meanwhile share the next one.
    turn: tokio::sync::Mutex<()>,
    /// Shared by the writes that are under way out of turn.
    beside: Arc<tokio::sync::RwLock<()>>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By key, because a change may be reported twice and a batch must not name an item twice.
    events: BTreeMap<String, Item>,
    timed: bool,
}

impl Outbox {
    pub(super) fn new(table: Table) -> Outbox {
        Outbox {
            table,
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            beside: Arc::default(),
        }
    }

    /// Adds an event, to be written within [`LINGER`].
    pub(super) fn add(self: &Arc<Self>, event: Item) {
        let mut waiting = self.waiting();
        let key = Key::of(&event).map(|key| format!("{} {}", key.pk, key.sk)).unwrap_or_default();
        waiting.events.insert(key, event);
        let enough = waiting.events.len().is_multiple_of(BATCH);
        let untimed = !std::mem::replace(&mut waiting.timed, true);
        drop(waiting);
        if enough {
            let outbox = self.clone();
            drop(tokio::spawn(async move { outbox.send_in_turn(BATCH).await }));
        }
        if untimed {
            let outbox = self.clone();
            drop(tokio::spawn(async move {
                tokio::time::sleep(LINGER).await;
                outbox.waiting().timed = false;
                outbox.send_in_turn(1).await;
            }));
        }
    }

    /// Adds an item and writes it at once, together with the events that wait and beside a write that is
    /// under way. The write goes on if the caller does not wait for it. An item that cannot be written is
    /// lost with a warning.
    pub(super) async fn write_now(self: &Arc<Self>, added: Item) {
        let key = Key::of(&added).map(|key| format!("{} {}", key.pk, key.sk)).unwrap_or_default();
        self.waiting().events.insert(key, added);
        let (outbox, under_way) = (self.clone(), self.beside.clone().read_owned().await);
        let write = tokio::spawn(async move {
            outbox.send(1).await;
            drop(under_way);
        });
        drop(write.await);
    }

    /// Writes all events that wait, beside a write that is under way, and returns when that is done
    /// too.
    pub(super) async fn finish(&self) {
        let others = async {
            drop(self.turn.lock().await);
            drop(self.beside.write().await);
        };
        join(self.send(1), others).await;
    }

    async fn send_in_turn(&self, multiple: usize) {
        let _turn = self.turn.lock().await;
        self.send(multiple).await;
    }

    /// Writes as many waiting events as are a whole multiple of `multiple`. Events that cannot be
    /// written are lost with a warning; their transitions stay committed.
    async fn send(&self, multiple: usize) {
        let writes: Vec<_> = self.take(multiple).into_iter().map(put).collect();
        let patience = &self.table.patience;
        let write = |batch| patience.retried(move || self.table.write_all(batch));
        let batches = writes.chunks(BATCH).map(write);
        for error in join_all(batches).await.into_iter().filter_map(Result::err) {
            tracing::warn!("events not written: {error}");
        }
    }

    fn take(&self, multiple: usize) -> Vec<Item> {
        let mut waiting = self.waiting();
        let rest = waiting.events.len() % multiple;
        let mut taken = std::mem::take(&mut waiting.events);
        waiting.events = (0..rest).filter_map(|_| taken.pop_last()).collect();
        taken.into_values().collect()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which events to read.
#[derive(Debug, Clone)]
pub enum EventsOf {
    Machine(InstanceId),
    /// Those of machines while the run owned them, and the ones by which it lost them.
    Run(RunId),
    /// Those of the day, in UTC, that a time is in.
    Day(Timestamp),
}

/// The latest events of a machine. Takes one query.
pub(super) async fn of_machine(table: &Table, id: &InstanceId, limit: usize) -> PortResult<Events> {
    let one_more = limit.saturating_add(1);
    let items = table.latest(table.query(&event_pk(id)), one_more).await?;
    Ok(Events::latest(in_order(&items), limit))
}

/// The latest events of a run. Takes one query, and a batched read for each hundred events.
pub(super) async fn of_run(table: &Table, run: &RunId, limit: usize) -> PortResult<Events> {
    let one_more = limit.saturating_add(1);
    let keys = table.latest_indexed(&EVENTS_BY_RUN, run.as_str(), one_more).await?;
    let items = table.get_all(&keys).await?;
    Ok(Events::latest(in_order(&items), limit))
}

/// The latest events of all machines in a span. Takes the queries of [`hand_overs`], each to its last
/// page, and a batched read for each hundred events.
pub(super) async fn between(
    table: &Table,
    (since, until): (Timestamp, Timestamp),
    limit: usize,
    shards: u32,
) -> PortResult<Events> {
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    let mut keys: Vec<Key> = Vec::new();
    let mut day = until.start_of_day();
    loop {
        keys.extend(table.listed_between(List::Events(day), shards, (since, until)).await?);
        if keys.len() > limit || day <= since {
            break;
        }
        day = day.before(DAY);
    }
    // The sort key of an event begins with its time.
    keys.sort_by(|a, b| (&a.sk, &a.pk).cmp(&(&b.sk, &b.pk)));
    let keys = keys.split_off(keys.len().saturating_sub(limit.saturating_add(1)));
    let mut rows = Vec::with_capacity(keys.len());
    for part in keys.chunks(READ_TOGETHER) {
        rows.extend(in_order(&table.get_all(part).await?));
    }
    rows.sort_by_key(|event| (event.at, rank(event)));
    Ok(Events::latest(rows, limit))
}

/// How many events are asked for at the same time.
const READ_TOGETHER: usize = 1_000;

/// Reads events, oldest first. Events of the same millisecond are in the order of the lifecycle.
/// Those of the last moments may be missing.
pub(super) async fn select(
    table: &Table,
    which: &EventsOf,
    shards: u32,
) -> PortResult<Vec<EventRow>> {
    let items = match which {
        EventsOf::Machine(id) => table.all_pages(table.query(&event_pk(id))).await?,
        EventsOf::Run(run) => {
            let keys = table.indexed(&EVENTS_BY_RUN, run.as_str(), None).await?;
            table.get_all(&keys).await?
        }
        EventsOf::Day(at) => {
            let keys = table.listed(List::Events(*at), shards, None).await?;
            table.get_all(&keys).await?
        }
    };
    Ok(in_order(&items))
}

fn in_order(items: &[Item]) -> Vec<EventRow> {
    let mut events: Vec<EventRow> = items.iter().filter_map(read).collect();
    events.sort_by_key(|event| (event.at, rank(event)));
    events
}

/// How many events of a list are looked at to find hand-overs: what fits into one answer.
const LOOKED_AT: i32 = 1_000;

/// Reads the events by which runs were given machines in a span, newest first. Asks once for each
/// shard of each day, the latest day first, until there are enough, and once for every 100 of them.
pub(super) async fn hand_overs(
    table: &Table,
    (since, until): (Timestamp, Timestamp),
    most: usize,
    shards: u32,
) -> PortResult<Vec<EventRow>> {
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    let names = Transition::HAND_OVERS.map(Transition::as_str);
    let is_hand_over =
        |key: &Key| key.sk.split_once('#').is_some_and(|(_, of)| names.contains(&of));
    let day_of = |at: Timestamp| at.millis() / 86_400_000;
    let mut keys: Vec<Key> = Vec::new();
    let mut day = until;
    loop {
        let last =
            table.latest_listed(List::Events(day), shards, (since, until), LOOKED_AT).await?;
        keys.extend(last.into_iter().filter(is_hand_over));
        if keys.len() >= most || day_of(day) <= day_of(since) {
            break;
        }
        day = day.before(DAY);
    }
    // The sort key of an event begins with its time.
    keys.sort_by(|a, b| b.sk.cmp(&a.sk));
    keys.truncate(most);
    let items = if keys.is_empty() { Vec::new() } else { table.get_all(&keys).await? };
    let mut events: Vec<EventRow> = items.iter().filter_map(read).collect();
    events.sort_by_key(|event| std::cmp::Reverse(event.at));
    Ok(events)
}

fn rank(event: &EventRow) -> usize {
    const ORDER: [&str; 7] =
        ["register", "activate", "release", "claim", "commit", "give-back", "expire"];
    ORDER.iter().position(|name| *name == event.transition).unwrap_or(ORDER.len())
}

/// The item of an event, to be found by its machine, its day, and the run that it concerns.
pub(super) fn item_of(event: &EventRow, concerns: Option<&RunId>, shards: u32) -> Item {
    let sort = format!("{}#{}", event.at, event.transition);
    let mut written = Key::event(&event.instance, &sort).attributes();
    let listed = format!("{}#{}#{}", event.at, event.instance, event.transition);
    written.extend(item(List::Events(event.at).entry(event.instance.as_str(), listed, shards)));
    if let Some(run) = concerns {
        written.extend(item([("eventRun", text(run))]));
    }
    written.extend(item([
        ("instanceId", text(&event.instance)),
        ("at", text(event.at)),
        ("transition", text(&event.transition)),
        ("from", text(event.from.map_or("", State::as_str))),
        ("to", text(event.to)),
        ("run", text(event.run.as_ref().map_or("", RunId::as_str))),
        ("why", text(&event.why)),
        ttl(event.at + RETENTION),
    ]));
    written
}

fn read(item: &Item) -> Option<EventRow> {
    let parse = || -> Result<EventRow, String> {
        let text = |name| read_text(item, name);
        let state = |word| State::parse(word).ok_or(format!("state is unknown: {}", quoted(word)));
        Ok(EventRow {
            instance: text("instanceId")?.parse().map_err(|e| format!("{e}"))?,
            at: Timestamp::parse(text("at")?).map_err(|e| e.to_string())?,
            transition: text("transition")?.to_owned(),
            from: Some(text("from")?).filter(|word| !word.is_empty()).map(state).transpose()?,
            to: state(text("to")?)?,
            run: Some(text("run")?)
                .filter(|run| !run.is_empty())
                .map(|run| run.parse().map_err(|e| format!("{e}")))
                .transpose()?,
            why: text("why")?.to_owned(),
        })
    };
    let problem = |problem| {
        let id = id_of(item).unwrap_or("?");
        tracing::warn!("unreadable event {}: {problem}; skipped", quoted(id));
    };
    parse().map_err(problem).ok()
}
