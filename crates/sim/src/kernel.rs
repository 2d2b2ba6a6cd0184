//! Time, and everything that waits for it: calls under way, alarms, and deeds of the plan.
//!
//! One history has one kernel. Nothing happens but by an event taken from it, one at a time, so
//! the order of events is the whole of the schedule.

mod awaited;
mod digest;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::timestamp::Timestamp;

use crate::faults::{Answer, Crash, Fault, FaultSource};

pub(crate) use self::awaited::{Calling, Sleeping};
pub(crate) use self::digest::digest;

/// Virtual microseconds since the beginning of a history.
pub(crate) type Micros = u64;

/// The moment at which every history begins.
const EPOCH_MILLIS: u64 = 1_750_000_000_000;

/// What processes have been told, each as one number.
pub(crate) type Memories = BTreeMap<Pid, u64>;

/// A process, by its place in the order of births.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pid(pub(crate) usize);

/// What may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A request reaches whom it is for.
    Effect(u64),
    /// An answer reaches its caller.
    Answer(u64),
    /// A process has slept long enough.
    Alarm(u64),
    /// The plan has something to do.
    Action(usize),
}

/// What the stage must do after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// Nothing to do: it was cancelled meanwhile.
    Nothing,
    /// The stage polls this process.
    Poll(Pid),
    /// This process dies here.
    Crash(Pid),
    /// The stage carries out the act of this number.
    Action(usize),
}

/// A call on its way, or its answer.
pub(crate) struct Call {
    pub(crate) pid: Pid,
    pub(crate) what: &'static str,
    pub(crate) text: String,
    pub(crate) fate: FaultSource,
    effect: Box<dyn FnMut() -> String + Send>,
    waker: Option<Waker>,
    ended: Option<Ended>,
    /// Whether the caller may know how it ended.
    back: bool,
    /// Whether the caller has stopped waiting for it.
    orphaned: bool,
}

/// How a call ended for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With the answer of its effect.
    Answered,
    /// With an error that tells nothing of its effect.
    Lost,
}

struct Alarm {
    pid: Pid,
    /// Of which instance news would ring it early.
    of: Option<InstanceId>,
    waker: Option<Waker>,
    rung: bool,
}

struct State {
    now: Micros,
    ids: u64,
    calls: BTreeMap<u64, Call>,
    alarms: BTreeMap<u64, Alarm>,
    /// Who sleeps until there is news of an instance.
    ears: BTreeMap<InstanceId, Vec<u64>>,
    versions: BTreeMap<InstanceId, u64>,
    agenda: BinaryHeap<Reverse<(Micros, u64, Event)>>,
    frozen: BTreeMap<Pid, Micros>,
    /// When the answer to the call that has its effect now reaches its caller, if it does.
    answer_at: Option<Micros>,
    /// Whether effects wait to be chosen instead of being due at a time.
    by_choice: bool,
    journal: Option<Vec<String>>,
    /// What each process has been told so far, as one number; kept up while `remembers` is set.
    memories: Memories,
    remembers: bool,
    names: Vec<String>,
    steps: u64,
    faults: BTreeMap<Fault, u64>,
    ties: fastrand::Rng,
}

impl State {
    /// Removes alarms that no process waits for from the front of the agenda.
    fn drop_cancelled(&mut self) {
        while let Some(Reverse((_, _, Event::Alarm(id)))) = self.agenda.peek()
            && !self.alarms.contains_key(id)
        {
            self.agenda.pop();
        }
    }

    /// The answer is given up first; the request arrives long after.
    fn arrive_late(&mut self, call: &mut Call, late: Micros) {
        let ghost = self.ids;
        self.ids += 1;
        if !self.by_choice {
            let (at, tie) = (self.now + late, self.ties.u64(..));
            self.agenda.push(Reverse((at, tie, Event::Effect(ghost))));
        }
        let orphan = Call {
            pid: call.pid,
            what: call.what,
            text: call.text.clone(),
            fate: FaultSource::sound(0, 0),
            effect: std::mem::replace(&mut call.effect, Box::new(String::new)),
            waker: None,
            ended: None,
            back: false,
            orphaned: true,
        };
        self.calls.insert(ghost, orphan);
    }
}

