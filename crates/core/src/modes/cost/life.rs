//! The life of one machine as spans of time, from its events and its record. Where events are missing,
//! the spans between are uncertain, and none is left out.

use std::time::Duration;

use super::Window;
use crate::model::ids::RunId;
use crate::model::record::{EventRow, Record, State};
use crate::model::settings::Settings;
use crate::model::timestamp::Timestamp;
use crate::modes::explain::chain;
use crate::modes::refresh::keep_warm;
use crate::ports::Events;

/// A machine in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) state: State,
    /// Its owner, as far as the events tell.
    pub(super) run: Option<RunId>,
    /// Whether events and record tell the state and both ends.
    pub(super) is_certain: bool,
}

/// What happened to a machine, as far as it can be told.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// In order, without overlaps.
    pub(super) spans: Vec<Span>,
    /// When the machine was created and ready: how long that took, and when it was ready.
    pub(super) boots: Vec<(Timestamp, Duration)>,
    /// When runs were given the machine, and whether it was from the pool.
    pub(super) hand_overs: Vec<(Timestamp, bool)>,
    /// Whether it still exists.
    pub(super) is_live: bool,
}

/// How long a state may last before refresh ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateLimits {
    pub created: Duration,
    pub claimed: Duration,
    pub running: Duration,
    pub idle: Duration,
}

impl StateLimits {
    pub fn of(settings: &Settings) -> StateLimits {
        let times = &settings.times;
        StateLimits {
            created: times.created_timeout,
            claimed: times.claim_timeout,
            running: times.max_runtime,
            idle: times.idle_time.max(keep_warm::hold(settings)),
        }
    }

    fn of_state(&self, state: State) -> Duration {
        match state {
            State::Created => self.created,
            State::Claimed => self.claimed,
            State::Running => self.running,
            State::Idle => self.idle,
            State::Terminated => Duration::ZERO,
        }
    }

    /// How long a run may have a machine without an event.
    pub(super) fn longest_owned(&self) -> Duration {
        self.created.max(self.claimed).max(self.running)
    }
}

/// The state after the last event.
struct Known {
    state: State,
    run: Option<RunId>,
    at: Timestamp,
}

struct Walk<'a> {
    window: &'a Window,
    record: Option<&'a Record>,
    life: Life,
    last: Option<Known>,
    /// Whether events are missing after the last one.
    has_gap: bool,
}

/// The life of a machine. `rows` are its events since [`Window::read_since`].
pub(super) fn of(rows: Vec<EventRow>, record: Option<&Record>, window: &Window) -> Life {
    let steps = chain::whole_life(Events { rows, is_partial: false }, record);
    let life = Life::default();
    let mut walk = Walk { window, record, life, last: None, has_gap: false };
    for step in &steps {
        match step.event() {
            Some((event, _)) => walk.event(event),
            None => walk.has_gap = true,
        }
    }
    walk.finish();
    walk.life
}

impl Walk<'_> {
    fn event(&mut self, event: &EventRow) {
        let has_gap = std::mem::replace(&mut self.has_gap, false);
        match self.last.take() {
            None => self.begin(event),
            Some(known) if !has_gap => {
                if event.transition == "activate" && known.state == State::Created {
                    self.life.boots.push((event.at, event.at.since(known.at)));
                }
                self.push(known.at, event.at, known.state, known.run, true);
            }
            Some(known) => {
                let owner = before(event);
                let from = event.from.unwrap_or(known.state);
                self.push_halves(known, event.at, (from, owner));
            }
        }
        let is_warm = event.transition == "commit";
        let is_given = is_warm || event.transition == "activate";
        if is_given && event.run.as_ref().is_none_or(|run| !keep_warm::is_own_run(run)) {
            self.life.hand_overs.push((event.at, is_warm));
        }
        self.last = Some(Known { state: event.to, run: event.run.clone(), at: event.at });
    }

    /// Before the first event that was read.
    fn begin(&mut self, event: &EventRow) {
        if event.transition == "register" {
            return;
        }
        let state = event.from.unwrap_or(event.to);
        let earliest = event.at.before(self.window.limits.of_state(state));
        let read = self.window.read_since;
        let born = self.record.map(|record| record.created_at);
        let (from, is_certain) = match born {
            Some(born) if born >= read => (born, false),
            // An event in between is missing: a state does not last that long.
            Some(_) if earliest > read => (read, false),
            None if earliest > read => (earliest, false),
            _ => (read, true),
        };
        self.push(from, event.at, state, before(event), is_certain);
    }

    /// After the last event that was read.
    fn finish(&mut self) {
        let now = self.window.until;
        match (self.last.take(), self.record) {
            (None, None) => {}
            (Some(known), _) if !known.state.is_live() => {}
            (None, Some(record)) => self.without_events(record),
            (Some(known), Some(record)) => {
                let changed = record.updated_at;
                if !record.state.is_live() {
                    self.push(known.at, changed, known.state, known.run, false);
                } else if self.has_gap {
                    let owner = record.run.clone();
                    self.push_halves(known, changed, (record.state, owner));
                    self.until_now(record, changed);
                } else {
                    self.push(known.at, now, known.state, known.run, true);
                    self.life.is_live = true;
                }
            }
            // How it ended is not stored, but it was not later than this.
            (Some(known), None) => {
                let end = known.at + self.window.limits.of_state(known.state);
                self.push(known.at, end.min(now), known.state, known.run, false);
            }
        }
    }

    fn without_events(&mut self, record: &Record) {
        let read = self.window.read_since;
        let (born, changed) = (record.created_at.max(read), record.updated_at.max(read));
        let state = if record.state.is_live() { record.state } else { State::Created };
        self.push(born, changed, state, record.run.clone(), false);
        self.until_now(record, changed);
    }

    fn until_now(&mut self, record: &Record, since: Timestamp) {
        if record.state.is_live() {
            self.push(since, self.window.until, record.state, record.run.clone(), true);
            self.life.is_live = true;
        }
    }

    /// It has changed from one state to another somewhere in between: each gets half of the time.
    fn push_halves(
        &mut self,
        known: Known,
        until: Timestamp,
        (state, run): (State, Option<RunId>),
    ) {
        let middle = known.at + until.since(known.at) / 2;
        self.push(known.at, middle, known.state, known.run, false);
        self.push(middle, until, state, run, false);
    }

    fn push(
        &mut self,
        from: Timestamp,
        to: Timestamp,
        state: State,
        run: Option<RunId>,
        is_certain: bool,
    ) {
        if from < to && state.is_live() {
            self.life.spans.push(Span { from, to, state, run, is_certain });
        }
    }
}

/// The owner before an event, if the event tells it: the same as after it.
fn before(event: &EventRow) -> Option<RunId> {
    event.run.clone().filter(|_| event.from.is_some_and(State::is_owned))
}

/// The parts of spans that are within a window.
pub(super) fn within(spans: &[Span], window: &Window) -> Vec<Span> {
    let cut = spans.iter().map(|span| Span {
        from: span.from.max(window.since),
        to: span.to.min(window.until),
        ..span.clone()
    });
    cut.filter(|span| span.from < span.to).collect()
}
