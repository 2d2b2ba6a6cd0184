//! The handshake that returns an instance to the pool: its ticket is sent only after its agent has
//! signalled that the runner is deregistered and the machine clean. Release and rollback share it.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::sync::Notify;

use crate::inputs::times::Times;
use crate::lifecycle::{Claimed, Idle, Instance, Pending, Running};
use crate::model::departure::Departure;
use crate::model::ids::{InstanceId, RunId};
use crate::model::label::Label;
use crate::model::machine_label::RequestedLabel;
use crate::model::reuse::Reuse;
use crate::model::signal::{AgentStatus, INTERRUPTED, Pulse, Report, Signal};
use crate::model::ticket::Ticket;
use crate::model::timestamp::Timestamp;
use crate::modes::agent_watch::{AgentWatch, Watched};
use crate::modes::plane::{NotCommitted, Plane, Reaped};
use crate::ports::PortResult;
use crate::runtime::batcher::Batcher;
use crate::runtime::poll::PollInterval;

/// How long a ticket waits for the tickets of other machines, so that they are sent together.
const TICKET_DELAY: Duration = Duration::from_millis(250);

/// Why a machine that an operator wants to leave is terminated after its run.
pub(crate) const DRAINED: &str = "an operator has drained it";
const RETIRED: &str = "an operator has retired it";

/// The longest time between two looks at an agent, in polls.
const LONGEST_POLLS: u32 = 48;

/// How a handshake ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Returned {
    /// The instance has a ticket in the pool. Carries the agent's account of the run.
    Pooled { account: String },
    /// The agent did not answer or reported a failure, and the instance was expired. Carries the
    /// reason.
    Expired(String),
    /// The agent answered, but the idle time was over, the machine serves one run only, or an operator
    /// has drained it, and the instance was retired.
    Terminated { account: String },
    /// Its provider takes the machine away, and the instance was expired. Carries the agent's account
    /// of the run, which is empty if there is none.
    Interrupted { account: String },
    /// Another process changed the instance meanwhile. Carries what was found.
    Superseded(String),
}

/// A machine that was given back while its runner had a job of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// What the runner is registered with.
    pub(crate) with: RequestedLabel,
}

/// Returns several instances at once. They share the reads of agent status and the ticket batches.
#[derive(Debug)]
pub(crate) struct Handshake<'a> {
    plane: &'a Plane,
    times: &'a Times,
    watch: AgentWatch<'a>,
    tickets: Batcher<Ticket, ()>,
    /// How many agents have not answered yet. `all_back` is notified when it reaches zero.
    away: AtomicUsize,
    all_back: Notify,
}