/// A call that waits to be chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) id: u64,
    pub(crate) what: &'static str,
    /// Whether the caller has given it up.
    pub(crate) orphaned: bool,
}

pub(crate) struct Kernel(Mutex<State>);

impl Kernel {
    pub(crate) fn new(seed: u64, by_choice: bool, journal: bool) -> Kernel {
        Kernel(Mutex::new(State {
            now: 0,
            ids: 0,
            calls: BTreeMap::new(),
            alarms: BTreeMap::new(),
            ears: BTreeMap::new(),
            versions: BTreeMap::new(),
            agenda: BinaryHeap::new(),
            frozen: BTreeMap::new(),
            answer_at: None,
            by_choice,
            journal: journal.then(Vec::new),
            memories: Memories::new(),
            remembers: by_choice,
            names: Vec::new(),
            steps: 0,
            faults: BTreeMap::new(),
            ties: fastrand::Rng::with_seed(seed),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Micros {
        self.state().now
    }

    /// The true time, which no process knows exactly.
    pub(crate) fn true_time(&self) -> Timestamp {
        timestamp(self.now())
    }

    pub(crate) fn steps(&self) -> u64 {
        self.state().steps
    }

    pub(crate) fn faults(&self) -> BTreeMap<Fault, u64> {
        self.state().faults.clone()
    }

    pub(crate) fn count(&self, fault: Fault) {
        *self.state().faults.entry(fault).or_default() += 1;
    }

    /// When the answer to the call that has its effect now reaches its caller, who may be frozen
    /// then; `None` if it is lost or its caller has given up. To be asked by the effect itself.
    pub(crate) fn answer_at(&self) -> Option<Micros> {
        self.state().answer_at
    }

    /// Gives a process its number.
    pub(crate) fn enter(&self, name: &str) -> Pid {
        let mut state = self.state();
        state.names.push(name.to_owned());
        Pid(state.names.len() - 1)
    }

    /// Writes a line into the journal, if there is one.
    pub(crate) fn note(&self, who: &str, line: impl FnOnce() -> String) {
        let mut state = self.state();
        let now = state.now;
        if let Some(journal) = &mut state.journal {
            let seconds = now / 1_000_000;
            let millis = now / 1000 % 1000;
            journal.push(format!("{seconds:>6}.{millis:03}  {who:<16} {}", line()));
        }
    }

    /// Whether it matters what is said in a call.
    pub(crate) fn listens(&self) -> bool {
        let state = self.state();
        state.journal.is_some() || state.by_choice
    }

    /// Whether it matters what is answered.
    pub(crate) fn listens_to_answers(&self) -> bool {
        let state = self.state();
        state.journal.is_some() || state.remembers
    }

    pub(crate) fn memories(&self) -> Memories {
        self.state().memories.clone()
    }

    /// Forgets what processes are told, until it is reminded.
    pub(crate) fn doze(&self) {
        self.state().remembers = false;
    }

    /// Remembers from here on, and knows what has been told before.
    pub(crate) fn remember(&self, memories: Memories) {
        let mut state = self.state();
        state.remembers = true;
        state.memories = memories;
    }

    pub(crate) fn journal(&self) -> Vec<String> {
        self.state().journal.clone().unwrap_or_default()
    }

    pub(crate) fn at(&self, at: Micros, event: Event) {
        let mut state = self.state();
        let tie = state.ties.u64(..);
        state.agenda.push(Reverse((at, tie, event)));
    }

    /// Nothing reaches a process until then, and its requests go on.
    pub(crate) fn freeze(&self, pid: Pid, until: Micros) {
        self.state().frozen.insert(pid, until);
    }

    /// Takes the next event, and moves time to it. Nothing when nothing is left, or only after
    /// `limit`.
    pub(crate) fn next(&self, limit: Micros) -> Option<Event> {
        let mut state = self.state();
        state.drop_cancelled();
        let Reverse((at, ..)) = state.agenda.peek()?;
        if *at > limit {
            return None;
        }
        let Reverse((at, _, event)) = state.agenda.pop()?;
        state.now = state.now.max(at);
        state.steps += 1;
        Some(event)
    }

    /// Lets time pass in which nothing happens.
    pub(crate) fn pass(&self, until: Micros) {
        let mut state = self.state();
        state.now = state.now.max(until);
    }

    /// When the next event is due, if any is.
    pub(crate) fn due(&self) -> Option<Micros> {
        let mut state = self.state();
        state.drop_cancelled();
        state.agenda.peek().map(|Reverse((at, ..))| *at)
    }

    /// Whether effects wait to be chosen instead of being due at a time.
    pub(crate) fn is_by_choice(&self) -> bool {
        self.state().by_choice
    }

    /// The calls that wait to be chosen, oldest first.
    pub(crate) fn choices(&self) -> Vec<Waiting> {
        let state = self.state();
        let waiting = state.calls.iter().filter(|(_, call)| call.ended.is_none());
        let choice = |(id, call): (&u64, &Call)| Waiting {
            id: *id,
            what: call.what,
            orphaned: call.orphaned,
        };
        waiting.map(choice).collect()
    }

    /// Lets a chosen call end like this.
    pub(crate) fn choose(&self, id: u64, fate: FaultSource) -> Told {
        {
            let mut state = self.state();
            state.steps += 1;
            if let Some(call) = state.calls.get_mut(&id) {
                call.fate = fate;
            }
            if let Some(fault) = fate.fault {
                *state.faults.entry(fault).or_default() += 1;
            }
        }
        match self.effect(id) {
            Told::Nothing => self.answer(id),
            told => told,
        }
    }

    /// Handles an event; the effects of calls happen here.
    pub(crate) fn handle(&self, event: Event) -> Told {
        match event {
            Event::Effect(id) => self.effect(id),
            Event::Answer(id) => self.answer(id),
            Event::Alarm(id) => self.alarm(id, event),
            Event::Action(deed) => Told::Action(deed),
        }
    }

    fn effect(&self, id: u64) -> Told {
        let Some(mut call) = self.state().calls.remove(&id) else { return Told::Nothing };
        let who = self.name(call.pid);
        if call.fate.crash == Some(Crash::Before) && !call.orphaned {
            self.note(&who, || format!("{} {}  ** dies before it", call.what, call.text));
            return Told::Crash(call.pid);
        }
        {
            let mut state = self.state();
            let reaches = call.fate.answer == Answer::Sound && !call.orphaned;
            state.answer_at = reaches.then_some(state.now + call.fate.after);
        }
        // Not under the lock: the effect looks at the clock, and at much else.
        let mut told = String::new();
        for _ in 0..call.fate.effects {
            told = (call.effect)();
        }
        let mark = call.fate.mark();
        self.note(&who, || format!("{} {} -> {told}{mark}", call.what, call.text));
        if call.orphaned {
            return Told::Nothing;
        }
        if call.fate.crash == Some(Crash::After) {
            return Told::Crash(call.pid);
        }
        let mut state = self.state();
        let lost = call.fate.answer == Answer::Lost;
        if state.remembers {
            let shown = if lost { "lost" } else { &told };
            let memory = state.memories.get(&call.pid).copied().unwrap_or_default();
            let memory = digest(&[&memory, &state.now, &call.what, &call.text, &shown]);
            state.memories.insert(call.pid, memory);
        }
        if let Some(late) = call.fate.late {
            state.arrive_late(&mut call, late);
        }
        if !state.by_choice {
            let (at, tie) = (state.now + call.fate.after, state.ties.u64(..));
            state.agenda.push(Reverse((at, tie, Event::Answer(id))));
        }
        call.ended = Some(if lost { Ended::Lost } else { Ended::Answered });
        state.calls.insert(id, call);
        Told::Nothing
    }

    fn answer(&self, id: u64) -> Told {
        let mut state = self.state();
        let Some(call) = state.calls.get_mut(&id) else { return Told::Nothing };
        let pid = call.pid;
        if let Some(until) = state.frozen.get(&pid).copied().filter(|until| *until > state.now) {
            state.agenda.push(Reverse((until, id, Event::Answer(id))));
            return Told::Nothing;
        }
        let Some(call) = state.calls.get_mut(&id) else { return Told::Nothing };
        call.back = true;
        let waker = call.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Told::Poll(pid)
    }

    fn alarm(&self, id: u64, event: Event) -> Told {
        let mut state = self.state();
        let Some(alarm) = state.alarms.get_mut(&id) else { return Told::Nothing };
        let pid = alarm.pid;
        if let Some(until) = state.frozen.get(&pid).copied().filter(|until| *until > state.now) {
            state.agenda.push(Reverse((until, id, event)));
            return Told::Nothing;
        }
        let Some(alarm) = state.alarms.get_mut(&id) else { return Told::Nothing };
        alarm.rung = true;
        let waker = alarm.waker.take();
        if state.remembers {
            let memory = state.memories.get(&pid).copied().unwrap_or_default();
            let memory = digest(&[&memory, &state.now, &"alarm"]);
            state.memories.insert(pid, memory);
        }
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Told::Poll(pid)
    }

    pub(crate) fn name(&self, pid: Pid) -> String {
        self.state().names.get(pid.0).cloned().unwrap_or_default()
    }

    /// Says that an instance's record has changed.
    pub(crate) fn ring(&self, id: &InstanceId) {
        let mut state = self.state();
        *state.versions.entry(id.clone()).or_default() += 1;
        let now = state.now;
        for alarm in state.ears.remove(id).unwrap_or_default() {
            let tie = state.ties.u64(..);
            state.agenda.push(Reverse((now, tie, Event::Alarm(alarm))));
        }
    }

    /// How often an instance's record has changed.
    pub(crate) fn version(&self, id: &InstanceId) -> u64 {
        self.state().versions.get(id).copied().unwrap_or_default()
    }

    /// Makes a call, and waits for how it ends.
    pub(crate) fn begin(
        self: &Arc<Self>,
        pid: Pid,
        (what, text): (&'static str, String),
        fate: FaultSource,
        effect: impl FnMut() -> String + Send + 'static,
    ) -> Calling {
        let mut state = self.state();
        let id = state.ids;
        state.ids += 1;
        if let Some(fault) = fate.fault {
            *state.faults.entry(fault).or_default() += 1;
        }
        if !state.by_choice {
            let (at, tie) = (state.now + fate.before, state.ties.u64(..));
            state.agenda.push(Reverse((at, tie, Event::Effect(id))));
        }
        let effect = Box::new(effect);
        let call = Call {
            pid,
            what,
            text,
            fate,
            effect,
            waker: None,
            ended: None,
            back: false,
            orphaned: false,
        };
        state.calls.insert(id, call);
        drop(state);
        Calling { kernel: self.clone(), id }
    }

    /// Sleeps; and wakes early at news of `of`, if that is given.
    pub(crate) fn sleep(
        self: &Arc<Self>,
        pid: Pid,
        span: Duration,
        of: Option<&InstanceId>,
    ) -> Sleeping {
        let mut state = self.state();
        let id = state.ids;
        state.ids += 1;
        let micros = Micros::try_from(span.as_micros()).unwrap_or(Micros::MAX / 4);
        let (at, tie) = (state.now.saturating_add(micros), state.ties.u64(..));
        state.agenda.push(Reverse((at, tie, Event::Alarm(id))));
        state.alarms.insert(id, Alarm { pid, of: of.cloned(), waker: None, rung: false });
        if let Some(of) = of {
            state.ears.entry(of.clone()).or_default().push(id);
        }
        drop(state);
        Sleeping { kernel: self.clone(), id }
    }

    /// A number that stands for all that processes know and wait for.
    pub(crate) fn digest(&self) -> u64 {
        let state = self.state();
        let calls: Vec<_> = state.calls.values().map(|c| (c.pid, c.what, &c.text)).collect();
        let mut agenda: Vec<_> = state
            .agenda
            .iter()
            .filter_map(|Reverse((at, _, event))| match event {
                Event::Alarm(id) => state.alarms.get(id).map(|alarm| (*at, alarm.pid.0)),
                Event::Action(deed) => Some((*at, usize::MAX - deed)),
                Event::Effect(_) | Event::Answer(_) => None,
            })
            .collect();
        agenda.sort_unstable();
        let mut calls: Vec<u64> = calls.iter().map(|call| digest(&[&call])).collect();
        calls.sort_unstable();
        digest(&[&state.now, &state.memories, &calls, &agenda])
    }
}

/// The moment as a clock that runs true would show it.
pub(crate) fn timestamp(now: Micros) -> Timestamp {
    Timestamp::from_millis(EPOCH_MILLIS + now / 1000)
}
