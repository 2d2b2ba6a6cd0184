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
mod outcome;
mod pool_search;
mod post_provision;
mod request;
mod selection;
mod set_up;

pub use outcome::{MachineSource, Milestones, Outcome, Provisioned, Timings};
pub use pool_search::PoolSearch;
pub use request::{
    INPUTS, MAX_COUNT, Origin, ProvisionOptions, Request, SourcePolicy, run_from_inputs,
};

pub use set_up::{await_set_up, set_up_patience};

use std::time::Duration;

use futures_util::future::{join, join3};

use self::holdings::Holdings;
use self::outcome::Phase;
use self::post_provision::{CleanUp, Ending};
use crate::inputs::times::Times;
use crate::model::demand::Demand;
use crate::model::failure::{Failure, FailureKind};
use crate::model::label::Label;
use crate::model::requirements::Requirements;
use crate::model::reuse::Reuse;
use crate::model::settings::Settings;
use crate::modes::plane::Plane;
use crate::ports::Listing;
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
    /// The machines that the run has, if they were read a moment ago.
    owned: Option<Listing>,
}

/// Gives the run all machines it asks for, or none. After a failure, or when `stop` is raised, the
/// machines that this call claimed or launched are returned to the pool or terminated before it
/// returns.
pub async fn provision(plane: &Plane, request: &Request, stop: &StopSignal) -> Outcome {
    let prepared = stop.unless_raised(Attempt::prepare(plane, request)).await;
    let attempt = match prepared.unwrap_or_else(|stop| Err(stop.into())) {
        Ok(attempt) => attempt,
        Err(failure) => return Outcome::refused(request, failure),
    };
    let result = stop.unless_raised(attempt.fulfil()).await.unwrap_or_else(|stop| Err(stop.into()));
    match result {
        Ok(()) => attempt.succeeded(),
        Err(failure) => attempt.failed(failure, stop).await,
    }
}

impl<'a> Attempt<'a> {
    async fn prepare(plane: &'a Plane, request: &'a Request) -> Result<Attempt<'a>, Failure> {
        let begun = plane.clock.steady();
        let locate = async {
            if request.may_claim() {
                plane.pool.locate(&request.options.class).await;
            }
        };
        let (settings, owned, ()) =
            join3(set_up::settings(plane, request), adoption::owned(plane, request), locate).await;
        let settings = settings?;
        let requirements = request.requirements(&settings, plane.compute.default_types())?;
        let times = request.times.in_force(&settings.times)?;
        let times = ceiling::times_with_patience(times, request, &settings);
        credentials::await_valid(plane, request, &settings, &times).await?;
        let holdings = Holdings::new(plane.clock.steady());
        let has_waited = plane.clock.steady().saturating_sub(begun) > CURRENT;
        let owned = owned.filter(|_| !has_waited);
        let (label, reuse) = (request.label(), request.reuse(&settings));
        Ok(Attempt { plane, request, label, settings, requirements, times, reuse, holdings, owned })
    }

    /// Serves the request. What it asks for is stored beside that, and has been by the end.
    async fn fulfil(&self) -> Result<(), Failure> {
        if !self.request.may_adopt() {
            return self.serve().await;
        }
        join(self.serve(), self.note_demand()).await.0
    }

    async fn serve(&self) -> Result<(), Failure> {
        self.entering(Phase::Adoption, "looking for machines that the run already has");
        if self.request.may_adopt() {
            adoption::adopt(self).await?;
        }
        let waits_for_others = self.missing() > 0;

        if self.missing() > 0 && self.request.may_claim() {
            self.entering(Phase::Selection, "looking for idle machines in the pool");
            selection::select(self, self.missing()).await?;
        }
        if self.missing() > 0 && self.request.options.machine_source == SourcePolicy::Pool {
            return Err(self.pool_too_small());
        }
        if self.missing() > 0 {
            self.entering(Phase::Creation, &format!("launching new machines: {}", self.missing()));
            creation::create(self, self.missing()).await?;

            self.entering(Phase::Validation, "waiting for new machines to become ready");
            creation::validate(self).await?;
        }

        self.entering(Phase::PostProvision, "handing the machines to the run");
        if waits_for_others {
            adoption::prolong(self).await?;
        }
        post_provision::succeed(self).await
    }

    /// Stores the request so that refresh can rescue the run later. Failing to store it does not
    /// fail the provision.
    async fn note_demand(&self) {
        if self.request.is_of_refresh() {
            return;
        }
        let demand = Demand::of(self.request, self.plane.now());
        if let Err(error) = self.plane.retried(|| self.plane.store.put_demand(&demand)).await {
            tracing::warn!("the run's request was not stored, refresh cannot rescue it: {error}");
        }
    }

    async fn failed(self, failure: Failure, stop: &StopSignal) -> Outcome {
        let ending = Ending::of(failure.kind, self.holdings.phase());
        self.entering(Phase::PostProvision, &format!("cleaning up: {failure}"));
        let clean_up = post_provision::clean_up(&self, ending, stop).await;
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
