//! The scheduler of one history. It holds virtual time, the calls under way, the sleeping
//! processes, and the actions that are due later.
//!
//! Everything that happens is an event taken from the kernel, one at a time. So the order of
//! events determines the history.

mod answers;
mod digest;
mod futures;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ondeck_core::model::ids::InstanceId;
use ondeck_core::model::timestamp::Timestamp;

use crate::faults::{AnswerDelivery, CallBehaviour, CrashPoint, Fault};

pub(crate) use self::answers::AnswerDigests;
use self::answers::is_list;
pub(crate) use self::digest::digest;
pub(crate) use self::futures::{CallFuture, SleepFuture};

/// Virtual microseconds since the beginning of a history.
pub(crate) type Micros = u64;

/// The time of day at which every history begins.
const EPOCH_MILLIS: u64 = 1_750_000_000_000;

/// A process, by the order in which processes were started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pid(pub(crate) usize);

/// An event; the numbers identify calls, alarms and scheduled actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// A request reaches its service.
    Effect(u64),
    /// An answer reaches its caller.
    Answer(u64),
    /// A process has slept long enough.
    Alarm(u64),
    /// A scheduled action of the harness is due.
    Action(usize),
}

/// What the harness must do after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instruction {
    /// Nothing to do, for example because the call was cancelled.
    Nothing,
    Poll(Pid),
    Crash(Pid),
    /// Perform the scheduled action of this number.
    Action(usize),
}

/// A call whose request or answer is under way.
pub(crate) struct Call {
    pub(crate) pid: Pid,
    pub(crate) what: &'static str,
    pub(crate) text: String,
    /// Equal for calls of one process that ask the same; 0 unless calls are chosen.
    question: u64,
    pub(crate) behaviour: CallBehaviour,
    effect: Box<dyn FnMut() -> String + Send>,
    waker: Option<Waker>,
    ended: Option<CallEnd>,
    /// Whether the answer has reached the caller.
    answer_arrived: bool,
    /// Whether the caller has stopped waiting for the answer.
    abandoned: bool,
}

/// How a call ended for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallEnd {
    Answered,
    /// The answer was lost: the caller gets an error and does not know whether the
    /// call had its effect.
    Lost,
}

/// What ends a sleep early.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trigger {
    /// The record of this instance changes.
    Changed(InstanceId),
    /// A wake-up of this instance arrives.
    Woken(InstanceId),
    /// The listener of this instance has ended.
    Lapsed(InstanceId),
}

struct Alarm {
    pid: Pid,
    /// Fires the alarm early.
    trigger: Option<Trigger>,
    waker: Option<Waker>,
    fired: bool,
}

struct State {
    now: Micros,
    ids: u64,
    calls: BTreeMap<u64, Call>,
    alarms: BTreeMap<u64, Alarm>,
    /// The alarms that fire early.
    listeners: BTreeMap<Trigger, Vec<u64>>,
    /// The instances whose agents have not been told of a wake-up.
    woken: BTreeSet<InstanceId>,
    versions: BTreeMap<InstanceId, u64>,
    agenda: BinaryHeap<Reverse<(Micros, u64, Event)>>,
    frozen: BTreeMap<Pid, Micros>,
    /// When the answer to the call that is having its effect reaches the caller; `None`
    /// if it is lost.
    answer_at: Option<Micros>,
    /// Whether calls have their effects when they are chosen, and not at a scheduled time.
    by_choice: bool,
    journal: Option<Vec<String>>,
    /// Updated only while `tracks_answers` is set.
    answer_digests: AnswerDigests,
    tracks_answers: bool,
    names: Vec<String>,
    steps: u64,
    faults: BTreeMap<Fault, u64>,
    tie_breaker: fastrand::Rng,
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

    /// What a new call asks, see [`Call::question`].
    fn question(&self, pid: Pid, what: &str, text: &str) -> u64 {
        if self.by_choice { digest(&[&pid, &what, &text]) } else { 0 }
    }

