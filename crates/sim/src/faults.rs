//! The faults that a simulation injects, and how they change a call.

use std::collections::BTreeSet;
use std::fmt;

use crate::kernel::Micros;

/// Every kind of fault that is injected or counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A process of the control plane dies between two of its calls.
    Crash,
    /// An agent's process dies and is restarted.
    AgentCrash,
    /// A call is refused at once, without effect.
    Throttled,
    /// A request never arrives.
    RequestLost,
    /// A request has its effect, and the answer never arrives.
    AnswerLost,
    /// A request arrives after the caller has stopped waiting.
    ArrivedLate,
    /// A request arrives twice.
    ArrivedTwice,
    /// A call takes seconds.
    Slow,
    /// A service answers no caller for a while.
    Outage,
    /// A queue answers that it is empty although it is not.
    FalselyEmpty,
    /// A queue delivers a ticket twice.
    TicketTwice,
    /// A queue delivers its tickets out of order.
    Reordered,
    /// The provider has fewer machines than ordered, or none.
    NoCapacity,
    /// The provider throttles an order or a part of it.
    Busy,
    /// The provider refuses an order for good: an image is gone, or a permission is missing.
    LaunchRefused,
    /// The provider never answers an order, whether it launches machines or not.
    LaunchUnheard,
    /// A machine never boots.
    NeverBoots,
    /// An agent is frozen for a while.
    Hang,
    /// An agent's heartbeats do not arrive for a while.
    HeartbeatsStop,
    /// The store refuses an agent.
    AgentDenied,
    /// A clock is up to ten seconds ahead.
    Skew,
    /// A machine disappears without notice.
    MachineDies,
    /// The provider announces an interruption of a machine, and terminates it two minutes later.
    SpotNotice,
    /// Registering, stopping, deregistering or cleaning up after a runner fails.
    RunnerFails,
    /// A runner's process dies.
    RunnerDies,
    /// Registering a runner takes up to a minute, or never ends.
    SlowRegistration,
    /// The provider refuses to be set up, so that a refresh fails.
    SetUpRefused,
    /// The forge limits the requests about runs and runners that a refresh may send.
    ForgeLimits,
    /// A provision or a refresh is told to stop.
    ToldToStop,
    /// A run is never released.
    NeverReleased,
    /// Two refreshes run at the same time.
    RefreshTwice,
    /// No refresh runs for hours.
    NoRefresh,
    /// The operator gives a machine from one run to another by hand.
    Reassigned,
    /// The store's index shows a write up to 30 s later.
    IndexLags,
    /// A wake-up never arrives.
    WakeUpLost,
    /// A wake-up arrives again, up to a minute later.
    WakeUpTwice,
    /// A wake-up arrives up to a minute late.
    WakeUpLate,
    /// A wake-up arrives at a machine whose record has not changed.
    WakeUpForged,
    /// An agent cannot hear wake-ups.
    WakeUpsUnheard,
    /// A runner is deleted on the server while it listens.
    RunnerDeleted,
    /// What an agent says of its registration is not answered, while its heartbeats are.
    NotesStop,
    /// The forge refuses the version of a runner.
    VersionRefused,
    /// The forge keeps the session of a listener that was killed, and refuses another one.
    SessionConflict,
    /// A machine cannot reach the forge for a while.
    ForgeUnreachable,
    /// A job of another run names the label of a machine.
    ForeignJob,
    /// A job of a run names a label that the run was given before.
    OldLabel,
}

impl Fault {
    /// All faults, each of them once.
    pub const ALL: [Fault; 46] = [
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
        Fault::LaunchRefused,
        Fault::LaunchUnheard,
        Fault::NeverBoots,
        Fault::Hang,
        Fault::HeartbeatsStop,
        Fault::AgentDenied,
        Fault::Skew,
        Fault::MachineDies,
        Fault::SpotNotice,
        Fault::RunnerFails,
        Fault::RunnerDies,
        Fault::SlowRegistration,
        Fault::SetUpRefused,
        Fault::ForgeLimits,
        Fault::ToldToStop,
        Fault::NeverReleased,
        Fault::RefreshTwice,
        Fault::NoRefresh,
        Fault::Reassigned,
        Fault::IndexLags,
        Fault::WakeUpLost,
        Fault::WakeUpTwice,
        Fault::WakeUpLate,
        Fault::WakeUpForged,
        Fault::WakeUpsUnheard,
        Fault::RunnerDeleted,
        Fault::NotesStop,
        Fault::VersionRefused,
        Fault::SessionConflict,
        Fault::ForgeUnreachable,
        Fault::ForeignJob,
        Fault::OldLabel,
    ];

