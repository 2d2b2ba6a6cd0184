//! Provision: gives a run its machines, from the pool where possible and newly launched otherwise.
//!
//! ```text
//! request → requirements → adoption → selection → creation → post-provision → outcome
//! ```

mod adoption;
mod ceiling;
mod creation;
mod credentials;
mod holdings;
mod journal;
mod labels;
mod outcome;
mod pool_search;
mod post_provision;
mod request;
mod selection;
mod set_up;

pub use outcome::{MachineSource, Milestones, Outcome, Provisioned, Timings};
pub use pool_search::PoolSearch;
pub use post_provision::is_left_to_refresh;
pub use request::{
    INPUTS, MAX_COUNT, Origin, ProvisionOptions, Request, SourcePolicy, run_from_inputs,
};

pub(in crate::modes) use creation::{Registered, readiness, registered};
pub(in crate::modes) use selection::usable_delay;
pub use set_up::{await_set_up, set_up_patience};

use std::time::Duration;

use futures_util::future::{join, join3};
use tokio::sync::{OnceCell, mpsc};

use self::holdings::Holdings;
use self::journal::Journal;
use self::outcome::Phase;
use self::post_provision::{CleanUp, Ending};
use self::selection::Deletes;
use crate::inputs::times::Times;
use crate::model::demand::Demand;
use crate::model::failure::{Failure, FailureKind};
use crate::model::label::Label;
use crate::model::machine_label::{MachineLabel, RequestedLabel, RunnerLabel};
use crate::model::requirements::Requirements;
use crate::model::reuse::Reuse;
use crate::model::settings::Settings;
use crate::model::summary::WaitCause;
use crate::modes::plane::Plane;
use crate::ports::{Listing, PortError};
use crate::runtime::stop::StopSignal;

/// How long what was read while the settings were read may be relied on. A provision that has waited
/// for its set-up reads it again.
const CURRENT: Duration = Duration::from_secs(1);

/// One call of provision: the request, the times in force, and the machines it holds so far.
struct Attempt<'a> {
    plane: &'a Plane,
    request: &'a Request,
    label: Label,
    settings: Settings,
    requirements: Requirements,
    times: Times,
    /// Whether the machines may serve another run after this one.
    reuse: Reuse,
    holdings: Holdings,
    journal: Journal,
    /// The machines that the run has, if they were read a moment ago.
    owned: Option<Listing>,
    /// Set when what the run asks for is stored, or that has failed.
    noted: OnceCell<Option<Demand>>,
}

/// What an attempt has to know before it begins.
struct Prepared {
    settings: Settings,
    requirements: Requirements,
    times: Times,
    owned: Option<Listing>,
}

/// Gives the run all machines it asks for, or none. After a failure, or when `stop` is raised, the
/// machines that this call claimed or launched are returned to the pool or terminated before it
/// returns.
pub async fn provision(plane: &Plane, request: &Request, stop: &StopSignal) -> Outcome {
    let journal = Journal::begin(plane);
    let prepared = stop.unless_raised(Attempt::prepare(plane, request, &journal)).await;
    let prepared = match prepared.unwrap_or_else(|stop| Err(stop.into())) {
        Ok(prepared) => prepared,
        Err(failure) => {
            // Without a set-up there is nothing to store it in.
            if !matches!(failure.kind, FailureKind::NotSetUp | FailureKind::Unavailable) {
                journal.refused(plane, request, &failure).store_at_the_end(plane).await;
            }
            return Outcome::refused(request, failure);
        }
    };
    let attempt = Attempt::new(plane, request, prepared, journal);
    let result = stop.unless_raised(attempt.fulfil()).await.unwrap_or_else(|stop| Err(stop.into()));
    match result {
        Ok(()) => attempt.succeeded(),
        Err(failure) => attempt.failed(failure, stop).await,
    }
}

impl<'a> Attempt<'a> {
    async fn prepare(
        plane: &Plane,
        request: &Request,
        journal: &Journal,
    ) -> Result<Prepared, Failure> {
        let begun = plane.clock.steady();
        let locate = async {
            if request.may_claim() {
                plane.pool.locate(&request.options.class).await;
            }
        };
        let (settings, owned, ()) =
            join3(set_up::settings(plane, request), adoption::owned(plane, request), locate).await;
        let read = plane.clock.steady();
        if read.saturating_sub(begun) > CURRENT {
            journal.waited((begun, read), WaitCause::SetUp, "");
        }
        let settings = settings?;
        settings.check_open()?;
        let requirements = request.requirements(&settings, plane.compute.default_types())?;
        let times = request.times.in_force(&settings.times)?;
        let times = ceiling::times_with_patience(times, request, &settings);
        let valid = credentials::await_valid(plane, request, &settings, &times).await;
        let now = plane.clock.steady();
        journal.waited((read, now), WaitCause::Token, "");
        valid?;
        let owned = owned.filter(|_| now.saturating_sub(begun) <= CURRENT);
        Ok(Prepared { settings, requirements, times, owned })
    }