    /// Fires the alarms that wait for this.
    fn fire(&mut self, trigger: &Trigger) {
        let now = self.now;
        for alarm in self.listeners.remove(trigger).unwrap_or_default() {
            let tie = self.tie_breaker.u64(..);
            self.agenda.push(Reverse((now, tie, Event::Alarm(alarm))));
        }
    }

    /// Schedules the effect of a call for `late` after now, when the caller has stopped waiting.
    fn arrive_late(&mut self, call: &mut Call, late: Micros) {
        let late_id = self.ids;
        self.ids += 1;
        if !self.by_choice {
            let (at, tie) = (self.now + late, self.tie_breaker.u64(..));
            self.agenda.push(Reverse((at, tie, Event::Effect(late_id))));
        }
        let late_call = Call {
            pid: call.pid,
            what: call.what,
            text: call.text.clone(),
            question: call.question,
            behaviour: CallBehaviour::sound(0, 0),
            effect: std::mem::replace(&mut call.effect, Box::new(String::new)),
            waker: None,
            ended: None,
            answer_arrived: false,
            abandoned: true,
        };
        self.calls.insert(late_id, late_call);
    }
}

/// A call that has not had its effect yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingCall {
    pub(crate) id: u64,
    pub(crate) pid: Pid,
    pub(crate) what: &'static str,
    /// Equal for calls of one process that ask the same.
    pub(crate) question: u64,
    /// Whether a refresh asks for this list together with others, and uses none before it has all.
    pub(crate) is_list: bool,
    /// Whether the caller has stopped waiting for the answer.
    pub(crate) abandoned: bool,
}

pub(crate) struct Kernel(Mutex<State>);

