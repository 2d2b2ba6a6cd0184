//! What happens during an attempt, for its summary. Each list keeps its first entries.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::select;

use super::outcome::{Milestones, PhaseSpans};
use super::pool_search::PoolSearch;
use super::post_provision::CleanUp;
use super::request::Origin;
use super::{Attempt, MachineSource, Request};
use crate::lifecycle::TypedState;
use crate::model::failure::Failure;
use crate::model::ids::{InstanceId, IntentId, RunId};
use crate::model::readiness::ClaimWay;
use crate::model::requirements::UsageClass;
use crate::model::summary::{
    CallEnding, CallOrigin, CallResult, CandidateNote, CandidateOutcome, HedgeNote, LONGEST_LIST,
    LaunchNote, MachineNote, Phases, ProvisionSummary, SearchCounts, WaitCause, WaitNote, short,
};
use crate::model::timestamp::Timestamp;
use crate::modes::plane::Plane;
use crate::modes::provision::holdings::Holding;

/// The most unsuitable machines that are named. Their number is counted beside that.
const UNSUITABLE: usize = 3;

/// How long a call that has failed waits for its summary. After a signal, it has little time left.
const PATIENCE_AT_THE_END: Duration = Duration::from_millis(500);

/// A wait that is shorter is not worth a line.
const SHORT_WAIT: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Journal {
    began: Timestamp,
    /// The same moment in steady time.
    started: Duration,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    candidates: Vec<CandidateNote>,
    unsuitable: usize,
    hedges: Vec<HedgeNote>,
    launches: Vec<LaunchNote>,
    waits: Vec<WaitNote>,
    omitted: usize,
}

impl Journal {
    pub(super) fn begin(plane: &Plane) -> Journal {
        let (began, started) = (plane.now(), plane.clock.steady());
        Journal { began, started, notes: Mutex::default() }
    }

    /// When the call began, by the clock that events are dated with.
    pub(super) fn began(&self) -> Timestamp {
        self.began
    }

    /// What became of a machine of the pool, at the steady time `now`.
    pub(super) fn candidate(
        &self,
        now: Duration,
        machine: &InstanceId,
        outcome: CandidateOutcome,
        why: &str,
    ) {
        self.examined(now, machine, outcome, why, None);
    }

    /// Another run has claimed the machine.
    pub(super) fn lost(&self, now: Duration, machine: &InstanceId, winner: Option<&RunId>) {
        self.examined(now, machine, CandidateOutcome::Lost, "", winner);
    }

    fn examined(
        &self,
        now: Duration,
        machine: &InstanceId,
        outcome: CandidateOutcome,
        why: &str,
        winner: Option<&RunId>,
    ) {
        let after_ms = self.after(now);
        let mut notes = self.notes();
        if matches!(outcome, CandidateOutcome::Unsuitable | CandidateOutcome::Expired) {
            notes.unsuitable += 1;
            if notes.unsuitable > UNSUITABLE {
                notes.omitted += 1;
                return;
            }
        }
        let (machine, why, winner) = (machine.clone(), short(why), winner.cloned());
        let note = CandidateNote { machine, outcome, why, winner, after_ms };
        notes.keep(|notes| &mut notes.candidates, note);
    }

    /// A second machine is claimed because this one is slow.
    pub(super) fn hedged(&self, now: Duration, machine: &InstanceId, way: Option<ClaimWay>) {
        let note = HedgeNote { machine: machine.clone(), way, after_ms: self.after(now) };
        self.notes().keep(|notes| &mut notes.hedges, note);
    }

    /// The provider has answered an order, or has not. `from` is when it was asked.
    pub(super) fn launched(
        &self,
        (from, now): (Duration, Duration),
        intent: &IntentId,
        (usage, count): (UsageClass, u32),
        launched: Option<u32>,
        why: &[String],
    ) {
        let note = LaunchNote {
            intent: intent.clone(),
            usage,
            count,
            launched,
            why: short(&why.join("; ")),
            after_ms: self.after(from),
            took_ms: millis(now.saturating_sub(from)),
        };
        self.notes().keep(|notes| &mut notes.launches, note);
    }

    /// The attempt could not go on from `from` until `now`. Short waits are not kept.
    pub(super) fn waited(&self, (from, now): (Duration, Duration), cause: WaitCause, why: &str) {
        let took = now.saturating_sub(from);
        if took < SHORT_WAIT {
            return;
        }
        let (after_ms, took_ms) = (self.after(from), millis(took));
        let note = WaitNote { cause, why: short(why), after_ms, took_ms };
        self.notes().keep(|notes| &mut notes.waits, note);
    }

