//! The invariants that the auditor checks, by their names in reports.

use std::fmt;

/// A violated invariant, and what violated it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub invariant: Invariant,
    pub how: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant.as_str(), self.how)
    }
}

/// A property that must hold in every history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// The owner of an instance never changes from one run directly to another.
    OneOwner,
    /// Every change of a record is a row of the table of transitions.
    LegalTransition,
    /// A listening runner has the label of its machine's owner.
    Label,
    /// An agent serves its machine's owner.
    ServesOwner,
    /// A job runs on a machine of its own run.
    Job,
    /// An idle machine that is marked as announced has a ticket in its queue.
    Reachable,
    /// A refresh that succeeds announces or expires every idle machine that was not announced.
    Repaired,
    /// A machine is announced only after its runner, job and label are gone.
    Announced,
    /// A machine is terminated only after its record, and never by its agent before its threshold.
    StoreFirst,
    /// Without faults, no machine is expired before its threshold.
    NoWaste,
    /// A run whose provision succeeds has exactly the machines in its answer. A run whose
    /// provision fails has none.
    AllOrNothing,
    /// A launch happens once, however often the order is repeated.
    LaunchedOnce,
    /// An intent is written before the launch that it describes.
    IntentFirst,
    /// Every call of a mode ends.
    EveryCallEnds,
    /// Without faults every provision succeeds. After faults, the next provision succeeds.
    Succeeds,
    /// An agent whose record names another run leaves its run and serves that one.
    Follows,
    /// A machine with an agent terminates after all deadlines, even without a refresh.
    TerminatesItself,
    /// When all deadlines have passed and refresh has run, nothing is left.
    NothingLeft,
    /// A machine that a provision hands to its run is unexpired for as long as was promised,
    /// registered for the run, beating, and of the kind that was asked for.
    HandedOver,
    /// A healthy machine is not given up before its threshold, whichever other part of the system
    /// fails.
    Spared,
    /// A change of settings loses no machine.
    SettingsKeep,
    /// A refresh that fails stores none of the settings that it was given.
    NotHalfway,
    /// A provision launches no machine while a suitable one is announced and nothing failed.
    FoundInPool,
    /// The minimum of idle machines is kept, without launching again what could have been kept.
    MinimumKept,
    /// No launch exceeds the ceiling on machines.
    Ceiling,
    /// Machines cost no more than the cap, going by how long they exist.
    SpendCap,
    /// The count of the ceiling is never less than the machines that exist.
    Counted,
    /// Each change gives a machine the time that the settings and the call say.
    Deadline,
    /// A machine that has reached a limit of its lifetime is replaced, and no other.
    Lifetime,
    /// An idle agent goes by the settings that the last refresh has stored or left.
    SettingsReach,
    /// A provision that is told to stop ends before GitHub ends it.
    StopsSoon,
    /// A provision that has ended hides no ticket from others.
    PutBack,
    /// A provision has few machines claimed beyond those that it wants, and none too early.
    FewHedges,
    /// An agent that the store refuses asks less and less often, and a rescue that fails is tried again
    /// later and later.
    BacksOff,
    /// Modes neither wait nor ask nor write more than they need to.
    Economical,
    /// No more than two tickets announce a machine.
    FewTickets,
    /// A provision waits for room below the ceiling for as long as it was told to.
    WaitsForRoom,
    /// The count of the ceiling is not too high after a refresh, and no provision is refused for want
    /// of room that there is.
    RoomIsUsed,
    /// A refresh asks for credentials if those that are stored will not do, and only then.
    FewCredentials,
    /// A mode does not wait for an agent that has said that it failed.
    Believed,
    /// A machine that the provider will take away gets no further run.
    NotInterrupted,
    /// Without faults, a refresh gives machines to a run whose jobs wait. If machines die, it does so
    /// within two refreshes.
    Rescued,
    /// Jobs that were cut off because the provider took their machines away are re-run once, if the
    /// settings say so, and no others.
    RerunOnce,
    /// Rescues give a run no more machines than it has asked for.
    RescuedOnce,
    /// A refresh takes no machine from its job.
    JobKept,
    /// A run that has completed has no machine after two refreshes.
    CompletedHoldsNothing,
    /// A machine whose time is up, or that is preserved, takes no job.
    NoJobWhenExpired,
    /// A machine registers a runner only after it was prepared.
    Prepared,
    /// What a mode or an agent reports is true.
    TrueReport,
    /// Times that contradict each other are refused.
    Contradiction,
    /// A machine that serves a run of its own has served no other before, and serves none afterwards.
    OneRun,
    /// A machine that an operator has drained gets no further run.
    NotDrained,
    /// No registration, and no label of a machine, serves two runs.
    OneRegistration,
    /// An idle machine that is called ready listens for jobs, under the registration that is named.
    ReadyIsReady,
    /// An idle machine that has listened for a minute is called ready.
    CalledReady,
    /// After two refreshes, no runner is listed whose machine is gone, or that is older than the one that
    /// its machine calls ready, unless it has a job.
    Unlisted,
    /// The label of a machine that a run was given works for as long as the run's demand is kept.
    LabelWorks,
    /// No process of a history panics.
    NoPanic,
}

