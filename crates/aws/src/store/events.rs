//! Events: one for each committed change, for operators. Writing an event with its change would need
//! a transaction, at twice the price, so events are collected and written in batches a little
//! later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{join, join_all};
use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::ids::{InstanceId, RunId};
use ondeck_core::model::record::{EventRow, State};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::PortResult;

use super::keys::{Item, Key, List, event_pk, id_of, item, read_text, text, ttl};
use super::set_up::EVENTS_BY_RUN;
use super::table::{Table, put};

/// The most events of one batched write.
const BATCH: usize = 25;
/// How long an event waits for others to be written with. The answers to writes that were made
/// together arrive within this, and the mode that made them waits for its agents then.
const LINGER: Duration = Duration::from_millis(10);
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Events that are not written yet.
#[derive(Debug)]
pub(super) struct Outbox {
    table: Table,
    waiting: Mutex<Waiting>,
    /// Held by a write that is under way. Events that are added meanwhile share the next one.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By key, because a change may be reported twice and a batch must not name an item twice.
    events: BTreeMap<String, Item>,
    timed: bool,
}

impl Outbox {
    pub(super) fn new(table: Table) -> Outbox {
        Outbox { table, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
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

    /// Writes all events that wait, beside a write that is under way, and returns when that is done
    /// too.
    pub(super) async fn finish(&self) {
        join(self.send(1), async { drop(self.turn.lock().await) }).await;
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
    let mut events: Vec<EventRow> = items.iter().filter_map(read).collect();
    events.sort_by_key(|event| (event.at, rank(event)));
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