impl<'a> Handshake<'a> {
    /// A handshake with about `expected` agents.
    pub(crate) fn new(plane: &'a Plane, times: &'a Times, expected: usize) -> Handshake<'a> {
        // No job waits for a release, so an agent that takes long is looked at less often than in
        // provision.
        let interval = PollInterval::backing_off(times.signal_poll, 1)
            .up_to(LONGEST_POLLS * times.signal_poll);
        let watch = AgentWatch::new(plane, interval, expected);
        let (tickets, away, all_back) =
            (Batcher::default(), AtomicUsize::new(0), Notify::default());
        Handshake { plane, times, watch, tickets, away, all_back }
    }

    /// Like [`Handshake::take_back`], but returns an error if the runner has taken a job of `run`
    /// before its agent saw that the machine was given back: then the agent has not left.
    pub(crate) async fn take_back_unless_busy(
        &self,
        idle: &Instance<Idle>,
        run: &RunId,
    ) -> PortResult<Result<Returned, Held>> {
        let is_held = async {
            let judge = |status: &AgentStatus, _| {
                let report = status.report.as_ref()?;
                report.is_held_for(run).then(|| Held { with: report.registered_with() })
            };
            match self.watch.wait(idle.id(), self.times.release_timeout, judge).await {
                Ok(Watched::Judged(held)) => held,
                // The other wait ends as well, and says how.
                Ok(Watched::TimedOut(_)) | Err(_) => std::future::pending().await,
            }
        };
        match select(pin!(self.take_back(idle, run)), pin!(is_held)).await {
            Either::Left((returned, _)) => returned.map(Ok),
            Either::Right((held, _)) => Ok(Err(held)),
        }
    }

    /// Waits until the agent of `idle` signals that it has left `run`, or never noticed it, then
    /// sends the ticket.
    /// Expires the instance if the agent fails, stops its heartbeat or exceeds the release timeout.
    pub(crate) async fn take_back(
        &self,
        idle: &Instance<Idle>,
        run: &RunId,
    ) -> PortResult<Returned> {
        let at_most = self.times.release_timeout;
        let generation = idle.counts().generation;
        let judge = |status: &AgentStatus, now: Timestamp| self.judge(status, generation, run, now);
        self.away.fetch_add(1, Ordering::Relaxed);
        let seen = self.watch.wait(idle.id(), at_most, judge).await;
        if self.away.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.all_back.notify_waiters();
        }
        let (why, returned) = match seen? {
            Watched::Judged(Answer::Left { account }) => return self.pool(idle, account).await,
            Watched::Judged(Answer::UsedUp { account }) => {
                let why = "it has served its run, and reuse is never";
                let reaped = self.plane.expire_and_reap(idle, why).await?;
                return self.ended(idle, reaped, account).await;
            }
            Watched::Judged(Answer::Failed(why)) => (why.clone(), Returned::Expired(why)),
            Watched::Judged(Answer::Interrupted { account }) => {
                (INTERRUPTED.to_owned(), Returned::Interrupted { account })
            }
            Watched::TimedOut(status) => {
                let why = no_answer(self.times.release_timeout, &status);
                (why.clone(), Returned::Expired(why))
            }
        };
        match self.plane.apply(idle.expire(self.plane.now()).because(&*why)).await {
            Ok(_) => Ok(returned),
            Err(NotCommitted::Refused(refused)) => Ok(Returned::Superseded(refused.to_string())),
            Err(NotCommitted::Unreachable(error)) => Err(error),
        }
    }

    /// Returns the agent's answer, or a failure if its heartbeat has stopped: such an agent will
    /// not answer.
    fn judge(
        &self,
        status: &AgentStatus,
        generation: u32,
        run: &RunId,
        now: Timestamp,
    ) -> Option<Answer> {
        let report = status.report.as_ref();
        let said = report.and_then(|report| deregistered(report, generation, run));
        let answer = said.or_else(|| match status.pulse(now) {
            Pulse::Stale(_) => Some(Answer::Failed(status.why_unhealthy(now))),
            Pulse::Never | Pulse::Healthy => None,
        })?;
        Some(match answer {
            Answer::Left { account } | Answer::UsedUp { account } if status.is_interrupted() => {
                Answer::Interrupted { account }
            }
            Answer::Failed(_) if status.is_interrupted() => {
                Answer::Interrupted { account: String::new() }
            }
            answer => answer,
        })
    }

    async fn pool(&self, idle: &Instance<Idle>, account: String) -> PortResult<Returned> {
        let ticket = idle.ticket();
        if idle.departure().is_drained() {
            let reaped = self.plane.expire_and_reap(idle, DRAINED).await?;
            return self.ended(idle, reaped, account).await;
        }
        self.wait_for_others(&ticket).await;
        if ticket.threshold <= self.plane.now() {
            let why = match idle.departure() {
                Departure::Retired => RETIRED,
                Departure::None | Departure::Drained => "its idle time is up",
            };
            // Refresh may have renewed it meanwhile to keep it warm, and then announces it.
            let reaped = self.plane.reap(idle, why).await?;
            return self.ended(idle, reaped, account).await;
        }
        let announce = |tickets: Vec<Ticket>| async move {
            announce(self.plane, &tickets).await?;
            Ok(vec![(); tickets.len()])
        };
        self.tickets.ask(ticket, announce).await?;
        Ok(Returned::Pooled { account })
    }

    /// Terminates a machine that was reaped here.
    async fn ended(
        &self,
        idle: &Instance<Idle>,
        reaped: Reaped,
        account: String,
    ) -> PortResult<Returned> {
        match reaped {
            Reaped::Here => self.plane.terminate(std::slice::from_ref(idle.id())).await?,
            Reaped::NotHere(Some(found)) => {
                return Ok(Returned::Superseded(format!("it is {} again", found.state)));
            }
            Reaped::NotHere(None) => {}
        }
        Ok(Returned::Terminated { account })
    }
}

