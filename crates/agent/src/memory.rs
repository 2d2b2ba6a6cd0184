//! What the agent remembers from its last answers of the store.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ondeck_core::inputs::times::Times;
use ondeck_core::model::label::Label;
use ondeck_core::model::machine_label::{MachineLabel, RunnerLabel};
use ondeck_core::model::readiness::{Readiness, ReadinessNote};
use ondeck_core::model::record::{Record, State};
use ondeck_core::model::settings::{Settings, SettingsVersion};
use ondeck_core::model::signal::output_tail;
use ondeck_core::model::timestamp::Timestamp;
use ondeck_core::ports::{News, PortResult};

use crate::cycle::served_label;
use crate::deadline::LastRecord;
use crate::notes::Notes;
use crate::refusals::Refusals;
use crate::wake_ups::{Remark, WakeUps};

/// The heartbeat period until the settings are known: short enough for any setting.
const HEARTBEAT_PERIOD_UNTIL_KNOWN: Duration = Duration::from_millis(100);

/// Shared by the agent's concurrent tasks.
#[derive(Debug)]
pub(crate) struct Memory(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    record: LastRecord,
    settings: Option<Settings>,
    followed: Option<SettingsVersion>,
    serving: Option<Label>,
    /// What the runner is registered with while a run is served, if that is a label of the machine.
    own: Option<OwnLabel>,
    /// What is to be said about the registration of the idle machine, and what the store has of it.
    readiness: Option<Readiness>,
    notes: Notes,
    interruption: Option<String>,
    is_preserved: bool,
    registration: Option<Duration>,
    ready_claim: Option<Duration>,
    last_report_at: Timestamp,
    idle_generation: Option<u32>,
    exclusive_use: ExclusiveUse,
    /// Whether a run is over, and the control plane does not know yet how the agent has left it.
    owes_report: bool,
    refusals: Refusals,
    wake_ups: WakeUps,
    /// When the store last answered a look at the record.
    looked_at: Option<Duration>,
    /// Whether the agent's work waits for news, and looks at the record when there is some.
    is_waiting: bool,
    /// When it last heard some.
    heard_at: Option<Duration>,
}

/// Says that the agent's work waits for news, until it is dropped.
pub(crate) struct Waiting<'a>(&'a Memory);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.inner().is_waiting = false;
    }
}

/// The label of the machine that the runner of a run is registered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnLabel {
    pub(crate) label: MachineLabel,
    /// The generation of the record for which the run is served.
    pub(crate) generation: u32,
}

/// What the agent knows about the use of the machine by the present run, or else by the last.
#[derive(Debug, Clone, Copy, Default)]
struct ExclusiveUse {
    /// Whether the run has asked for a machine of its own.
    is_asked_for: bool,
    /// Whether the record says that the run gave the machine back unused.
    is_given_back: bool,
    /// Whether the record says so, and that no run has used the machine before.
    counts_as_unused: bool,
    /// Whether the record still names the run, and another label than its runner is registered with.
    goes_on: bool,
}

impl Memory {
    /// The memory of an agent that started at `started`, in steady time, and has read nothing.
    pub(crate) fn new(started: Duration) -> Memory {
        Memory(Mutex::new(Inner {
            record: LastRecord::NotWritten { since: started },
            settings: None,
            followed: None,
            serving: None,
            own: None,
            readiness: None,
            notes: Notes::default(),
            interruption: None,
            is_preserved: false,
            registration: None,
            ready_claim: None,
            last_report_at: Timestamp::from_millis(0),
            idle_generation: None,
            exclusive_use: ExclusiveUse::default(),
            owes_report: false,
            refusals: Refusals::default(),
            wake_ups: WakeUps::default(),
            looked_at: None,
            is_waiting: false,
            heard_at: None,
        }))
    }

    /// Returns the time of the next report: later than that of any report before, even if the clock
    /// was set back. A store keeps the later of two reports.
    pub(crate) fn next_report_time(&self, now: Timestamp) -> Timestamp {
        let mut inner = self.inner();
        inner.last_report_at = now.max(inner.last_report_at + Duration::from_millis(1));
        inner.last_report_at
    }