impl Kernel {
    pub(crate) fn new(seed: u64, by_choice: bool, journal: bool) -> Kernel {
        Kernel(Mutex::new(State {
            now: 0,
            ids: 0,
            calls: BTreeMap::new(),
            alarms: BTreeMap::new(),
            listeners: BTreeMap::new(),
            woken: BTreeSet::new(),
            versions: BTreeMap::new(),
            agenda: BinaryHeap::new(),
            frozen: BTreeMap::new(),
            answer_at: None,
            by_choice,
            journal: journal.then(Vec::new),
            answer_digests: AnswerDigests::default(),
            tracks_answers: by_choice,
            names: Vec::new(),
            steps: 0,
            faults: BTreeMap::new(),
            tie_breaker: fastrand::Rng::with_seed(seed),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Micros {
        self.state().now
    }

    /// The true time. The clocks of processes may be ahead of it.
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

    /// When the answer to the call that is having its effect reaches the caller; `None` if the
    /// answer is lost or the caller has stopped waiting. A caller that is frozen then receives it
    /// later. Only the effect of a call may ask this.
    pub(crate) fn answer_at(&self) -> Option<Micros> {
        self.state().answer_at
    }

    /// Adds a process and returns its number.
    pub(crate) fn add_process(&self, name: &str) -> Pid {
        let mut state = self.state();
        state.names.push(name.to_owned());
        Pid(state.names.len() - 1)
    }

    /// Adds a line to the journal, if this history has one.
    pub(crate) fn note(&self, who: &str, line: impl FnOnce() -> String) {
        let mut state = self.state();
        let now = state.now;
        if let Some(journal) = &mut state.journal {
            let seconds = now / 1_000_000;
            let millis = now / 1000 % 1000;
            journal.push(format!("{seconds:>6}.{millis:03}  {who:<16} {}", line()));
        }
    }

    /// Whether the texts of requests are needed: for the journal or to tell states apart.
    pub(crate) fn records_requests(&self) -> bool {
        let state = self.state();
        state.journal.is_some() || state.by_choice
    }

    /// Whether the texts of answers are needed: for the journal or to tell states apart.
    pub(crate) fn records_answers(&self) -> bool {
        let state = self.state();
        state.journal.is_some() || state.tracks_answers
    }

    pub(crate) fn answer_digests(&self) -> AnswerDigests {
        self.state().answer_digests.clone()
    }

    /// Stops updating the digests of answers.
    pub(crate) fn stop_tracking_answers(&self) {
        self.state().tracks_answers = false;
    }

    /// Updates the digests of answers from now on, starting with `answer_digests`.
    pub(crate) fn track_answers_from(&self, answer_digests: AnswerDigests) {
        let mut state = self.state();
        state.tracks_answers = true;
        state.answer_digests = answer_digests;
    }

    pub(crate) fn journal(&self) -> Vec<String> {
        self.state().journal.clone().unwrap_or_default()
    }

    pub(crate) fn schedule(&self, at: Micros, event: Event) {
        let mut state = self.state();
        let tie = state.tie_breaker.u64(..);
        state.agenda.push(Reverse((at, tie, event)));
    }

    /// Keeps answers and alarms from a process until `until`. Its requests under way
    /// still have their effects.
    pub(crate) fn freeze(&self, pid: Pid, until: Micros) {
        self.state().frozen.insert(pid, until);
    }

    /// Takes the next event and advances time to it. Returns `None` if no event is
    /// due up to `limit`.
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

    /// Advances time without handling events.
    pub(crate) fn advance_to(&self, until: Micros) {
        let mut state = self.state();
        state.now = state.now.max(until);
    }

    /// When the next event is due; `None` if there is none.
    pub(crate) fn next_due(&self) -> Option<Micros> {
        let mut state = self.state();
        state.drop_cancelled();
        state.agenda.peek().map(|Reverse((at, ..))| *at)
    }

    /// Whether calls have their effects when they are chosen, and not at a scheduled time.
    pub(crate) fn is_by_choice(&self) -> bool {
        self.state().by_choice
    }

    /// The calls that have not had their effects yet, oldest first.
    pub(crate) fn pending_calls(&self) -> Vec<PendingCall> {
        let state = self.state();
        let waiting = state.calls.iter().filter(|(_, call)| call.ended.is_none());
        let pending = |(id, call): (&u64, &Call)| PendingCall {
            id: *id,
            pid: call.pid,
            what: call.what,
            question: call.question,
            is_list: state.names.get(call.pid.0).is_some_and(|name| is_list(name, call.what)),
            abandoned: call.abandoned,
        };
        waiting.map(pending).collect()
    }

    /// Performs a pending call with this behaviour, including the delivery of its answer.
    pub(crate) fn choose(&self, id: u64, behaviour: CallBehaviour) -> Instruction {
        {
            let mut state = self.state();
            state.steps += 1;
            if let Some(call) = state.calls.get_mut(&id) {
                call.behaviour = behaviour;
            }
            if let Some(fault) = behaviour.fault {
                *state.faults.entry(fault).or_default() += 1;
            }
        }
        match self.effect(id) {
            Instruction::Nothing => self.answer(id),
            instruction => instruction,
        }
    }

    /// Handles an event, and returns what the harness must do. The effects of calls happen here.
    pub(crate) fn handle(&self, event: Event) -> Instruction {
        match event {
            Event::Effect(id) => self.effect(id),
            Event::Answer(id) => self.answer(id),
            Event::Alarm(id) => self.alarm(id, event),
            Event::Action(action) => Instruction::Action(action),
        }
    }

    fn effect(&self, id: u64) -> Instruction {
        let Some(mut call) = self.state().calls.remove(&id) else { return Instruction::Nothing };
        let who = self.name(call.pid);
        if call.behaviour.crash == Some(CrashPoint::Before) && !call.abandoned {
            self.note(&who, || format!("{} {}  ** dies before it", call.what, call.text));
            return Instruction::Crash(call.pid);
        }
        {
            let mut state = self.state();
            let reaches = call.behaviour.answer == AnswerDelivery::Arrives && !call.abandoned;
            state.answer_at = reaches.then_some(state.now + call.behaviour.after);
        }
        // Without the lock, because the effect reads the clock.
        let mut answer = String::new();
        for _ in 0..call.behaviour.effects {
            answer = (call.effect)();
        }
        let mark = call.behaviour.mark();
        self.note(&who, || format!("{} {} -> {answer}{mark}", call.what, call.text));
        if call.abandoned {
            return Instruction::Nothing;
        }
        if call.behaviour.crash == Some(CrashPoint::After) {
            return Instruction::Crash(call.pid);
        }
        let mut state = self.state();
        let lost = call.behaviour.answer == AnswerDelivery::Lost;
        if state.tracks_answers {
            let shown = if lost { "lost" } else { &answer };
            let (now, list) = (state.now, is_list(&who, call.what).then_some(call.what));
            let received: [&dyn std::fmt::Debug; 4] = [&now, &call.what, &call.text, &shown];
            state.answer_digests.add(call.pid, list, &received);
        }
        if let Some(late) = call.behaviour.late {
            state.arrive_late(&mut call, late);
        }
        if !state.by_choice {
            let (at, tie) = (state.now + call.behaviour.after, state.tie_breaker.u64(..));
            state.agenda.push(Reverse((at, tie, Event::Answer(id))));
        }
        call.ended = Some(if lost { CallEnd::Lost } else { CallEnd::Answered });
        state.calls.insert(id, call);
        Instruction::Nothing
    }

    fn answer(&self, id: u64) -> Instruction {
        let mut state = self.state();
        let Some(call) = state.calls.get_mut(&id) else { return Instruction::Nothing };
        let pid = call.pid;
        if let Some(until) = state.frozen.get(&pid).copied().filter(|until| *until > state.now) {
            state.agenda.push(Reverse((until, id, Event::Answer(id))));
            return Instruction::Nothing;
        }
        let Some(call) = state.calls.get_mut(&id) else { return Instruction::Nothing };
        call.answer_arrived = true;
        let waker = call.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Instruction::Poll(pid)
    }

    fn alarm(&self, id: u64, event: Event) -> Instruction {
        let mut state = self.state();
        let Some(alarm) = state.alarms.get_mut(&id) else { return Instruction::Nothing };
        let pid = alarm.pid;
        if let Some(until) = state.frozen.get(&pid).copied().filter(|until| *until > state.now) {
            state.agenda.push(Reverse((until, id, event)));
            return Instruction::Nothing;
        }
        let Some(alarm) = state.alarms.get_mut(&id) else { return Instruction::Nothing };
        alarm.fired = true;
        let waker = alarm.waker.take();
        if state.tracks_answers {
            let now = state.now;
            state.answer_digests.add(pid, None, &[&now, &"alarm"]);
        }
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Instruction::Poll(pid)
    }

    pub(crate) fn name(&self, pid: Pid) -> String {
        self.state().names.get(pid.0).cloned().unwrap_or_default()
    }

    /// Wakes the processes that wait for a change of an instance's record.
    pub(crate) fn record_changed(&self, id: &InstanceId) {
        let mut state = self.state();
        *state.versions.entry(id.clone()).or_default() += 1;
        state.fire(&Trigger::Changed(id.clone()));
    }

    /// A wake-up of an instance arrives.
    pub(crate) fn wake_up(&self, id: &InstanceId) {
        let mut state = self.state();
        state.woken.insert(id.clone());
        state.fire(&Trigger::Woken(id.clone()));
    }

    /// Whether a wake-up of an instance has arrived. The next one counts anew.
    pub(crate) fn take_wake_up(&self, id: &InstanceId) -> bool {
        self.state().woken.remove(id)
    }

    /// How often an instance's record has changed so far.
    pub(crate) fn version(&self, id: &InstanceId) -> u64 {
        self.state().versions.get(id).copied().unwrap_or_default()
    }

    /// Starts a call. The future waits until it has ended for the caller.
    pub(crate) fn begin(
        self: &Arc<Self>,
        pid: Pid,
        (what, text): (&'static str, String),
        behaviour: CallBehaviour,
        effect: impl FnMut() -> String + Send + 'static,
    ) -> CallFuture {
        let mut state = self.state();
        let id = state.ids;
        state.ids += 1;
        if let Some(fault) = behaviour.fault {
            *state.faults.entry(fault).or_default() += 1;
        }
        if !state.by_choice {
            let (at, tie) = (state.now + behaviour.before, state.tie_breaker.u64(..));
            state.agenda.push(Reverse((at, tie, Event::Effect(id))));
        }
        let effect = Box::new(effect);
        let call = Call {
            pid,
            what,
            question: state.question(pid, what, &text),
            text,
            behaviour,
            effect,
            waker: None,
            ended: None,
            answer_arrived: false,
            abandoned: false,
        };
        state.calls.insert(id, call);
        drop(state);
        CallFuture { kernel: self.clone(), id }
    }

    /// Sends a message for which no process waits. It has its effect after this time.
    pub(crate) fn post(
        &self,
        pid: Pid,
        (what, text): (&'static str, String),
        after: Micros,
        effect: impl FnMut() -> String + Send + 'static,
    ) {
        let mut state = self.state();
        let id = state.ids;
        state.ids += 1;
        let (at, tie) = (state.now + after, state.tie_breaker.u64(..));
        state.agenda.push(Reverse((at, tie, Event::Effect(id))));
        let message = Call {
            pid,
            what,
            question: state.question(pid, what, &text),
            text,
            behaviour: CallBehaviour::sound(0, 0),
            effect: Box::new(effect),
            waker: None,
            ended: None,
            answer_arrived: false,
            abandoned: true,
        };
        state.calls.insert(id, message);
    }

    /// Starts to sleep for `span`, or until the trigger.
    pub(crate) fn sleep(
        self: &Arc<Self>,
        pid: Pid,
        span: Duration,
        trigger: Option<Trigger>,
    ) -> SleepFuture {
        let mut state = self.state();
        let id = state.ids;
        state.ids += 1;
        let micros = Micros::try_from(span.as_micros()).unwrap_or(Micros::MAX / 4);
        let (at, tie) = (state.now.saturating_add(micros), state.tie_breaker.u64(..));
        state.agenda.push(Reverse((at, tie, Event::Alarm(id))));
        state.alarms.insert(id, Alarm { pid, trigger: trigger.clone(), waker: None, fired: false });
        if let Some(trigger) = trigger {
            state.listeners.entry(trigger).or_default().push(id);
        }
        drop(state);
        SleepFuture { kernel: self.clone(), id }
    }

    /// A digest of what processes have been answered and what they wait for.
    pub(crate) fn digest(&self) -> u64 {
        let state = self.state();
        let mut agenda: Vec<_> = state
            .agenda
            .iter()
            .filter_map(|Reverse((at, _, event))| match event {
                Event::Alarm(id) => state.alarms.get(id).map(|alarm| (*at, alarm.pid.0)),
                Event::Action(action) => Some((*at, usize::MAX - action)),
                Event::Effect(_) | Event::Answer(_) => None,
            })
            .collect();
        agenda.sort_unstable();
        let mut calls: Vec<u64> = state.calls.values().map(|call| call.question).collect();
        calls.sort_unstable();
        digest(&[&state.now, &state.answer_digests, &calls, &agenda])
    }
}

/// The time of day that an exact clock shows at `now`.
pub(crate) fn timestamp(now: Micros) -> Timestamp {
    Timestamp::from_millis(EPOCH_MILLIS + now / 1000)
}