impl Handshake<'_> {
    /// Agents answer one by one within a fraction of a second, and ten tickets fit in one call. An early
    /// ticket therefore waits a little for the others, but not for an agent that hangs.
    async fn wait_for_others(&self, ticket: &Ticket) {
        let mut all_back = pin!(self.all_back.notified());
        all_back.as_mut().enable();
        if self.away.load(Ordering::Relaxed) == 0 {
            return;
        }
        let left = ticket.threshold.since(self.plane.now());
        let delay = TICKET_DELAY.min(left / 4);
        select(all_back, self.plane.clock.sleep(delay)).await;
    }
}

/// How long a claimed machine that is given back stays idle: the configured time, after the time
/// that its agent may take to leave. The agent may still be leaving when this process ends, and
/// what the failure of another machine costs must not come out of the idle time.
pub(crate) fn idle_time_given_back(times: &Times) -> Duration {
    times.release_timeout + times.idle_time
}

/// The change that gives a claimed machine back. If it has missed a registration before, its agent is
/// asked whether it has registered for this run: two missed ones in a row would end the machine.
pub(crate) async fn give_back(
    plane: &Plane,
    claimed: &Instance<Claimed>,
    idle_time: Duration,
) -> Pending<Idle> {
    let has_missed = claimed.counts().missed_registrations > 0;
    let registered = match claimed.label().filter(|_| has_missed) {
        Some(label) => has_registered(plane, claimed.id(), &label).await,
        None => false,
    };
    match registered {
        true => claimed.give_back_registered(plane.now(), idle_time),
        false => claimed.give_back(plane.now(), idle_time),
    }
}

/// Whether the last report says so. It does not if it cannot be read.
async fn has_registered(plane: &Plane, id: &InstanceId, label: &Label) -> bool {
    let ids = std::slice::from_ref(id);
    let status = plane.retried(|| plane.store.agent_status(ids)).await;
    let says = |report: &Report| report.says(Signal::Registered, label);
    status.is_ok_and(|status| status.iter().filter_map(|it| it.report.as_ref()).any(says))
}

/// Gives an idle machine to the run again under its label, because its runner has taken one of the run's
/// jobs. The second part of the label says what that runner is registered with.
pub(crate) async fn keep_for_job(
    plane: &Plane,
    times: &Times,
    idle: &Instance<Idle>,
    (label, requested): (&Label, RequestedLabel),
    reuse: Reuse,
) -> Result<Instance<Running>, NotCommitted> {
    let why = "its runner has a job of the run";
    let claim = idle.claim(label, plane.now(), times.claim_timeout);
    let claim = claim.reusing(reuse).requesting(requested);
    // A drained machine stays with the run whose job it has.
    let claim = claim.although_drained();
    let claimed = plane.apply(claim.because(why)).await?;
    plane.apply(claimed.commit(plane.now(), times.max_runtime).because(why)).await
}

/// Sends tickets, then marks the records as ticketed. In this order, because a surplus ticket is
/// harmless, while no run finds a machine whose ticket is missing.
pub(crate) async fn announce(plane: &Plane, tickets: &[Ticket]) -> PortResult<()> {
    if tickets.is_empty() {
        return Ok(());
    }
    plane.retried(|| plane.pool.send(tickets, Duration::ZERO)).await?;
    let ids: Vec<InstanceId> = tickets.iter().map(|ticket| ticket.instance_id.clone()).collect();
    tracing::info!(count = ids.len(), "in the pool: {}", crate::modes::plane::listed(&ids));
    let now = plane.now();
    if let Err(error) = plane.retried(|| plane.store.mark_ticketed(tickets, now)).await {
        tracing::warn!("tickets sent but not marked, refresh will send them again: {error}");
    }
    Ok(())
}