    /// The name of the fault in reports.
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
            Fault::LaunchRefused => "launch refused",
            Fault::LaunchUnheard => "launch unheard",
            Fault::NeverBoots => "never boots",
            Fault::Hang => "agent hangs",
            Fault::HeartbeatsStop => "no heartbeats",
            Fault::AgentDenied => "agent refused",
            Fault::Skew => "clock skew",
            Fault::MachineDies => "machine dies",
            Fault::SpotNotice => "spot notice",
            Fault::RunnerFails => "runner fails",
            Fault::RunnerDies => "runner dies",
            Fault::SlowRegistration => "slow to register",
            Fault::SetUpRefused => "set-up refused",
            Fault::ForgeLimits => "forge limits",
            Fault::ToldToStop => "told to stop",
            Fault::NeverReleased => "never released",
            Fault::RefreshTwice => "refresh twice",
            Fault::NoRefresh => "no refresh",
            Fault::Reassigned => "reassigned",
            Fault::IndexLags => "index lags",
            Fault::WakeUpLost => "wake-up lost",
            Fault::WakeUpTwice => "wake-up twice",
            Fault::WakeUpLate => "wake-up late",
            Fault::WakeUpForged => "wake-up forged",
            Fault::WakeUpsUnheard => "wake-ups unheard",
            Fault::RunnerDeleted => "runner deleted",
            Fault::NotesStop => "no notes",
            Fault::VersionRefused => "version refused",
            Fault::SessionConflict => "session conflict",
            Fault::ForgeUnreachable => "forge unreachable",
            Fault::ForeignJob => "job of another run",
            Fault::OldLabel => "old label",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// When a process dies, relative to one of its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// Before the call has its effect.
    Before,
    /// After the effect, before the answer arrives.
    After,
}

/// Whether the caller receives the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerDelivery {
    Arrives,
    /// The caller gets an error that does not tell whether the call had its effect.
    Lost,
}

/// How one call behaves: its latency, how often it has its effect, and the fault injected into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallBehaviour {
    /// How long the request takes to arrive.
    pub(crate) before: Micros,
    /// How long the answer takes to arrive.
    pub(crate) after: Micros,
    /// How often the call has its effect before the answer.
    pub(crate) effects: u8,
    /// How long after the answer was lost the call has its effect, if it arrives late.
    pub(crate) late: Option<Micros>,
    pub(crate) answer: AnswerDelivery,
    pub(crate) crash: Option<CrashPoint>,
    pub(crate) fault: Option<Fault>,
}

impl CallBehaviour {
    /// A call that has its effect once and whose answer arrives.
    pub(crate) fn sound(before: Micros, after: Micros) -> CallBehaviour {
        CallBehaviour {
            before,
            after,
            effects: 1,
            late: None,
            answer: AnswerDelivery::Arrives,
            crash: None,
            fault: None,
        }
    }

    /// Returns the behaviour of the same call with this fault injected. Faults that do not
    /// concern calls change nothing.
    pub(crate) fn with(self, fault: Fault, random: &mut fastrand::Rng) -> CallBehaviour {
        const SECOND: Micros = 1_000_000;
        // A client waits this long for an answer.
        let timeout = self.after + 2 * SECOND;
        let faulty = CallBehaviour { fault: Some(fault), ..self };
        let lost = CallBehaviour { answer: AnswerDelivery::Lost, after: timeout, ..faulty };
        match fault {
            Fault::Throttled | Fault::Outage => {
                CallBehaviour { effects: 0, after: self.after, ..lost }
            }
            Fault::RequestLost => CallBehaviour { effects: 0, ..lost },
            Fault::AnswerLost => lost,
            Fault::ArrivedLate => {
                let late = Some(timeout + random.u64(0..30 * SECOND));
                CallBehaviour { effects: 0, late, ..lost }
            }
            Fault::ArrivedTwice => CallBehaviour { effects: 2, ..faulty },
            Fault::Slow => CallBehaviour { before: random.u64(SECOND..20 * SECOND), ..faulty },
            _ => self,
        }
    }

    /// Returns the behaviour of the same call if the calling process dies at it.
    pub(crate) fn with_crash(self, crash: CrashPoint) -> CallBehaviour {
        CallBehaviour { crash: Some(crash), ..self }
    }

    /// The fault and the crash, for the journal; empty if there is none.
    pub(crate) fn mark(&self) -> String {
        let fault = self.fault.map(|fault| format!("  ** {fault}")).unwrap_or_default();
        match self.crash {
            Some(_) => format!("{fault}  ** dies after it"),
            None => fault,
        }
    }
}

/// How often faults are injected into calls, and how long calls take.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rates {
    /// The rate of each kind of fault, in thousandths of the calls.
    pub calls: Vec<(Fault, u32)>,
    /// The longest that a request or answer takes without a fault, in microseconds.
    pub latency: u64,
}

/// One call of a history: the name of the process, and the number of the call, from 1.
pub type CallSite = (String, u32);

/// Calls into which no fault is injected, so that a history that violates
/// an invariant becomes shorter.
pub type SkippedFaults = BTreeSet<CallSite>;
