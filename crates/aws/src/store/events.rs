//! Events: one for each committed change, for operators. Writing an event with its change would need
//! a transaction, at twice the price, so events are collected and written in batches a little
//! later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use ondeck_core::model::excerpt::quoted;
use ondeck_core::model::ids::RunId;
use ondeck_core::model::record::{EventRow, State};
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::PortResult;

use super::keys::{Item, Kind, id_of, item, number, read_text, text};
use super::table::{Table, put};

/// The most events of one batched write.
const BATCH: usize = 25;
/// The longest time that an event waits for others to be written with.
const LONGEST_DELAY: Duration = Duration::from_millis(500);
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Events that are not written yet.
#[derive(Debug)]
pub(super) struct Outbox {
    table: Table,
    waiting: Mutex<Waiting>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By sort key, because a change may be reported twice and a batch must not name an item twice.
    events: BTreeMap<String, EventRow>,
    timed: bool,
}

impl Outbox {
    pub(super) fn new(table: Table) -> Outbox {
        Outbox { table, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Adds an event, to be written within [`LONGEST_DELAY`].
    pub(super) fn add(self: &Arc<Self>, event: EventRow) {
        let mut waiting = self.waiting();
        waiting.events.insert(sort_key(&event), event);
        let enough = waiting.events.len().is_multiple_of(BATCH);
        let untimed = !std::mem::replace(&mut waiting.timed, true);
        drop(waiting);
        if enough {
            let outbox = self.clone();
            drop(tokio::spawn(async move { outbox.send(BATCH).await }));
        }
        if untimed {
            let outbox = self.clone();
            drop(tokio::spawn(async move {
                tokio::time::sleep(LONGEST_DELAY).await;
                outbox.waiting().timed = false;
                outbox.send(1).await;
            }));
        }
    }

    /// Writes all events that wait.
    pub(super) async fn finish(&self) {
        self.send(1).await;
    }

    /// Writes as many waiting events as are a whole multiple of `multiple`, after writes under way.
    /// Events that cannot be written are lost with a warning; their transitions stay committed.
    async fn send(&self, multiple: usize) {
        let _turn = self.turn.lock().await;
        let writes: Vec<_> = self.take(multiple).iter().map(|event| put(item_of(event))).collect();
        let patience = &self.table.patience;
        let write = |batch| patience.retried(move || self.table.write_all(batch));
        let batches = writes.chunks(BATCH).map(write);
        for error in join_all(batches).await.into_iter().filter_map(Result::err) {
            tracing::warn!("events not written: {error}");
        }
    }

    fn take(&self, multiple: usize) -> Vec<EventRow> {
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

/// Reads all events, oldest first. Events of the same millisecond are in the order of the
/// lifecycle.
pub(super) async fn all(table: &Table) -> PortResult<Vec<EventRow>> {
    let items = table.all_pages(table.query(Kind::Event)).await?;
    let mut events: Vec<EventRow> = items.iter().filter_map(read).collect();
    events.sort_by_key(|event| (event.at, rank(event)));
    Ok(events)
}

fn sort_key(event: &EventRow) -> String {
    format!("{}#{}#{}", event.instance, event.at, event.transition)
}

fn rank(event: &EventRow) -> usize {
    const ORDER: [&str; 7] =
        ["register", "activate", "release", "claim", "commit", "give-back", "expire"];
    ORDER.iter().position(|name| *name == event.transition).unwrap_or(ORDER.len())
}

fn item_of(event: &EventRow) -> Item {
    let gone = (event.at + RETENTION).millis() / 1_000;
    let mut written = Kind::Event.key(sort_key(event)).attributes();
    written.extend(item([
        ("instanceId", text(&event.instance)),
        ("at", text(event.at)),
        ("transition", text(&event.transition)),
        ("from", text(event.from.map_or("", State::as_str))),
        ("to", text(event.to)),
        ("run", text(event.run.as_ref().map_or("", RunId::as_str))),
        ("why", text(&event.why)),
        ("ttl", number(gone)),
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