/// What an agent says to a release.
enum Answer {
    /// It has left the run.
    Left { account: String },
    /// It has left the run and serves no other.
    UsedUp { account: String },
    /// It has failed, or is gone. Carries the reason.
    Failed(String),
    /// Its provider takes the machine away.
    Interrupted { account: String },
}

/// What a report says about leaving `run` for this generation of the idle state. `None` if the
/// report is about something else.
fn deregistered(report: &Report, generation: u32, run: &RunId) -> Option<Answer> {
    if report.is_free_in(generation, Some(run)) {
        return Some(Answer::Left { account: report.detail.clone() });
    }
    if let Some(account) = report.used_up_by(run) {
        return Some(Answer::UsedUp { account: account.to_owned() });
    }
    report.why_unusable().map(Answer::Failed)
}

fn no_answer(waited: Duration, status: &AgentStatus) -> String {
    format!("no answer within {} s: {status}", waited.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::heartbeat::Heartbeat;
    use crate::model::machine_label::MachineLabel;
    use crate::model::record::{Counts, MachineSpec, Record, State};
    use crate::model::requirements::UsageClass;
    use crate::model::signal::HELD;
    use crate::ports::AgentStore;
    use crate::testkit;

    /// A machine that an earlier claim of the run has given back.
    fn given_back(now: Timestamp) -> Record {
        Record {
            requested: RequestedLabel::OfRun,
            id: InstanceId::new("i-1").unwrap(),
            state: State::Idle,
            run: None,
            suffix: None,
            threshold: Some(now + Duration::from_secs(600)),
            spec: MachineSpec {
                resource_class: "large".parse().unwrap(),
                instance_type: "c6i.large".to_owned(),
                usage_class: UsageClass::Spot,
                cpu: 2,
                mem: 4_096,
            },
            counts: Counts { generation: 3, ..Counts::default() },
            reuse: Reuse::Always,
            departure: Departure::None,
            created_at: now,
            updated_at: now,
            ticketed_at: None,
            settings_version: None,
        }
    }

    /// Its agent may restart, and registers with what the record names.
    #[tokio::test]
    async fn a_machine_that_is_kept_for_a_job_names_what_its_runner_is_registered_with() {
        let own = MachineLabel::new(format!("m{}", "7".repeat(32))).unwrap();
        for machine_label in [Some(own), None] {
            let (plane, memory) = testkit::plane();
            let (now, times) = (plane.now(), Times::default());
            let record = given_back(now);
            memory.store.insert(record.clone());
            let label: Label = Label::from(&RunId::new("7").unwrap());
            let report = Report {
                signal: Signal::Registered,
                run: Some(label.run.clone()),
                suffix: None,
                detail: HELD.to_owned(),
                at: now,
                generation: None,
                machine_label: machine_label.clone(),
            };
            memory.store.report(&record.id, &report).await.unwrap();
            let beat = Heartbeat::new(now, Duration::from_secs(60));
            memory.store.beat(&record.id, &beat).await.unwrap();
            let idle = Instance::<Idle>::believe(&record).unwrap();
            let handshake = Handshake::new(&plane, &times, 1);
            let held = handshake.take_back_unless_busy(&idle, &label.run).await.unwrap();
            let held = held.expect_err("its runner has a job");
            let kept =
                keep_for_job(&plane, &times, &idle, (&label, held.with), Reuse::Always).await;
            let named = machine_label.map_or(RequestedLabel::OfRun, RequestedLabel::Named);
            assert_eq!(*kept.unwrap().requested(), named);
        }
    }
}