    /// Remembers the store's answer about this machine, which arrived at `steady`.
    pub(crate) fn remember_record(&self, record: Option<&Record>, steady: Duration) {
        let mut inner = self.inner();
        inner.record = inner.record.updated(record, steady);
        inner.is_preserved = record.is_some_and(Record::is_preserved);
        inner.looked_at = Some(steady);
        if let Some(record) = record {
            inner.wake_ups.saw_owner(served_label(record).as_ref(), steady);
        }
        // A later call of provision may ask for more than the first.
        let serves = record.is_some_and(|it| it.label().is_some() && it.label() == inner.serving);
        inner.exclusive_use.is_asked_for |= serves && record.is_some_and(|it| it.reuse.is_never());
    }

    /// Remembers that the agent's work waits for news, as long as the result is kept.
    pub(crate) fn begin_to_wait(&self) -> Waiting<'_> {
        self.inner().is_waiting = true;
        Waiting(self)
    }

    /// Whether the agent's work waits for news, or has just heard some, and the record was read less than
    /// `span` ago, so that it need not be read for another reason.
    pub(crate) fn looks_by_itself(&self, now: Duration, span: Duration) -> bool {
        let inner = self.inner();
        let is_within =
            |at: Option<Duration>, span| at.is_some_and(|at| now.saturating_sub(at) < span);
        let has_just_heard = is_within(inner.heard_at, Duration::from_secs(1));
        (inner.is_waiting || has_just_heard) && is_within(inner.looked_at, span)
    }

    /// Whether the machine waits for a run.
    pub(crate) fn is_idle(&self) -> bool {
        let inner = self.inner();
        let is_idle = matches!(inner.record, LastRecord::Present { state: State::Idle, .. });
        is_idle && inner.serving.is_none()
    }

    /// Remembers that a run begins, and whether it asked for a machine of its own.
    pub(crate) fn begin_use(&self, is_exclusive: bool) {
        self.inner().exclusive_use =
            ExclusiveUse { is_asked_for: is_exclusive, ..ExclusiveUse::default() };
    }

    /// Remembers the record that ended the use. Only an idle one that any run may claim says that the
    /// machine was given back. One that still names the run says that it goes on, with another label.
    pub(crate) fn end_use(&self, record: Option<&Record>) {
        let is_given_back =
            record.is_some_and(|it| it.state == State::Idle && !it.reuse.is_never());
        let mut inner = self.inner();
        let served = inner.serving.as_ref().map(|label| &label.run);
        let owner = record.and_then(served_label).map(|label| label.run);
        inner.exclusive_use.goes_on = owner.is_some() && owner.as_ref() == served;
        inner.exclusive_use.is_given_back = is_given_back;
        inner.exclusive_use.counts_as_unused =
            is_given_back && record.is_some_and(|it| it.counts.runs == 0);
        inner.owes_report = true;
    }

    /// Remembers that the control plane knows how the agent has left its last run.
    pub(crate) fn set_left(&self) {
        self.inner().owes_report = false;
    }

    /// Whether the record says that a run is over, and the agent has not left it yet, or not said so.
    pub(crate) fn is_leaving(&self) -> bool {
        let inner = self.inner();
        let is_idle = matches!(inner.record, LastRecord::Present { state: State::Idle, .. });
        is_idle && (inner.serving.is_some() || inner.owes_report)
    }

    /// Whether the run that is over has used the machine and had asked for one of its own.
    /// `has_worked` says whether the runner has taken a job.
    pub(crate) fn is_used_up(&self, has_worked: bool) -> bool {
        let use_ = self.inner().exclusive_use;
        use_.is_asked_for && !use_.goes_on && (has_worked || !use_.is_given_back)
    }

    /// Whether a run that asks for a machine of its own may claim this one next.
    pub(crate) fn counts_as_unused(&self) -> bool {
        self.inner().exclusive_use.counts_as_unused
    }

    /// Remembers the generation of the record that ended the last run, or that was answered last.
    /// `None` if the record is gone.
    pub(crate) fn set_idle_generation(&self, generation: Option<u32>) {
        self.inner().idle_generation = generation;
    }

    pub(crate) fn idle_generation(&self) -> Option<u32> {
        self.inner().idle_generation
    }

    pub(crate) fn record(&self) -> LastRecord {
        self.inner().record
    }

    pub(crate) fn set_settings(&self, settings: Settings) {
        self.inner().settings = Some(settings);
    }

    /// Whether settings of this version may be others than those that were read last.
    pub(crate) fn is_news(&self, version: &SettingsVersion) -> bool {
        let inner = self.inner();
        let read = inner.settings.as_ref().and_then(|settings| settings.version.as_ref());
        read != Some(version) && inner.followed.as_ref() != Some(version)
    }

    /// Remembers that the settings were read because a record named this version.
    pub(crate) fn set_followed(&self, version: Option<SettingsVersion>) {
        self.inner().followed = version;
    }

    /// The times of the settings. Until these are known, the defaults with
    /// a short heartbeat period.
    pub(crate) fn times(&self) -> Times {
        match &self.inner().settings {
            Some(settings) => settings.times.clone(),
            None => Times { heartbeat_period: HEARTBEAT_PERIOD_UNTIL_KNOWN, ..Times::default() },
        }
    }

    /// The pause after a refused heartbeat. Until the settings are known, it is that of the defaults:
    /// refused heartbeats need not be frequent.
    pub(crate) fn period_while_refused(&self) -> Duration {
        let inner = self.inner();
        let times = inner.settings.as_ref().map(|settings| settings.times.clone());
        times.unwrap_or_default().heartbeat_period
    }

    /// Reads or changes what is known about refusals.
    pub(crate) fn with_refusals<T>(&self, change: impl FnOnce(&mut Refusals) -> T) -> T {
        change(&mut self.inner().refusals)
    }

    /// Notes what the agent's work has heard. Returns what to log about it.
    pub(crate) fn heard(&self, news: &News, now: Duration) -> Option<Remark> {
        let mut inner = self.inner();
        inner.heard_at = Some(now);
        inner.wake_ups.heard(news, now)
    }

    /// Reads or changes what is known about wake-ups.
    pub(crate) fn with_wake_ups<T>(&self, change: impl FnOnce(&mut WakeUps) -> T) -> T {
        change(&mut self.inner().wake_ups)
    }

    pub(crate) fn pre_runner_script(&self) -> String {
        self.inner().settings.as_ref().map(|s| s.pre_runner_script.clone()).unwrap_or_default()
    }

    /// Remembers which run is served, and the label of the machine that its runner is registered with;
    /// `None` if that is the label of the run.
    pub(crate) fn set_serving(&self, label: Option<&Label>, own: Option<OwnLabel>) {
        let mut inner = self.inner();
        (inner.serving, inner.own) = (label.cloned(), own);
    }

    /// The label of the machine that the runner of the served run is registered with, if it is one.
    pub(crate) fn own(&self) -> Option<OwnLabel> {
        self.inner().own.clone()
    }

    /// Whether idle machines register, by the settings.
    pub(crate) fn registers_idle(&self) -> bool {
        let inner = self.inner();
        inner.settings.as_ref().is_some_and(|it| it.runner_label == RunnerLabel::Machine)
    }

    /// What is to be said about the registration of the idle machine; `None` if machines of this pool do
    /// not register while they are idle.
    pub(crate) fn readiness(&self) -> Option<Readiness> {
        self.inner().readiness.clone()
    }

    pub(crate) fn set_readiness(&self, readiness: Readiness) {
        self.inner().readiness = Some(readiness);
    }

    /// Remembers that the idle machine is not ready, and since when: since it was ready last, or began to
    /// register.
    pub(crate) fn not_ready(&self, now: Timestamp, why: &str) {
        let mut inner = self.inner();
        let since = match &inner.readiness {
            Some(Readiness::NotReady { since, .. }) => *since,
            Some(Readiness::Ready(_)) | None => now,
        };
        inner.readiness = Some(Readiness::NotReady { since, why: output_tail(why) });
    }

    /// Remembers that the machine is not ready, as of now: it has had a run since, or is idle anew.
    pub(crate) fn no_longer_ready(&self, now: Timestamp, why: &str) {
        let why = output_tail(why);
        self.set_readiness(Readiness::NotReady { since: now, why });
    }

    /// Remembers, before an idle runner is made to stop listening, that the machine is not ready any more:
    /// the next heartbeat must not call it so.
    pub(crate) fn is_about_to_drain(&self, now: Timestamp, why: &str) {
        if matches!(self.readiness(), Some(Readiness::Ready(_))) {
            self.not_ready(now, why);
        }
    }

    /// The note that is to be written now; `None` if the store has what is to be said.
    pub(crate) fn note_to_write(&self, now: Timestamp) -> Option<ReadinessNote> {
        let mut inner = self.inner();
        let untold = inner.notes.untold(inner.readiness.as_ref())?;
        Some(inner.notes.send(untold, now))
    }

    /// Remembers the answer to a note. Returns whether it is to be written again.
    pub(crate) fn note_answered(&self, note: &ReadinessNote, answer: &PortResult<bool>) -> bool {
        self.inner().notes.answered(note, answer)
    }

    /// Whether the store may call the machine ready although it is not, or for another registration than the
    /// present one, because the last note was not written. In a pool whose machines register for their run,
    /// that misleads no provision, and neither does another registration while a run is served. A store that
    /// refuses notes, because its policy does not know them, has none, unless it took one before.
    pub(crate) fn may_be_called_ready(&self, is_refused: bool) -> bool {
        if !self.tells_readiness() {
            return false;
        }
        let inner = self.inner();
        match inner.notes.untold(inner.readiness.as_ref()) {
            Some(Readiness::NotReady { .. }) => !is_refused || inner.notes.may_name_other(None),
            Some(Readiness::Ready(present)) if inner.serving.is_none() => {
                let is_unknown = !is_refused && !inner.notes.has_been_told();
                is_unknown || inner.notes.may_name_other(Some(&present))
            }
            Some(Readiness::Ready(_)) | None => false,
        }
    }

    /// Whether there is something to be said about the registration, and machines of this pool register
    /// while they are idle, as far as the settings are known.
    pub(crate) fn tells_readiness(&self) -> bool {
        let inner = self.inner();
        let registers =
            inner.settings.as_ref().is_none_or(|it| it.runner_label == RunnerLabel::Machine);
        registers && inner.readiness.is_some()
    }

    pub(crate) fn serving(&self) -> Option<Label> {
        self.inner().serving.clone()
    }

    pub(crate) fn set_interruption(&self, notice: &str) {
        self.inner().interruption = Some(notice.to_owned());
    }

    pub(crate) fn interruption(&self) -> Option<String> {
        self.inner().interruption.clone()
    }

    /// Whether the record says that the machine is kept for people, after its run has failed.
    pub(crate) fn is_preserved(&self) -> bool {
        self.inner().is_preserved
    }

    /// Remembers how long a registration took.
    pub(crate) fn set_registration(&self, took: Duration) {
        self.inner().registration = Some(took);
    }

    /// How long the last registration took; `None` before the first.
    pub(crate) fn registration(&self) -> Option<Duration> {
        self.inner().registration
    }

    /// Remembers how long it took to serve a run that found the machine registered.
    pub(crate) fn set_ready_claim(&self, took: Duration) {
        self.inner().ready_claim = Some(took);
    }

    /// How long that took last; `None` before the first such run, and while the store takes no notes: a
    /// policy that does not know them refuses a heartbeat that tells this.
    pub(crate) fn ready_claim(&self) -> Option<Duration> {
        let inner = self.inner();
        inner.ready_claim.filter(|_| inner.notes.are_taken())
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