    fn new(
        plane: &'a Plane,
        request: &'a Request,
        Prepared { settings, requirements, times, owned }: Prepared,
        journal: Journal,
    ) -> Attempt<'a> {
        let holdings = Holdings::new(plane.clock.steady());
        let (label, reuse) = (request.label(), request.reuse(&settings));
        Attempt {
            plane,
            request,
            label,
            settings,
            requirements,
            times,
            reuse,
            holdings,
            journal,
            owned,
            noted: OnceCell::new(),
        }
    }

    /// Serves the request. What it asks for is stored beside that, and has been by the end.
    async fn fulfil(&self) -> Result<(), Failure> {
        let (deletes, spent) = mpsc::unbounded_channel();
        let serving = selection::beside_deletes(self, self.serve(deletes), spent);
        if !self.request.may_adopt() {
            return serving.await;
        }
        join(serving, self.note_demand()).await.0
    }

    async fn serve(&self, deletes: Deletes) -> Result<(), Failure> {
        self.entering(Phase::Adoption, "looking for machines that the run already has");
        if self.request.may_adopt() {
            adoption::adopt(self).await?;
        }
        let waits_for_others = self.missing() > 0;

        if self.missing() > 0 && self.request.may_claim() {
            self.entering(Phase::Selection, "looking for idle machines in the pool");
            selection::select(self, self.missing(), deletes).await?;
        }
        if self.missing() > 0 && self.request.options.machine_source == SourcePolicy::Pool {
            return Err(self.pool_too_small());
        }
        if self.missing() > 0 {
            self.entering(Phase::Creation, &format!("launching new machines: {}", self.missing()));
            self.create().await?;
            if !self.request.leaves_new {
                self.entering(Phase::Validation, "waiting for new machines to become ready");
                creation::validate(self).await?;
            }
        }

        self.entering(Phase::PostProvision, "handing the machines to the run");
        labels::store(self).await?;
        if waits_for_others {
            adoption::prolong(self).await?;
        }
        post_provision::succeed(self).await
    }

    /// Launches what is missing. A call that leaves its machines to a later one keeps what it got.
    async fn create(&self) -> Result<(), Failure> {
        let created = creation::create(self, self.missing()).await;
        let is_short =
            |failure: &Failure| matches!(failure.kind, FailureKind::NoCapacity | FailureKind::Busy);
        match created {
            Err(failure) if self.request.leaves_new && is_short(&failure) => {
                if self.holdings.created().is_empty() {
                    return Err(failure);
                }
                tracing::warn!("{failure}");
                Ok(())
            }
            created => created,
        }
    }

    /// Stores the request, once, so that refresh can rescue the run later, and does not release it
    /// because it had completed before. Failing to store it does not fail the provision. Returns what is
    /// stored, if that is known.
    async fn note_demand(&self) -> Option<&Demand> {
        if self.request.is_of_refresh() {
            return None;
        }
        let store = async || {
            let demand = Demand::of(self.request, self.journal.began());
            let stored = labels::renew_demand(self, demand).await;
            let log = |error: &PortError| {
                let why = "the run's request was not stored, refresh cannot rescue it";
                tracing::warn!("{why}: {error}");
            };
            stored.inspect_err(log).ok()
        };
        self.noted.get_or_init(store).await.as_ref()
    }

    /// What the runners of the machines are to be registered with. A rescue goes by what jobs wait for,
    /// also if the setting has changed since the run asked.
    fn requested_label(&self) -> RequestedLabel {
        if let Some(named) = &self.request.named {
            return RequestedLabel::Named(named.clone());
        }
        if self.request.origin == Origin::Rescue {
            return RequestedLabel::OfRun;
        }
        match self.settings.runner_label {
            RunnerLabel::Run => RequestedLabel::OfRun,
            RunnerLabel::Machine => RequestedLabel::OfMachine,
        }
    }

    async fn failed(self, failure: Failure, stop: &StopSignal) -> Outcome {
        let ending = Ending::of(failure.kind, self.holdings.phase());
        self.entering(Phase::PostProvision, &format!("cleaning up: {failure}"));
        let clean_up = post_provision::clean_up(&self, ending, stop).await;
        self.gave_up(&failure, &clean_up).store_at_the_end(self.plane).await;
        self.finished(Some(failure), clean_up)
    }

    fn succeeded(self) -> Outcome {
        self.finished(None, CleanUp::default())
    }

    fn missing(&self) -> u32 {
        let held = u32::try_from(self.holdings.ready_count()).unwrap_or(u32::MAX);
        self.request.options.count.saturating_sub(held)
    }

    fn pool_too_small(&self) -> Failure {
        let wanted = self.request.options.count;
        let found = wanted - self.missing();
        let message = format!("not enough idle machines in the pool: {found} of {wanted} found");
        Failure::new(FailureKind::NoCapacity, message).hint(
            "use --machine-source any to launch the rest, or let refresh keep more with --min-idle",
        )
    }

    fn entering(&self, phase: Phase, doing: &str) {
        self.holdings.enter(phase, self.plane.clock.steady());
        self.plane.progress.stage(doing);
    }
}
