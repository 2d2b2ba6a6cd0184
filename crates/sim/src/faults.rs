//! What may go wrong, and how it is decided for each call.

use std::collections::BTreeSet;
use std::fmt;

use crate::kernel::Micros;

/// Everything that a history may hold against the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A control plane's process dies, between any two calls.
    Crash,
    /// An agent's process dies and is started again.
    AgentCrash,
    /// A call is turned away at once, without effect.
    Throttled,
    /// A request never arrives.
    RequestLost,
    /// A request has its effect, and the answer never arrives.
    AnswerLost,
    /// A request is given up, and arrives after that.
    ArrivedLate,
    /// A request arrives twice.
    ArrivedTwice,
    /// A call takes seconds.
    Slow,
    /// A service answers no caller for a while.
    Outage,
    /// A queue says that it is empty, and is not.
    FalselyEmpty,
    /// A queue delivers a ticket once more.
    TicketTwice,
    /// A queue forgets the order of its tickets.
    Reordered,
    /// A provider has no machine to give, or fewer than asked for.
    NoCapacity,
    /// A provider has too much to do for an order, or for a part of it.
    Busy,
    /// A machine never comes up.
    NeverBoots,
    /// An agent stands still for a while.
    Hang,
    /// An agent's heartbeats do not arrive for a while.
    HeartStops,
    /// A clock is up to ten seconds ahead.
    Skew,
    /// A machine is gone from one moment to the next.
    MachineDies,
    /// A provider announces that it takes a machine away, and does.
    SpotNotice,
    /// A runner cannot be registered, stopped, struck from the list, or cleaned up after.
    RunnerFails,
    /// A runner's program dies.
    RunnerDies,
    /// A provision is told to stop.
    ToldToStop,
    /// A run is never released.
    NeverReleased,
    /// Two refreshes at once.
    RefreshTwice,
    /// No refresh for hours.
    NoRefresh,
    /// The operator gives a machine from one run to another by hand.
    Reassigned,
}

impl Fault {
    /// All faults, each of them once.
    pub const ALL: [Fault; 27] = [
        Fault::Crash,
        Fault::AgentCrash,
        Fault::Throttled,
        Fault::RequestLost,
        Fault::AnswerLost,
        Fault::ArrivedLate,
        Fault::ArrivedTwice,
        Fault::Slow,
        Fault::Outage,
        Fault::FalselyEmpty,
        Fault::TicketTwice,
        Fault::Reordered,
        Fault::NoCapacity,
        Fault::Busy,
        Fault::NeverBoots,
        Fault::Hang,
        Fault::HeartStops,
        Fault::Skew,
        Fault::MachineDies,
        Fault::SpotNotice,
        Fault::RunnerFails,
        Fault::RunnerDies,
        Fault::ToldToStop,
        Fault::NeverReleased,
        Fault::RefreshTwice,
        Fault::NoRefresh,
        Fault::Reassigned,
    ];

    /// In a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            Fault::Crash => "crash of a mode",
            Fault::AgentCrash => "crash of an agent",
            Fault::Throttled => "call throttled",
            Fault::RequestLost => "request lost",
            Fault::AnswerLost => "answer lost",
            Fault::ArrivedLate => "request late",
            Fault::ArrivedTwice => "request twice",
            Fault::Slow => "call slow",
            Fault::Outage => "service out",
            Fault::FalselyEmpty => "falsely empty",
            Fault::TicketTwice => "ticket twice",
            Fault::Reordered => "reordered",
            Fault::NoCapacity => "no capacity",
            Fault::Busy => "provider busy",
            Fault::NeverBoots => "never boots",
            Fault::Hang => "agent hangs",
            Fault::HeartStops => "heart stops",
            Fault::Skew => "clock skew",
            Fault::MachineDies => "machine dies",
            Fault::SpotNotice => "spot notice",
            Fault::RunnerFails => "runner fails",
            Fault::RunnerDies => "runner dies",
            Fault::ToldToStop => "told to stop",
            Fault::NeverReleased => "never released",
            Fault::RefreshTwice => "refresh twice",
            Fault::NoRefresh => "no refresh",
            Fault::Reassigned => "reassigned",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// Before the call has its effect.
    Before,
    /// After that, and before it is known.
    After,
}

/// Whether the answer gets back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The answer reaches the caller.
    Sound,
    /// It does not, or says nothing of the effect.
    Lost,
}

/// What becomes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FaultSource {
    /// How long the request takes.
    pub(crate) before: Micros,
    /// How long the answer takes.
    pub(crate) after: Micros,
    /// How often it has its effect.
    pub(crate) effects: u8,
    /// How long after having been given up it has its effect after all.
    pub(crate) late: Option<Micros>,
    pub(crate) answer: Answer,
    pub(crate) crash: Option<Crash>,
    /// The fault that strikes the call, if any.
    pub(crate) fault: Option<Fault>,
}

impl FaultSource {
    /// A call that has its effect once and whose answer arrives.
    pub(crate) fn sound(before: Micros, after: Micros) -> FaultSource {
        FaultSource {
            before,
            after,
            effects: 1,
            late: None,
            answer: Answer::Sound,
            crash: None,
            fault: None,
        }
    }

    /// The same, if this goes wrong.
    pub(crate) fn with(self, fault: Fault, chance: &mut fastrand::Rng) -> FaultSource {
        const SECOND: Micros = 1_000_000;
        // As long as a client waits for an answer.
        let timeout = self.after + 2 * SECOND;
        let faulty = FaultSource { fault: Some(fault), ..self };
        let lost = FaultSource { answer: Answer::Lost, after: timeout, ..faulty };
        match fault {
            Fault::Throttled | Fault::Outage => {
                FaultSource { effects: 0, after: self.after, ..lost }
            }
            Fault::RequestLost => FaultSource { effects: 0, ..lost },
            Fault::AnswerLost => lost,
            Fault::ArrivedLate => {
                let late = Some(timeout + chance.u64(0..30 * SECOND));
                FaultSource { effects: 0, late, ..lost }
            }
            Fault::ArrivedTwice => FaultSource { effects: 2, ..faulty },
            Fault::Slow => FaultSource { before: chance.u64(SECOND..20 * SECOND), ..faulty },
            _ => self,
        }
    }

    /// The same, but the calling process dies.
    pub(crate) fn deadly(self, crash: Crash) -> FaultSource {
        FaultSource { crash: Some(crash), ..self }
    }

    /// What goes wrong, for the journal.
    pub(crate) fn mark(&self) -> String {
        let fault = self.fault.map(|fault| format!("  ** {fault}")).unwrap_or_default();
        match self.crash {
            Some(_) => format!("{fault}  ** dies after it"),
            None => fault,
        }
    }
}

/// How often calls go wrong, in thousandths, and how long they take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rates {
    /// For each kind of fault that befalls calls.
    pub calls: Vec<(Fault, u32)>,
    /// The longest that a sound request or answer takes, in microseconds.
    pub latency: u64,
}

/// One call of a history: who makes it, and his how many-th.
pub type Place = (String, u32);

/// Faults of calls that are left out, so that a history that breaks a promise becomes shorter.
pub type Spared = BTreeSet<Place>;