impl Invariant {
    /// The name of the invariant in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Invariant::OneOwner => "one owner",
            Invariant::LegalTransition => "legal transitions",
            Invariant::Label => "label is the owner's",
            Invariant::ServesOwner => "agent serves the owner",
            Invariant::Job => "job on its own machine",
            Invariant::Reachable => "idle is reachable",
            Invariant::Repaired => "refresh repairs",
            Invariant::Announced => "announced when free",
            Invariant::StoreFirst => "store first",
            Invariant::NoWaste => "no waste",
            Invariant::AllOrNothing => "all or nothing",
            Invariant::LaunchedOnce => "launched once",
            Invariant::IntentFirst => "intent first",
            Invariant::EveryCallEnds => "every call ends",
            Invariant::Succeeds => "provision succeeds",
            Invariant::Follows => "agent follows",
            Invariant::TerminatesItself => "machine terminates itself",
            Invariant::NothingLeft => "nothing left",
            Invariant::HandedOver => "handed over ready",
            Invariant::Spared => "healthy machines are spared",
            Invariant::SettingsKeep => "settings lose nothing",
            Invariant::NotHalfway => "nothing half-way",
            Invariant::FoundInPool => "found in the pool",
            Invariant::MinimumKept => "minimum is kept",
            Invariant::Ceiling => "ceiling holds",
            Invariant::SpendCap => "spend stays below its cap",
            Invariant::Counted => "count is not short",
            Invariant::Deadline => "deadline is right",
            Invariant::Lifetime => "lifetimes hold",
            Invariant::SettingsReach => "settings reach idle agents",
            Invariant::StopsSoon => "stops soon",
            Invariant::PutBack => "tickets are put back",
            Invariant::FewHedges => "few hedges",
            Invariant::BacksOff => "failures back off",
            Invariant::Economical => "nothing in vain",
            Invariant::FewTickets => "few tickets",
            Invariant::WaitsForRoom => "waits for room",
            Invariant::RoomIsUsed => "room is used",
            Invariant::FewCredentials => "credentials in time",
            Invariant::Believed => "failures are believed",
            Invariant::NotInterrupted => "interrupted is not reused",
            Invariant::Rescued => "rescued",
            Invariant::RerunOnce => "cut-off jobs are re-run",
            Invariant::RescuedOnce => "rescued once",
            Invariant::JobKept => "jobs keep their machines",
            Invariant::CompletedHoldsNothing => "completed holds nothing",
            Invariant::NoJobWhenExpired => "expired takes no job",
            Invariant::Prepared => "prepared first",
            Invariant::TrueReport => "report is true",
            Invariant::Contradiction => "contradictions are refused",
            Invariant::OneRun => "one run per machine",
            Invariant::NotDrained => "drained is not reused",
            Invariant::OneRegistration => "one run per registration",
            Invariant::ReadyIsReady => "ready is ready",
            Invariant::CalledReady => "ready is called ready",
            Invariant::Unlisted => "nothing stays listed",
            Invariant::LabelWorks => "labels keep working",
            Invariant::NoPanic => "no panic",
        }
    }
}