    /// The steady time since the beginning of the call.
    fn after(&self, now: Duration) -> u64 {
        millis(now.saturating_sub(self.started))
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The summary of a call that was refused before it began to look for machines.
    pub(super) fn refused(
        &self,
        plane: &Plane,
        request: &Request,
        failure: &Failure,
    ) -> Summarised {
        let total_ms = self.after(plane.clock.steady());
        let phases = Phases { preparation_ms: Some(total_ms), total_ms, ..Phases::default() };
        let ending = failed(failure, &CleanUp::default());
        self.summary(plane, request, &PoolSearch::default(), Vec::new(), (phases, ending))
    }

    fn summary(
        &self,
        plane: &Plane,
        request: &Request,
        search: &PoolSearch,
        mut machines: Vec<MachineNote>,
        (phases, ending): (Phases, CallEnding),
    ) -> Summarised {
        let notes = self.notes();
        machines.sort_by_key(|note| std::cmp::Reverse(note.ready_ms.unwrap_or(u64::MAX)));
        let omitted = notes.omitted + machines.len().saturating_sub(LONGEST_LIST);
        machines.truncate(LONGEST_LIST);
        Summarised(ProvisionSummary {
            run: request.run.clone(),
            origin: match request.origin {
                Origin::Run => CallOrigin::Run,
                Origin::KeepWarm => CallOrigin::KeepWarm,
                Origin::Rescue => CallOrigin::Rescue,
            },
            began: self.began,
            at: plane.now(),
            asked: request.options.clone(),
            search: counts(search),
            candidates: notes.candidates.clone(),
            hedges: notes.hedges.clone(),
            launches: notes.launches.clone(),
            waits: notes.waits.clone(),
            machines,
            phases,
            ending,
            omitted,
        })
    }
}

impl Notes {
    fn keep<T>(&mut self, list: impl Fn(&mut Notes) -> &mut Vec<T>, note: T) {
        if list(self).len() < LONGEST_LIST {
            list(self).push(note);
        } else {
            self.omitted += 1;
        }
    }
}

/// A summary to be stored.
#[derive(Debug)]
#[must_use = "a summary is of no use until it is stored"]
pub(super) struct Summarised(ProvisionSummary);

impl Summarised {
    /// Stores the summary once. A failure costs the summary only, so it is logged.
    pub(super) async fn store(&self, plane: &Plane) {
        if let Err(error) = plane.store.put_summary(&self.0).await {
            tracing::info!("the summary of this call was not stored: {error}");
        }
    }

    /// The same for a call that has nothing else to do, which does not wait for long.
    pub(super) async fn store_at_the_end(&self, plane: &Plane) {
        select(pin!(self.store(plane)), plane.clock.sleep(PATIENCE_AT_THE_END)).await;
    }
}

impl Attempt<'_> {
    /// The summary of an attempt that is about to hand its machines to the run.
    pub(super) fn handing_over(&self) -> Summarised {
        let ending = CallEnding { result: CallResult::HandingOver, ..CallEnding::default() };
        self.summarised(ending)
    }

    /// The summary of an attempt that has failed and cleaned up.
    pub(super) fn gave_up(&self, failure: &Failure, clean_up: &CleanUp) -> Summarised {
        self.summarised(failed(failure, clean_up))
    }

    fn summarised(&self, ending: CallEnding) -> Summarised {
        let holdings = &self.holdings;
        let machines = holdings.adopted().iter().map(|held| self.noted(held)).collect::<Vec<_>>();
        let machines = machines.into_iter();
        let claimed = holdings.claimed();
        let created = holdings.created();
        let machines = machines
            .chain(claimed.iter().map(|held| self.noted(held)))
            .chain(created.iter().map(|held| self.noted(held)));
        let now = self.plane.clock.steady();
        let spans = holdings.stopwatch().spans(now);
        let phases = self.phases(&spans, &ending, now);
        let (plane, request) = (self.plane, self.request);
        let machines = machines.collect();
        self.journal.summary(plane, request, &holdings.search(), machines, (phases, ending))
    }

    fn phases(&self, spans: &PhaseSpans, ending: &CallEnding, now: Duration) -> Phases {
        let has_failed = ending.result == CallResult::Failed;
        Phases {
            preparation_ms: Some(self.journal.after(spans.started)),
            adoption_ms: spans.adoption.map(millis),
            selection_ms: spans.selection.map(millis),
            creation_ms: spans.creation.map(millis),
            validation_ms: spans.validation.map(millis),
            clean_up_ms: spans.post_provision.filter(|_| has_failed).map(millis),
            total_ms: self.journal.after(now),
        }
    }

    fn noted<S: TypedState>(&self, held: &Holding<S>) -> MachineNote {
        let Milestones { found, owned, registered, ready } =
            held.moments.since(self.journal.started);
        let is_ready = held.moments.ready.is_some();
        MachineNote {
            machine: held.instance.id().clone(),
            source: match held.source {
                MachineSource::Warm => "warm",
                MachineSource::Cold => "cold",
                MachineSource::Adopted => "adopted",
            }
            .to_owned(),
            way: held.way,
            found_ms: found.map(millis),
            owned_ms: millis(owned),
            registered_ms: is_ready.then(|| millis(registered)),
            ready_ms: is_ready.then(|| millis(ready)),
        }
    }
}

fn failed(failure: &Failure, clean_up: &CleanUp) -> CallEnding {
    let unfinished = clean_up.failures.iter().take(LONGEST_LIST);
    CallEnding {
        result: CallResult::Failed,
        kind: failure.kind.as_str().to_owned(),
        message: short(&failure.message),
        terminated: clean_up.terminated.len(),
        returned: clean_up.returned.len(),
        kept: clean_up.kept.len(),
        unfinished: unfinished.map(|text| short(text)).collect(),
    }
}

fn counts(search: &PoolSearch) -> SearchCounts {
    let unsuitable = search.unsuitable.iter();
    SearchCounts {
        asked: search.asked,
        tickets: search.tickets,
        claimed: search.claimed,
        unsuitable: unsuitable.map(|(why, count)| (why.to_string(), *count)).collect(),
        void: search.void,
        lost: search.lost,
        unhealthy: search.unhealthy,
        given_back: search.given_back,
        hedges: search.hedges,
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
